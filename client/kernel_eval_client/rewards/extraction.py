"""The source in a completion: its last closed code block."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

Completion = str | Sequence[Mapping[str, Any]]
"""Text, or the messages of a conversation; the assistant's last message counts."""

LANGUAGES = frozenset({"", "python", "py", "python3", "triton", "cuda", "cu", "c++", "cpp", "c"})
CUDA = frozenset({"cuda", "cu"})
THOUGHT = "</think>"
_OPENING = re.compile(r"(?P<indent>[ \t]*)(?:<[^<>]+>[ \t]*)*(?P<fence>```+|~~~+)[ \t]*(?P<language>[\w+-]*)")
_CLOSING = re.compile(r"[ \t]*(?P<fence>```+|~~~+)[ \t]*(?:<.*)?$")
"""A tag may stand beside a fence: `<answer>` before it, `</answer>` or a template's end of turn behind it."""
_DEFINITION = re.compile(
    r"^[ \t]*(?:(?:async[ \t]+)?(?:def|class)[ \t]|\w+[ \t]*=[ \t]*lambda\b|#[ \t]*include\b)|^kernel_fn[ \t]*="
    r"|__global__",
    re.MULTILINE,
)


@dataclass(frozen=True)
class Extraction:
    """The source and its code block's language; without a source, the reason why there is none."""

    source: str | None
    language: str = ""
    reason: str | None = None


def extract(completion: Completion) -> Extraction:
    """The last closed code block in a language of kernels, after the end of a thought if there is one.

    Only the last one: earlier blocks may be discarded attempts. A block without an end was truncated and does not
    count. Nor does one that defines nothing, such as an example of use, if another does.
    """
    text = completion_text(completion).replace("\r\n", "\n")
    if THOUGHT in text:
        text = text.rpartition(THOUGHT)[2]
    elif "<think>" in text:
        return Extraction(None, reason="the thought has no end")
    blocks = [(language, source) for language, source in _blocks(text) if language in LANGUAGES and source.strip()]
    if not blocks:
        return Extraction(None, reason="there is no closed code block")
    language, source = next((block for block in reversed(blocks) if _DEFINITION.search(block[1])), blocks[-1])
    return Extraction(source, language)


def _blocks(text: str) -> Iterator[tuple[str, str]]:
    """Language and source of each closed block, in a time that grows with the text as its length does."""
    lines = text.split("\n")
    ends: dict[str, list[int]] = {}
    for number, line in enumerate(lines):
        if closing := _CLOSING.match(line):
            ends.setdefault(closing["fence"], []).append(number)
    end = -1
    for number, line in enumerate(lines):
        if number > end and (opening := _OPENING.match(line)):
            later = ends.get(opening["fence"], [])
            found = bisect_right(later, number)
            if found < len(later):
                end = later[found]
                yield opening["language"].lower(), _without_indent(lines[number + 1 : end], opening["indent"])


def _without_indent(lines: list[str], indent: str) -> str:
    """The source of a block; one in a list is indented as its fence is, which Python would not accept."""
    source = "".join(f"{line}\n" for line in lines)
    if not indent or not source.lstrip("\n").startswith(indent):
        return source
    return re.sub(rf"^[ \t]{{1,{len(indent)}}}", "", source, flags=re.MULTILINE)


def completion_text(completion: Completion) -> str:
    """The text of a completion; for a conversation, the assistant's last message."""
    if isinstance(completion, str):
        return completion
    messages = [message for message in completion if message.get("role", "assistant") == "assistant"]
    content = messages[-1].get("content") if messages else ""
    if isinstance(content, str):
        return content
    return "".join(str(part.get("text", "")) for part in content or () if isinstance(part, Mapping))
