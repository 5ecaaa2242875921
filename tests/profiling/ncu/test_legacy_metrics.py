"""The original service's categories and names, filled from a real report."""

from __future__ import annotations

from pathlib import Path

import pytest

from profiling.ncu.csv_report import Launch, read
from profiling.ncu.legacy_metrics import CATEGORIES, original_metrics

LAUNCHES = read((Path(__file__).parents[1] / "samples" / "ncu-h200.csv").read_text(encoding="utf-8"))


def test_all_categories_and_names_are_there() -> None:
    assert {category: len(fields) for category, fields in CATEGORIES.items()} == {
        "speed_of_light": 6, "detailed_metrics": 6, "memory_metrics": 6, "compute_metrics": 11, "pipeline_metrics": 6,
        "occupancy_metrics": 8, "stall_metrics": 4, "scheduler_metrics": 3, "access_pattern_metrics": 8,
        "roofline_metrics": 4, "timing_metrics": 5,
    }  # fmt: skip


def test_one_kernel_has_its_own_figures() -> None:
    told = original_metrics(LAUNCHES[:1])
    assert told["speed_of_light"]["dram_throughput_pct"] == pytest.approx(81.697532)
    assert told["memory_metrics"]["dram_total_bandwidth_gb_s"] == pytest.approx(3931.1, rel=1e-3)
    assert told["occupancy_metrics"]["block_size"] == 512 and told["occupancy_metrics"]["grid_size"] == 1056
    assert told["timing_metrics"]["gpu_time_duration_sum"] == pytest.approx(131_040)
    assert told["timing_metrics"]["gpu_time_duration_unit"] == "nsecond"
    assert told["timing_metrics"]["gpc_cycles_elapsed_max"] == 254_615
    assert told["stall_metrics"]["stall_long_scoreboard_pct"] == pytest.approx(98.5, abs=0.1)
    assert told["detailed_metrics"]["sm_active_cycles_pct"] == pytest.approx(95.2, abs=0.1)


def test_several_kernels_are_summed_and_weighted_and_not_the_last_one() -> None:
    told = original_metrics(LAUNCHES)
    seconds = [launch.values["gpu__time_duration.sum"] for launch in LAUNCHES]
    assert told["timing_metrics"]["gpu_time_duration_seconds"] == pytest.approx(sum(seconds))
    sm = "sm__throughput.avg.pct_of_peak_sustained_elapsed"
    weighted = sum(launch.values[sm] * part for launch, part in zip(LAUNCHES, seconds, strict=True)) / sum(seconds)
    assert told["speed_of_light"]["sm_throughput_pct"] == pytest.approx(weighted)
    assert told["compute_metrics"]["registers_per_thread"] == 32, "of the longest kernel"
    assert told["access_pattern_metrics"]["shared_bank_conflicts_load_sum"] == 130_040_897
    assert told["access_pattern_metrics"]["l2_excess_frac"] == pytest.approx(0.4167, abs=1e-4)


def test_what_was_not_counted_is_left_out() -> None:
    assert original_metrics([Launch("k", (1, 1, 1), (1, 1, 1), {}, {})]) == {}
    only_time = Launch("k", (1, 1, 1), (1, 1, 1), {"gpu__time_duration.sum": 1e-6}, {})
    assert original_metrics([only_time]) == {
        "timing_metrics": {
            "gpu_time_duration_sum": pytest.approx(1000),
            "gpu_time_duration_unit": "nsecond",
            "gpu_time_duration_seconds": 1e-6,
        }
    }
