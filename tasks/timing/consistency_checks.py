"""Runs check windows, which take longer for a kernel that skips work in its usual windows.

Single-call windows reveal a kernel that does the work of all calls in one (exploit T20). Deferred-readback windows
reveal a kernel that writes its outputs into the slots itself, although the null window subtracts a copy (exploit E8).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch

from domain.flags.codes import FlagCode
from domain.flags.flag import Flag
from profiling.integrity.deferred_readback import DEFERRED_READBACK_MS
from profiling.integrity.disagreement import MIN_DIFFERENCE, NULL_DRIFT_MS, CheckWindows
from profiling.integrity.single_call import SETTLED_STREAMED
from profiling.results.estimate import estimate, null_share
from profiling.results.samples import KernelWindows, Samples
from profiling.window.call_buffers import Slots
from profiling.window.timed_window import Clock, DeferredReadback, Window
from sandbox.protocol.arena import copyable
from sandbox.supervisor.messages import ArgumentView
from tasks.runtime.null_window_cache import NullKind
from tasks.timing.null_window_recheck import Check, CheckNullWindows
from tasks.timing.window_runner import WindowRunner
from validation.compare.bitwise import differing
from validation.compare.comparison import BATCH, agree

RESERVE_S = 1.0
FEWEST, MOST = 3, 24
"""Minimum and maximum number of rounds of each kind; streamed single calls, whose minimum counts, get twice as many.
A fourth round before a time is in doubt holds the device 3 % longer (docs/measurements.md)."""
BATCH_SIZE = 8
"""Number of streamed single calls that follow each other directly. Host code that has not run for milliseconds takes up
to 300 µs longer; in a batch no call has to pay for that (docs/measurements.md)."""
OUTPUT_NOT_KEPT = (
    "a call returned nothing when its outputs were requested only after the last call: it must return a tensor that "
    "still holds its output then"
)
PARTS = (torch.float16, torch.float32, torch.float64)
"""Dtypes of the parts of a complex number."""


@dataclass(frozen=True)
class _Contents:
    """Saved inputs of one layout, which `put` restores; `image` is None if the layout was not overwritten."""

    image: torch.Tensor | None
    seed: int

    def put(self, layout: Slots) -> None:
        layout.seed = self.seed
        if self.image is not None:
            layout.image.copy_(self.image)


class CrossChecks:
    """Runs the check windows of one job after its usual windows; the slowest round of those took `round_s` seconds.

    `windows` has all windows of each kernel by role, and `flags` those of the candidate's time. `nulls` describes the
    null windows of the check windows, for the recheck without the candidate.
    """

    def __init__(self, window_runner: WindowRunner, samples: dict[str, Samples], round_s: float) -> None:
        self.windows = {role: KernelWindows(usual) for role, usual in samples.items()}
        self.flags: list[Flag] = []
        self.nulls: list[CheckNullWindows] = []
        self._window_runner = window_runner
        self._round_s = round_s
        self._setups = {role: usual.setup for role, usual in samples.items()}
        self._rounds = window_runner.rounds
        self._candidate = window_runner.rounds.candidate
        self._own = samples[self._candidate.role]
        self._setup = self._own.setup
        self._is_cuda = window_runner.worker.device.is_cuda

    def deferred_readback(self, slots: dict[str, Slots]) -> None:
        """Runs windows of the candidate with deferred readback.

        They have one call if all calls return the same memory, because only the last output is left then. On the host,
        where keeping outputs takes a call longer, a single window only shows whether the outputs are kept at all.
        """
        if null_share(self._own) < MIN_DIFFERENCE:
            return  # The null windows subtract less than the smallest difference that could be detected.
        if self._setup.calls > 1 and (self._reuses_output_memory or not self._is_cuda):
            slots = self._rounds.slots(1)
            self._window_runner.warm_up_null(slots)
        readback = self._readback(slots)
        if readback is None:
            return
        layout = slots[self._candidate.role]
        if not self._time_for(layout):
            self.flags.append(Flag.of(FlagCode.DEFERRED_OUTPUTS_UNTESTED))
            return
        began = time.monotonic()
        measured = CheckWindows(layout.calls)
        self._set_own(deferred_readback=measured)
        measure = partial(self._window_runner.null_window, layout, self._setup, readback)
        self._note_nulls("deferred_readback", layout, measure, readback)
        for done in range(MOST if self._is_cuda else 1):
            needed = done < FEWEST or estimate(self._own_windows).deferred_readback.unsure
            if done > 0 and not (needed and self._in_time(began)):
                return
            self._window_runner.shuffle_allocations(slots, self._setups)
            self._rounds.fill(slots)
            null = self._window_runner.null_window(layout, self._setup, readback)
            window = self._judged(slots, readback)
            if self._is_cuda:
                measured.add(window, null)
            if not self._rounds.right:
                return

    def single_call_windows(self, usual: dict[str, Slots]) -> None:
        """Runs windows of one call; streamed ones in batches, after a window over the `usual` slots.

        It does nothing on the host, where a single call differs from one of many by milliseconds of noise.
        """
        if self._setup.calls == 1 or not self._is_cuda:
            return
        slots = self._rounds.slots(1)
        layout = slots[self._candidate.role]
        batch_size = self._batch_size(layout)
        if batch_size is None:
            self.flags.append(Flag.of(FlagCode.SINGLE_CALL_UNTESTED))
            return
        began = time.monotonic()
        self._window_runner.warm_up_null(slots)
        self._set_own(comparable_singles=self._same_nulls(slots))
        measure = partial(self._single_call_null, layout, usual, batch_size)
        self._note_nulls("single", layout, measure)
        for done in range(0, MOST if batch_size == 1 else SETTLED_STREAMED, batch_size):
            if done >= FEWEST and not (self._needs_single_calls and self._in_time(began)):
                return
            self._window_runner.shuffle_allocations(slots, self._setups)
            for windows in self._run_batch(slots, usual, batch_size):
                self._rounds.judge(slots, windows)
                if not self._rounds.right:
                    return

    def _run_batch(self, slots: dict[str, Slots], usual: dict[str, Slots], count: int) -> Iterator[dict[str, Window]]:
        """Runs `count` single calls of each kernel, on the same inputs, and their null windows.

        The calls of one kernel follow each other directly; without the gate the first one follows a usual window. With
        the gate, allocations are shuffled before each call, as in other windows.
        """
        sets = [self._filled(slots, copied=count > 1) for _ in range(count)]
        after_windows = (usual, *[None] * (count - 1))
        nulls = [self._window_runner.null_windows(slots, self._setups, after) for after in after_windows]
        rounds: list[dict[str, Window]] = [{} for _ in sets]
        for kernel_run in self._rounds.kernel_runs:
            role, setup, layout = kernel_run.role, self._setups[kernel_run.role], slots[kernel_run.role]
            for contents, windows, null, after in zip(sets, rounds, nulls, after_windows, strict=True):
                if setup.gated and after is None:  # The image still holds the inputs of the previous call.
                    self._window_runner.shuffle_allocations_of(kernel_run, slots, self._setups)
                contents[role].put(layout)
                windows[role] = self._window_runner.run(kernel_run, slots, setup, after_window=after)
                self.windows[role].single.add(windows[role], null[role])
        for contents, windows in zip(sets, rounds, strict=True):
            for role, inputs in contents.items():
                inputs.put(slots[role])
            yield windows

    def _batch_size(self, layout: Slots) -> int | None:
        """Number of single calls in a batch by memory and time: 1 if all calls are gated; None without time for one."""
        if all(setup.gated for setup in self._setups.values()):
            return 1 if self._time_for(layout) else None
        room = max(self._rounds.memory() // max(self._rounds.bytes_per_call(), 1), 1)
        sizes = (min(BATCH_SIZE, room), min(BATCH_SIZE // 2, room), 1)
        return next((size for size in sizes if self._time_for(layout, size, after_window=True)), None)

    def _filled(self, slots: dict[str, Slots], *, copied: bool) -> dict[str, _Contents]:
        """Fresh inputs of each kernel by role, copied if the layout is filled again before they are used."""
        self._rounds.fill(slots)
        return {
            role: _Contents(layout.image.clone() if copied else None, layout.seed) for role, layout in slots.items()
        }

    def _same_nulls(self, slots: dict[str, Slots]) -> bool:
        """Whether the null windows of all kernels over these layouts are of the same kind."""
        return len({NullKind.of(slots[role], gated=setup.gated) for role, setup in self._setups.items()}) == 1

    @property
    def _own_windows(self) -> KernelWindows:
        return self.windows[self._candidate.role]

    def _set_own(self, **changes: Any) -> None:
        self.windows[self._candidate.role] = replace(self._own_windows, **changes)

    @property
    def _needs_single_calls(self) -> bool:
        """Whether more single-call windows may change the candidate's time."""
        *references, own = self.windows.values()
        return estimate(own, *references).single_call.unsure

    @property
    def _reuses_output_memory(self) -> bool:
        return self._candidate.probe is not None and self._candidate.probe.reuses_memory

    def _single_call_null(self, layout: Slots, usual: dict[str, Slots], batch_size: int) -> Clock:
        """One more null window of one call; in a batch of several, not the first one."""
        first = self._window_runner.null_window(layout, self._setup, after_window=usual[self._candidate.role])
        return first if batch_size == 1 else self._window_runner.null_window(layout, self._setup)

    def _note_nulls(
        self,
        check: Check,
        layout: Slots,
        measure: Callable[[], Clock],
        readback: DeferredReadback | None = None,
    ) -> None:
        kind = self._setup.kind
        tolerance_ms = NULL_DRIFT_MS[kind] if readback is None else DEFERRED_READBACK_MS[kind]
        null_kind = NullKind.of(layout, gated=self._setup.gated, deferred_readback=readback)
        self.nulls.append(CheckNullWindows(null_kind, check, measure, tolerance_ms))

    def _time_for(self, layout: Slots, batch_size: int = 1, *, after_window: bool = False) -> bool:
        """Whether a round with `batch_size` windows over that layout ends before the timeout.

        A round without a reference has up to three windows. A usual window before it (`after_window`) takes a round.
        """
        longer = (3 if len(self._setups) == 1 else 1) * batch_size * layout.calls / self._setup.calls + after_window
        return self._rounds.budget.fits(longer * self._round_s + RESERVE_S)

    def _in_time(self, began: float) -> bool:
        """Whether the time since `began`, spent once more, leaves the job its reserve."""
        return self._rounds.budget.fits(time.monotonic() - began + RESERVE_S)

    def _judged(self, slots: dict[str, Slots], readback: DeferredReadback) -> Window:
        """Runs a deferred-readback window and compares its outputs with the reference's, or with the kernel's usual
        ones."""
        layout = slots[self._candidate.role]
        windows = {
            other.role: self._window_runner.run(other, slots, self._setups[other.role])
            for other in self._rounds.kernel_runs[:-1]
        }
        window = windows[self._candidate.role] = self._run_deferred(slots, readback)
        nothing = layout.is_reset(window.snapshot)
        self._rounds.judge(slots, windows, OUTPUT_NOT_KEPT if nothing else None)
        if len(windows) == 1 and Flag.of(FlagCode.DEFERRED_OUTPUTS_DIFFER) not in self.flags:
            usual = self._window_runner.run(self._candidate, slots, self._setup)
            if not self._agree(layout, window, usual):
                again = self._window_runner.run(self._candidate, slots, self._setup)
                if self._agree(layout, usual, again):
                    self.flags.append(Flag.of(FlagCode.DEFERRED_OUTPUTS_DIFFER))
        return window

    def _agree(self, layout: Slots, one: Window, other: Window) -> bool:
        ones, others = (layout.read_stacked(window.snapshot) for window in (one, other))
        return agree(ones, others, self._rounds.tolerance)

    def _run_deferred(self, slots: dict[str, Slots], readback: DeferredReadback) -> Window:
        """Runs a deferred-readback window; outputs that are views of inputs get the values from before the overwriting.

        The random bytes in such an output prove that the runner copied it late; the saved values show what it computed.
        """
        layout = slots[self._candidate.role]
        window = self._window_runner.run(self._candidate, slots, self._setup, deferred_readback=readback)
        if window.overwritten is None:
            return window
        handed_in = layout.output_views(window.snapshot)
        for number, view in self._argument_views.items():
            before, after = (
                layout.view_at(view.leaf, view.form, memory)
                for memory in (window.overwritten.before, window.overwritten.after)
            )
            if before is not None and after is not None:
                _restore(*map(copyable, (handed_in[number], before, after)))
        return replace(window, overwritten=None)  # `overwritten` takes twice the memory of the inputs.

    def _readback(self, slots: dict[str, Slots]) -> DeferredReadback | None:
        """The kind of deferred readback for the candidate; None if it returns no outputs."""
        return DeferredReadback(in_inputs=bool(self._argument_views)) if slots[self._candidate.role].returned else None

    @property
    def _argument_views(self) -> dict[int, ArgumentView]:
        """The outputs that are views of arguments by the runner's word, by their number."""
        views = self._candidate.probe.views if self._candidate.probe is not None else ()
        return {number: view for number, view in enumerate(views) if view is not None}


def _restore(outputs: torch.Tensor, before: torch.Tensor, after: torch.Tensor) -> None:
    """For each call, [calls, ...]: replaces an output that equals memory `after` by the values in memory `before`.

    An output equals it as it is, or as a lazy view reads it (`conj`, or the imaginary part of one).
    """
    reads: list[Callable[[torch.Tensor], torch.Tensor]] = [torch.Tensor.detach]
    if outputs.is_complex():
        reads.append(torch.conj_physical)
    if outputs.dtype in PARTS:
        reads.append(torch.neg)
    for read in reads:
        for call, unlike in enumerate(differing(read(after), outputs, BATCH).tolist()):
            if not unlike:
                outputs[call].copy_(read(before[call]))
