"""From launches to kernels: what is summed, weighted, taken from the longest, and not known."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from profiling.ncu.aggregate import CounterTotals
from profiling.ncu.csv_report import Launch, read
from profiling.ncu.kernel_summary import KernelCounters, kernel_counters

LAUNCHES = read((Path(__file__).parents[1] / "samples" / "ncu-h200.csv").read_text(encoding="utf-8"))


def _kernel(name: str) -> KernelCounters:
    return next(one for one in kernel_counters(LAUNCHES) if one.name.startswith(name))


def _launch(name: str = "k", **values: float) -> Launch:
    named = {key.replace("___", "."): value for key, value in values.items()}
    return Launch(name, (4, 1, 1), (128, 1, 1), named, dict.fromkeys(named, "inst"))


def test_the_longest_kernel_comes_first_and_shares_make_one() -> None:
    found = kernel_counters(LAUNCHES)
    times = [kernel.time_us or 0.0 for kernel in found]
    assert times == sorted(times, reverse=True) and found[0].name == "spilling"
    assert sum(kernel.share or 0.0 for kernel in found) == pytest.approx(1.0)


def test_a_copy_of_a_quarter_gigabyte_has_moved_it_twice() -> None:
    copy = _kernel("copy")
    assert copy.memory["dram_bytes"] == pytest.approx(2 * 2**28, rel=0.05)
    assert copy.memory["dram_bytes_per_s"] == pytest.approx(3.93e12, rel=0.01)
    assert copy.roofline["bound"] == "memory" and copy.roofline["flops"] == 0.0
    assert copy.stalls[0]["reason"] == "long_scoreboard" and copy.stalls[0]["percent"] > 95
    assert copy.coalescing["sectors_per_load_request"] == pytest.approx(16)


def test_a_matrix_product_has_its_operations() -> None:
    product = _kernel("nvjet")
    assert product.roofline["flops"] == pytest.approx(2 * 4096**3)
    assert product.roofline["flops_per_s"] == pytest.approx(783e12, rel=0.01)
    assert product.roofline["bound"] == "compute"
    assert product.tensor_percent == pytest.approx(90.38, abs=0.01)
    assert product.bank_conflicts["n_way"] == pytest.approx(1.0), "wide accesses are no conflicts"


def test_vector_operations_are_counted_too() -> None:
    # 1056 blocks of 256 threads, 8 rounds of 160 fused multiply-adds of 2 operations, and sums of 160.
    assert _kernel("lowregs").roofline["flops"] == pytest.approx(1056 * 256 * (8 * 160 * 2 + 160), rel=0.02)


def test_occupancy_is_limited_by_what_is_least() -> None:
    assert _kernel("lowsmem").occupancy["limited_by"] == "shared_memory"
    assert _kernel("lowregs").occupancy["limited_by"] == "registers"
    banks = _kernel("banks").occupancy
    assert banks["blocks_by"]["registers"] == banks["blocks_by"]["warps"] == 2.0
    assert banks["limited_by"] == "warps", "it is full, and registers are not to blame"


def test_bank_conflicts_and_spills() -> None:
    assert _kernel("banks").bank_conflicts == {"n_way": 32.0, "excess_percent": 96.875}
    assert _kernel("copy").bank_conflicts == {"n_way": None, "excess_percent": None}
    assert _kernel("spilling").spills["percent"] == pytest.approx(54.9, abs=0.1)
    assert _kernel("copy").spills == {"requests": 0.0, "percent": 0.0, "of": "register_spills"}


def test_without_the_count_of_spills_local_memory_is_told_and_called_that() -> None:
    spilling = next(launch for launch in LAUNCHES if launch.kernel == "spilling")
    values = {name: value for name, value in spilling.values.items() if "register_spilling" not in name}
    (kernel,) = kernel_counters([replace(spilling, values=values)])
    assert kernel.spills == {"requests": 92045312.0, "percent": pytest.approx(54.9, abs=0.1), "of": "local_memory"}


def test_launches_of_one_name_are_one_kernel() -> None:
    copy = LAUNCHES[0]
    short = replace(copy, values={**copy.values, "gpu__time_duration.sum": copy.values["gpu__time_duration.sum"] / 3})
    hit = "lts__t_sector_hit_rate.pct"
    short = replace(short, grid=(7, 1, 1), values={**short.values, hit: 100.0})
    (both,) = kernel_counters([short, copy])
    (one,) = kernel_counters([copy])
    assert both.launches == 2 and both.share == pytest.approx(1.0)
    assert both.grid == copy.grid, "that of the longest launch"
    assert one.time_us is not None and both.time_us == pytest.approx(one.time_us * 4 / 3)
    assert both.memory["dram_bytes"] == pytest.approx(2 * (one.memory["dram_bytes"] or 0))
    assert both.memory["l2_hit_percent"] == pytest.approx((3 * copy.values[hit] + 100) / 4)


def test_what_was_not_counted_is_none_and_never_zero() -> None:
    told = kernel_counters([_launch()])[0].to_dict()
    for group in ("speed_of_light", "memory", "spills", "shared_bytes", "bank_conflicts", "coalescing"):
        assert set(told[group].values()) == {None}, group
    assert set(told["roofline"].values()) == {None}
    assert told["occupancy"]["limited_by"] is None and told["stalls"] == []
    assert told["time_us"] is None and told["share"] is None and told["registers"] is None
    assert set(told["instructions"]["pipes"].values()) == {None}


def test_a_part_of_the_launches_is_no_total() -> None:
    of = CounterTotals([_launch(a___sum=1.0), _launch(b___sum=2.0)])
    assert of.total("a.sum") is None and of.mean("a.sum") == 1.0


def test_asked_metrics_are_passed_on_with_their_unit() -> None:
    launches = [
        replace(_launch(n___sum=2.0, r___avg=1.0), units={"n.sum": "inst", "r.avg": "%"}),
        replace(_launch(n___sum=3.0, r___avg=3.0), units={"n.sum": "inst", "r.avg": "%"}),
    ]
    (kernel,) = kernel_counters(launches, ["n.sum", "r.avg", "none.sum"])
    assert kernel.requested_metrics == {
        "n.sum": {"value": 5.0, "unit": "inst"},
        "r.avg": {"value": 2.0, "unit": "%"},
        "none.sum": {"value": None, "unit": None},
    }


def test_what_is_told_is_json() -> None:
    told = [kernel.to_dict() for kernel in kernel_counters(LAUNCHES)]
    assert json.loads(json.dumps(told, allow_nan=False)) == told
    assert set(told[0]) == {
        "name", "launches", "grid", "block", "time_us", "share", "speed_of_light", "memory", "roofline", "occupancy",
        "stalls", "instructions", "tensor_percent", "registers", "spills", "shared_bytes", "bank_conflicts",
        "coalescing", "requested_metrics",
    }  # fmt: skip
    assert isinstance(told[0]["registers"], int)
