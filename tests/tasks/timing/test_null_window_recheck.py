"""What null windows take once the candidate's process is gone."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import pytest
import torch

from domain.flags.codes import SPEEDUP_UNKNOWN, FlagCode
from domain.result import CANDIDATE, REFERENCE, Speedup
from profiling.integrity.interference import FLOOR_MS
from profiling.results.estimate import estimate, net_ms
from profiling.results.samples import KernelWindows
from profiling.results.speedup import paired_speedup
from profiling.window.call_buffers import Slots
from profiling.window.timed_window import Clock, DeferredReadback, Window
from tasks.runtime.null_window_cache import MAX_AGE_S, NullKind, NullWindowCache
from tasks.timing.null_window_recheck import (
    ISOLATED_ROUNDS,
    CheckNullWindows,
    NullWindowRecheck,
)
from tests.flag_codes import codes
from tests.kernel_windows import kernel_windows, timing_of, window

NULL_MS = 0.16
LAYOUT = Slots(10, [torch.empty(8)], (), [torch.empty(8)], "cpu")
USUAL, DEFERRED = (
    NullKind.of(LAYOUT, gated=True),
    NullKind.of(LAYOUT, gated=True, deferred_readback=DeferredReadback()),
)


def taken(net_ms: float, setup_ms: float = 0.1) -> Window:
    """A window of that time beyond a null window's."""
    return window(NULL_MS + net_ms, setup_ms=setup_ms)


def rechecked(
    windows: KernelWindows,
    isolated_ms: Iterable[float] = itertools.repeat(NULL_MS),
    others: Sequence[CheckNullWindows] = (),
    isolated_setup_ms: float = 0.1,
) -> tuple[KernelWindows, NullWindowRecheck]:
    """A candidate's windows, judged by null windows that take so long without it."""
    clocks = iter(isolated_ms)
    recheck = NullWindowRecheck(
        USUAL, {CANDIDATE: windows}, lambda: {CANDIDATE: Clock(next(clocks), isolated_setup_ms)}, others=others
    )
    recheck.measure()
    return recheck.apply()[CANDIDATE], recheck


@pytest.mark.parametrize(
    ("slowed_ms", "deferred_ms", "flagged"), [(0.8, 2.9, True), (0.05, 2.02, False), (0.0, 2.0, False)]
)
def test_recheck_deferred_null_windows_slowed_by_candidate_are_limited(
    slowed_ms: float, deferred_ms: float, flagged: bool
) -> None:
    windows = kernel_windows(10)
    for _ in range(6):
        windows.usual.add(taken(2.0), Clock(NULL_MS, 0.1))
    for _ in range(4):
        windows.deferred_readback.add(taken(deferred_ms), Clock(NULL_MS + slowed_ms, 0.1))
    assert timing_of(windows).flags == []
    other = CheckNullWindows(DEFERRED, "deferred_readback", lambda: Clock(NULL_MS, 0.1), 0.1)
    corrected, recheck = rechecked(windows, others=[other])
    assert codes(recheck.flags) == [FlagCode.CHECK_WINDOWS_SLOWED] * flagged
    assert (FlagCode.DEFERRED_OUTPUTS_SLOWER in codes(timing_of(corrected).flags)) is flagged


def test_recheck_single_call_null_windows_of_one_kind_are_limited_for_both() -> None:
    both = {REFERENCE: kernel_windows(10, is_candidate=False), CANDIDATE: kernel_windows(10)}
    for windows in both.values():
        for _ in range(6):
            windows.usual.add(taken(0.15), Clock(NULL_MS, 0.1))
        for _ in range(12):
            windows.single.add(taken(0.065 + 0.005), Clock(NULL_MS + 0.065, 0.1))
    assert timing_of(both[CANDIDATE], both[REFERENCE]).flags == []
    recheck = NullWindowRecheck(
        USUAL,
        both,
        lambda: {role: Clock(NULL_MS, 0.1) for role in both},
        lambda: taken(0.15),
        others=[CheckNullWindows(USUAL, "single", lambda: Clock(NULL_MS, 0.1), 0.025)],
    )
    recheck.measure()
    corrected = recheck.apply()
    assert timing_of(corrected[CANDIDATE], corrected[REFERENCE]).flags == []
    # Otherwise the correction would be the candidate's difference from the reference.
    only_own = timing_of(corrected[CANDIDATE], both[REFERENCE])
    assert FlagCode.SINGLE_CALL_SLOWER in codes(only_own.flags)


