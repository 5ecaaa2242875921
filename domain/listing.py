"""Artifacts stored beside a result: a kernel's code in each form, and a profiler's report."""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

PROFILE = "ncu-rep"
"""The form of a ProfilerReport. Requests do not ask for it by name: it comes with the device metrics."""
MAX_PROFILE_BYTES = 32 << 20
MAX_PROFILE_PACKED = 4 << 20


class Form(StrEnum):
    """The forms of code, from the machine's upwards. The last three are Triton's own stages."""

    SASS = "sass"
    PTX = "ptx"
    LLIR = "llir"
    TTGIR = "ttgir"
    TTIR = "ttir"

    @property
    def of_triton(self) -> bool:
        return self in (Form.LLIR, Form.TTGIR, Form.TTIR)


@dataclass(frozen=True)
class Listing:
    """One text, compressed. `name` is unique on its side; `size` is in bytes of UTF-8.

    `kernel` names a kernel, or an extension with all of its kernels. `variant` distinguishes configurations of one
    kernel. The submission's own build produces the content: information, never evidence.
    """

    name: str
    kernel: str
    format: Form
    size: int
    packed: bytes
    truncated: bool = False
    variant: str | None = None

    def to_dict(self) -> dict[str, Any]:
        """The entry in a result; JSON-ready."""
        return {
            "name": self.name,
            "format": self.format.value,
            "kernel": self.kernel,
            "variant": self.variant,
            "bytes": self.size,
            "truncated": self.truncated,
        }


@dataclass(frozen=True)
class NoListing:
    """A requested form that is unavailable, for one kernel or for all; `reason` says why and what to do.

    `format` is a Form, or PROFILE.
    """

    format: str
    reason: str
    kernel: str | None = None

    def to_dict(self) -> dict[str, Any]:
        """The entry in a result; JSON-ready."""
        return {"name": None, "format": str(self.format), "kernel": self.kernel, "unavailable": self.reason}


@dataclass(frozen=True)
class ProfilerReport:
    """A side's report in the profiler's own format, compressed; `size` is the original size in bytes.

    A process tree with the submission in it writes the report: information, never evidence. Nothing here reads it.
    """

    size: int
    packed: bytes
    name: str = f"profile.{PROFILE}"

    @classmethod
    def of(cls, content: bytes) -> ProfilerReport | NoListing:
        """The compressed report, or why it is too large to store."""
        if len(content) > MAX_PROFILE_BYTES:
            return _too_large(_mebibytes(len(content)), MAX_PROFILE_BYTES)
        packed = zlib.compress(content)
        if len(packed) > MAX_PROFILE_PACKED:
            return _too_large(f"{_mebibytes(len(packed))} compressed", MAX_PROFILE_PACKED)
        return cls(len(content), packed)

    def to_dict(self) -> dict[str, Any]:
        """The entry in a result; JSON-ready."""
        return {"name": self.name, "format": PROFILE, "kernel": None, "bytes": self.size}


def _too_large(size: str, most: int) -> NoListing:
    reason = f"it has {size}, and {_mebibytes(most)} are kept: ask for fewer metrics, or launch fewer kernels a call"
    return NoListing(PROFILE, reason)


def _mebibytes(size: int) -> str:
    return f"{size / (1 << 20):.3g} MiB"


def pack(text: str) -> bytes:
    return zlib.compress(text.encode(errors="replace"))


def unpack(packed: bytes) -> bytes:
    """The original bytes, UTF-8 for a text. Only for data that `pack` or ProfilerReport made."""
    return zlib.decompress(packed)
