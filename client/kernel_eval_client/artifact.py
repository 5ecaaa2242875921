"""Artifacts of a job: the code of its kernels as text, and a profiler's reports; or why one is unavailable."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, get_args
from urllib.parse import quote

Form = Literal["ptx", "sass", "ttir", "ttgir", "llir"]
FORMS: tuple[str, ...] = get_args(Form)
"""Forms of the code that a request may ask for."""
SIDES = {"candidate": "kernel_exec_result", "reference": "ref_result"}
PROFILE = "ncu-rep"
_PLAIN_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*")


@dataclass(frozen=True)
class Artifact:
    """One text or report, of `bytes` bytes. Without one, `name` is None and `unavailable` is the reason.

    `side` is candidate or reference; a kernel without a reference is the candidate. `format` is sass, ptx, ttir, ttgir
    or llir, or ncu-rep for a report that Nsight Compute opens.
    """

    side: str
    format: str
    name: str | None
    kernel: str | None = None
    variant: str | None = None
    bytes: int = 0
    truncated: bool = False
    unavailable: str | None = None

    @property
    def is_text(self) -> bool:
        """Whether `Client.artifact` can return it; `Client.artifact_bytes` returns any artifact."""
        return self.format != PROFILE

    def path(self, job_id: str) -> str:
        """The artifact's path at the service. Raises ValueError for an unavailable artifact or an unsafe name."""
        # The name becomes a part of a URL and of a file's path: it must not contain a path.
        if self.name is None or self.side not in SIDES or not _PLAIN_NAME.fullmatch(self.name):
            raise ValueError(self.unavailable or f"{self.side}/{self.name} is no artifact")
        return f"/job/{quote(job_id, safe='')}/artifacts/{self.side}/{self.name}"

    @classmethod
    def all_of(cls, result: Mapping[str, Any]) -> list[Artifact]:
        """All artifacts of a result (as JSON); empty if the request asked for none."""
        return [
            cls(
                side=side,
                format=str(entry.get("format")),
                name=entry.get("name"),
                kernel=entry.get("kernel"),
                variant=entry.get("variant"),
                bytes=entry.get("bytes") or 0,
                truncated=bool(entry.get("truncated")),
                unavailable=entry.get("unavailable"),
            )
            for side, key in SIDES.items()
            for entry in (result.get(key) or {}).get("artifacts") or ()
        ]