def test_recheck_null_windows_with_delayed_setup_hide_no_work() -> None:
    windows = kernel_windows(1)
    for _ in range(8):
        windows.usual.add(taken(2.0, setup_ms=4.0), Clock(NULL_MS, 4.0))
    assert timing_of(windows).latency_ms == pytest.approx(2.0)
    corrected, recheck = rechecked(windows, isolated_setup_ms=1.0)
    assert codes(recheck.flags) == [FlagCode.NULL_WINDOWS_PREPARED_LATE]
    assert timing_of(corrected).latency_ms == pytest.approx(5.0, rel=0.1)
    assert FlagCode.WORK_BEFORE_CLOCK in codes(timing_of(corrected).flags)


def test_recheck_one_null_window_with_delayed_setup_changes_nothing() -> None:
    windows = kernel_windows(1)
    for late_ms in [0.0] * 7 + [2.0]:
        windows.usual.add(taken(2.0, setup_ms=1.0), Clock(NULL_MS, 1.0 + late_ms))
    after, recheck = rechecked(windows, isolated_setup_ms=1.0)
    assert recheck.flags == [] and timing_of(after).latency_ms == timing_of(windows).latency_ms


@pytest.mark.parametrize(
    "isolated_ms",
    [[NULL_MS] * 12, [NULL_MS, 3.0, NULL_MS] + [NULL_MS] * 9, [NULL_MS, NULL_MS, 3.0] * 4],
    ids=["steady", "once disturbed", "often disturbed"],
)
def test_recheck_every_third_null_window_slowed_gains_nothing(isolated_ms: list[float]) -> None:
    windows = kernel_windows(10)
    for number in range(9):
        windows.usual.add(taken(2.0), Clock(NULL_MS + 4.0 * (number % 3 == 0), 0.1))
    assert net_ms(windows).mean() < 1.0
    corrected, _ = rechecked(windows, isolated_ms)
    assert net_ms(corrected) == pytest.approx(2.0, abs=0.01 + FLOOR_MS["gated"])


def test_recheck_honest_candidate_takes_three_rounds() -> None:
    windows = kernel_windows(10)
    for number in range(9):
        windows.usual.add(taken(2.0), Clock(NULL_MS + 0.002 * (number % 3), 0.1))
    after, recheck = rechecked(windows, [NULL_MS, NULL_MS + 0.002, NULL_MS])
    assert after == windows and recheck.flags == []


@pytest.mark.parametrize(("slowed", "flagged"), [(1.02, False), (1.3, False), (1.6, True)])
def test_recheck_streamed_null_windows_a_little_slower_are_limited_without_a_flag(slowed: float, flagged: bool) -> None:
    null_ms = 2.25
    windows = kernel_windows(52, gated=False)
    for _ in range(9):
        windows.usual.add(window(3.5 + slowed * null_ms), Clock(slowed * null_ms, 0.1))
    after, recheck = rechecked(windows, itertools.repeat(null_ms))
    assert codes(recheck.flags) == [FlagCode.NULL_WINDOWS_SLOWED] * flagged
    hidden_ms = min((slowed - 1) * null_ms, 0.05 * null_ms, FLOOR_MS["streamed"])
    assert net_ms(after).mean() >= 3.5 + (slowed - 1) * null_ms - FLOOR_MS["streamed"] - 0.05 * 3.5
    assert net_ms(after).mean() <= 3.5 + (slowed - 1) * null_ms - hidden_ms + 1e-9


