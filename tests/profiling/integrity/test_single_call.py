"""Calls by themselves beside an honest one's, and no call that costs less than its launch."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from domain.flags.codes import FlagCode
from profiling.integrity.disagreement import DRIFT_MS, NO_HOST_JITTER, NULL_DRIFT_MS, CheckWindows, Measured
from profiling.integrity.single_call import (
    COLD_MS,
    LEAST_LAUNCH_MS,
    SETTLED_STREAMED,
    SIDE_DIFFERENCE_MS,
    WARM_MS,
    reconcile_single_call,
    single_call_allowance,
)
from profiling.results.estimate import allowance, estimate
from profiling.results.samples import KernelWindows
from profiling.results.speedup import paired_speedup
from profiling.window.timed_window import Clock
from tests.flag_codes import codes
from tests.kernel_windows import kernel_windows, timing_of, window

HANDED_IN_WARM_MS = -0.010


def measured(
    usual_ms: float, alone_ms: float, *, calls: int = 50, singles: int = 12, gated: bool = True, **setup: Any
) -> KernelWindows:
    """Windows of many calls, and calls by themselves, each with a µs of noise."""
    rng = np.random.default_rng(2)
    made = kernel_windows(calls, gated=gated, **setup)
    for noise in rng.normal(0, 0.001, 8):
        made.usual.add(window(calls * usual_ms + 0.16 + noise), Clock(0.16, 0.1))
    for noise in rng.normal(0, 0.001, singles):
        made.single.add(window(alone_ms + 0.16 + noise), Clock(0.16, 0.1))
    return made


@pytest.mark.parametrize("true_ms", [0.015, 0.025, 0.08])
def test_what_the_reference_takes_longer_by_itself_shows_a_batch_that_nothing_else_does(true_ms: float) -> None:
    reference = measured(true_ms, true_ms + HANDED_IN_WARM_MS)
    batcher = measured(0.002, true_ms + HANDED_IN_WARM_MS)
    if true_ms + HANDED_IN_WARM_MS - 0.002 < DRIFT_MS:
        assert not timing_of(batcher).flags  # By itself, where it might be a process that begins late.
    found = timing_of(batcher, reference)
    assert found.latency_ms == pytest.approx(true_ms, abs=0.001)
    assert codes(found.flags) == [FlagCode.SINGLE_CALL_SLOWER] and "the reference's" in found.flags[0].message


@pytest.mark.parametrize("longer_ms", [-0.018, -0.010, 0.0, 0.009])
@pytest.mark.parametrize("apart_ms", [-0.007, 0.0, 0.007])
def test_what_both_take_longer_and_a_little_more_is_honest(longer_ms: float, apart_ms: float) -> None:
    reference = measured(0.015, 0.015 + longer_ms)
    candidate = measured(0.012, 0.012 + longer_ms + apart_ms)
    timing = timing_of(candidate, reference)
    assert not timing.flags and timing.latency_ms == pytest.approx(0.012, abs=1e-3)
    assert not estimate(candidate, reference).single_call.unsure


@pytest.mark.parametrize(("mebibytes", "flagged"), [(0, True), (0.01, True), (4, False), (1000, False)])
def test_weights_that_each_call_by_itself_reads_from_memory_are_no_shared_work(mebibytes: float, flagged: bool) -> None:
    """Seen with a product of 1024² in float32: 57 µs in a window of many, 64 by itself; its reference 65 in both."""
    reference = measured(0.065, 0.045, weight_bytes=int(mebibytes * 2**20))
    timing = timing_of(measured(0.0565, 0.0505), reference)
    assert bool(timing.flags) is flagged
    assert timing.latency_ms == pytest.approx(0.0685 if flagged else 0.0565, abs=1e-3)
    batcher = measured(0.01, 0.05)
    assert timing_of(batcher, reference).flags, "however many they are"


def test_what_a_call_by_itself_took_is_not_told_where_a_null_window_takes_more() -> None:
    assert timing_of(measured(0.002, -0.006)).single_call_ms is None
    assert timing_of(measured(0.002, 0.003)).single_call_ms == pytest.approx(0.003, abs=1e-3)


def test_a_few_late_calls_of_the_references_make_no_batch_shorter() -> None:
    reference = measured(0.1, 0.0, singles=0)
    for late_ms in [0.0] * 9 + [0.03] * 3:
        reference.single.add(window(0.16 + 0.1 + HANDED_IN_WARM_MS + late_ms), Clock(0.16, 0.1))
    timing = timing_of(measured(0.002, 0.1 + HANDED_IN_WARM_MS), reference)
    assert timing.flags and timing.latency_ms == pytest.approx(0.1, abs=1e-3)


def test_a_candidate_that_slows_the_references_calls_by_themselves_hides_little() -> None:
    """It lives beside them: more than cold weights may cost is not believed."""
    slowed = measured(0.015, 0.315)
    allowed = allowance(slowed)
    assert allowed is not None and allowed.longer.time_ms == COLD_MS
    found = timing_of(measured(0.002, 0.04), slowed)
    assert found.latency_ms >= 0.04 - COLD_MS - 0.001 and found.flags


def test_one_that_makes_them_uncertain_is_still_told_by_what_any_call_may_take_longer() -> None:
    uncertain = measured(0.1, 0.1)
    for late_ms in np.linspace(-0.09, 0.3, 12):
        uncertain.single.add(window(0.1 + 0.16 + late_ms), Clock(0.16, 0.1))
    found = timing_of(measured(0.002, 0.1), uncertain)
    assert found.latency_ms == pytest.approx(0.1, abs=0.002) and FlagCode.SINGLE_CALL_SLOWER in codes(found.flags)


@pytest.mark.parametrize("gated", [(True, False), (False, True), (False, False)])
def test_without_the_gate_at_both_nothing_is_known_by_the_reference(gated: tuple[bool, bool]) -> None:
    reference, candidate = measured(0.03, 0.03, gated=gated[0]), measured(0.012, 0.03, gated=gated[1])
    alone = timing_of(candidate)
    assert timing_of(candidate, reference) == alone and not alone.flags


def test_too_few_calls_of_the_references_by_themselves_tell_nothing() -> None:
    candidate = measured(0.002, 0.015)
    alone = timing_of(candidate)
    assert timing_of(candidate, measured(0.015, 0.015, singles=2)) == alone


@pytest.mark.parametrize(
    ("usual_ms", "launches", "flagged"),
    [
        (0.00005, 1, True),
        (0.00005, None, True),
        (0.00005, 0, False),  # It hands in what is there.
        (-0.0002, 0, False),
        (0.0013, 1, False),
        (0.0020, 1, False),
        (0.0020, 5, True),
        (0.0060, 5, False),
    ],
)
def test_no_call_is_credited_with_less_than_its_launches(usual_ms: float, launches: int | None, flagged: bool) -> None:
    made = measured(usual_ms, 0.0041, calls=240, launches=launches)
    timing = timing_of(made)
    assert (FlagCode.FASTER_THAN_LAUNCHES in codes(timing.flags)) is flagged
    if flagged:
        assert timing.latency_ms >= max((launches or 1) * LEAST_LAUNCH_MS, 0.0035)
    else:
        assert timing.latency_ms == pytest.approx(max(usual_ms, 0.0), abs=1e-5)


def test_where_four_calls_by_themselves_leave_it_open_more_are_wanted() -> None:
    reference, candidate = (measured(usual, 0.005, singles=4) for usual in (0.015, 0.001))
    assert not estimate(candidate).single_call.unsure
    assert estimate(candidate, reference).single_call.unsure
    assert not estimate(measured(0.001, 0.005), measured(0.015, 0.005)).single_call.unsure


def test_without_the_gate_the_shortest_has_more_chances_before_it_is_said() -> None:
    few, enough = (
        measured(0.05, 0.3, singles=count, gated=False) for count in (SETTLED_STREAMED - 8, SETTLED_STREAMED)
    )
    assert estimate(few).single_call.unsure and not estimate(enough).single_call.unsure
    assert FlagCode.SINGLE_CALL_SLOWER in codes(timing_of(enough).flags)
    enough.single.add(window(0.16 + 0.05), Clock(0.16, 0.1))
    assert not timing_of(enough).flags


@pytest.mark.parametrize("usual_ms", [0.01, 0.05, 0.5])
def test_what_a_host_may_take_longer_without_the_gate_is_the_time_and_no_word_against_the_kernel(
    usual_ms: float,
) -> None:
    made = measured(usual_ms, usual_ms + 0.07, singles=SETTLED_STREAMED, gated=False)
    timing = timing_of(made)
    assert timing.latency_ms == pytest.approx(usual_ms + 0.07, abs=0.005)
    assert codes(timing.flags) == [FlagCode.HOST_JITTER]
    found = paired_speedup(estimate(measured(usual_ms, usual_ms, gated=False)), estimate(made))
    assert found is not None and found.verdict == "not_distinguishable" and found.ci_low < 1 <= found.ci_high
    queued = timing_of(measured(usual_ms, usual_ms + 0.07, singles=SETTLED_STREAMED))
    assert FlagCode.SINGLE_CALL_SLOWER in codes(queued.flags)


@pytest.mark.parametrize(
    ("reference_ms", "shorter"), [(1.0, 0.015), (5.0, 0.02), (0.4, 0.04)], ids=["1 ms", "5 ms", "4 percent"]
)
def test_a_slow_reference_whose_calls_differ_is_no_evidence_against_a_fast_candidate(
    reference_ms: float, shorter: float
) -> None:
    reference = measured(reference_ms, reference_ms * (1 - shorter), calls=4)
    allowed = allowance(reference)
    assert allowed is not None and allowed.longer.time_ms >= WARM_MS
    timing = timing_of(measured(0.02, 0.02, calls=4), reference)
    assert not timing.flags and timing.latency_ms == pytest.approx(0.02, abs=1e-3)


def test_nor_is_one_whose_calls_take_one_time_or_another() -> None:
    rng, told, rounds = np.random.default_rng(4), 0, 300
    for _ in range(rounds):
        reference = measured(0.052, 0.04, singles=0)
        for late in rng.random(12) < 0.3:
            reference.single.add(window(0.16 + (0.08 if late else 0.04)), Clock(0.16, 0.1))
        told += bool(timing_of(measured(0.02, 0.02), reference).flags)
    assert told <= 0.02 * rounds


def test_the_speed_up_is_that_of_the_times() -> None:
    """Also where windows of many take nothing, or noise alone."""
    for usual_ms in (-0.00002, 0.0, 0.00001):
        candidate = measured(usual_ms, 0.004, calls=240)
        found = paired_speedup(estimate(measured(0.004, 0.004, calls=240)), estimate(candidate))
        assert found is not None and found.ratio == pytest.approx(1.0, rel=0.1)
        assert found.ci_low < 1 < found.ci_high < 1.5, "what calls by themselves differ by is in it"
        assert timing_of(candidate).latency_ms == pytest.approx(0.004, rel=0.1)


def test_who_hides_the_work_of_some_calls_by_themselves_is_told_by_the_others() -> None:
    """Done ahead of the gun, or behind null windows that were slowed or made ready late, in every third."""
    batch, alone = measured(0.005, 0.0, calls=50, singles=0), [Clock(0.16, 0.1)] * 3
    for place in range(24):
        hides = place % 3 == 0
        batch.single.add(window(0.16 + (0.005 if hides else 0.2), setup_ms=0.1 + 0.195 * hides), Clock(0.16, 0.1))
    assert timing_of(batch).latency_ms == pytest.approx(0.2)
    slowed = measured(0.005, 0.0, calls=50, singles=0)
    for place in range(24):
        late = 0.2 * (place % 3 == 0)
        slowed.single.add(window(0.16 + 0.2 - late, setup_ms=0.1 + late), Clock(0.16 + late, 0.1 + late))
    assert slowed.single.null_needs_no_limit(alone, DRIFT_MS), "a few of them change nothing"
    assert timing_of(slowed).latency_ms == pytest.approx(0.2)


@pytest.mark.parametrize(("windows", "batched"), [(6, 3), (10, 4), (20, 6), (40, 11)])
@pytest.mark.parametrize("deferred_readback", [False, True])
def test_a_batch_in_some_windows_does_not_hide_in_their_spread(
    windows: int, batched: int, deferred_readback: bool
) -> None:
    rng, made = np.random.default_rng(3), kernel_windows(50)
    for place in rng.permutation(windows):
        made.usual.add(window(0.16 + 50 * (0.1 if place < batched else 1.02)), Clock(0.16, 0.1))
    other = made.deferred_readback if deferred_readback else made.single
    for _ in range(12):
        other.add(window(0.16 + other.calls * 1.0), Clock(0.16, 0.1))
    timing = timing_of(made)
    assert len(timing.flags) >= 1 and timing.latency_ms == pytest.approx(1.0)


@pytest.mark.parametrize("windows", [4, 8, 24])
def test_windows_that_differ_honestly_are_no_batch(windows: int) -> None:
    rng, told, rounds = np.random.default_rng(8), 0, 300
    for _ in range(rounds):
        made = kernel_windows(50)
        # By 3 %, and by 11 where memory lies elsewhere.
        each, alone = (0.545 * rng.normal(1, 0.03, n) + 0.06 * (rng.random(n) < 0.4) for n in (windows, 24))
        for ms in each:
            made.usual.add(window(0.16 + 50 * ms), Clock(0.16, 0.1))
        for ms in alone:
            made.single.add(window(0.16 + ms), Clock(0.16, 0.1))
        told += bool(timing_of(made).flags)
    assert told <= 0.01 * rounds


def test_null_windows_that_are_always_made_ready_late_hide_little() -> None:
    made, alone = measured(0.005, 0.0, calls=50, singles=0), [Clock(0.16, 0.1)] * 3
    for _ in range(12):
        made.single.add(window(0.16 + 0.005, setup_ms=0.1 + 0.4), Clock(0.16, 0.1 + 0.25))
    assert not made.single.null_needs_no_limit(alone, DRIFT_MS)
    limited = replace(made, single=made.single.with_limited_nulls(alone, DRIFT_MS))
    assert timing_of(limited).latency_ms == pytest.approx(0.005 + 0.4 - 0.06)


@pytest.mark.parametrize("true_ms", [0.12, 0.17, 0.2, 0.35])
def test_who_slows_null_windows_without_the_gate_is_not_called_faster(true_ms: float) -> None:
    """From 0.12 ms on: a call by itself is believed from 25 µs on, and 85 of it are hidden."""
    made = measured(0.005, 0.0, singles=0, gated=False)
    for _ in range(SETTLED_STREAMED):
        made.single.add(window(0.7 + true_ms), Clock(0.7 + 0.18, 0.1))
    made = replace(made, single=made.single.with_limited_nulls([Clock(0.7, 0.1)] * 3, NULL_DRIFT_MS["streamed"]))
    found = paired_speedup(estimate(measured(true_ms, true_ms, gated=False)), estimate(made))
    assert found is not None and found.verdict == "not_distinguishable"
    assert timing_of(made).latency_ms == pytest.approx(true_ms - 0.085)


def test_without_the_gate_a_call_is_not_shorter_than_its_launches_either() -> None:
    few, many = (measured(0.0001, 0.02, singles=SETTLED_STREAMED, gated=False, launches=count) for count in (2, 10))
    assert not timing_of(few).flags, "so much may null windows be longer by the host's pace"
    timing = timing_of(many)
    assert timing.latency_ms == pytest.approx(0.02, abs=0.005)
    assert FlagCode.FASTER_THAN_LAUNCHES in codes(timing.flags)


def test_what_a_batch_can_gain_beside_a_reference_is_five_percent_and_what_honest_ones_differ_by() -> None:
    for true_ms in (0.002, 0.02, 0.3, 5.0):
        usual, alone = Measured(true_ms, 1e-6), Measured(true_ms + HANDED_IN_WARM_MS, 1e-6, true_ms + HANDED_IN_WARM_MS)
        single = CheckWindows(1, *([ms] * 4 for ms in (0.16 + alone.time_ms, 0.16, 0.1, 0.1)), paired=False)
        known = single_call_allowance(usual, single)
        assert known is not None and math.isclose(known.longer.time_ms, HANDED_IN_WARM_MS)
        gained = max(
            true_ms - found.time_ms
            for share in np.linspace(0, 1, 201)
            if (found := reconcile_single_call(np.full(4, true_ms * share), alone, NO_HOST_JITTER, known, 1)).flag
            is None
        )
        assert gained <= 0.05 * true_ms + SIDE_DIFFERENCE_MS + 1e-9
