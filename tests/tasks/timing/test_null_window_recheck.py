"""What null windows take once the candidate's process is gone."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest
import torch

from domain.flags import Flag, FlagCode
from domain.kernel import Kernel, KernelType
from domain.result import CANDIDATE, REFERENCE
from profiling.integrity.interference import FLOOR_MS
from profiling.results.samples import TimeRecord
from profiling.window.call_buffers import Slots
from profiling.window.timed_window import Clock, DeferredReadback, Window
from sandbox.supervisor.session import Session
from tasks.runtime.kernel_run import KernelRun
from tasks.runtime.null_window_cache import MAX_AGE_S, NullKind, NullWindowCache
from tasks.timing.null_window_recheck import (
    ISOLATED_ROUNDS,
    REFERENCE_NOT_RERUN,
    REFERENCE_RERUN_TIMEOUT,
    WITHOUT_IT,
    CheckNullWindows,
    NullWindowRecheck,
)
from tests.flag_codes import codes

NULL_MS = 0.16
LAYOUT = Slots(10, [torch.empty(8)], (), [torch.empty(8)], "cpu")
USUAL, HELD_BACK = (
    NullKind.of(LAYOUT, gated=True),
    NullKind.of(LAYOUT, gated=True, deferred_readback=DeferredReadback()),
)


def window(net_ms: float) -> Window:
    """One whose outputs are of no interest."""
    return Window(NULL_MS + net_ms, [], torch.empty(0), None, 0.1)


@pytest.mark.parametrize(("slowed_ms", "net_ms", "told"), [(0.8, 2.9, True), (0.05, 2.02, False), (0.0, 2.0, False)])
def test_null_windows_held_back_that_only_the_candidate_slowed_hide_nothing(
    tmp_path: Path, slowed_ms: float, net_ms: float, told: bool
) -> None:
    record = TimeRecord(10, is_cuda=True, gated=True)
    record.deferred_readback.calls = record.calls
    for _ in range(6):
        record.add(window(2.0), Clock(NULL_MS, 0.1))
    for _ in range(4):
        record.deferred_readback.add(window(net_ms), Clock(NULL_MS + slowed_ms, 0.1))
    assert record.timing("cold").flags == []
    alone = NullWindowRecheck(
        [KernelRun(CANDIDATE, Kernel("", KernelType.TORCH), tmp_path)],
        {},
        {CANDIDATE: record},
        lambda: {CANDIDATE: Clock(NULL_MS, 0.1)},
        [CheckNullWindows(HELD_BACK, record, record.deferred_readback, lambda: Clock(NULL_MS, 0.1), 0.1)],
    )
    alone.measure()
    alone.apply()
    assert codes(alone.flags) == [FlagCode.CHECK_WINDOWS_SLOWED] * told
    assert (FlagCode.DEFERRED_OUTPUTS_SLOWER in codes(record.timing("cold").flags)) is told


@pytest.mark.parametrize("together", [True, False])
def test_null_windows_of_one_call_that_both_sides_have_are_corrected_for_both(tmp_path: Path, together: bool) -> None:
    """Else what the candidate takes longer by itself than the reference would be their correction."""
    records = {role: TimeRecord(10, is_cuda=True, gated=True) for role in (REFERENCE, CANDIDATE)}
    for record in records.values():
        for _ in range(6):
            record.add(window(0.15), Clock(NULL_MS, 0.1))
        for _ in range(12):
            record.single.add(window(0.065 + 0.005), Clock(NULL_MS + 0.065, 0.1))
    reference, candidate = records.values()
    candidate.reference = reference
    assert candidate.timing("cold").flags == []
    kind = NullKind.of(LAYOUT, gated=True)
    others = CheckNullWindows(kind, candidate, candidate.single, lambda: Clock(NULL_MS, 0.1), 0.025)
    alone = NullWindowRecheck(
        [KernelRun(role, Kernel("", KernelType.TORCH), tmp_path) for role in records],
        {},
        records,
        lambda: {role: Clock(NULL_MS, 0.1) for role in records},
        [replace(others, reference_windows=[reference.single]) if together else others],
    )
    alone.measure()
    alone.apply()
    assert (FlagCode.SINGLE_CALL_SLOWER in codes(candidate.timing("cold").flags)) is not together


def poisoned(tmp_path: Path, alone_ms: list[float]) -> tuple[TimeRecord, NullWindowRecheck]:
    """Every third null window took 4 ms beside the candidate, whose own windows were steady; shot alone, those."""
    record = TimeRecord(10, is_cuda=True, gated=True)
    for round_ in range(9):
        record.add(window(2.0), Clock(NULL_MS + 4.0 * (round_ % 3 == 0), 0.1))
    taken = iter(alone_ms)
    kernel_run = KernelRun(CANDIDATE, Kernel("", KernelType.TORCH), tmp_path)
    alone = NullWindowRecheck([kernel_run], {}, {CANDIDATE: record}, lambda: {CANDIDATE: Clock(next(taken), 0.1)})
    return record, alone


@pytest.mark.parametrize(
    "alone_ms",
    [[NULL_MS] * 12, [NULL_MS, 3.0, NULL_MS] + [NULL_MS] * 9, [NULL_MS, NULL_MS, 3.0] * 4],
    ids=["steady alone", "once disturbed alone", "often disturbed alone"],
)
def test_a_null_window_that_is_slowed_now_and_then_takes_nothing_off(tmp_path: Path, alone_ms: list[float]) -> None:
    record, alone = poisoned(tmp_path, alone_ms)
    assert record.net_ms.mean() < 1.0
    alone.measure()
    alone.apply()
    assert alone.corrected
    assert record.net_ms == pytest.approx(2.0, abs=0.01 + FLOOR_MS["gated"])


def test_an_honest_candidates_windows_are_shot_alone_three_times(tmp_path: Path) -> None:
    record = TimeRecord(10, is_cuda=True, gated=True)
    for round_ in range(9):
        record.add(window(2.0), Clock(NULL_MS + 0.002 * (round_ % 3), 0.1))
    taken = iter([NULL_MS, NULL_MS + 0.002, NULL_MS])
    kernel_run = KernelRun(CANDIDATE, Kernel("", KernelType.TORCH), tmp_path)
    alone = NullWindowRecheck([kernel_run], {}, {CANDIDATE: record}, lambda: {CANDIDATE: Clock(next(taken), 0.1)})
    alone.measure()
    alone.apply()
    assert not alone.corrected


@pytest.mark.parametrize(("slowed", "told"), [(1.02, False), (1.3, False), (1.6, True)])
def test_null_windows_without_the_gate_that_are_a_little_slower_beside_a_process_are_no_word_against_it(
    tmp_path: Path, slowed: float, told: bool
) -> None:
    null_ms = 2.25
    record = TimeRecord(52, is_cuda=True, gated=False)
    for round_ in range(9):
        taken = slowed * null_ms + 0.01 * (round_ % 3)
        record.add(Window(3.5 + taken, [], torch.empty(0), None, 0.1), Clock(taken, 0.1))
    kernel_run = KernelRun(CANDIDATE, Kernel("", KernelType.TORCH), tmp_path)
    alone = NullWindowRecheck([kernel_run], {}, {CANDIDATE: record}, lambda: {CANDIDATE: Clock(null_ms, 0.1)})
    alone.measure()
    alone.apply()
    assert bool(alone.flags) is told
    corrected = slowed > 1.1  # What it gained by them it loses, whether or not that is told.
    assert alone.corrected is corrected
    assert record.net_ms.mean() == pytest.approx(3.5 + ((slowed - 1) * null_ms if corrected else 0.0), abs=0.02)
    method = alone.method(record.timing("cold"), CANDIDATE)
    assert (WITHOUT_IT in method) is (corrected and not told)


class ReferenceAlone(NullWindowRecheck):
    """Whose reference takes that long alone."""

    alone_ms: Callable[[], float]

    def _measure_reference(self, reference: KernelRun, null: dict[str, Clock]) -> bool:
        self._reference_isolated.add(window(self.alone_ms()), null[REFERENCE])
        return True


def compared(
    tmp_path: Path, slowed: int, *, nulls_too: bool, own_too: bool = False
) -> tuple[dict[str, TimeRecord], ReferenceAlone]:
    """Equal kernels of 2 ms; beside the candidate the reference takes 2 ms more in so many of eight rounds."""
    records = {role: TimeRecord(10, is_cuda=True, gated=True) for role in (REFERENCE, CANDIDATE)}
    for round_ in range(8):
        more = 2.0 * (round_ < slowed)
        null = Clock(NULL_MS + more * nulls_too, 0.1)
        records[REFERENCE].add(window(2.0 + more), null)
        records[CANDIDATE].add(window(2.0 + more * own_too), null)
    kernel_runs = [KernelRun(role, Kernel("", KernelType.TORCH), tmp_path) for role in records]
    null_alone = dict.fromkeys(records, Clock(NULL_MS, 0.1))
    alone = ReferenceAlone(kernel_runs, {}, records, lambda: null_alone)
    alone.alone_ms = lambda: 2.0
    return records, alone


@pytest.mark.parametrize("nulls_too", [False, True])
@pytest.mark.parametrize("slowed", range(9))
def test_a_reference_that_is_slowed_now_and_then_gives_nothing_to_gain(
    tmp_path: Path, slowed: int, nulls_too: bool
) -> None:
    records, alone = compared(tmp_path, slowed, nulls_too=nulls_too)
    alone.measure()
    alone.apply()
    ratio = records[REFERENCE].net_ms.mean() / records[CANDIDATE].net_ms.mean()
    assert 0.85 < ratio < 1.08
    assert bool(alone.flags) is (slowed > 4), alone.flags


@pytest.mark.parametrize("disturbed", range(5))
def test_a_card_that_is_disturbed_from_outside_accuses_nobody(tmp_path: Path, disturbed: int) -> None:
    records, alone = compared(tmp_path, disturbed, nulls_too=True, own_too=True)
    alone.measure()
    alone.apply()
    assert not alone.flags
    assert records[CANDIDATE].net_ms.mean() == pytest.approx(2.0, rel=0.05)


def test_a_reference_that_is_slow_now_and_then_alone_too_stays_as_it_is(tmp_path: Path) -> None:
    records, alone = compared(tmp_path, 4, nulls_too=False)
    times = itertools.cycle([2.0, 4.0])
    alone.alone_ms = lambda: next(times)
    alone.measure()
    alone.apply()
    assert not alone.flags
    assert records[REFERENCE].net_ms.mean() == pytest.approx(3.0, rel=0.05)


def test_more_rounds_are_shot_only_before_the_jobs_end(tmp_path: Path) -> None:
    shot: list[float] = []

    def null() -> dict[str, Clock]:
        shot.append(3.0 if len(shot) % 3 == 0 else NULL_MS)
        return {CANDIDATE: Clock(shot[-1], 0.1)}

    record = TimeRecord(10, is_cuda=True, gated=True)
    for _ in range(6):
        record.add(window(2.0), Clock(NULL_MS, 0.1))
    kernel_run = KernelRun(CANDIDATE, Kernel("", KernelType.TORCH), tmp_path)
    NullWindowRecheck([kernel_run], {}, {CANDIDATE: record}, null, until=time.monotonic()).measure()
    assert len(shot) == 3
    NullWindowRecheck([kernel_run], {}, {CANDIDATE: record}, null).measure()
    assert len(shot) > 6


@pytest.mark.parametrize(("left_s", "told"), [(60.0, REFERENCE_NOT_RERUN), (-1.0, REFERENCE_RERUN_TIMEOUT)])
def test_why_a_reference_was_not_run_once_more_is_told(tmp_path: Path, left_s: float, told: Flag) -> None:
    _, alone = compared(tmp_path, 0, nulls_too=False)
    alone._until = time.monotonic() + left_s
    # Its process ended by itself, or by the job's timeout.
    alone._measure_reference = lambda *shot: False  # type: ignore[method-assign]
    alone.measure()
    assert alone.flags == [told]


def never() -> Clock:
    pytest.fail("a null window was shot")


def beside(
    tmp_path: Path,
    null_ms: Sequence[float] = (NULL_MS,) * 6,
    setup_ms: float = 0.1,
    held_back_ms: float = 0.3,
    shoot: Callable[[], Clock] = never,
) -> NullWindowRecheck:
    """Gated windows of 2 ms, the null windows beside them and those held back; `shoot` gives what they take alone."""
    record = TimeRecord(10, is_cuda=True, gated=True)
    record.deferred_readback.calls = record.calls
    for taken in null_ms:
        record.add(window(2.0), Clock(taken, setup_ms))
    for _ in range(4):
        record.deferred_readback.add(window(2.1), Clock(held_back_ms, 0.1))
    others = [CheckNullWindows(HELD_BACK, record, record.deferred_readback, shoot, 0.1)]
    kernel_run = KernelRun(CANDIDATE, Kernel("", KernelType.TORCH), tmp_path)
    return NullWindowRecheck(
        [kernel_run], {CANDIDATE: LAYOUT}, {CANDIDATE: record}, lambda: {CANDIDATE: shoot()}, others
    )


def known(usual_ms: float = NULL_MS, held_back_ms: float = 0.3, rounds: int = ISOLATED_ROUNDS) -> NullWindowCache:
    clocks = NullWindowCache()
    clocks.store(USUAL, [Clock(usual_ms + 0.002 * (number % 2), 0.1) for number in range(rounds)])
    clocks.store(HELD_BACK, [Clock(held_back_ms, 0.1)] * rounds)
    return clocks


def test_null_windows_that_are_known_and_were_the_same_beside_the_candidate_leave_nothing_open(tmp_path: Path) -> None:
    assert beside(tmp_path).can_skip(known())
    assert beside(tmp_path).can_skip(known(usual_ms=NULL_MS + 0.1)), "none was slowed"


@pytest.mark.parametrize(
    "slowed",
    [
        {"null_ms": (NULL_MS + 0.1,) * 6},
        {"null_ms": (NULL_MS,) * 5 + (NULL_MS + 0.1,)},
        {"null_ms": (NULL_MS, NULL_MS + 0.1) * 3},
        {"setup_ms": 0.5},
        {"held_back_ms": 0.5},
    ],
    ids=["all of them", "one of them", "every other one", "not ready", "those held back"],
)
def test_what_was_slowed_beside_the_candidate_is_shot_once_more(tmp_path: Path, slowed: dict[str, Any]) -> None:
    assert not beside(tmp_path, **slowed).can_skip(known())


def test_clocks_that_tell_too_little_are_shot_once_more(tmp_path: Path) -> None:
    assert not beside(tmp_path).can_skip(known(rounds=ISOLATED_ROUNDS - 1))
    differing = known()
    differing.store(USUAL, [Clock(ms, 0.1) for ms in (NULL_MS, NULL_MS, 0.5)])
    assert not beside(tmp_path).can_skip(differing)


def test_every_kind_has_to_be_known_and_lately(tmp_path: Path) -> None:
    seconds = iter([0.0, MAX_AGE_S + 1, MAX_AGE_S + 1, MAX_AGE_S + 1, MAX_AGE_S + 1])
    clocks = NullWindowCache(lambda: next(seconds))
    clocks.store(USUAL, [Clock(NULL_MS, 0.1)] * ISOLATED_ROUNDS)
    clocks.store(HELD_BACK, [Clock(0.3, 0.1)] * ISOLATED_ROUNDS)
    assert not beside(tmp_path).can_skip(clocks), "the usual ones are of long ago"
    only = NullWindowCache()
    only.store(USUAL, [Clock(NULL_MS, 0.1)] * ISOLATED_ROUNDS)
    assert not beside(tmp_path).can_skip(only)


def test_what_a_reference_takes_alone_is_never_known(tmp_path: Path) -> None:
    _, alone = compared(tmp_path, 0, nulls_too=False)
    assert not alone.can_skip(known())


def test_what_was_shot_alone_is_known_to_the_next_job(tmp_path: Path) -> None:
    turns = itertools.cycle([Clock(0.3, 0.1), Clock(NULL_MS, 0.1)])
    alone, clocks = beside(tmp_path, shoot=lambda: next(turns)), NullWindowCache()
    alone.measure()
    alone.store(clocks)
    assert beside(tmp_path).can_skip(clocks)
    assert clocks.get(USUAL) == [Clock(NULL_MS, 0.1)] * ISOLATED_ROUNDS
    assert clocks.get(HELD_BACK) == [Clock(0.3, 0.1)] * ISOLATED_ROUNDS


def test_nothing_is_known_of_what_was_shot_while_a_submission_lived(tmp_path: Path) -> None:
    alone, clocks = beside(tmp_path, shoot=lambda: Clock(NULL_MS, 0.1)), NullWindowCache()
    alone._kernel_runs[0].session = cast(Session, object())
    alone.measure()
    alone.store(clocks)
    assert clocks.get(USUAL) == clocks.get(HELD_BACK) == []


def test_a_card_that_takes_far_longer_than_usual_is_told_and_nothing_of_it_is_known(tmp_path: Path) -> None:
    clocks = NullWindowCache()
    for taken_ms, told in ((0.5, False), (NULL_MS, False), (0.33, False), (0.5, True)):
        turns = itertools.cycle([Clock(0.3, 0.1), Clock(taken_ms, 0.1)])
        alone = beside(tmp_path, null_ms=(taken_ms,) * 6, shoot=lambda turns=turns: next(turns))  # type: ignore[misc]
        alone.measure()
        alone.store(clocks)
        alone.apply()
        assert codes(alone.flags) == [FlagCode.GPU_DISTURBED] * told, taken_ms
        assert [flag.data["usual_null_window_ms"] for flag in alone.flags] == [pytest.approx(0.16)] * told
    assert [clock.elapsed_ms for clock in clocks.get(USUAL)] == [0.33] * ISOLATED_ROUNDS


def test_what_is_usual_is_learnt_beside_a_reference_too(tmp_path: Path) -> None:
    records, alone = compared(tmp_path, 0, nulls_too=False)
    alone._slots = dict.fromkeys(records, LAYOUT)
    for kernel_run in alone._kernel_runs:
        kernel_run.session = cast(Any, "alive")
    clocks = NullWindowCache()
    alone.measure()
    alone.store(clocks)
    assert clocks.usual_ms(USUAL) == NULL_MS and clocks.get(USUAL) == []