def compared(
    slowed: int,
    *,
    nulls_too: bool,
    own_too: bool = False,
    isolated_ms: Iterable[float | None] = itertools.repeat(2.0),
    until: float = math.inf,
) -> NullWindowRecheck:
    """Equal kernels of 2 ms; next to the candidate the reference takes 2 ms more in so many of eight rounds.

    `isolated_ms` are the reference's times without it; None where it can no longer run.
    """
    both = {REFERENCE: kernel_windows(10, is_candidate=False), CANDIDATE: kernel_windows(10)}
    for number in range(8):
        more = 2.0 * (number < slowed)
        null = Clock(NULL_MS + more * nulls_too, 0.1)
        both[REFERENCE].usual.add(taken(2.0 + more), null)
        both[CANDIDATE].usual.add(taken(2.0 + more * own_too), null)
    times = iter(isolated_ms)
    nulls = dict.fromkeys(both, Clock(NULL_MS, 0.1))

    def reference() -> Window | None:
        time_ms = next(times)
        return taken(time_ms) if time_ms is not None else None

    return NullWindowRecheck(USUAL, both, lambda: nulls, reference, until=until)


def speedup_of(recheck: NullWindowRecheck) -> Speedup | None:
    """The speed-up after all windows without the candidate."""
    recheck.measure()
    windows = recheck.apply()
    unknown = SPEEDUP_UNKNOWN.intersection(codes(recheck.flags))
    return None if unknown else paired_speedup(*map(estimate, windows.values()))


@pytest.mark.parametrize("nulls_too", [False, True])
@pytest.mark.parametrize("slowed", range(9))
def test_recheck_reference_slowed_in_some_rounds_gains_nothing(slowed: int, nulls_too: bool) -> None:
    recheck = compared(slowed, nulls_too=nulls_too)
    speedup = speedup_of(recheck)
    assert (speedup is None) is bool(recheck.flags) is (slowed > 4), recheck.flags
    assert speedup is None or 0.85 < speedup.ratio < 1.08


@pytest.mark.parametrize("disturbed", range(5))
def test_recheck_rounds_of_a_card_disturbed_from_outside_are_left_out(disturbed: int) -> None:
    recheck = compared(disturbed, nulls_too=True, own_too=True)
    speedup = speedup_of(recheck)
    assert not recheck.flags
    assert speedup is not None and speedup.ratio == pytest.approx(1.0, rel=0.05)


def test_recheck_card_disturbed_in_most_rounds_has_no_speedup_and_accuses_nobody() -> None:
    recheck = compared(5, nulls_too=True, own_too=True)
    assert speedup_of(recheck) is None
    assert codes(recheck.flags) == [FlagCode.REFERENCE_DISTURBED]


def test_recheck_reference_slow_now_and_then_alone_too_keeps_its_time() -> None:
    recheck = compared(4, nulls_too=False, isolated_ms=itertools.cycle([2.0, 4.0]))
    speedup = speedup_of(recheck)
    assert not recheck.flags
    assert speedup is not None and speedup.ratio == pytest.approx(1.5, rel=0.05)


@pytest.mark.parametrize(("until", "rounds"), [(-math.inf, 3), (math.inf, 12)])
def test_recheck_inconclusive_rounds_continue_until_the_jobs_end(until: float, rounds: int) -> None:
    measured: list[float] = []

    def null() -> dict[str, Clock]:
        measured.append(3.0 if len(measured) % 3 == 0 else NULL_MS)
        return {CANDIDATE: Clock(measured[-1], 0.1)}

    windows = kernel_windows(10)
    for _ in range(6):
        windows.usual.add(taken(2.0), Clock(NULL_MS, 0.1))
    NullWindowRecheck(USUAL, {CANDIDATE: windows}, null, until=until).measure()
    assert len(measured) == rounds


@pytest.mark.parametrize(
    ("until", "code"), [(math.inf, FlagCode.REFERENCE_NOT_RERUN), (-math.inf, FlagCode.REFERENCE_RERUN_TIMEOUT)]
)
@pytest.mark.parametrize("slowed", [0, 8])
def test_recheck_reference_that_cannot_run_gives_no_speedup_and_says_why(
    slowed: int, until: float, code: FlagCode
) -> None:
    """A candidate can cause both: it stops its reference in a check, or lets the job's time go by."""
    recheck = compared(slowed, nulls_too=False, isolated_ms=[None], until=until)
    assert speedup_of(recheck) is None
    assert codes(recheck.flags) == [code]


def never() -> Clock:
    pytest.fail("a null window was measured")


