"""Baselines of a comparison: forms of the reference that a user would run."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any

from domain.kernel import KernelType
from domain.result import Speedup

COMPILABLE = (KernelType.TORCH, KernelType.TORCH_CUDA)
"""Kernel types of references that torch.compile takes."""


class Baseline(StrEnum):
    """EAGER is the reference as it was sent, which every comparison times; COMPILE is it under torch.compile."""

    EAGER = "eager"
    COMPILE = "compile"


class NoBaseline(StrEnum):
    """Why a baseline has no speed-up, beside the verdicts (`Status`) about the reference under torch.compile."""

    NO_SPEEDUP = "no_speedup"
    """The kernel itself has no speed-up."""
    NOT_PYTORCH = "not_pytorch"
    """torch.compile takes PyTorch references only."""
    NOT_TIMED = "not_timed"
    """It ran, and gave no time or only a bound."""


@dataclass(frozen=True)
class BaselineResult:
    """One baseline: its time, and the kernel's speed-up over it.

    - `graph_breaks`: how often a call left the compiled graph and ran eagerly; None for EAGER.
    - `code`, `message`: why there is no speed-up, `code` a NoBaseline or a Status; None if there is one.
    """

    name: Baseline
    latency_ms: float | None = None
    speedup: Speedup | None = None
    graph_breaks: int | None = None
    code: str | None = None
    message: str | None = None

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready."""
        return {
            "name": self.name.value,
            "latency_ms": self.latency_ms,
            "speedup": asdict(self.speedup) if self.speedup else None,
            "graph_breaks": self.graph_breaks,
            "unavailable": None if self.code is None else {"code": self.code, "message": self.message},
        }
