"""What is kept beside a result, to be read on its own: a kernel's code in each form it has, and a profiler's report."""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

PROFILE = "ncu-rep"
"""The form of a ProfilerReport, which no request asks for by name: it comes with the device metrics."""
MAX_PROFILE_BYTES = 32 << 20
MAX_PROFILE_PACKED = 4 << 20


class Form(StrEnum):
    """The forms of code there are, from the machine's upwards. The last three are Triton's own stages."""

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
    """One text, compressed. `name` is its own among those of its side, `size` in bytes of UTF-8.

    `kernel` is what the code is of: a kernel, or an extension with all of its kernels. `variant` tells configurations
    of one kernel apart. Its content comes out of the submission's own build: information, no evidence.
    """

    name: str
    kernel: str
    format: Form
    size: int
    packed: bytes
    truncated: bool = False
    variant: str | None = None

    def told(self) -> dict[str, Any]:
        """What a result says of it; JSON-ready."""
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
    """A form that was asked for and cannot be had, of one kernel or at all; `reason` says why and what to do.

    `format` is a Form, or PROFILE.
    """

    format: str
    reason: str
    kernel: str | None = None

    def told(self) -> dict[str, Any]:
        """What a result says of it; JSON-ready."""
        return {"name": None, "format": str(self.format), "kernel": self.kernel, "unavailable": self.reason}


@dataclass(frozen=True)
class ProfilerReport:
    """A side's report in the profiler's own format, compressed; `size` in bytes as the profiler wrote it.

    It is written by a process tree that the submission is part of: information, no evidence. Nothing here reads it.
    """

    size: int
    packed: bytes
    name: str = f"profile.{PROFILE}"

    @classmethod
    def of(cls, content: bytes) -> ProfilerReport | NoListing:
        """As it is kept, or why it is not."""
        if len(content) > MAX_PROFILE_BYTES:
            return _too_large(_mebibytes(len(content)), MAX_PROFILE_BYTES)
        packed = zlib.compress(content)
        if len(packed) > MAX_PROFILE_PACKED:
            return _too_large(f"{_mebibytes(len(packed))} compressed", MAX_PROFILE_PACKED)
        return cls(len(content), packed)

    def told(self) -> dict[str, Any]:
        """What a result says of it; JSON-ready."""
        return {"name": self.name, "format": PROFILE, "kernel": None, "bytes": self.size}


def _too_large(size: str, most: int) -> NoListing:
    reason = f"it has {size}, and {_mebibytes(most)} are kept: ask for fewer metrics, or launch fewer kernels a call"
    return NoListing(PROFILE, reason)


def _mebibytes(size: int) -> str:
    return f"{size / (1 << 20):.3g} MiB"


def pack(text: str) -> bytes:
    """As it is kept."""
    return zlib.compress(text.encode(errors="replace"))


def unpack(packed: bytes) -> bytes:
    """The bytes again: of a text its UTF-8. Only for what was packed here."""
    return zlib.decompress(packed)
