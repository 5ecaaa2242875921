"""A runner's word is never the time."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest

from domain.flags.codes import FlagCode
from profiling.results.estimate import estimate, null_share
from profiling.results.samples import KernelWindows
from profiling.results.speedup import paired_speedup, pairs_half_width
from profiling.window.timed_window import Clock
from tests.flag_codes import codes
from tests.kernel_windows import kernel_windows, timing_of, window

NULL_MS = [0.158, 0.160, 0.162]


def measured(
    *elapsed_ms: float, marked: tuple[float, list[float]] | None = None, calls: int = 2, **how: Any
) -> KernelWindows:
    """Windows of that many calls, each next to a null window of about 0.16 ms."""
    made = kernel_windows(calls, **how)
    if marked is not None:
        made.usual.warm_up(window(marked[0], marked[1]), Clock(0.160, 0.1))
    for index, elapsed in enumerate(elapsed_ms):
        null_ms = NULL_MS[index % 3]
        made.usual.add(window(elapsed - 0.160 + null_ms), Clock(null_ms, 0.1))
    return made


def test_events_that_fit_give_the_distribution_and_the_window_the_level() -> None:
    timing = timing_of(measured(10.16, 10.16, 10.16, marked=(9.7, [4.0, 5.5])))
    assert timing.latency_ms == pytest.approx(5.0)
    assert timing.stats.mean == pytest.approx(5.0)
    assert timing.stats.max / timing.stats.min == pytest.approx(5.5 / 4.0)
    assert (timing.distribution, timing.flags, timing.windows, timing.calls) == ("events", [], 3, 6)
    assert timing.resolution_us == pytest.approx(2.0)
    assert timing.relative_ci == pytest.approx(0.0139, rel=0.01)  # What processes differ by alone.


@pytest.mark.parametrize("lie", [[0.001, 0.001], [100.0, 100.0], [5.0], [math.nan, 5.0], [-1.0, 11.0], [0.0, 0.0]])
def test_events_that_do_not_fit_are_not_believed_and_it_is_said(lie: list[float]) -> None:
    timing = timing_of(measured(10.16, 10.16, marked=(10.16, lie)))
    assert timing.latency_ms == pytest.approx(5.0)
    assert timing.stats.mean == timing.stats.min == timing.stats.max == pytest.approx(5.0)
    assert timing.distribution == "windows"
    assert codes(timing.flags) == [FlagCode.EVENTS_MISMATCH]


@pytest.mark.parametrize("lie", [[1e-9, 1e-9, 1e-9, 20.0], [3.0, 3.0, 3.0, 11.0], [0.0, 6.7, 6.7, 6.7]])
def test_no_call_is_short_because_another_is_said_to_have_taken_its_time(lie: list[float]) -> None:
    timing = timing_of(measured(20.16, 20.16, 20.16, marked=(20.16, lie), calls=4))
    assert timing.latency_ms == timing.stats.median == pytest.approx(5.0)
    assert timing.stats.min == pytest.approx(5.0)
    assert (timing.distribution, timing.flags) == ("windows", [])


def test_a_time_that_cannot_be_told_from_zero_is_an_upper_bound_and_says_so() -> None:
    timing = timing_of(measured(0.150, 0.172, 0.155, 0.168, 0.160, 0.158))
    assert 0 < timing.latency_ms < 0.01
    assert timing.stats.mean == timing.stats.min == timing.latency_ms
    assert FlagCode.UPPER_BOUND in codes(timing.flags)
    assert timing.distribution == "none"


def test_an_interval_that_reaches_zero_is_no_measurement() -> None:
    # Two standard errors clear of zero, which of three windows says little.
    timing = timing_of(measured(0.16, 0.26, 0.40))
    assert timing.relative_ci is None and FlagCode.UPPER_BOUND in codes(timing.flags)


@pytest.mark.parametrize(
    ("gated", "single_ms", "flagged"),
    [
        (False, [0.52, 0.30, 0.51, 0.50], False),  # The host woke up late in three of four.
        (True, [0.52, 0.30, 0.51, 0.50], True),  # Behind the gate nothing waits for the host.
        (False, [5.2, 5.0, 5.1, 5.0], True),
    ],
)
def test_without_the_gate_the_shortest_single_call_counts(gated: bool, single_ms: list[float], flagged: bool) -> None:
    made = kernel_windows(10, gated=gated)
    for _ in range(6):
        made.usual.add(window(2.96), Clock(0.16, 0.1))
    for single in single_ms:
        made.single.add(window(0.16 + single), Clock(0.16, 0.1))
    timing = timing_of(made)
    assert (codes(timing.flags) == [FlagCode.SINGLE_CALL_SLOWER]) is flagged
    assert timing.latency_ms == pytest.approx(0.28 if not flagged else 0.505 if gated else 5.0)


@pytest.mark.parametrize("gated", [True, False])
def test_a_call_by_itself_that_was_begun_before_the_gun_hides_nothing(gated: bool) -> None:
    made = kernel_windows(10, gated=gated)
    for _ in range(6):
        made.usual.add(window(0.6), Clock(0.16, 0.1))  # One call's work is shared by ten.
    for early_start_ms in (0.0, 0.0, 3.0, 0.0, 0.0, 0.0, 0.0, 0.0):
        begun = window(0.16 + (0.6 if not early_start_ms else 0.01), setup_ms=0.1 + early_start_ms)
        made.single.add(begun, Clock(0.16, 0.1))
    timing = timing_of(made)
    assert FlagCode.SINGLE_CALL_SLOWER in codes(timing.flags) and timing.latency_ms > 0.5


def test_null_windows_of_one_call_that_were_kept_from_being_ready_hide_no_head_start() -> None:
    made = kernel_windows(10)
    for _ in range(6):
        made.usual.add(window(0.6), Clock(0.16, 0.1))
    for _ in range(8):
        made.single.add(window(0.16 + 0.01, setup_ms=3.1), Clock(0.16, 3.1))
    alone = [Clock(0.16, 0.1)] * 3
    assert not timing_of(made).flags and not made.single.null_needs_no_limit(alone, 0.025)
    limited = made.single.with_limited_nulls(alone, 0.025)
    assert limited.null_needs_no_limit(alone, 0.025)
    assert FlagCode.SINGLE_CALL_SLOWER in codes(timing_of(replace(made, single=limited)).flags)


@pytest.mark.parametrize(("charged", "flagged"), [(True, True), (False, False)])
def test_without_the_gate_a_shorter_head_start_counts_but_not_a_references(charged: bool, flagged: bool) -> None:
    made = kernel_windows(10, gated=False, is_candidate=charged)
    for _ in range(6):
        made.usual.add(window(0.6), Clock(0.16, 0.1))
    for _ in range(8):
        made.single.add(window(0.16 + 0.05, setup_ms=0.1 + 0.1), Clock(0.16, 0.1))
    timing = timing_of(made)
    assert timing.latency_ms == pytest.approx(0.15 if flagged else 0.044) and len(timing.flags) == flagged


@pytest.mark.parametrize("gated", [True, False])
def test_one_slow_null_window_makes_no_single_call_short(gated: bool) -> None:
    made = kernel_windows(10, gated=gated)
    for _ in range(6):
        made.usual.add(window(2.96), Clock(0.16, 0.1))
    for null_ms in (0.16, 0.16, 0.38, 0.16):
        made.single.add(window(0.16 + 0.6), Clock(null_ms, 0.1))
    timing = timing_of(made)
    assert FlagCode.SINGLE_CALL_SLOWER in codes(timing.flags)
    assert timing.latency_ms == pytest.approx(0.6)


@pytest.mark.parametrize(
    ("single_ms", "gated", "wanted"),
    [
        ([0.30, 0.29, 0.30, 0.30], True, False),  # As in a window, but for what may differ honestly.
        ([0.30, 0.60, 0.28, 0.50], True, True),
        ([0.30, 0.60, 0.28, 0.50], False, False),  # The shortest counts, and is as short as any.
        ([0.50, 0.51, 0.50, 0.50], True, True),  # Four may all be late by chance.
        ([0.50, 0.51, 0.50, 0.50], False, True),
        ([0.50, 0.51, 0.50, 0.50] * 3, True, False),  # Told already.
    ],
)
def test_more_single_calls_are_wanted_where_four_leave_it_open(
    single_ms: list[float], gated: bool, wanted: bool
) -> None:
    made = kernel_windows(10, gated=gated)
    for _ in range(6):
        made.usual.add(window(2.96), Clock(0.16, 0.1))
    for single in single_ms:
        made.single.add(window(0.16 + single), Clock(0.16, 0.1))
    assert estimate(made).single_call.unsure is wanted


def test_on_the_host_event_times_that_do_not_fit_are_noise_and_give_no_distribution() -> None:
    def made(*null_ms: float) -> KernelWindows:
        host = kernel_windows(2, is_cuda=False, gated=False)
        for null in null_ms:
            host.usual.add(window(5.0, [1.0, 1.0]), Clock(null, 0.1))
        return host

    for nulls in ((0.1, 6.0, 3.0, 2.0), (0.1, 0.1, 0.1, 0.1)):
        timing = timing_of(made(*nulls))
        assert FlagCode.EVENTS_MISMATCH not in codes(timing.flags)
    assert timing.distribution != "events" and timing.latency_ms == pytest.approx(2.45)


def test_windows_around_zero_do_not_make_the_others_outliers() -> None:
    timing = timing_of(measured(0.150, 0.150, 0.150, 0.171, 0.172, 0.173))
    assert timing.windows == 6


def test_a_window_that_was_broken_into_is_left_out_and_it_is_said() -> None:
    timing = timing_of(measured(10.16, 10.17, 10.15, 10.16, 10.18, 30.0))
    assert timing.stats.mean == pytest.approx(5.0, rel=0.01)
    assert timing.windows == 5 and FlagCode.WINDOWS_EXCLUDED in codes(timing.flags)


def test_a_null_window_that_was_broken_into_does_not_make_the_others_coarse() -> None:
    """Else one of them keeps every time from being looked at for being too short."""
    made = measured(*[10.16] * 8)
    made.usual.add(window(10.16), Clock(8.0, 0.1))
    timing = timing_of(made)
    assert timing.windows == 8 and timing.resolution_us == pytest.approx(2.0)


def test_windows_that_the_kernel_itself_makes_long_are_all_charged() -> None:
    timing = timing_of(measured(*[10.16, 10.16, 10.17, 14.16, 10.15, 10.16, 14.17, 10.16, 14.15, 14.16] * 3))
    assert timing.latency_ms == pytest.approx(5.8, rel=0.01) and timing.flags == []


def test_pairs_that_were_broken_into_do_not_count() -> None:
    reference = measured(10.16, 10.16, 30.0, 10.16, 10.16, 10.16)
    candidate = measured(5.16, 5.16, 5.16, 5.16, 5.16, 40.0)
    found = paired_speedup(estimate(reference), estimate(candidate))
    assert found is not None and found.ratio == pytest.approx(2.0, rel=0.01) and found.verdict == "faster"


def test_a_kernel_that_is_slower_by_itself_has_that_time_in_its_speedup_too() -> None:
    reference, batcher = measured(*[10.16] * 6), measured(*[1.16] * 6)
    for _ in range(8):
        batcher.single.add(window(5.16), Clock(0.16, 0.1))
    assert timing_of(batcher).latency_ms == pytest.approx(5.0, rel=0.01)
    assert codes(timing_of(batcher).flags) == [FlagCode.SINGLE_CALL_SLOWER]
    assert timing_of(batcher).windows == 6
    found = paired_speedup(estimate(reference), estimate(batcher))
    assert found is not None and found.ratio == pytest.approx(1.0, rel=0.02)


def test_drift_of_the_overhead_is_taken_off_window_by_window() -> None:
    made = kernel_windows(2)
    for step in range(10):
        made.usual.add(window(10.16 + 0.05 * step), Clock(0.16 + 0.05 * step, 0.1))
    timing = timing_of(made)
    assert timing.latency_ms == pytest.approx(5.0) and timing.relative_ci == pytest.approx(0.0139, rel=0.01)


def test_more_pairs_make_the_interval_narrower() -> None:
    few, many = ([measured(*[10.16, 10.26] * n) for _ in range(2)] for n in (3, 30))
    few[1].usual.elapsed_ms.reverse()
    many[1].usual.elapsed_ms.reverse()
    assert pairs_half_width(*map(estimate, many)) < pairs_half_width(*map(estimate, few)) < 0.05


def test_one_call_a_window_leaves_open_what_its_place_in_memory_does() -> None:
    """Transposed convolutions of KernelBench differ from themselves by 2 % in all windows of a pair of processes."""
    for calls, share, verdict in ((1, 0.022, "not_distinguishable"), (1, 0.05, "slower"), (100, 0.022, "slower")):
        both = [measured(*[10.16 * factor] * 6, calls=calls) for factor in (1.0, 1.0 + share)]
        found = paired_speedup(*map(estimate, both))
        assert found is not None and found.verdict == verdict


def test_the_slow_place_of_a_call_whose_memory_moves_is_no_disturbance() -> None:
    """A convolution in eight windows, two of which had another place."""
    net_ms = [4.867, 4.934, 6.478, 4.882, 6.399, 4.914, 4.933, 4.959]
    several, single = kernel_windows(1, launches=10), kernel_windows(1)
    for made in (several, single):
        for elapsed_ms in net_ms:
            made.usual.add(window(elapsed_ms + 0.16), Clock(0.16, 0.1))
    assert timing_of(several).windows == 8 and timing_of(single).windows == 6


def test_short_calls_leave_more_open_than_long_ones_whatever_the_windows_say() -> None:
    short, long = ([measured(*[10.16] * 6, calls=calls) for _ in range(2)] for calls in (4000, 100))
    found, narrow = paired_speedup(*map(estimate, short)), paired_speedup(*map(estimate, long))
    assert found is not None and narrow is not None
    assert found.ci_high - found.ci_low > 2 * (narrow.ci_high - narrow.ci_low)


def test_what_a_launch_costs_more_in_this_process_is_taken_off_each_call() -> None:
    plain = measured(*[1.16] * 6, calls=400)
    slower = measured(*[1.20] * 6, calls=400, launch_shift_ms=1e-4)
    timing = timing_of(slower)
    assert timing.latency_ms == pytest.approx(timing_of(plain).latency_ms)
    assert timing.launch_overhead_correction_us == pytest.approx(0.1)


def test_what_was_worked_before_the_gun_is_added_and_it_is_said() -> None:
    made = kernel_windows(2)
    for step in range(6):
        made.usual.add(window(2.16, setup_ms=8.1 + 0.001 * step), Clock(0.16, 0.1))
    timing = timing_of(made)
    assert timing.latency_ms == pytest.approx(5.0, rel=0.01)
    assert codes(timing.flags) == [FlagCode.WORK_BEFORE_CLOCK]
    assert "making a window ready took 8 ms longer" in timing.flags[0].message
    assert timing.flags[0].data["typical_ms"] == pytest.approx(8.0, rel=0.01)


@pytest.mark.parametrize(
    "early",
    [
        [3.0, 0.0] * 10,  # In every other window: the median of all may be none.
        [3.0] * 19 + [100.0],  # One by far: the spread of all is more than what is common to them.
        [3.0, -2.0] * 10,
        [0.2] * 19 + [100.0],
    ],
)
def test_work_before_the_gun_does_not_hide_in_its_own_spread(early: list[float]) -> None:
    made = kernel_windows(1)
    for each in early:  # What was done before the gun is not done after it.
        made.usual.add(window(5.16 - max(min(each, 3.0), 0.0), setup_ms=4.0 + each), Clock(0.16, 4.0))
    timing = timing_of(made)
    assert timing.latency_ms == pytest.approx(5.0, rel=0.01)
    assert FlagCode.WORK_BEFORE_CLOCK in codes(timing.flags)


def test_one_late_window_is_left_out_like_any_other() -> None:
    made = kernel_windows(2)
    for each in [0.0] * 9 + [2.0]:
        made.usual.add(window(10.16, setup_ms=4.0 + each), Clock(0.16, 4.0))
    timing = timing_of(made)
    assert timing.latency_ms == pytest.approx(5.0)
    (flag,) = timing.flags
    assert flag.code is FlagCode.WINDOWS_EXCLUDED and flag.data == {"excluded_windows": 1, "windows": 10}
    assert flag.message == "1 of 10 windows was disturbed by other load and dropped"


def test_what_keeps_a_reference_from_being_ready_is_not_its_time() -> None:
    reference = kernel_windows(1, is_candidate=False)
    for _ in range(8):
        reference.usual.add(window(2.16, setup_ms=4.0), Clock(0.16, 1.0))
    assert timing_of(reference).latency_ms == pytest.approx(2.0)


def test_nor_is_what_its_calls_by_themselves_take_longer_beside_the_candidate() -> None:
    for charged in (False, True):
        made = kernel_windows(10, is_candidate=charged)
        for _ in range(6):
            made.usual.add(window(5.16), Clock(0.16, 1.0))
            made.single.add(window(2.66), Clock(0.16, 0.1))
        assert timing_of(made).latency_ms == pytest.approx(2.5 if charged else 0.5)
        assert bool(timing_of(made).flags) is bool(estimate(made).correction.added_ms) is charged


@pytest.mark.parametrize("early", [[0.061] * 6, [0.08, -0.05, 0.06, -0.04, 0.07, 0.02], [-3.0] * 6])
def test_noise_before_the_gun_is_no_head_start(early: list[float]) -> None:
    made = kernel_windows(2)
    for each in early:
        made.usual.add(window(10.16, setup_ms=4.0 + each), Clock(0.16, 4.0))
    timing = timing_of(made)
    assert timing.latency_ms == pytest.approx(5.0)
    assert timing.flags == []


def test_windows_are_told_one_by_one_and_which_were_left_out() -> None:
    timing = timing_of(measured(10.16, 10.16, 10.26, 10.16, 10.16, 10.16, 30.16))
    assert timing.window_ms == pytest.approx([5.0, 5.0, 5.05, 5.0, 5.0, 5.0, 15.0])
    assert (timing.excluded_windows, timing.windows) == ([6], 6)


def test_of_many_windows_some_are_told_evenly() -> None:
    timing = timing_of(measured(*(10.16 + index / 1000 for index in range(1000))))
    assert len(timing.window_ms) == 128
    assert timing.window_ms[0] == pytest.approx(5.0) and timing.window_ms[-1] == pytest.approx(5.4995)
    assert timing.window_ms == sorted(timing.window_ms)


@pytest.mark.parametrize("gated", [True, False])
def test_who_takes_longer_where_answers_are_held_back_is_charged_that(gated: bool) -> None:
    made = measured(2.16, 2.17, 2.15, calls=10, gated=gated)
    for elapsed_ms in (2.9, 2.91, 2.89, 2.9):
        made.deferred_readback.add(window(elapsed_ms + 0.16), Clock(0.16, 0.1))
    timing = timing_of(made)
    assert timing.latency_ms == pytest.approx(0.29) and estimate(made).correction.added_ms == pytest.approx(
        0.9, rel=1e-2
    )
    (flag,) = timing.flags
    assert flag.code is (FlagCode.DEFERRED_OUTPUTS_SLOWER if gated else FlagCode.HOST_JITTER)
    assert "requested only after the last call" in flag.message


def test_nor_does_a_copy_that_was_not_made_hide_where_windows_hold_few_calls() -> None:
    """Of 13 calls of 95 µs without the gate, each of which is credited 42 it has not spent, as seen on an H100."""
    usual = (0.76, 0.69, 0.73, 0.76, 0.7, 0.79, 0.7, 0.71, 0.75, 0.76, 0.73, 0.87, 0.97, 0.98)
    made = measured(*(each + 0.16 for each in usual), calls=13, gated=False)
    for elapsed_ms in (2.37, 1.18, 1.23, 1.13, 1.34, 1.19, 1.31, 1.03, 1.15, 1.23, 1.27, 1.17):
        made.deferred_readback.add(window(elapsed_ms + 3.6), Clock(3.6, 0.1))
    assert timing_of(made).latency_ms == pytest.approx(0.0917, rel=0.02)


def test_without_the_gate_only_more_than_the_hosts_pace_is_evidence_where_answers_are_held_back() -> None:
    made = measured(2.16, 2.17, 2.15, calls=10, gated=False)
    for elapsed_ms in (3.9, 3.91, 3.89, 3.9):
        made.deferred_readback.add(window(elapsed_ms + 0.16), Clock(0.16, 0.1))
    assert FlagCode.DEFERRED_OUTPUTS_SLOWER in codes(timing_of(made).flags)


@pytest.mark.parametrize(("gated", "more_ms"), [(True, 0.064), (False, 0.15)])
def test_what_holding_back_honestly_costs_is_no_evidence(gated: bool, more_ms: float) -> None:
    made = measured(1.16, 1.17, 1.15, calls=10, gated=gated)
    for noise_ms in (0.0, 0.001, -0.001, 0.0):
        made.deferred_readback.add(window(1.16 + more_ms + noise_ms), Clock(0.16, 0.1))
    timing = timing_of(made)
    assert timing.flags == [] and timing.latency_ms == pytest.approx(0.1)


@pytest.mark.parametrize(("more_ms", "charged_ms"), [(0.064, 0.2), (0.3, 0.5)])
def test_of_calls_that_answer_in_the_same_memory_one_is_held_back(more_ms: float, charged_ms: float) -> None:
    made = measured(2.16, 2.17, 2.15, calls=10, readback_calls=1)
    for noise_ms in (0.0, 0.001, -0.001, 0.0):
        made.deferred_readback.add(window(0.2 + more_ms + noise_ms + 0.16), Clock(0.16, 0.1))
    timing = timing_of(made)
    assert timing.latency_ms == pytest.approx(charged_ms) and len(timing.flags) == (charged_ms > 0.2)


def test_work_ahead_of_the_gun_counts_where_answers_are_held_back() -> None:
    made = measured(2.16, 2.17, 2.15, calls=10)
    for _ in range(4):
        made.deferred_readback.add(window(2.16, setup_ms=1.1), Clock(0.16, 0.1))
    assert timing_of(made).latency_ms == pytest.approx(0.3)


@pytest.mark.parametrize("long", [7, 11, 12, 14])
def test_some_very_long_windows_do_not_hide_what_all_of_them_take_longer(long: int) -> None:
    made = measured(2.16, 2.17, 2.15, calls=10)
    for elapsed_ms in [2.9] * (24 - long) + [20.0] * long:
        made.deferred_readback.add(window(elapsed_ms + 0.16), Clock(0.16, 0.1))
    assert timing_of(made).latency_ms >= 0.29 - 1e-9 and len(timing_of(made).flags) == 1
    made = measured(2.16, 2.17, 2.15, calls=10)
    for elapsed_ms in [0.6] * (24 - long) + [9.0] * long:
        made.single.add(window(elapsed_ms + 0.16), Clock(0.16, 0.1))
    assert timing_of(made).latency_ms >= 0.6 - 1e-9 and len(timing_of(made).flags) == 1


def test_what_is_credited_is_a_part_of_the_windows_that_count() -> None:
    made = measured(0.5, 0.5, 0.5, 0.5, 0.5)
    assert null_share(made.usual) == pytest.approx(0.32, rel=0.01)
    made.usual.add(window(40.0), Clock(0.16, 0.1))  # Left out, whoever made it so long.
    assert timing_of(made).windows == 5 and null_share(made.usual) == pytest.approx(0.32, rel=0.01)


def test_null_windows_that_the_submission_slowed_do_not_make_windows_of_another_kind_short() -> None:
    made = measured(2.16, 2.17, 2.15, calls=10)
    for slowed_ms in (0.0, 0.8, 0.8, 0.8):
        made.deferred_readback.add(window(2.9 + 0.16), Clock(0.16 + slowed_ms, 0.1))
    assert timing_of(made).flags == []
    limited = made.deferred_readback.with_limited_nulls([Clock(ms, 0.1) for ms in (0.16, 0.17, 0.15)], 0.1)
    (flag,) = timing_of(replace(made, deferred_readback=limited)).flags
    assert flag.code is FlagCode.DEFERRED_OUTPUTS_SLOWER
