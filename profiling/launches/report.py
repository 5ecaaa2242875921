"""Reports the kernels that a call launches, whether they come from the source, and flags odd launches.

It is for information only. The trace comes from the submission's own process, which can forge it; it changes no verdict
and no time.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any

from domain.flags.codes import FlagCode
from domain.flags.flag import Flag
from domain.kernel import JITTED, Kernel, KernelType
from sandbox.protocol.launch_trace import CPU_OPERATORS, LaunchTrace

WRITTEN_IN = (*JITTED, KernelType.CUDA, KernelType.TORCH_CUDA)
"""Kernel types whose submissions are expected to define their own kernels."""

FOREIGN = 0.95
"""Minimum share of device time in kernels that the source does not define for a flag."""
STRAY = 0.01
"""Minimum share of device time outside of the calls' stream order for a flag."""
NAMED = 3
"""Maximum number of kernels that a flag names."""
NAME_CHARS = 64
"""Maximum length of a kernel's name in a flag."""

_MEMORY = re.compile(r"Mem(cpy|set)\b")
"""CUPTI's names of the driver's copies and fills in the trace."""
_RETURN_TYPE = re.compile(r"(?:void|std::enable_if<.*?>::type)\s+")
_UNNAMED = re.compile(r"\((?:anonymous namespace|unnamed)\)::|_GLOBAL__N__\w*::|_INTERNAL_\w*::")
_QUALIFIED = re.compile(r"[A-Za-z_$][\w$]*(?:::[A-Za-z_$][\w$]*)*")
_WORD = re.compile(r"[A-Za-z_$][\w$]*")


class Origin(StrEnum):
    """The origin of a kernel: the source or its build, the driver's copies and fills, or anything else."""

    CUSTOM = "custom"
    MEMORY = "memory"
    OTHER = "other"


@dataclass(frozen=True)
class _Row:
    name: str
    launches: float
    share: float
    origin: Origin


def unavailable(reason: str) -> dict[str, Any]:
    """The result's `launches` without a trace."""
    return {"status": "unavailable", "reason": reason, "advisory": True}


def described(
    trace: LaunchTrace, kernel: Kernel, built: Callable[[str], bool] = lambda symbol: False
) -> dict[str, Any]:
    """The result's `launches`, JSON-ready; figures are per call.

    `built(part)` says whether a symbol of the submission's build contains that part.
    """
    on_device = trace.source != CPU_OPERATORS
    words = frozenset(_WORD.findall(kernel.source_code)) if on_device else frozenset()
    rows = [
        _Row(
            one.name,
            one.launches / trace.calls,
            min(one.time_us / trace.time_us, 1.0) if trace.time_us else 0.0,
            _origin(one.name, words, built) if on_device else Origin.OTHER,
        )
        for one in trace.kernels
    ]
    return {
        "advisory": True,
        "source": trace.source,
        "calls": trace.calls,
        "device_time_us": trace.time_us / trace.calls,
        "launches": trace.launches / trace.calls,
        "streams": trace.streams,
        "custom_share": _share(rows, Origin.CUSTOM) if on_device and rows else None,
        "kernels": [asdict(row) for row in rows],
        "kernels_omitted": trace.distinct - len(rows),
        "flags": [asdict(flag) for flag in (_stray(trace), _foreign(kernel, rows)) if flag] if on_device else [],
    }


def qualified_name(name: str) -> list[str]:
    """The named namespaces and the name of a kernel, without return type, template arguments and parameters.

    It reads from the left, so that a truncated name works, too: [ns, axpy] for "void ns::axpy<float, 4>(float*, …".
    """
    plain = _UNNAMED.sub("", _RETURN_TYPE.sub("", name, count=1))
    match = _QUALIFIED.match(plain)
    return match[0].split("::") if match else [plain]


def _origin(name: str, words: frozenset[str], built: Callable[[str], bool]) -> Origin:
    """CUSTOM where the source has each part of the name as a word, or the build has it in a symbol.

    The second holds for a library's template that the submission instantiates. Names prove nothing: any kernel may
    have them.
    """
    if _MEMORY.match(name):
        return Origin.MEMORY
    parts = qualified_name(name)
    # The profiler leaves very long names mangled.
    symbol_part = name if name.startswith("_Z") else "".join(f"{len(part)}{part}" for part in parts)
    return Origin.CUSTOM if words.issuperset(parts) or built(symbol_part) else Origin.OTHER


def _share(rows: list[_Row], *origins: Origin) -> float:
    return min(sum(row.share for row in rows if row.origin in origins), 1.0)


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


def _foreign(kernel: Kernel, rows: list[_Row]) -> Flag | None:
    share = _share(rows, Origin.OTHER, Origin.MEMORY)
    if kernel.kernel_type not in WRITTEN_IN or share < FOREIGN:
        return None
    names = [qualified_name(row.name)[-1][:NAME_CHARS] for row in rows if row.origin is not Origin.CUSTOM]
    unique = list(dict.fromkeys(names))
    more = f" and {len(unique) - NAMED} more" if len(unique) > NAMED else ""
    return Flag(
        FlagCode.KERNELS_NOT_FROM_SOURCE,
        f"{_percent(share)} of the device time in a profiled call is in kernels that the source does not define, in a "
        f"submission of type {kernel.kernel_type.value}: {', '.join(unique[:NAMED])}{more}",
        {"device_time_share": share, "kernel_type": kernel.kernel_type.value},
    )


def _percent(share: float) -> str:
    return f"{100 * share:.3g} %"
