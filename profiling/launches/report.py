"""What a kernel's calls launch, told to the reader: whose the kernels are, and what is odd about it.

For information only. The trace comes out of the submission's own process, which can forge it; nothing here changes a
verdict or a time.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from domain.kernel import Kernel, KernelType
from profiling.launches.library_names import INDUCTOR, MEMORY, bare_name, library_of, mangled_part, qualified_name
from profiling.launches.source_kernels import defined_kernels, words
from sandbox.protocol.launch_trace import CPU_OPERATORS, LaunchTrace

WRITTEN_IN = (KernelType.TRITON, KernelType.CUDA, KernelType.TORCH_CUDA)
"""Types whose submissions are to bring kernels of their own."""

FIG_LEAF = 0.05
"""A share of the device time below which a submission's own kernels are not what does the work."""
STRAY = 0.01
"""A share of the device time from which on work without the calls' order is worth a word."""
NAMED = 3
SHOWN_CHARS = 64


class Origin(StrEnum):
    """Whose a kernel is. UNKNOWN is neither in the source nor known to be a library's, and never held against it."""

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

    def told(self) -> dict[str, Any]:
        known = {"library": self.library} if self.library else {}
        return {"name": self.name, "launches": self.launches, "share": self.share, "origin": self.origin.value, **known}


def unavailable(reason: str) -> dict[str, Any]:
    """The answer where nothing is known."""
    return {"status": "unavailable", "reason": reason, "advisory": True}


def described(
    trace: LaunchTrace, kernel: Kernel, built: Callable[[str], bool] = lambda symbol: False
) -> dict[str, Any]:
    """The answer's `launches`, JSON-ready; figures are per call.

    `built` says whether a part of a symbol's name occurs in what the submission was built to.
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
        "kernels": [row.told() for row in rows],
        "kernels_omitted": trace.distinct - len(rows),
        "flags": _flags(trace, kernel, rows) if on_device else [],
    }


class _Origins:
    """Tells whose a kernel on the device is, for one submission."""

    def __init__(self, kernel: Kernel, built: Callable[[str], bool]) -> None:
        self._words = words(kernel)
        self._defined = defined_kernels(kernel)
        self._built = built

    def of(self, name: str) -> tuple[Origin, str | None]:
        if MEMORY.match(name):
            return Origin.MEMORY, None
        library = library_of(name)
        # A library's template that the submission instantiates itself is its own: it is in what it was built to.
        if self._built(mangled_part(name)) or self._written(name, library):
            return Origin.CUSTOM, None
        if library is not None:
            return Origin.LIBRARY, library
        return (Origin.COMPILER, "torch.compile") if INDUCTOR.match(name) else (Origin.UNKNOWN, None)

    def _written(self, name: str, library: str | None) -> bool:
        """In the source: by any word of it, or, where a library has names like that, by a definition."""
        *namespaces, bare = qualified_name(name)
        return bare in self._words if library is None else not namespaces and bare in self._defined


def _on_host(name: str) -> tuple[Origin, str | None]:
    return (Origin.LIBRARY, "PyTorch") if name.startswith(("aten::", "prims::")) else (Origin.UNKNOWN, None)


def _share(rows: list[_Row], *origins: Origin) -> float:
    return min(sum(row.share for row in rows if row.origin in origins), 1.0)


def _flags(trace: LaunchTrace, kernel: Kernel, rows: list[_Row]) -> list[str]:
    found = [_stray(trace), _never_launched(trace, kernel, rows) or _fig_leaf(trace, kernel, rows)]
    return [flag for flag in found if flag is not None]


def _stray(trace: LaunchTrace) -> str | None:
    """Work on other streams that is joined with the calls' own is honest, and gets no word."""
    if not trace.stray_us or trace.stray_us < STRAY * trace.time_us:
        return None
    return (
        f"work left on other streams: {_percent(trace.stray_us / max(trace.time_us, trace.stray_us))} of the device "
        "time in a profiled call ran on streams other than the one that the calls were queued on, and began before "
        "that one's work or ended after it; wait for it there (`torch.cuda.current_stream().wait_stream(...)`)"
    )


def _never_launched(trace: LaunchTrace, kernel: Kernel, rows: list[_Row]) -> str | None:
    defined = defined_kernels(kernel)
    if not defined or trace.distinct > len(rows) or not defined.isdisjoint(row.bare for row in rows):
        return None
    instead = f"its device time is in {_biggest(rows)}" if rows else "it launches nothing at all"
    return (
        f"a profiled call launched none of the kernels that the source defines ({_listed(sorted(defined))}): {instead}"
    )


def _fig_leaf(trace: LaunchTrace, kernel: Kernel, rows: list[_Row]) -> str | None:
    if kernel.kernel_type not in WRITTEN_IN or not rows or not trace.time_us:
        return None
    others = (Origin.LIBRARY, Origin.COMPILER, Origin.MEMORY)
    share = _share(rows, *others)
    if share < 1 - FIG_LEAF:
        return None
    return (
        f"{_percent(share)} of the device time in a profiled call is in kernels of libraries, in a submission of type "
        f"{kernel.kernel_type.value}: {_biggest([row for row in rows if row.origin in others])}"
    )


def _biggest(rows: list[_Row]) -> str:
    return _listed([f"{row.bare[:SHOWN_CHARS]} ({row.library or row.origin})" for row in rows])


def _listed(names: list[str]) -> str:
    shown = list(dict.fromkeys(names))
    more = f" and {len(shown) - NAMED} more" if len(shown) > NAMED else ""
    return ", ".join(shown[:NAMED]) + more


def _percent(share: float) -> str:
    return f"{100 * share:.3g} %"
