"""`python -m tests.docs.packages`: writes into docs/requests-by-type.md which packages a kernel may import."""

from __future__ import annotations

import re
import tomllib

from domain.paths import ROOT

PAGE = ROOT / "docs" / "requests-by-type.md"
HEAD = "| package | version |\n| --- | --- |\n"
_TABLE = re.compile(re.escape(HEAD) + r"(?:\|.*\n)*")


def table() -> str:
    """The packages that the worker's image asks for, each with the version that it gets."""
    pinned = dict(re.findall(r"^([\w.-]+)==([^\s;]+)", (ROOT / "hashes" / "worker.txt").read_text(), re.MULTILINE))
    group = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["dependency-groups"]["worker"]
    names = sorted(re.match(r"[\w.-]+", requirement)[0] for requirement in group)
    return HEAD + "".join(f"| `{name}` | {pinned[name]} |\n" for name in names)


def with_table(page: str) -> str:
    """The page with that table in the place of its old one."""
    return _TABLE.sub(lambda _: table(), page, count=1)


if __name__ == "__main__":
    PAGE.write_text(with_table(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
