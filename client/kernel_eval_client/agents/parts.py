"""One part of a result, page by page. Text that the submission may have written has a heading and marks."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from kernel_eval_client.agents.brief import MAXIMUM_LENGTH
from kernel_eval_client.artifact import Artifact
from kernel_eval_client.errors import CallerError
from kernel_eval_client.result import Result
from kernel_eval_client.untrusted_text import MARK, lines, named, plain

_KERNEL_PARTS = frozenset({"timing", "comparison", "inputs", "build", "launches", "artifacts", "output", "sanitizer"})
_SUBMISSION_PARTS = {
    "error": "the error, with the kernel's own message",
    "output": "what the kernel printed",
    "build": "the build's output",
    "launches": "its launches, as its own process reported them",
    "inputs": "its inputs",
    "artifacts": "its texts",
    "device_metrics": "its hardware counters, as its own processes reported them",
    "sanitizer": "compute-sanitizer's report about it",
}
_EMPTY = {
    "error": "none: it passed",
    "output": "none: the kernel printed nothing",
    "speedup": "none: the kernel was judged alone, without a reference",
    "comparison": "none: nothing was compared (no reference, or the job ended before that)",
    "timing": "none: it was not timed, as it did not pass",
    "launches": "none: only a request for a profile lists launches",
    "device_metrics": "none: ask for them with device_metrics=basic when the kernel is judged",
    "sanitizer": "none: ask for it with sanitize=true when the kernel is judged",
    "artifacts": 'none: ask for them with artifacts=["ptx", "sass"] when the kernel is judged',
}
_HEAD = 160
_MORE = 60


def of_part(result: Result, part: str, offset: int) -> str:
    """A page of one part of the result, from a character on; a negative offset counts from the end."""
    kernel = result.raw["kernel_exec_result"]
    if part == "error":
        value: Any = result.error
    elif part == "device_metrics":
        value = result.kernel.metadata.get(part)
    else:
        value = (kernel if part in _KERNEL_PARTS else result.raw).get(part)
    if part == "speedup" and value is None and result.raw.get("speedup_unavailable_reason"):
        return f"none: {plain(result.raw['speedup_unavailable_reason'])}"
    if not value:
        return _EMPTY.get(part, "none")
    if part == "comparison":
        return page(_comparison(value), offset)
    text = value if isinstance(value, str) else json.dumps(value, indent=1)
    return marked_page(text, offset, _SUBMISSION_PARTS[part]) if part in _SUBMISSION_PARTS else page(text, offset)


def page(text: str, offset: int) -> str:
    """A page of the service's own text from `offset` on, of at most `MAXIMUM_LENGTH` characters."""
    offset = _start(text, offset)
    excerpt = text[offset : offset + MAXIMUM_LENGTH - _MORE]
    remaining = len(text) - offset - len(excerpt)
    if remaining <= 0:
        return excerpt
    return f"{excerpt}\n… {remaining} more: ask again with offset={offset + len(excerpt)}"


def marked_page(text: str, offset: int, title: str) -> str:
    """A page of the submission's text: each line has a mark, and the first line names the source."""
    offset = _start(text, offset)
    excerpt = text[offset : offset + MAXIMUM_LENGTH - _HEAD - _MORE]
    while len(block := _with_marks(excerpt)) > MAXIMUM_LENGTH - _HEAD - _MORE:
        excerpt = excerpt[: int(len(excerpt) * (MAXIMUM_LENGTH - _HEAD - _MORE) / len(block))]
    end = offset + len(excerpt)
    head = f"{title}, not the service's words, characters {offset}-{end} of {len(text)}:"
    more = f"\n… {len(text) - end} more: ask again with offset={end}" if end < len(text) else ""
    return f"{head}\n{block}{more}"


def of_artifacts(artifacts: list[Artifact]) -> str:
    """One line for each artifact: its name and size, or why it is unavailable."""
    return "\n".join(_artifact_line(artifact) for artifact in artifacts) if artifacts else _EMPTY["artifacts"]


def _artifact_line(artifact: Artifact) -> str:
    if artifact.name is None:
        kernel = f" of {named(artifact.kernel)}" if artifact.kernel else ""
        return f"{artifact.side}: no {artifact.format}{kernel}: {plain(artifact.unavailable or '')}"
    variant = f" ({named(artifact.variant)})" if artifact.variant else ""
    note = ", truncated" if artifact.truncated else ""
    return f"{artifact.side}: {named(artifact.name)}{variant}, {artifact.bytes} bytes{note}"


def _start(text: str, offset: int) -> int:
    start = max(0, len(text) + offset) if offset < 0 else offset
    if start and start >= len(text):
        raise CallerError(f"offset {offset} is past the end: there are {len(text)} characters; -1000 shows the last")
    return start


def _with_marks(text: str) -> str:
    return "\n".join(MARK + plain(line) for line in lines(text))


def _comparison(value: Mapping[str, Any]) -> str:
    """The comparison as JSON, with its mismatch map as rows of counts."""
    where = value.get("mismatch_map")
    if not isinstance(where, Mapping) or not isinstance(where.get("counts"), list):
        return json.dumps(value, indent=1)
    without = {name: item for name, item in where.items() if name != "counts"}
    rows = "\n".join(" ".join(map(str, line)) for line in where["counts"])
    block = "x".join(map(str, where.get("block") or ()))
    head = json.dumps({**value, "mismatch_map": without}, indent=1)
    return f"{head}\nwrong elements in each block of {block} (rows x columns):\n{rows}"
