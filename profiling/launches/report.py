"""Reports the kernels that a call launches: their origin, and flags for odd launches.

It is for information only. The trace comes from the submission's own process, which can forge it; it changes no verdict
and no time.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any

from domain.flags import Flag, FlagCode
from domain.kernel import Kernel, KernelType
from profiling.launches.library_names import INDUCTOR, MEMORY, bare_name, library_of, mangled_part, qualified_name
from profiling.launches.source_kernels import defined_kernels, words
from sandbox.protocol.launch_trace import CPU_OPERATORS, LaunchTrace

WRITTEN_IN = (KernelType.TRITON, KernelType.CUDA, KernelType.TORCH_CUDA)
"""Kernel types whose submissions are expected to define their own kernels."""

FIG_LEAF = 0.05
"""Minimum share of device time in a submission's own kernels for them to do the work."""
STRAY = 0.01
"""Minimum share of device time outside of the calls' stream order for a flag."""
NAMED = 3
"""Maximum number of kernels that a flag names."""
NAME_CHARS = 64
"""Maximum length of a kernel's name in a flag."""


class Origin(StrEnum):
    """The origin of a kernel. UNKNOWN is neither in the source nor a known library's, and never leads to a flag."""

    CUSTOM = "custom"
    LIBRARY = "library"
    COMPILER = "compiler"
    MEMORY = "memory"
    UNKNOWN = "unknown"


@dataclass(frozen=True)
class _Row:
    name: str
    bare: str
    launches: float
    share: float
    origin: Origin
    library: str | None

    def to_dict(self) -> dict[str, Any]:
        row = {"name": self.name, "launches": self.launches, "share": self.share, "origin": self.origin.value}
        return row | ({"library": self.library} if self.library else {})


def unavailable(reason: str) -> dict[str, Any]:
    """The result's `launches` without a trace."""
    return {"status": "unavailable", "reason": reason, "advisory": True}


def described(
    trace: LaunchTrace, kernel: Kernel, built: Callable[[str], bool] = lambda symbol: False
) -> dict[str, Any]:
    """The result's `launches`, JSON-ready; figures are per call.

    `built(part)` says whether a symbol of the submission's build contains that part.
    """
    origin_of = _on_host if trace.source == CPU_OPERATORS else _Origins(kernel, built).of
    rows = []
    for one in trace.kernels:
        origin, library = origin_of(one.name)
        share = min(one.time_us / trace.time_us, 1.0) if trace.time_us else 0.0
        rows.append(_Row(one.name, bare_name(one.name), one.launches / trace.calls, share, origin, library))
    on_device = trace.source != CPU_OPERATORS
    return {
        "advisory": True,
        "source": trace.source,
        "calls": trace.calls,
        "device_time_us": trace.time_us / trace.calls,
        "launches": trace.launches / trace.calls,
        "streams": trace.streams,
        "custom_share": _share(rows, Origin.CUSTOM) if on_device and rows else None,
        "kernels": [row.to_dict() for row in rows],
        "kernels_omitted": trace.distinct - len(rows),
        "flags": [asdict(flag) for flag in _flags(trace, kernel, rows)] if on_device else [],
    }


class _Origins:
    """Finds the origin of device kernels for one submission."""

    def __init__(self, kernel: Kernel, built: Callable[[str], bool]) -> None:
        self._words = words(kernel)
        self._defined = defined_kernels(kernel)
        self._built = built

    def of(self, name: str) -> tuple[Origin, str | None]:
        if MEMORY.match(name):
            return Origin.MEMORY, None
        library = library_of(name)
        # A library's template that the submission instantiates is the submission's own: its build has the symbol.
        if self._built(mangled_part(name)) or self._written(name, library):
            return Origin.CUSTOM, None
        if library is not None:
            return Origin.LIBRARY, library
        return (Origin.COMPILER, "torch.compile") if INDUCTOR.match(name) else (Origin.UNKNOWN, None)

    def _written(self, name: str, library: str | None) -> bool:
        """Whether the source contains the name as a word, or as a definition if a library has such names."""
        *namespaces, bare = qualified_name(name)
        return bare in self._words if library is None else not namespaces and bare in self._defined


def _on_host(name: str) -> tuple[Origin, str | None]:
    return (Origin.LIBRARY, "PyTorch") if name.startswith(("aten::", "prims::")) else (Origin.UNKNOWN, None)


def _share(rows: list[_Row], *origins: Origin) -> float:
    return min(sum(row.share for row in rows if row.origin in origins), 1.0)


def _flags(trace: LaunchTrace, kernel: Kernel, rows: list[_Row]) -> list[Flag]:
    found = [_stray(trace), _never_launched(trace, kernel, rows) or _fig_leaf(trace, kernel, rows)]
    return [flag for flag in found if flag is not None]


def _stray(trace: LaunchTrace) -> Flag | None:
    """The flag for work on other streams that is not joined with the calls' own stream; joined work is honest."""
    if not trace.stray_us or trace.stray_us < STRAY * trace.time_us:
        return None
    share = trace.stray_us / max(trace.time_us, trace.stray_us)
    return Flag(
        FlagCode.WORK_ON_OTHER_STREAMS,
        f"work left on other streams: {_percent(share)} of the device "
        "time in a profiled call ran on streams other than the one that the calls were queued on, and began before "
        "that one's work or ended after it; wait for it there (`torch.cuda.current_stream().wait_stream(...)`)",
        {"device_time_share": share},
    )


def _never_launched(trace: LaunchTrace, kernel: Kernel, rows: list[_Row]) -> Flag | None:
    defined = defined_kernels(kernel)
    if not defined or trace.distinct > len(rows) or not defined.isdisjoint(row.bare for row in rows):
        return None
    instead = f"its device time is in {_biggest(rows)}" if rows else "it launches nothing at all"
    return Flag(
        FlagCode.OWN_KERNELS_NOT_LAUNCHED,
        f"a profiled call launched none of the kernels that the source defines ({_listed(sorted(defined))}): {instead}",
        {"defined_kernels": len(defined)},
    )


def _fig_leaf(trace: LaunchTrace, kernel: Kernel, rows: list[_Row]) -> Flag | None:
    if kernel.kernel_type not in WRITTEN_IN or not rows or not trace.time_us:
        return None
    others = (Origin.LIBRARY, Origin.COMPILER, Origin.MEMORY)
    share = _share(rows, *others)
    if share < 1 - FIG_LEAF:
        return None
    return Flag(
        FlagCode.LIBRARY_KERNELS_ONLY,
        f"{_percent(share)} of the device time in a profiled call is in kernels of libraries, in a submission of type "
        f"{kernel.kernel_type.value}: {_biggest([row for row in rows if row.origin in others])}",
        {"device_time_share": share, "kernel_type": kernel.kernel_type.value},
    )


def _biggest(rows: list[_Row]) -> str:
    return _listed([f"{row.bare[:NAME_CHARS]} ({row.library or row.origin})" for row in rows])


def _listed(names: list[str]) -> str:
    unique = list(dict.fromkeys(names))
    more = f" and {len(unique) - NAMED} more" if len(unique) > NAMED else ""
    return ", ".join(unique[:NAMED]) + more


def _percent(share: float) -> str:
    return f"{100 * share:.3g} %"