def evaluated(
    null_ms: Sequence[float] = (NULL_MS,) * 6,
    setup_ms: float = 0.1,
    deferred_ms: float = 0.3,
    measure: Callable[[], Clock] = never,
) -> NullWindowRecheck:
    """Gated windows of 2 ms and deferred-readback windows; `measure` gives null windows without the candidate."""
    windows = kernel_windows(10)
    for each_ms in null_ms:
        windows.usual.add(taken(2.0), Clock(each_ms, setup_ms))
    for _ in range(4):
        windows.deferred_readback.add(taken(2.1), Clock(deferred_ms, 0.1))
    others = [CheckNullWindows(DEFERRED, "deferred_readback", measure, 0.1)]
    return NullWindowRecheck(USUAL, {CANDIDATE: windows}, lambda: {CANDIDATE: measure()}, others=others)


def cached(usual_ms: float = NULL_MS, deferred_ms: float = 0.3, rounds: int = ISOLATED_ROUNDS) -> NullWindowCache:
    clocks = NullWindowCache()
    clocks.store(USUAL, [Clock(usual_ms + 0.002 * (number % 2), 0.1) for number in range(rounds)])
    clocks.store(DEFERRED, [Clock(deferred_ms, 0.1)] * rounds)
    return clocks


def test_can_skip_cached_windows_of_the_same_time_is_true() -> None:
    assert evaluated().can_skip(cached())
    assert evaluated().can_skip(cached(usual_ms=NULL_MS + 0.1)), "none was slowed"


@pytest.mark.parametrize(
    "slowed",
    [
        {"null_ms": (NULL_MS + 0.1,) * 6},
        {"null_ms": (NULL_MS,) * 5 + (NULL_MS + 0.1,)},
        {"null_ms": (NULL_MS, NULL_MS + 0.1) * 3},
        {"setup_ms": 0.5},
        {"deferred_ms": 0.5},
    ],
    ids=["all of them", "one of them", "every other one", "not ready", "those held back"],
)
def test_can_skip_slowed_windows_is_false(slowed: dict[str, Any]) -> None:
    assert not evaluated(**slowed).can_skip(cached())


def test_can_skip_few_or_differing_cached_windows_is_false() -> None:
    assert not evaluated().can_skip(cached(rounds=ISOLATED_ROUNDS - 1))
    differing = cached()
    differing.store(USUAL, [Clock(ms, 0.1) for ms in (NULL_MS, NULL_MS, 0.5)])
    assert not evaluated().can_skip(differing)


def test_can_skip_old_or_missing_kinds_is_false() -> None:
    seconds = iter([0.0, MAX_AGE_S + 1, MAX_AGE_S + 1, MAX_AGE_S + 1, MAX_AGE_S + 1])
    clocks = NullWindowCache(lambda: next(seconds))
    clocks.store(USUAL, [Clock(NULL_MS, 0.1)] * ISOLATED_ROUNDS)
    clocks.store(DEFERRED, [Clock(0.3, 0.1)] * ISOLATED_ROUNDS)
    assert not evaluated().can_skip(clocks), "the usual ones are of long ago"
    only = NullWindowCache()
    only.store(USUAL, [Clock(NULL_MS, 0.1)] * ISOLATED_ROUNDS)
    assert not evaluated().can_skip(only)


def test_can_skip_with_a_reference_is_false() -> None:
    assert not compared(0, nulls_too=False).can_skip(cached())


def test_store_windows_without_a_submission_serves_the_next_job() -> None:
    turns = itertools.cycle([Clock(0.3, 0.1), Clock(NULL_MS, 0.1)])
    recheck, cache = evaluated(measure=lambda: next(turns)), NullWindowCache()
    recheck.measure()
    recheck.store(cache, alone=True)
    assert evaluated().can_skip(cache)
    assert cache.get(USUAL) == [Clock(NULL_MS, 0.1)] * ISOLATED_ROUNDS
    assert cache.get(DEFERRED) == [Clock(0.3, 0.1)] * ISOLATED_ROUNDS


def test_store_windows_next_to_a_submission_caches_nothing() -> None:
    recheck, cache = evaluated(measure=lambda: Clock(NULL_MS, 0.1)), NullWindowCache()
    recheck.measure()
    recheck.store(cache, alone=False)
    assert cache.get(USUAL) == cache.get(DEFERRED) == []


