"""The source in a completion: its last closed code block."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

Completion = str | Sequence[Mapping[str, Any]]
"""Text, or the messages of a conversation, of which the last by the assistant counts."""

LANGUAGES = frozenset({"", "python", "py", "python3", "triton", "cuda", "cu", "c++", "cpp", "c"})
CUDA = frozenset({"cuda", "cu"})
THOUGHT = "</think>"
_FENCE = re.compile(r"^[ \t]*(```+|~~~+)[ \t]*([\w+-]*)[^\n]*\n(.*?)^[ \t]*\1[ \t]*$", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True)
class Extraction:
    """The source and its block's language; or without a source, why there is none."""

    source: str | None
    language: str = ""
    reason: str | None = None


def extract(completion: Completion) -> Extraction:
    """The last closed block in a language of kernels, after the end of a thought where there is one.

    One block, not all of them joined: what was tried and given up on the way must not be run. A block that is not
    closed was cut off, and is none.
    """
    text = text_of(completion).replace("\r\n", "\n")
    if THOUGHT in text:
        text = text.rpartition(THOUGHT)[2]
    elif "<think>" in text:
        return Extraction(None, reason="the thought has no end")
    blocks = [(language.lower(), source) for _, language, source in _FENCE.findall(text)]
    blocks = [(language, source) for language, source in blocks if language in LANGUAGES and source.strip()]
    if not blocks:
        return Extraction(None, reason="there is no closed code block")
    language, source = blocks[-1]
    return Extraction(source, language)


def text_of(completion: Completion) -> str:
    """The text of a completion, of a conversation its last message by the assistant."""
    if isinstance(completion, str):
        return completion
    said = [each for each in completion if each.get("role", "assistant") == "assistant"]
    content = said[-1].get("content") if said else ""
    if isinstance(content, str):
        return content
    return "".join(str(part.get("text", "")) for part in content or () if isinstance(part, Mapping))
