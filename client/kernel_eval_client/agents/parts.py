"""One part of an answer, page by page; what a submission may have written is headed and marked as that."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from kernel_eval_client.agents.brief import MOST
from kernel_eval_client.artifact import Artifact
from kernel_eval_client.errors import CallerError
from kernel_eval_client.quoted import MARK, lines, named, plain
from kernel_eval_client.result import Result

_OF_KERNEL = frozenset({"timing", "comparison", "inputs", "build", "launches", "artifacts", "output", "sanitizer"})
_OF_SUBMISSION = {
    "error": "the error, with what the kernel said",
    "output": "what the kernel printed",
    "build": "what building it told",
    "launches": "what it launched, by its own process's word",
    "inputs": "its inputs",
    "artifacts": "its texts",
    "device_metrics": "its hardware counters, by its own processes' word",
    "sanitizer": "what compute-sanitizer told of it",
}
_EMPTY = {
    "error": "none: it passed",
    "output": "none: the kernel printed nothing",
    "speedup": "none: the kernel was judged alone, without a reference",
    "comparison": "none: nothing was compared (no reference, or it never came to that)",
    "timing": "none: it was not timed, as it did not pass",
    "launches": "none: launches are told where the request asks for a profile",
    "device_metrics": "none: ask for them with device_metrics=basic when the kernel is judged",
    "sanitizer": "none: ask for it with sanitize=true when the kernel is judged",
    "artifacts": 'none: ask for them with artifacts=["ptx", "sass"] when the kernel is judged',
}
_HEAD = 160
_MORE = 60


def of_part(found: Result, part: str, offset: int) -> str:
    """That part as it came, from that character on; a negative offset counts from its end."""
    kernel = found.raw["kernel_exec_result"]
    if part == "error":
        value: Any = found.error
    elif part == "device_metrics":
        value = found.kernel.metadata.get(part)
    else:
        value = (kernel if part in _OF_KERNEL else found.raw).get(part)
    if part == "speedup" and value is None and found.raw.get("speedup_unavailable_reason"):
        return f"none: {plain(found.raw['speedup_unavailable_reason'])}"
    if not value:
        return _EMPTY.get(part, "none")
    if part == "comparison":
        return page(_comparison(value), offset)
    text = value if isinstance(value, str) else json.dumps(value, indent=1)
    return marked(text, offset, _OF_SUBMISSION[part]) if part in _OF_SUBMISSION else page(text, offset)


def page(text: str, offset: int) -> str:
    """At most `MOST` characters from there on, and where the next begin; of our own words."""
    offset = _from(text, offset)
    shown = text[offset : offset + MOST - _MORE]
    rest = len(text) - offset - len(shown)
    return shown if rest <= 0 else f"{shown}\n… {rest} more: ask again with offset={offset + len(shown)}"


def marked(text: str, offset: int, what: str) -> str:
    """The same of a submission's words: each line has a mark, and the first line says whose they are."""
    offset = _from(text, offset)
    shown = text[offset : offset + MOST - _HEAD - _MORE]
    while len(told := _marked(shown)) > MOST - _HEAD - _MORE:
        shown = shown[: int(len(shown) * (MOST - _HEAD - _MORE) / len(told))]
    end = offset + len(shown)
    head = f"{what}, not the service's words, characters {offset}-{end} of {len(text)}:"
    more = f"\n… {len(text) - end} more: ask again with offset={end}" if end < len(text) else ""
    return f"{head}\n{told}{more}"


def of_artifacts(found: list[Artifact]) -> str:
    """Which texts there are, and why others are not."""
    return "\n".join(_told(one) for one in found) if found else _EMPTY["artifacts"]


def _told(one: Artifact) -> str:
    if one.name is None:
        of = f" of {named(one.kernel)}" if one.kernel else ""
        return f"{one.side}: no {one.form}{of}: {plain(one.unavailable or '')}"
    variant = f" ({named(one.variant)})" if one.variant else ""
    return f"{one.side}: {named(one.name)}{variant}, {one.bytes} bytes{', its end left out' if one.truncated else ''}"


def _from(text: str, offset: int) -> int:
    start = max(0, len(text) + offset) if offset < 0 else offset
    if start and start >= len(text):
        raise CallerError(f"offset {offset} is past the end: there are {len(text)} characters; -1000 shows the last")
    return start


def _marked(text: str) -> str:
    return "\n".join(MARK + plain(line) for line in lines(text))


def _comparison(value: Mapping[str, Any]) -> str:
    """As JSON, but the map of where it is wrong as rows of counts."""
    where = value.get("mismatch_map")
    if not isinstance(where, Mapping) or not isinstance(where.get("counts"), list):
        return json.dumps(value, indent=1)
    without = {name: item for name, item in where.items() if name != "counts"}
    rows = "\n".join(" ".join(map(str, line)) for line in where["counts"])
    block = "x".join(map(str, where.get("block") or ()))
    plainly = json.dumps({**value, "mismatch_map": without}, indent=1)
    return f"{plainly}\nwrong elements in each block of {block} (rows x columns):\n{rows}"
