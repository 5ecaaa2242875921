"""One side's answer out of a printed report."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from profiling.ncu.report import MAX_KERNELS, described

SAMPLE = (Path(__file__).parents[1] / "samples" / "ncu-h200.csv").read_text(encoding="utf-8")


def test_a_side_has_kernels_advice_and_the_original_names() -> None:
    side, original = described(SAMPLE, ["dram__bytes.sum.per_second"])
    assert set(side) == {"kernels", "kernels_omitted", "launches", "advice"}
    assert (len(side["kernels"]), side["kernels_omitted"], side["launches"]) == (10, 0, 10)
    assert side["kernels"][0]["requested_metrics"]["dram__bytes.sum.per_second"]["unit"] == "byte/s"
    assert {one["rule"] for one in side["advice"]} >= {"spilling", "uncoalesced", "bank_conflicts", "divergent"}
    assert set(original) >= {"speed_of_light", "timing_metrics"}
    assert json.loads(json.dumps([side, original], allow_nan=False)) == [side, original]


def test_the_basic_level_in_base_units() -> None:
    """As ncu printed it with counter_choice's own arguments: a product without tensor cores, and a softmax."""
    text = (Path(__file__).parents[1] / "samples" / "ncu-h200-basic.csv").read_text(encoding="utf-8")
    side, original = described(text)
    product, softmax = side["kernels"]
    assert product["time_us"] == pytest.approx(62.016) and softmax["time_us"] == pytest.approx(6.4)
    assert product["roofline"]["flops"] == pytest.approx(2 * 1024**3, rel=0.01)
    assert product["bank_conflicts"]["n_way"] == pytest.approx(1.33, abs=0.01)
    assert [one["rule"] for one in side["advice"]] == ["cache_ceiling"], "the softmax is too short to be judged"
    assert original["timing_metrics"]["gpu_time_duration_sum"] == pytest.approx(68_416)


def test_more_kernels_than_are_told_are_counted() -> None:
    header, units, *rows = SAMPLE.splitlines()
    row = rows[0]
    many = [row.replace('"copy"', f'"copy{number}"') for number in range(MAX_KERNELS + 3)]
    side, _ = described("\n".join([header, units, *many]))
    assert len(side["kernels"]) == MAX_KERNELS and side["kernels_omitted"] == 3


def test_what_is_no_report_is_refused() -> None:
    with pytest.raises(ValueError, match="no table of counters"):
        described("==ERROR== nothing\n")
