"""Where a time lies beneath a card's rates: shares by hand, what bounds it, and what is not known."""

from __future__ import annotations

import pytest

from profiling.gpu.measured_peaks import UNKNOWN, Ceilings
from profiling.roofline.intensity import Work

CARD = Ceilings(memory_bytes_per_s=4e12, l2_bytes_per_s=1e13, l2_bytes=50 << 20, flops={"float32": 5e13, "tf32": 4e14})


def test_a_copy_is_bound_by_the_memory() -> None:
    place = Work(8_000_000_000, None, CARD).position(2.5, calls=1)
    assert place is not None and place["bound"] == "memory"
    assert place["bytes_per_s"] == pytest.approx(3.2e12)
    assert 0.75 < place["memory_share"] < 0.8  # 8 GB less what may stay in the L2, at 4 TB/s, of 2.5 ms
    assert place["flops"] is place["flops_per_s"] is place["arithmetic_share"] is place["flops_per_byte"] is None


def test_a_product_is_bound_by_the_arithmetic() -> None:
    place = Work(100_000_000, {"float32": 4e11}, CARD).position(1.25, calls=1)
    assert place is not None and place["bound"] == "arithmetic"
    assert place["flops_per_s"] == pytest.approx(3.2e14)
    assert place["arithmetic_share"] == pytest.approx(0.8)  # the better of the rates that float32 may have
    assert place["flops_per_byte"] == pytest.approx(4000)
    assert place["roof_flops_per_s"] == pytest.approx(4e14)
    assert place["roof_bytes_per_s"] == 4e12


def test_what_is_far_from_both_is_bound_by_neither() -> None:
    place = Work(1_000_000, {"float32": 1e6}, CARD).position(1.0, calls=100)
    assert place is not None and place["bound"] == "neither"


def test_no_operation_that_is_counted_is_no_share_and_no_intensity() -> None:
    place = Work(1_000_000, {}, CARD).position(0.01, calls=100)
    assert place is not None
    assert (place["flops"], place["flops_per_s"], place["arithmetic_share"]) == ({}, 0.0, 0.0)
    assert place["flops_per_byte"] is place["roof_flops_per_s"] is None


def test_a_time_that_is_none_has_no_place() -> None:
    assert Work(1, None, CARD).position(0.0, calls=1) is None


def test_an_operation_of_unknown_rate_has_no_roof() -> None:
    place = Work(1_000, {"float32": 1e9}, UNKNOWN).position(1.0, calls=1)
    assert place is not None and place["roof_flops_per_s"] is None and place["bound"] == "neither"
