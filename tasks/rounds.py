"""Rounds: K fresh input sets, given to every contender in a window of its own, every output compared."""

from __future__ import annotations

import dataclasses
import time
from typing import Any

import torch

from domain.fault import KernelFault
from domain.request import Request
from domain.result import Speedup, Status
from domain.value import leaves
from profiling.plan import calls_that_fill, calls_that_fit, windows_for
from profiling.record import TimeRecord, paired_speedup
from profiling.slots import Slots, bytes_per_call
from profiling.window import Window
from tasks.contender import Contender
from tasks.gating import Rehearsal, rehearse
from tasks.trial_inputs import Arguments, TrialInputs
from tasks.workbench import Workbench
from validation.comparison import CallComparison, compare_calls, merge
from validation.integrity import weak_reference
from validation.poison import untouched
from validation.tolerance import requested

VALIDATION_CALLS = 5
RESERVE_S = 1.0
IMAGES = 6
"""Copies of a window's bytes at one time: the arena, its image, the snapshot, the answers; the null runner's two."""


class Rounds:
    """The rounds of one job. `contenders` are the reference (where there is one) and the candidate, in that order."""

    def __init__(
        self,
        contenders: list[Contender],
        inputs: TrialInputs,
        example: dict[str, Arguments],
        bench: Workbench,
        request: Request,
        deadline: float,
    ) -> None:
        self.contenders = contenders
        self.candidate = contenders[-1]
        self.inputs = inputs
        self.example = example
        self.bench = bench
        self.request = request
        self.deadline = deadline
        self.weak: list[str] = []
        self._compared: list[CallComparison] = []

    def validate(self) -> None:
        """A few calls on fresh inputs, nothing timed; the candidate's comparison is its first verdict."""
        calls = max(min(VALIDATION_CALLS, self._memory() // max(self._bytes_per_call(), 1)), 1)
        slots = self._slots(calls)
        self._fill(slots)
        windows = {c.role: self._shoot(c, slots, gated=False, marked=False) for c in self.contenders}
        owner = self.contenders[0]
        outputs = slots[owner.role].read(windows[owner.role].snapshot)[0]
        with owner.answerable():
            _check_written(owner, outputs)
        if len(self.contenders) > 1:
            inputs = leaves(self.example[owner.role], torch.Tensor)
            self.weak = weak_reference(outputs, inputs, requested(self.request.atol, self.request.rtol))
        self._judge(slots, windows)

    def time(self) -> Speedup | None:
        """Windows of the contenders in turn (A B, B A, ...) until the trials are done or the time is nearly over."""
        rehearsals = {c.role: self._rehearsal(c) for c in self.contenders}
        calls = self._calls(rehearsals)
        slots = self._slots(calls)
        records = {
            role: TimeRecord(calls, self.bench.device.is_cuda, gated=rehearsal is not None)
            for role, rehearsal in rehearsals.items()
        }
        windows = windows_for(self.request.num_trials, calls)
        self._warm_null(slots)
        slowest = 0.0
        for index in range(windows + 1):
            started = time.monotonic()
            if index > 1 and started + slowest + RESERVE_S > self.deadline:
                for record in records.values():
                    record.flags.append(f"stopped after {index - 1} of {windows} windows: the timeout was near")
                break
            self._fill(slots)
            # The first round warms up, and its marked windows give the distribution; the others give the level.
            self._round(slots, records, reverse=index % 2 == 1, marked=index == 0)
            if self.candidate.comparison is not None and not self.candidate.comparison.passed:
                return None
            slowest = max(slowest, time.monotonic() - started)
        for contender in self.contenders:
            contender.timing = records[contender.role].timing(self.bench.device.cache)
        return paired_speedup(*(records[c.role] for c in self.contenders)) if len(self.contenders) > 1 else None

    def _warm_null(self, slots: dict[str, Slots]) -> None:
        """The null runner takes its memory and loads its code now: neither can be done behind a closed gate."""
        for layout in slots.values():
            self.bench.null_range().window(layout, gated=False, marked=False)

    def _round(self, slots: dict[str, Slots], records: dict[str, TimeRecord], *, reverse: bool, marked: bool) -> None:
        """One window for each contender, a null window beside each, then the comparison."""
        windows: dict[str, Window] = {}
        for contender in self.contenders[::-1] if reverse else self.contenders:
            record = records[contender.role]
            null = self.bench.null_range().window(slots[contender.role], gated=record.gated, marked=False)
            windows[contender.role] = self._shoot(
                contender, slots, gated=record.gated, marked=marked or not record.gated
            )
            record.add(windows[contender.role], null.elapsed_ms, warm_up=marked)
        self._judge(slots, windows)

    def _shoot(self, contender: Contender, slots: dict[str, Slots], *, gated: bool, marked: bool) -> Window:
        if contender.range is None:
            raise ValueError(f"the {contender.role} has no range")
        with contender.answerable():
            return contender.range.window(slots[contender.role], gated=gated, marked=marked)

    def _fill(self, slots: dict[str, Slots]) -> None:
        """Fresh inputs for every call, or the same again where drawing has become too dear."""
        calls = slots[self.candidate.role].calls
        if slots[self.candidate.role].filled and not self.inputs.affordable:
            self.inputs.note_reuse(calls)
            return
        for call, drawn in enumerate(self.inputs.draw(calls)):
            for role, layout in slots.items():
                layout.fill(call, drawn[role])

    def _judge(self, slots: dict[str, Slots], windows: dict[str, Window]) -> None:
        """Compares every call's outputs, in full. Without a reference there is nothing to compare with."""
        if len(self.contenders) == 1:
            return
        reference, candidate = self.contenders
        with candidate.answerable():
            _check_inputs(windows[reference.role], windows[candidate.role])
        expected, actual = (slots[c.role].read(windows[c.role].snapshot) for c in (reference, candidate))
        pairs = list(zip(expected, actual, strict=True))
        self._compared += compare_calls(pairs, requested(self.request.atol, self.request.rtol))
        candidate.comparison = dataclasses.replace(merge(self._compared), weak_reference=self.weak)

    def _rehearsal(self, contender: Contender) -> Rehearsal | None:
        return rehearse(contender, self.example[contender.role], self._limit(), self.bench.device)

    def _calls(self, rehearsals: dict[str, Rehearsal | None]) -> int:
        """Calls in every window of this job: what all contenders can queue, and the fastest needs to fill its own."""
        times = [
            rehearsal.call_ms if rehearsal is not None else self._estimate(c)
            for c, rehearsal in zip(self.contenders, rehearsals.values(), strict=True)
        ]
        limit = min([self._limit(), *(rehearsal.calls for rehearsal in rehearsals.values() if rehearsal is not None)])
        return calls_that_fill(min(times), limit, is_cuda=self.bench.device.is_cuda)

    def _limit(self) -> int:
        return calls_that_fit(
            max(self._estimate(contender) for contender in self.contenders),
            bytes_per_call=self._bytes_per_call(),
            memory=self._memory(),
        )

    def _estimate(self, contender: Contender) -> float:
        return contender.probe.estimate_ms if contender.probe is not None else 0.0

    def _slots(self, calls: int) -> dict[str, Slots]:
        return {c.role: c.slots(calls, self.example[c.role], self.bench.device.name) for c in self.contenders}

    def _bytes_per_call(self) -> int:
        return max(bytes_per_call(self.example[c.role], _returned(c)) for c in self.contenders)

    def _memory(self) -> int:
        """Bytes that one contender's window may take, of what is allowed to all the copies of it."""
        return self.bench.arena_memory // (IMAGES * len(self.contenders))


def _returned(contender: Contender) -> list[Any]:
    return contender.probe.outputs if contender.probe is not None and contender.probe.returned else []


def _check_written(owner: Contender, outputs: list[torch.Tensor]) -> None:
    """Outputs in a contract's arguments begin as poison: one that is still all poison was never written."""
    io = owner.kernel.io
    for index, tensor in zip(owner.output_arguments, outputs, strict=False):
        if io is not None and io.args[index].role == "output" and untouched(tensor) == 1.0:
            raise KernelFault(
                Status.WRONG_RESULT,
                f"the kernel wrote nothing into its output {io.args[index].name!r}: check the launch and its bounds",
            )


def _check_inputs(reference: Window, candidate: Window) -> None:
    """A candidate may change its inputs only where its contract says inout, or where the reference does it too."""
    if candidate.inputs_changed and not reference.inputs_changed:
        raise KernelFault(
            Status.WRONG_RESULT,
            "the kernel changed its inputs, which the reference leaves as they are; copy them first, or mark the "
            "arguments inout",
        )
