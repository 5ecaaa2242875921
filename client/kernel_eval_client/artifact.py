"""What is kept beside a job's result: the texts of its kernels and a profiler's reports, or why one cannot be had."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

SIDES = {"candidate": "kernel_exec_result", "reference": "ref_result"}
PROFILE = "ncu-rep"
_PLAIN_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*")


@dataclass(frozen=True)
class Artifact:
    """One text, of `bytes` in UTF-8, or a report; where there is none, `name` is None and `unavailable` says why.

    `side` is candidate (also of a kernel that is judged alone) or reference, `format` sass, ptx, ttir, ttgir or llir;
    ncu-rep of a report of Nsight Compute, which its own window opens.
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
        """Whether `Client.artifact` can give it; `Client.artifact_bytes` gives all."""
        return self.format != PROFILE

    def path(self, job_id: str) -> str:
        """Where the service has it. Raises ValueError where there is none."""
        # Part of a URL and, for who saves it, of a file's path: a name that is more than a name is none.
        if self.name is None or self.side not in SIDES or not _PLAIN_NAME.fullmatch(self.name):
            raise ValueError(self.unavailable or f"{self.side}/{self.name} is no artifact")
        return f"/job/{quote(job_id, safe='')}/artifacts/{self.side}/{self.name}"

    @classmethod
    def all_of(cls, result: Mapping[str, Any]) -> list[Artifact]:
        """Of an answer as it came; empty where none were asked for."""
        return [
            cls(
                side=side,
                format=str(told.get("format")),
                name=told.get("name"),
                kernel=told.get("kernel"),
                variant=told.get("variant"),
                bytes=told.get("bytes") or 0,
                truncated=bool(told.get("truncated")),
                unavailable=told.get("unavailable"),
            )
            for side, key in SIDES.items()
            for told in (result.get(key) or {}).get("artifacts") or ()
        ]
