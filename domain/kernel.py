"""A kernel as submitted: source text, type, and how to call it."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any

from domain.contract import IOContract
from domain.wire import Wire


class KernelType(StrEnum):
    """The language and framework of the source; the wire values are the original service's."""

    TORCH = "torch"
    TORCH_CUDA = "torch_cuda"
    TRITON = "triton"
    CUDA = "cuda"
    MULTI_KERNEL = "multi_kernel"
    GLUON = "gluon"
    HELION = "helion"
    TILELANG = "tilelang"
    CUTE_DSL = "cute_dsl"


JITTED = (KernelType.TRITON, KernelType.GLUON)
"""The types whose source may be a jitted kernel alone, which its contract launches."""


@dataclass(frozen=True)
class Kernel(Wire):
    """One submitted kernel. `metadata` is free-form; each backend reads the keys it knows.

    `is_reference` is its role in the request, and selects the class where the source has two. `under_compile` is
    internal: a reference that is called through torch.compile, as a baseline. `case` selects the keyword arguments of
    `get_inputs()` (`domain.cases.case.Case.selector`); only the kernel that makes the inputs has it.
    """

    source_code: str
    kernel_type: KernelType
    io: IOContract | None = None
    metadata: dict[str, Any] = field(default_factory=dict)
    is_reference: bool = False
    under_compile: bool = False
    case: dict[str, Any] | None = None

    @property
    def host_function(self) -> str | None:
        """The function of a `cuda` source that launches its kernels; None where the contract launches one (ADR 41)."""
        name = self.metadata.get("entry_point") if self.kernel_type is KernelType.CUDA else None
        return str(name) if name else None

    @property
    def has_host_code(self) -> bool:
        """Whether code of the source runs on the host: all does but the device code of `cuda` (ADR 40)."""
        return self.kernel_type is not KernelType.CUDA or self.host_function is not None

    @property
    def digest(self) -> str:
        """SHA-256 of the kernel: equal for all submissions of the same kernel, in either role."""
        text = json.dumps(replace(self, is_reference=False, case=None).to_wire(), sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()

    def to_wire(self) -> dict[str, Any]:
        """As every data class, but with `io` always, and internal members only where they are set: see `digest`."""
        return {"io": None} | {name: value for name, value in super().to_wire().items() if value is not False}
