"""Which answers the same work gets again: those that would come out alike."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from domain.result import Status

VERDICTS = frozenset({Status.PASSED, Status.COMPILE_ERROR, Status.WRONG_RESULT, Status.CONTRACT_MISMATCH})
"""A crash, a timeout, a lack of memory may have been the moment's."""


def reusable(answer: Mapping[str, Any]) -> bool:
    """Of a whole answer. One that lacks what was asked for, for what reason ever, is no answer to who asks again."""
    kernel = answer["kernel_exec_result"]
    asked = (kernel.get("metadata") or {}).get("device_metrics"), kernel.get("sanitizer")
    complete = all(one is None or one.get("status") != "unavailable" for one in asked)
    return answer["verdict"] in VERDICTS and complete