def test_store_far_longer_than_usual_is_flagged_and_not_cached() -> None:
    cache = NullWindowCache()
    for null_ms, flagged in ((0.5, False), (NULL_MS, False), (0.33, False), (0.5, True)):
        turns = itertools.cycle([Clock(0.3, 0.1), Clock(null_ms, 0.1)])
        recheck = evaluated((null_ms,) * 6, measure=lambda turns=turns: next(turns))  # type: ignore[misc]
        recheck.measure()
        recheck.store(cache, alone=True)
        recheck.apply()
        assert codes(recheck.flags) == [FlagCode.GPU_DISTURBED] * flagged, null_ms
        assert [flag.data["usual_null_window_ms"] for flag in recheck.flags] == [pytest.approx(0.16)] * flagged
    assert [clock.elapsed_ms for clock in cache.get(USUAL)] == [0.33] * ISOLATED_ROUNDS


def test_store_next_to_a_live_reference_notes_the_usual_time() -> None:
    recheck, cache = compared(0, nulls_too=False), NullWindowCache()
    recheck.measure()
    recheck.store(cache, alone=False)
    assert cache.usual_ms(USUAL) == NULL_MS and cache.get(USUAL) == []


def of_many_launches(
    beside_ms: Iterable[float], alone_ms: Iterable[float], launches: int = 8389
) -> tuple[NullWindowRecheck, Speedup | None, int]:
    """Ten streamed windows of a reference with so many launches beside a candidate of 80 ms, then windows alone."""
    both = {
        REFERENCE: kernel_windows(1, gated=False, is_candidate=False, launches=launches),
        CANDIDATE: kernel_windows(1, gated=False),
    }
    null = Clock(0.3, 0.1)
    for number, beside in zip(range(10), beside_ms, strict=False):
        both[REFERENCE].usual.add(window(beside + number % 3), null)
        both[CANDIDATE].usual.add(window(80.0 + number % 2), null)
    alone = [window(ms) for ms, _ in zip(alone_ms, range(12), strict=False)]
    rest = iter(alone)
    recheck = NullWindowRecheck(
        NullKind.of(LAYOUT, gated=False), both, lambda: dict.fromkeys(both, null), lambda: next(rest)
    )
    speedup = speedup_of(recheck)
    return recheck, speedup, len(alone) - len(list(rest))


def test_recheck_reference_at_the_host_s_pace_is_jitter_and_the_interval_covers_both_times() -> None:
    recheck, speedup, rounds = of_many_launches(itertools.repeat(206.0), itertools.cycle([137.0, 137.4]))
    assert codes(recheck.flags) == [FlagCode.HOST_JITTER] and "two paces" in recheck.flags[0].message
    assert rounds == 12, "both paces may be seen alone"
    assert speedup is not None
    assert speedup.ratio == pytest.approx(137 / 80, rel=0.02), "the shorter time counts"
    assert speedup.ci_low < 137 / 80 and speedup.ci_high > 206 / 80.5


def test_recheck_reference_of_two_paces_alone_too_is_not_flagged() -> None:
    recheck, speedup, _ = of_many_launches(itertools.repeat(206.0), itertools.cycle([137.0, 206.0, 207.0]))
    assert recheck.flags == [] and speedup is not None and speedup.ratio > 2.2


@pytest.mark.parametrize(("beside_ms", "launches"), [(274.0, 8389), (206.0, 400)], ids=["beyond a pace", "device"])
def test_recheck_reference_slowed_by_more_than_a_pace_or_on_the_device_has_no_speedup(
    beside_ms: float, launches: int
) -> None:
    recheck, speedup, _ = of_many_launches(itertools.repeat(beside_ms), itertools.cycle([137.0, 137.4]), launches)
    assert codes(recheck.flags) == [FlagCode.REFERENCE_SLOWED]
    assert speedup is None


@pytest.mark.parametrize("slowed", [1.1, 1.3, 1.5, 1.9])
def test_recheck_candidate_that_slows_a_reference_at_the_host_s_pace_gains_nothing(slowed: float) -> None:
    recheck, speedup, _ = of_many_launches(itertools.repeat(137.0 * slowed), itertools.cycle([137.0, 137.4]))
    assert recheck.flags
    assert speedup is None or (speedup.ratio < 137 / 80 * 1.02 and speedup.ci_low < 137 / 80)
