"""A kernel's code as text, in a form that it has between source and machine: what a request's `artifacts` ask for."""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from enum import StrEnum
from typing import Any


class Form(StrEnum):
    """The forms there are, from the machine's upwards. The last three are Triton's own stages."""

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
    form: Form
    size: int
    packed: bytes
    truncated: bool = False
    variant: str | None = None

    def told(self) -> dict[str, Any]:
        """What a result says of it; JSON-ready."""
        return {
            "name": self.name,
            "form": self.form.value,
            "kernel": self.kernel,
            "variant": self.variant,
            "bytes": self.size,
            "truncated": self.truncated,
        }


@dataclass(frozen=True)
class NoListing:
    """A form that was asked for and cannot be had, of one kernel or at all; `reason` says why and what to do."""

    form: Form
    reason: str
    kernel: str | None = None

    def told(self) -> dict[str, Any]:
        """What a result says of it; JSON-ready."""
        return {"name": None, "form": self.form.value, "kernel": self.kernel, "unavailable": self.reason}


def pack(text: str) -> bytes:
    """As it is kept."""
    return zlib.compress(text.encode(errors="replace"))


def unpack(packed: bytes) -> bytes:
    """UTF-8 again. Only for what `pack` made."""
    return zlib.decompress(packed)
