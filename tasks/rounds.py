"""Rounds: K fresh input sets, given to every contender in a window of its own, every output compared."""

from __future__ import annotations

import time
from typing import Any

from domain.fault import KernelFault
from domain.request import Request
from domain.result import Speedup, Status
from domain.settings import settings
from profiling.plan import Plan, plan
from profiling.record import TimeRecord, paired_speedup
from profiling.slots import Slots, bytes_per_call
from profiling.window import Window
from tasks.contender import Contender
from tasks.gating import gated_calls
from tasks.trial_inputs import Arguments, TrialInputs
from tasks.workbench import Workbench
from validation.comparison import CallComparison, compare_calls, merge

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
        self._compared: list[CallComparison] = []

    def validate(self) -> None:
        """A few calls on fresh inputs, nothing timed; the candidate's comparison is its first verdict."""
        calls = max(min(VALIDATION_CALLS, self._memory() // max(self._bytes_per_call(), 1)), 1)
        slots = self._slots(calls)
        self._fill(slots)
        self._judge(slots, {c.role: self._shoot(c, slots, gated=False, marked=False) for c in self.contenders})

    def time(self) -> Speedup | None:
        """Windows of the contenders in turn (A B, B A, ...) until the trials are done or the time is nearly over."""
        chosen = self._plan()
        limits = {
            c.role: gated_calls(c, self.example[c.role], chosen.calls, self.bench.device) for c in self.contenders
        }
        calls = min((limit for limit in limits.values() if limit is not None), default=chosen.calls)
        slots = self._slots(calls)
        records = {
            role: TimeRecord(calls, self.bench.device.is_cuda, gated=limit is not None)
            for role, limit in limits.items()
        }
        windows = max(chosen.windows * chosen.calls // calls, 1)
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
        self._compared += compare_calls(pairs, self.request.atol, self.request.rtol)
        candidate.comparison = merge(self._compared)

    def _plan(self) -> Plan:
        probes = [contender.probe for contender in self.contenders if contender.probe is not None]
        return plan(
            [probe.estimate_ms for probe in probes],
            num_trials=self.request.num_trials,
            bytes_per_call=self._bytes_per_call(),
            memory=self._memory(),
            returned=any(probe.returned for probe in probes),
            is_cuda=self.bench.device.is_cuda,
        )

    def _slots(self, calls: int) -> dict[str, Slots]:
        return {c.role: c.slots(calls, self.example[c.role], self.bench.device.name) for c in self.contenders}

    def _bytes_per_call(self) -> int:
        return max(bytes_per_call(self.example[c.role], _returned(c)) for c in self.contenders)

    def _memory(self) -> int:
        """Bytes that one contender's window may take, of what is allowed to all the copies of it."""
        return settings().arena_memory // (IMAGES * len(self.contenders))


def _returned(contender: Contender) -> list[Any]:
    return contender.probe.outputs if contender.probe is not None and contender.probe.returned else []


def _check_inputs(reference: Window, candidate: Window) -> None:
    """A candidate may change its inputs only where its contract says inout, or where the reference does it too."""
    if candidate.inputs_changed and not reference.inputs_changed:
        raise KernelFault(
            Status.WRONG_RESULT,
            "the kernel changed its inputs, which the reference leaves as they are; copy them first, or mark the "
            "arguments inout",
        )
