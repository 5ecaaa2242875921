"""Rounds: K fresh input sets, given to every contender in a window of its own, every output compared."""

from __future__ import annotations

import time

from domain.fault import KernelFault
from domain.request import Request
from domain.result import Speedup, Status
from domain.settings import settings
from profiling.plan import Plan, plan
from profiling.record import TimeRecord
from profiling.slots import Slots, bytes_per_call
from profiling.statistics import speedup
from profiling.window import GateClosed, Window
from tasks.contender import Contender
from tasks.trial_inputs import TrialInputs
from tasks.workbench import Workbench
from validation.comparison import CallComparison, compare, merge

VALIDATION_CALLS = 5
RESERVE_S = 1.0
GATE_RETREAT = 4
ARM_S, ARM_FACTOR = 0.25, 4.0
"""Queueing K calls should take about as long as running them; past a multiple of that they wait for the device."""
IMAGES = 3
"""Copies of a window's bytes at one time: the arena, the image it is filled from, the snapshot."""


class Rounds:
    """The rounds of one job. `contenders` are the reference (where there is one) and the candidate, in that order."""

    def __init__(
        self, contenders: list[Contender], inputs: TrialInputs, bench: Workbench, request: Request, deadline: float
    ) -> None:
        self.contenders = contenders
        self.inputs = inputs
        self.bench = bench
        self.request = request
        self.deadline = deadline
        self._compared: list[CallComparison] = []

    def validate(self) -> None:
        """A few calls on fresh inputs, nothing timed; the candidate's comparison is its first verdict."""
        slots = self._slots(self._fitting(VALIDATION_CALLS))
        self._round(slots, self.contenders, dict.fromkeys(slots, False))

    def time(self) -> Speedup | None:
        """Windows of the contenders in turn (A B, B A, ...) until the trials are done or the time is nearly over."""
        chosen = self._plan()
        limits = {c.role: self._gated_calls(c, chosen.calls) for c in self.contenders}
        gated = {role: limit is not None for role, limit in limits.items()}
        calls = min((limit for limit in limits.values() if limit is not None), default=chosen.calls)
        slots = self._slots(calls)
        records = {
            c.role: TimeRecord(
                calls=calls,
                overhead=self.bench.calibration().overhead(slots[c.role], gated=gated[c.role]),
                is_cuda=self.bench.device.is_cuda,
                gated=gated[c.role],
            )
            for c in self.contenders
        }
        slowest = 0.0
        windows = max(chosen.windows * chosen.calls // calls, 1)
        for index in range(windows):
            if index and time.monotonic() + slowest + RESERVE_S > self.deadline:
                for record in records.values():
                    record.flags.append(f"stopped after {index} of {windows} windows: the request's timeout was near")
                break
            started = time.monotonic()
            order = self.contenders if index % 2 == 0 else self.contenders[::-1]
            for role, window in self._round(slots, order, gated).items():
                records[role].add(window)
            slowest = max(slowest, time.monotonic() - started)
            if self._compared and not merge(self._compared).passed:
                return None
        for contender in self.contenders:
            contender.timing = records[contender.role].timing(self.bench.device.cache)
        if len(self.contenders) == 1:
            return None
        return speedup(*(records[contender.role].net_ms for contender in self.contenders))

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

    def _gated_calls(self, contender: Contender, calls: int) -> int | None:
        """How many calls, at most, this contender can queue behind its gate; None when not even one."""
        if not self.bench.device.is_cuda:
            return None
        if self._arms(contender, calls):
            return calls
        if not self._arms(contender, 1):
            return None
        while (calls := calls // GATE_RETREAT) > 1:
            if self._arms(contender, calls):
                return calls
        return 1

    def _arms(self, contender: Contender, calls: int) -> bool:
        """A rehearsal of one window, thrown away; False when its calls do not fit behind the gate."""
        if contender.probe is None or contender.range is None:
            raise ValueError(f"the {contender.role} is not ready")
        slots = contender.slots(calls, self.inputs.draw()[contender.role], self.bench.device.name)
        within = ARM_S + ARM_FACTOR * calls * contender.probe.estimate_ms / 1e3
        try:
            with contender.answerable():
                contender.range.window(slots, gated=True, arm_within=within)
        except GateClosed:
            return False
        return True

    def _round(self, slots: dict[str, Slots], order: list[Contender], gated: dict[str, bool]) -> dict[str, Window]:
        for call in range(next(iter(slots.values())).calls):
            drawn = self.inputs.draw()
            for contender in self.contenders:
                slots[contender.role].fill(call, drawn[contender.role])
        windows = {c.role: self._shoot(c, slots[c.role], gated=gated[c.role]) for c in order}
        self._judge(slots, windows)
        return windows

    def _shoot(self, contender: Contender, slots: Slots, *, gated: bool) -> Window:
        if contender.range is None:
            raise ValueError(f"the {contender.role} has no range")
        with contender.answerable():
            return contender.range.window(slots, gated=gated)

    def _judge(self, slots: dict[str, Slots], windows: dict[str, Window]) -> None:
        """Compares every call's outputs, in full; without a reference there is only the look at inputs."""
        candidate = self.contenders[-1]
        if len(self.contenders) == 1:
            return
        reference = self.contenders[0]
        with candidate.answerable():
            self._check_inputs(reference, candidate, windows)
        for call in range(slots[candidate.role].calls):
            expected = slots[reference.role].read(windows[reference.role].snapshot, call)
            actual = slots[candidate.role].read(windows[candidate.role].snapshot, call)
            self._compared.append(compare(expected, actual, self.request.atol, self.request.rtol))
        candidate.comparison = merge(self._compared)

    def _check_inputs(self, reference: Contender, candidate: Contender, windows: dict[str, Window]) -> None:
        """A candidate may change its inputs only where its contract says inout, or where the reference does it too."""
        if windows[candidate.role].inputs_changed and not windows[reference.role].inputs_changed:
            raise KernelFault(
                Status.WRONG_RESULT,
                "the kernel changed its inputs, which the reference leaves as they are; copy them first, or mark the "
                "arguments inout",
            )

    def _slots(self, calls: int) -> dict[str, Slots]:
        example = self.inputs.draw()
        return {c.role: c.slots(calls, example[c.role], self.bench.device.name) for c in self.contenders}

    def _bytes_per_call(self) -> int:
        example = self.inputs.draw()
        return max(
            bytes_per_call(example[c.role], c.probe.outputs if c.probe is not None and c.probe.returned else [])
            for c in self.contenders
        )

    def _memory(self) -> int:
        """Bytes that one contender's window may take, all its copies counted."""
        return settings().arena_memory // (IMAGES * len(self.contenders))

    def _fitting(self, calls: int) -> int:
        return max(min(calls, self._memory() // max(self._bytes_per_call(), 1)), 1)
