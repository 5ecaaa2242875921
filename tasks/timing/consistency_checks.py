"""Windows of other kinds, which take longer for a kernel whose usual windows leave something out.

Of one call: where the work of all calls is done in one of them. Held back: where answers are written into the slots by
the kernel itself, and a copy is credited that nobody has made (catalogue of exploits: T20, E8).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

import torch

from domain.flags import TIMEOUT_NEAR, Flag, FlagCode
from profiling.integrity.deferred_readback import HELD_BACK_MS
from profiling.integrity.disagreement import NULL_DRIFT_MS, SHARE_APART, OtherWindows
from profiling.integrity.single_call import SETTLED_STREAMED
from profiling.results.samples import TimeRecord
from profiling.window.call_buffers import Slots
from profiling.window.timed_window import Clock, HeldBack, Window
from sandbox.supervisor.messages import ArgumentView
from tasks.runtime.null_window_cache import NullKind
from tasks.timing.null_window_recheck import OtherNulls
from tasks.timing.window_runner import Shooting
from validation.compare.bitwise import differing
from validation.compare.comparison import BATCH, agree

RESERVE_S = 1.0
FEWEST, MOST = 4, 24
"""Rounds of each kind; of calls by themselves without the gate, of which the shortest counts, twice as many."""
IN_A_ROW = 8
"""Calls by themselves without the gate, one right behind the other: code that a host has not run for milliseconds takes
it up to 300 µs more to run, and none has to be called late for that (docs/measurements.md)."""
OTHER_ANSWERS = Flag(
    FlagCode.DEFERRED_OUTPUTS_DIFFER,
    "its outputs differ when they are requested only after the last call, with the inputs overwritten: its time may "
    "not include the work that makes them",
)
NOT_KEPT = (
    "nothing was handed in where answers are asked for only when all calls are over: what a call returns has to be a "
    "tensor that holds its answer then"
)
NO_TIME = Flag(
    FlagCode.DEFERRED_OUTPUTS_UNTESTED,
    f"no window requested its outputs late, as {TIMEOUT_NEAR}: whether outputs are copied was not checked",
)
NO_TIME_FOR_ONE = Flag(
    FlagCode.SINGLE_CALL_UNTESTED,
    f"no call was timed by itself, as {TIMEOUT_NEAR}: whether calls share work was not checked",
)
PARTS = (torch.float16, torch.float32, torch.float64)
"""Types of a complex number's parts."""


@dataclass(frozen=True)
class _Contents:
    """What a layout is filled with; no image where that is as it lies there."""

    image: torch.Tensor | None
    seed: int

    def put(self, layout: Slots) -> None:
        layout.seed = self.seed
        if self.image is not None:
            layout.image.copy_(self.image)


