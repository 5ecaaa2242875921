"""The fenced blocks of the README and of docs/, each with a name: its document and its number in it."""

from __future__ import annotations

import re
from dataclasses import dataclass

from domain.paths import ROOT

DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
_FENCE = re.compile(r"^```(\w*)[^\n`]*\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True)
class Block:
    """What stands between two fences."""

    document: str
    number: int
    language: str
    text: str

    @property
    def name(self) -> str:
        return f"{self.document}-{self.number}"

    @property
    def lines(self) -> list[str]:
        """Commands, a continued one as one line, without comments and empty ones."""
        joined = self.text.replace("\\\n", " ").splitlines()
        return [line for line in joined if line.strip() and not line.lstrip().startswith("#")]


BLOCKS = {
    block.name: block
    for path in DOCUMENTS
    for number, (language, text) in enumerate(_FENCE.findall(path.read_text(encoding="utf-8")))
    for block in [Block(path.stem, number, language, text)]
}


def named(document: str, part: str) -> Block:
    """The one block of a document that has this part in it."""
    (found,) = [block for block in BLOCKS.values() if block.document == document and part in block.text]
    return found
