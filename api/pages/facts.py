"""What a result says beside its figures, as pairs of a name and a value: how it was measured, on what, and by whom."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from api.pages import words

Facts = list[tuple[str, str]]
Result = Mapping[str, Any]


def measuring(timing: Result) -> Facts:
    """How one side's time was measured."""
    windows = words.counted(timing["windows"], "window")
    told: Facts = [
        ("Method", str(timing["method"]).replace("_", " ")),
        ("Calls", f"{words.count(timing['calls'])}: {windows} of {words.count(timing['calls_per_window'])}"),
        ("Half the 95 % interval", words.share(timing.get("relative_ci"))),
        ("Resolution", words.duration(_us(timing.get("resolution_us")))),
        ("Cache", str(timing.get("cache") or words.NONE)),
        ("Stopped by", words.name(timing.get("stop_reason") or words.NONE)),
    ]
    if each := timing.get("per_process_ms"):
        span = f"{words.duration(min(each))} to {words.duration(max(each))}"
        told.append(("Processes", f"{words.count(len(each))}: {span}"))
    if timing.get("single_call_ms") is not None:
        told.append(("A call by itself", words.duration(timing["single_call_ms"])))
    if timing.get("launches") is not None:
        told.append(("Launches a call", words.count(timing["launches"])))
    if timing.get("launch_overhead_correction_us"):
        told.append(("Taken off for launches", words.duration(_us(timing["launch_overhead_correction_us"]))))
    return told


def card(state: Result | None) -> Facts:
    """The GPU around the windows; empty where there was none."""
    if not state or state.get("unavailable"):
        return []
    told: Facts = [
        ("SM clock", _span(state, "sm_clock_mhz", "MHz", "max_sm_clock_mhz")),
        ("Memory clock", _span(state, "memory_clock_mhz", "MHz", "max_memory_clock_mhz")),
        ("Temperature", _span(state, "temperature_c", "°C")),
        ("Power", _span(state, "power_w", "W", "power_limit_w")),
    ]
    used = state.get("memory_used_bytes")
    if used:
        told.append(("Memory used", f"{words.size(used['min'])} to {words.size(used['max'])}"))
    reasons = [words.name(reason) for reason in state.get("throttle_reasons") or ()]
    told.append(("Clocks held down by", ", ".join(reasons) or "nothing"))
    for reason, ms in (state.get("throttled_ms") or {}).items():
        told.append((f"… {words.name(reason)}", words.duration(ms)))
    told.append(("New uncorrected memory errors", words.count(state.get("new_ecc_errors"))))
    others = state.get("other_processes")
    told.append(("Processes of others", words.NONE if others is None else words.count(len(others))))
    told.append(("Samples", words.count(state.get("samples"))))
    return told


def environment(result: Result) -> Facts:
    """Where the job ran, and with what."""
    where = result.get("environment") or {}
    named = {
        "device": "Device", "gpu_name": "GPU", "host": "Host", "torch": "torch", "triton": "triton",
        "cuda_version": "CUDA", "driver": "Driver", "python": "Python",
    }  # fmt: skip
    told: Facts = [(name, str(where[key])) for key, name in named.items() if where.get(key)]
    if where.get("device_seconds") is not None:
        told.append(("Held the device for", words.duration(1e3 * where["device_seconds"])))
    return told


def inputs(kernel: Result) -> Facts:
    """What the kernels were called with."""
    given = kernel.get("inputs") or {}
    if not given.get("source"):
        return []
    shapes = [
        f"{dtype} [{', '.join(map(str, shape))}]"
        for shape, dtype in zip(given.get("shapes") or (), given.get("dtypes") or (), strict=False)
    ]
    told: Facts = [
        ("Made from", str(given.get("inferred") or given["source"])),
        ("Tensors", "; ".join(shapes) or words.NONE),
        ("Fresh sets", words.count(given.get("fresh_sets"))),
        ("Calls on sets mixed of drawn ones", words.count(given.get("mixed_sets"))),
        ("Calls on a set used before", words.count(given.get("reused_sets"))),
    ]
    if given.get("weights"):
        told.append(("Weights", str(given["weights"])))
    others = given.get("distributions") or {}
    if others.get("checked"):
        told.append(("Also right on inputs that are", ", ".join(map(str, others["checked"]))))
    told += [(f"Not tried: {name}", str(why)) for name, why in (others.get("skipped") or {}).items()]
    return told


def build(kernel: Result) -> Facts:
    """How a side was built."""
    made = kernel.get("build") or {}
    told: Facts = [("Entry", str(made.get("entry") or kernel.get("metadata", {}).get("kernel_name") or words.NONE))]
    if made.get("seconds") is not None:
        told.append(("Built in", words.duration(1e3 * made["seconds"])))
    for key, name in (("compile_cache", "Kept builds"), ("built_by", "Built by"), ("arch", "Architecture")):
        if made.get(key) is not None:
            told.append((name, str(made[key])))
    if made.get("deferred"):
        told.append(("Built on the device, since", str(made["deferred"])))
    if made.get("compiled_at_run_time"):
        told.append(("Not built beforehand", str(made["compiled_at_run_time"])))
    notes = made.get("notes") or []
    told += [("Note", str(note)) for note in (notes if isinstance(notes, list) else [notes])]
    digest = kernel.get("metadata", {}).get("digest")
    if digest:
        told.append(("SHA-256 of the kernel", str(digest)))
    return told


def _us(value: Any) -> float | None:
    return value / 1e3 if isinstance(value, int | float) else None


def _span(state: Result, key: str, unit: str, limit: str | None = None) -> str:
    span, most = state.get(key), state.get(limit) if limit else None
    if not span:
        return words.NONE
    low, high = words.figure(span["min"], 4), words.figure(span["max"], 4)
    told = f"{low} {unit}" if low == high else f"{low} to {high} {unit}"
    return f"{told}, of {words.figure(most, 4)}" if most else told
