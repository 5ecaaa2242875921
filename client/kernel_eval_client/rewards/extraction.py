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
_FENCE = re.compile(
    r"^(?P<indent>[ \t]*)(?:<[^<>\n]+>[ \t]*)*(?P<fence>```+|~~~+)[ \t]*(?P<language>[\w+-]*)[^\n]*\n"
    r"(?P<source>.*?)^[ \t]*(?P=fence)[ \t]*(?:<[^\n]*)?$",
    re.MULTILINE | re.DOTALL,
)
"""A tag may stand beside a fence: `<answer>` before it, `</answer>` or a template's end of turn behind it."""
_DEFINITION = re.compile(
    r"^[ \t]*(?:async[ \t]+def|def|class)[ \t]|\blambda\b|__global__|^[ \t]*#[ \t]*include\b", re.MULTILINE
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
    blocks = [(block["language"].lower(), _without_indent(block)) for block in _FENCE.finditer(text)]
    blocks = [(language, source) for language, source in blocks if language in LANGUAGES and source.strip()]
    if not blocks:
        return Extraction(None, reason="there is no closed code block")
    language, source = next((block for block in reversed(blocks) if _DEFINITION.search(block[1])), blocks[-1])
    return Extraction(source, language)


def _without_indent(block: re.Match[str]) -> str:
    """The source of a block; one in a list is indented as its fence is, which Python would not accept."""
    indent, source = block["indent"], block["source"]
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