class CrossChecks:
    """Of one job's contenders, once their windows are taken, of which a round took so many seconds at most.

    `nulls` are the null windows that were shot for them beside the candidate.
    """

    def __init__(self, shooting: Shooting, records: dict[str, TimeRecord], round_s: float) -> None:
        self.nulls: list[OtherNulls] = []
        self._shooting = shooting
        self._round_s = round_s
        self._records = records
        self._rounds = shooting.rounds
        self._candidate = shooting.rounds.candidate
        self._record = records[self._candidate.role]
        self._is_cuda = shooting.bench.device.is_cuda

    def held_back(self, slots: dict[str, Slots]) -> None:
        """Windows of the candidate whose answers are asked for when their calls are over.

        Of one call where calls answer in the same memory, and only the last one's answer is left then. On the host,
        where keeping answers costs a call more than handing them in, one shows whether they are kept at all.
        """
        if self._record.credited < SHARE_APART:
            return  # What is credited is less than what would be told apart.
        if self._record.calls > 1 and (self._answers_in_one_place or not self._is_cuda):
            slots = self._rounds.slots(1)
            self._shooting.warm_null(slots)
        hold = self._hold(slots)
        if hold is None:
            return
        layout = slots[self._candidate.role]
        if not self._time_for(layout):
            self._record.flags.append(NO_TIME)
            return
        began = time.monotonic()
        self._record.held_back.calls = layout.calls
        shoot = partial(self._shooting.null_window, layout, self._record, hold)
        self._note_nulls(self._record.held_back, layout, shoot, hold)
        for taken in range(MOST if self._is_cuda else 1):
            wanted = taken < FEWEST or self._record.wants_held_back
            if taken > 0 and not (wanted and self._in_time(began)):
                return
            self._shooting.relocate(slots, self._records)
            self._rounds.fill(slots)
            null = self._shooting.null_window(layout, self._record, hold)
            window = self._judged(slots, hold)
            if self._is_cuda:
                self._record.held_back.add(window, null)
            if not self._rounds.right:
                return

    def single_calls(self, usual: dict[str, Slots]) -> None:
        """Windows of one call, without the gate several in a row behind one over the `usual` slots.

        On the host, where one differs from one of many by milliseconds, they tell nothing.
        """
        if self._record.calls == 1 or not self._is_cuda:
            return
        slots = self._rounds.slots(1)
        layout = slots[self._candidate.role]
        in_a_row = self._calls_in_a_row(layout)
        if in_a_row is None:
            self._record.flags.append(NO_TIME_FOR_ONE)
            return
        began = time.monotonic()
        self._shooting.warm_null(slots)
        self._record.reference = beside = self._handing_in_alike(slots)
        alike = [beside.single] if beside is not None else []
        self._note_nulls(self._record.single, layout, partial(self._null_alone, layout, usual, in_a_row), alike=alike)
        for taken in range(0, MOST if in_a_row == 1 else SETTLED_STREAMED, in_a_row):
            wanted = any(each.wants_singles for each in self._records.values())
            if taken >= FEWEST and not (wanted and self._in_time(began)):
                return
            self._shooting.relocate(slots, self._records)
            for windows in self._in_a_row(slots, usual, in_a_row):
                self._rounds.judge(slots, windows)
                if not self._rounds.right:
                    return

    def _in_a_row(self, slots: dict[str, Slots], usual: dict[str, Slots], count: int) -> Iterator[dict[str, Window]]:
        """So many calls by themselves of each contender, on the same inputs, and the null windows that belong to them.

        Each contender's one right behind the other, the first behind a usual window where there is no gate. Behind it
        what calls keep lies elsewhere in each, as in other windows.
        """
        sets = [self._filled(slots, copied=count > 1) for _ in range(count)]
        first = (usual, *[None] * (count - 1))
        nulls = [self._shooting.null_windows(slots, self._records, behind) for behind in first]
        taken: list[dict[str, Window]] = [{} for _ in sets]
        for contender in self._rounds.contenders:
            role, record, layout = contender.role, self._records[contender.role], slots[contender.role]
            for made, windows, null, behind in zip(sets, taken, nulls, first, strict=True):
                if record.gated and behind is None:  # On the inputs of the call before.
                    self._shooting.relocate_one(contender, slots, self._records)
                made[role].put(layout)
                windows[role] = self._shooting.shoot(contender, slots, record, behind=behind)
                record.single.add(windows[role], null[role])
        for made, windows in zip(sets, taken, strict=True):
            for role, contents in made.items():
                contents.put(slots[role])
            yield windows

    def _calls_in_a_row(self, layout: Slots) -> int | None:
        """As many as there is memory and time for, one where all is queued behind the gate; None where not for one."""
        if all(each.gated for each in self._records.values()):
            return 1 if self._time_for(layout) else None
        room = max(self._rounds.memory() // max(self._rounds.bytes_per_call(), 1), 1)
        counts = (min(IN_A_ROW, room), min(FEWEST, room), 1)
        return next((count for count in counts if self._time_for(layout, count, behind=True)), None)

    def _filled(self, slots: dict[str, Slots], *, copied: bool) -> dict[str, _Contents]:
        """Fresh inputs for each contender by role; copied where the layout is filled again before they are used."""
        self._rounds.fill(slots)
        return {
            role: _Contents(layout.image.clone() if copied else None, layout.seed) for role, layout in slots.items()
        }

    def _handing_in_alike(self, slots: dict[str, Slots]) -> TimeRecord | None:
        """The reference's record, where its null windows are the candidate's."""
        kinds = {role: NullKind.of(slots[role], gated=record.gated) for role, record in self._records.items()}
        first, own = next(iter(kinds)), self._candidate.role
        return self._records[first] if first != own and kinds[first] == kinds[own] else None

    @property
    def _answers_in_one_place(self) -> bool:
        return self._candidate.probe is not None and self._candidate.probe.reuses_memory

    def _null_alone(self, layout: Slots, usual: dict[str, Slots], in_a_row: int) -> Clock:
        """One more null window of one call, as most of those were that stood in a row."""
        first = self._shooting.null_window(layout, self._record, behind=usual[self._candidate.role])
        return first if in_a_row == 1 else self._shooting.null_window(layout, self._record)

    def _note_nulls(
        self,
        windows: OtherWindows,
        layout: Slots,
        shoot: Callable[[], Clock],
        hold: HeldBack | None = None,
        alike: Sequence[OtherWindows] = (),
    ) -> None:
        kind = self._record.kind
        most_apart_ms = NULL_DRIFT_MS[kind] if hold is None else HELD_BACK_MS[kind]
        null_kind = NullKind.of(layout, gated=self._record.gated, held_back=hold)
        self.nulls.append(OtherNulls(null_kind, self._record, windows, shoot, most_apart_ms, alike))

    def _time_for(self, layout: Slots, in_a_row: int = 1, *, behind: bool = False) -> bool:
        """Whether a round over it is over before the timeout; one without a reference has up to three windows.

        Of so many windows in a row. As long again where they are shot `behind` a usual one.
        """
        longer = (3 if len(self._records) == 1 else 1) * in_a_row * layout.calls / self._record.calls + behind
        return time.monotonic() + longer * self._round_s + RESERVE_S < self._rounds.deadline

    def _in_time(self, began: float) -> bool:
        """Whether as long again leaves the job its reserve."""
        return 2 * time.monotonic() - began + RESERVE_S < self._rounds.deadline

    def _judged(self, slots: dict[str, Slots], hold: HeldBack) -> Window:
        """A window held back, its answers against the reference's or, without one, against the kernel's own."""
        record, layout = self._record, slots[self._candidate.role]
        windows = {
            other.role: self._shooting.shoot(other, slots, self._records[other.role])
            for other in self._rounds.contenders[:-1]
        }
        window = windows[self._candidate.role] = self._shoot(slots, hold)
        nothing = torch.equal(window.snapshot, layout.image[layout.inputs_end :])
        self._rounds.judge(slots, windows, NOT_KEPT if nothing else None)
        if len(windows) == 1 and OTHER_ANSWERS not in record.flags:
            usual = self._shooting.shoot(self._candidate, slots, record)
            if not self._agree(layout, window, usual):
                again = self._shooting.shoot(self._candidate, slots, record)
                if self._agree(layout, usual, again):
                    record.flags.append(OTHER_ANSWERS)
        return window

    def _agree(self, layout: Slots, one: Window, other: Window) -> bool:
        ones, others = (layout.read_stacked(window.snapshot) for window in (one, other))
        return agree(ones, others, self._rounds.tolerance)

    def _shoot(self, slots: dict[str, Slots], hold: HeldBack) -> Window:
        """A window held back. What was handed in out of overwritten inputs is what lay there when the calls were over.

        That such an answer is copied shows in the random bytes; that it was made in time, in what lay there before.
        """
        layout = slots[self._candidate.role]
        window = self._shooting.shoot(self._candidate, slots, self._record, held_back=hold)
        if window.overwritten is None:
            return window
        handed_in = layout.read_stacked(window.snapshot)
        for place, view in self._told.items():
            before, after = (
                layout.lies_at(view.leaf, view.form, memory)
                for memory in (window.overwritten.before, window.overwritten.after)
            )
            if before is not None and after is not None:
                _restore(handed_in[place], before, after)
        return replace(window, overwritten=None)  # Which takes as much memory as the inputs, twice.

    def _hold(self, slots: dict[str, Slots]) -> HeldBack | None:
        """How the candidate's answers are held back; None where none are handed in."""
        return HeldBack(in_inputs=bool(self._told)) if slots[self._candidate.role].returned else None

    @property
    def _told(self) -> dict[int, ArgumentView]:
        """The answers that are said to lie in arguments, by their number."""
        views = self._candidate.probe.views if self._candidate.probe is not None else ()
        return {place: view for place, view in enumerate(views) if view is not None}


def _restore(answers: torch.Tensor, before: torch.Tensor, after: torch.Tensor) -> None:
    """Of each call, [calls, ...]: an answer that is what lies in memory `after` is now what lay there `before`.

    As it stands there, or as a lazy view reads it (`conj`, the imaginary part of one).
    """
    reads: list[Callable[[torch.Tensor], torch.Tensor]] = [torch.Tensor.detach]
    if answers.is_complex():
        reads.append(torch.conj_physical)
    if answers.dtype in PARTS:
        reads.append(torch.neg)
    for read in reads:
        for call, unlike in enumerate(differing(read(after), answers, BATCH).tolist()):
            if not unlike:
                answers[call].copy_(read(before[call]))
