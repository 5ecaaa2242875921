"""The source in a completion: its last closed code block."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

Completion = str | Sequence[Mapping[str, Any]]
"""Text, or the messages of a conversation; the assistant's last message counts."""

LANGUAGES = frozenset({"", "python", "py", "python3", "triton", "cuda", "cu", "c++", "cpp", "c"})
CUDA = frozenset({"cuda", "cu"})
THOUGHT = "</think>"
_FENCE = re.compile(r"^[ \t]*(```+|~~~+)[ \t]*([\w+-]*)[^\n]*\n(.*?)^[ \t]*\1[ \t]*$", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True)
class Extraction:
    """The source and its code block's language; without a source, the reason why there is none."""

    source: str | None
    language: str = ""
    reason: str | None = None


def extract(completion: Completion) -> Extraction:
    """The last closed code block in a language of kernels, after the end of a thought if there is one.

    Only the last one: earlier blocks may be discarded attempts. A block without an end was truncated and does not
    count.
    """
    text = completion_text(completion).replace("\r\n", "\n")
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


def completion_text(completion: Completion) -> str:
    """The text of a completion; for a conversation, the assistant's last message."""
    if isinstance(completion, str):
        return completion
    messages = [message for message in completion if message.get("role", "assistant") == "assistant"]
    content = messages[-1].get("content") if messages else ""
    if isinstance(content, str):
        return content
    return "".join(str(part.get("text", "")) for part in content or () if isinstance(part, Mapping))
