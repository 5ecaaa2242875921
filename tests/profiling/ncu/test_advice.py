"""Ten kernels of known character on an H200, each named by it; and kernels that are to be left in peace."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from profiling.ncu.advice import MAX_ADVICE, Advice, advice
from profiling.ncu.csv_report import Launch, read
from profiling.ncu.kernel_summary import KernelCounters, kernel_counters

LAUNCHES = {
    launch.kernel.split("<")[0]: launch
    for launch in read((Path(__file__).parents[1] / "samples" / "ncu-h200.csv").read_text(encoding="utf-8"))
}
PRODUCT = "nvjet_sm90_tst_256x128_64x4_1x2_h_bz_coopA_NNT"
SOFTMAX = "void at::"


def _counters(launch: Launch) -> KernelCounters:
    return kernel_counters([launch])[0]


def _advice(name: str, **changed: float) -> list[Advice]:
    """Of one kernel of the sample, some of its figures changed."""
    values = {key.replace("___", "."): value for key, value in changed.items()}
    launch = LAUNCHES[name]
    return advice([_counters(replace(launch, values={**launch.values, **values}))])


@pytest.mark.parametrize(
    ("name", "rule", "says"),
    [
        ("copy", "memory_ceiling", "memory-bound: at 82 % of the DRAM's peak (3.93 TB/s)"),
        ("strided", "uncoalesced", "uncoalesced: 78 % of the 32-byte sectors"),
        ("banks", "bank_conflicts", "(32-way)"),
        ("lowsmem", "low_occupancy", "limited by shared memory (204800 bytes"),
        ("lowregs", "low_occupancy", "limited by registers (255 registers a thread)"),
        ("divergent", "divergent", "3.2 of 32 threads"),
        ("spilling", "spilling", "55 % of the instructions"),
        ("tiny", "launch_bound", "with one block"),
        (PRODUCT, "tensor_cores", "busy 90 % of the time, the ceiling"),
        (SOFTMAX, "compute_ceiling", "most in the alu pipe (55 %)"),
    ],
)
def test_each_kernel_is_named_by_its_character(name: str, rule: str, says: str) -> None:
    (only,) = _advice(name)
    assert only.rule == rule
    assert says in only.message
    assert only.figures and all(isinstance(figure, (int, float)) for figure in only.figures.values())


def test_local_memory_may_be_arrays_and_the_advice_says_so() -> None:
    launch = LAUNCHES["spilling"]
    values = {name: value for name, value in launch.values.items() if "register_spilling" not in name}
    (only,) = advice([_counters(replace(launch, values=values))])
    assert only.rule == "spilling" and "or of arrays" in only.message
    assert "or of arrays" not in _advice("spilling")[0].message


def test_a_kernel_that_waits_is_told_for_what() -> None:
    idle: dict[str, Any] = {
        "gpu__compute_memory_throughput___avg___pct_of_peak_sustained_elapsed": 25.0,
        "gpu__dram_throughput___avg___pct_of_peak_sustained_elapsed": 25.0,
    }
    (only,) = _advice("copy", **idle)
    assert only.rule == "latency_bound"
    assert "99 % of its time on long_scoreboard: waiting for global or local memory" in only.message
    assert only.figures["long_scoreboard_percent"] == pytest.approx(98.5, abs=0.1)


def test_a_grid_that_leaves_the_card_idle_is_too_small() -> None:
    small = replace(LAUNCHES["lowregs"], grid=(66, 1, 1))
    assert [one.rule for one in advice([_counters(small)])] == ["grid_too_small", "low_occupancy"]
    nearly = replace(LAUNCHES[PRODUCT], grid=(128, 1, 1))
    assert [one.rule for one in advice([_counters(nearly)])] == ["tensor_cores"]


def test_nothing_else_is_said_of_a_kernel_of_a_few_microseconds() -> None:
    for name in LAUNCHES:
        (only,) = _advice(name, gpu__time_duration___sum=3e-6)
        assert only.rule == "launch_bound"


def test_a_short_kernel_is_not_said_to_wait() -> None:
    assert _advice("copy", gpu__time_duration___sum=8e-6,
                   gpu__dram_throughput___avg___pct_of_peak_sustained_elapsed=20.0,
                   gpu__compute_memory_throughput___avg___pct_of_peak_sustained_elapsed=20.0) == []  # fmt: skip


def test_waste_that_costs_nothing_is_not_told() -> None:
    waits = {
        f"smsp__average_warps_issue_stalled_{reason}_per_issue_active___ratio": 0.0
        for reason in ("short_scoreboard", "mio_throttle", "long_scoreboard", "lg_throttle")
    }
    calm: dict[str, Any] = {"gpu__compute_memory_throughput___avg___pct_of_peak_sustained_elapsed": 10.0, **waits}
    assert "bank_conflicts" not in [one.rule for one in _advice("banks", **calm)]
    assert "uncoalesced" not in [one.rule for one in _advice("strided", **calm)]


def test_a_kernel_between_the_ceilings_gets_no_word() -> None:
    assert _advice("copy", gpu__dram_throughput___avg___pct_of_peak_sustained_elapsed=68.0,
                   gpu__compute_memory_throughput___avg___pct_of_peak_sustained_elapsed=68.0) == []  # fmt: skip


def test_without_figures_there_is_no_advice() -> None:
    assert advice([_counters(Launch("k", (4, 1, 1), (128, 1, 1), {}, {}))]) == []


def test_minor_kernels_get_none_and_the_list_ends() -> None:
    all_kernels = kernel_counters(list(LAUNCHES.values()))
    told = [one.kernel for one in advice(all_kernels)]
    assert told[0] == "spilling" and "tiny" not in told
    many = [replace(LAUNCHES["copy"], kernel=f"copy{number}") for number in range(3 * MAX_ADVICE)]
    assert len(advice(kernel_counters(many))) == MAX_ADVICE


def test_what_is_told_is_json() -> None:
    (only,) = _advice("copy")
    told = only.to_dict()
    assert set(told) == {"kernel", "rule", "message", "figures"}
    assert told["figures"]["dram_percent"] == pytest.approx(81.697532)
