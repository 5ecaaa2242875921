"""Facts beside a result's figures, as pairs of a name and a value: how, where and on what it was measured."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from api.pages import words

Facts = list[tuple[str, str]]
Result = Mapping[str, Any]


def measuring(timing: Result) -> Facts:
    windows = words.counted(timing["windows"], "window")
    facts: Facts = [
        ("Method", str(timing["method"]).replace("_", " ")),
        ("Calls", f"{words.count(timing['calls'])}: {windows} of {words.count(timing['calls_per_window'])}"),
        ("95 % interval, half width", words.share(timing.get("relative_ci"))),
        ("Resolution", words.duration(_us(timing.get("resolution_us")))),
        ("Cache", str(timing.get("cache") or words.NONE)),
        ("Stop reason", words.name(timing.get("stop_reason") or words.NONE)),
    ]
    if process_times := timing.get("per_process_ms"):
        span = f"{words.duration(min(process_times))} to {words.duration(max(process_times))}"
        facts.append(("Processes", f"{words.count(len(process_times))}: {span}"))
    if timing.get("single_call_ms") is not None:
        facts.append(("Single call", words.duration(timing["single_call_ms"])))
    if timing.get("launches") is not None:
        facts.append(("Launches per call", words.count(timing["launches"])))
    if timing.get("launch_overhead_correction_us"):
        facts.append(("Launch overhead correction", words.duration(_us(timing["launch_overhead_correction_us"]))))
    return facts


def card(state: Result | None) -> Facts:
    """The state of the GPU around the windows; empty without a GPU."""
    if not state or state.get("unavailable"):
        return []
    facts: Facts = [
        ("SM clock", _min_to_max(state, "sm_clock_mhz", "MHz", "max_sm_clock_mhz")),
        ("Memory clock", _min_to_max(state, "memory_clock_mhz", "MHz", "max_memory_clock_mhz")),
        ("Temperature", _min_to_max(state, "temperature_c", "°C")),
        ("Power", _min_to_max(state, "power_w", "W", "power_limit_w")),
    ]
    used = state.get("memory_used_bytes")
    if used:
        facts.append(("Memory used", f"{words.size(used['min'])} to {words.size(used['max'])}"))
    reasons = [words.name(reason) for reason in state.get("throttle_reasons") or ()]
    facts.append(("Clocks throttled by", ", ".join(reasons) or "nothing"))
    for reason, ms in (state.get("throttled_ms") or {}).items():
        facts.append((f"… {words.name(reason)}", words.duration(ms)))
    facts.append(("New uncorrectable memory errors", words.count(state.get("new_ecc_errors"))))
    others = state.get("other_processes")
    facts.append(("Other processes", words.NONE if others is None else words.count(len(others))))
    facts.append(("Samples", words.count(state.get("samples"))))
    return facts


def environment(result: Result) -> Facts:
    """Where the job ran, and with which software."""
    where = result.get("environment") or {}
    named = {
        "device": "Device", "gpu_name": "GPU", "host": "Host", "torch": "torch", "triton": "triton",
        "cuda_version": "CUDA", "driver": "Driver", "python": "Python",
    }  # fmt: skip
    facts: Facts = [(name, str(where[key])) for key, name in named.items() if where.get(key)]
    if where.get("device_seconds") is not None:
        facts.append(("Device time", words.duration(1e3 * where["device_seconds"])))
    return facts


def inputs(kernel: Result) -> Facts:
    recorded = kernel.get("inputs") or {}
    if not recorded.get("source"):
        return []
    shapes = [
        f"{dtype} [{', '.join(map(str, shape))}]"
        for shape, dtype in zip(recorded.get("shapes") or (), recorded.get("dtypes") or (), strict=False)
    ]
    facts: Facts = [
        ("Source", str(recorded.get("inferred") or recorded["source"])),
        ("Tensors", "; ".join(shapes) or words.NONE),
        ("Fresh sets", words.count(recorded.get("fresh_sets"))),
        ("Calls with mixed input sets", words.count(recorded.get("mixed_sets"))),
        ("Calls with reused input sets", words.count(recorded.get("reused_sets"))),
    ]
    if recorded.get("weights"):
        facts.append(("Weights", "; ".join([recorded["weights"], *_messages(recorded.get("weight_findings") or ())])))
    others = recorded.get("distributions") or {}
    if others.get("checked"):
        facts.append(("Also right on distributions", ", ".join(map(str, others["checked"]))))
    facts += [
        (f"Skipped distribution: {name}", flag["message"]) for name, flag in (others.get("skipped") or {}).items()
    ]
    return facts


def _messages(flags: Iterable[Result]) -> list[str]:
    return [flag["message"] for flag in flags]


def build(kernel: Result) -> Facts:
    recorded = kernel.get("build") or {}
    facts: Facts = [
        ("Entry", str(recorded.get("entry") or kernel.get("metadata", {}).get("kernel_name") or words.NONE))
    ]
    if recorded.get("seconds") is not None:
        facts.append(("Built in", words.duration(1e3 * recorded["seconds"])))
    for key, name in (("compile_cache", "Build cache"), ("built_by", "Built by"), ("arch", "Architecture")):
        if recorded.get(key) is not None:
            facts.append((name, str(recorded[key])))
    if recorded.get("deferred"):
        facts.append(("Built on the device because", str(recorded["deferred"])))
    if recorded.get("compiled_at_run_time"):
        facts.append(("Compiled at run time", str(recorded["compiled_at_run_time"])))
    notes = recorded.get("notes") or []
    facts += [("Note", str(note)) for note in (notes if isinstance(notes, list) else [notes])]
    digest = kernel.get("metadata", {}).get("digest")
    if digest:
        facts.append(("SHA-256 of the kernel", str(digest)))
    return facts


def _us(value: Any) -> float | None:
    return value / 1e3 if isinstance(value, int | float) else None


def _min_to_max(state: Result, key: str, unit: str, limit: str | None = None) -> str:
    span, most = state.get(key), state.get(limit) if limit else None
    if not span:
        return words.NONE
    low, high = words.figure(span["min"], 4), words.figure(span["max"], 4)
    text = f"{low} {unit}" if low == high else f"{low} to {high} {unit}"
    return f"{text}, of {words.figure(most, 4)}" if most else text
