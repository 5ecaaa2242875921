"""The cases of a job: one kernel judged for several sets of arguments, in the same processes (docs/adr/0038).

The referee validates the visible cases in a secret order, times each, and then validates the hidden ones. Only the
process that makes the inputs learns a case's arguments, and only when that case begins.
"""

from __future__ import annotations

import random
import secrets
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from typing import Any

from domain.cases.case import Case, CaseSource, primary
from domain.cases.case_result import CaseResult, CaseResults
from domain.fault import KernelFault
from domain.flags.codes import TIMEOUT_NEAR, FlagCode
from domain.flags.flag import Flag
from domain.result import Speedup, Status
from profiling.stats.statistics import MIN_PAIRS
from profiling.stats.stopping_rule import Plan
from tasks.correctness.input_batches import Arguments
from tasks.correctness.input_source import TrialInputs
from tasks.correctness.load_stage import Preparation
from tasks.correctness.trials import Trials
from tasks.runtime.job_context import JobContext
from tasks.runtime.kernel_run import CaseState, KernelRun
from tasks.runtime.stream_isolation import Streams
from tasks.timing.timing_stage import Timekeeper
from validation.seeds import derive_seed

OTHER_CASES = "{source}() gave other cases in another process of this job: they must not depend on chance or time"
BESIDE_HIDDEN = "get_cases() has hidden cases: leave out `artifacts` and `profile`, which may show what they are"
NOT_USED = (
    "the cases say nothing about the inputs: define get_inputs() with their arguments as parameters, or give a "
    "contract (`io`) whose shapes name them"
)
QUICK_WINDOW = 0.5
"""Factor of a window's length at `quick`, where each of several cases has MIN_PAIRS rounds: ten cases of a small kernel
are to hold the device for less than three times one."""
TIME_RESERVE_FACTOR, RESERVE_S = 3.0, 1.0
"""A further case is timed only if this many times the duration of the longest one, and this many s, are left."""
NOT_TIMED = f"not timed, as {TIMEOUT_NEAR}: raise `timeout`, or send fewer cases"
GradientChoice = Callable[[TrialInputs], object]
SHARE_KEPT = 1 / 12
"""Maximum share of the memory for windows that layouts of timed cases may keep until the candidate has ended."""


@dataclass
class _CaseRun:
    """One case on the device: what the referee drew and found, and what it keeps of the kernels' state."""

    case: Case
    states: dict[str, CaseState]
    checked: bool = False
    inputs: TrialInputs | None = None
    example: dict[str, Arguments] = field(default_factory=dict)
    trials: Trials | None = None
    timekeeper: Timekeeper | None = None
    shapes: list[list[int]] | None = None
    speedup: Speedup | None = None
    right: bool | None = None
    """Whether the kernel was right; None if that is not known."""
    has_time: bool = True


class JobCases:
    """The cases of one job in its processes. `windows_s` is the time of their windows but the primary's, in s.

    `choose_gradients` has the calls of a case compute gradients, if the request asked for them. Stopped is raised where
    a kernel fails; `results` then says in which case.
    """

    def __init__(
        self, job: JobContext, kernel_runs: list[KernelRun], cases: list[Case], choose_gradients: GradientChoice | None
    ) -> None:
        self.windows_s = 0.0
        self._choose_gradients = choose_gradients
        self._job = job
        self._kernel_runs = kernel_runs
        self._primary = primary(cases)
        self._current = self._primary
        self._runs = {case.name: _CaseRun(case, self._states(case)) for case in cases}
        self._visible = [run for run in self._runs.values() if not run.case.hidden]
        self._timed = [run for run in self._visible if run.case.timed]
        self._hidden = [run for run in self._runs.values() if run.case.hidden]
        self._secret = random.Random(secrets.randbits(64))
        self._thorough = job.request.budget.effort.thorough
        for run in self._timed if self._thorough else [self._secret.choice(self._timed)]:
            run.checked = True
        self._kept_bytes = 0
        for kernel_run in kernel_runs:
            kernel_run.kernel = self._own.states[kernel_run.role].kernel

    @classmethod
    def of(
        cls, job: JobContext, kernel_runs: list[KernelRun], choose_gradients: GradientChoice | None
    ) -> JobCases | None:
        """The cases of the request, else those of the loaded source that makes the inputs; None if there are none.

        Raises Stopped if the source fails to tell them.
        """
        owner, requested = kernel_runs[0], list(job.request.cases)
        with owner.attribute_faults():
            by_request = bool(requested) and requested[0].source is CaseSource.REQUEST
            own = None if by_request else owner.open_session.cases()
            if requested and not by_request and [case.name for case in own or ()] != [case.name for case in requested]:
                message = OTHER_CASES.format(source=requested[0].source)
                raise KernelFault(Status.RUNTIME_ERROR, message, compiled=True)
            cases = requested or own
            if not cases:
                return None
            if any(case.hidden for case in cases) and (job.request.artifacts or job.request.profile):
                raise KernelFault(Status.RUNTIME_ERROR, BESIDE_HIDDEN, compiled=True)
        made = cls(job, kernel_runs, cases, choose_gradients)
        made._tell_runners()
        return made

    @property
    def plan(self) -> Plan:
        """The plan for timing each case: its share of the device time, and at `quick` fewer and shorter windows."""
        plan = Plan.of(self._job.request, is_cuda=self._job.worker.device.is_cuda)
        if self._thorough or len(self._timed) == 1:
            return replace(plan, device_time=plan.device_time / len(self._timed))
        rounds = min(MIN_PAIRS, plan.num_trials)
        window = plan.window * (QUICK_WINDOW if plan.is_cuda else 1.0)  # A host's windows are noisier.
        return replace(plan, min_rounds=rounds, usual_rounds=rounds, num_trials=rounds, window=window)

    def primary_timekeeper(self, trials: Trials, streams: Streams) -> Timekeeper:
        """Times the primary case, by the plan of all cases."""
        return Timekeeper(trials, streams, self.plan, checked=self._own.checked)

    @property
    def right(self) -> bool:
        """Whether the kernel was right in every case so far."""
        return all(run.right is not False for run in self._runs.values())

    def judge_others(self, preparation: Preparation, primary_trials: Trials, streams: Streams) -> None:
        """Validates the visible cases but the primary, and times those to time until the kernel is wrong."""
        own = self._own
        own.inputs, own.example, own.trials = primary_trials.inputs, primary_trials.example, primary_trials
        own.shapes, own.right = own.inputs.summary["shapes"], primary_trials.right
        others = [run for run in self._visible if run is not own]
        self._secret.shuffle(others)
        longest_s = 0.0
        for run in others:
            with self._entered(run):
                self._validate(run, preparation, primary_trials, streams)
                # The verdict needs every case validated, and the primary is timed last.
                run.has_time = self._job.budget.fits(TIME_RESERVE_FACTOR * longest_s + RESERVE_S)
                if self.right and run.case.timed and run.has_time:
                    began = time.monotonic()
                    self._time(run, streams)
                    longest_s = max(longest_s, time.monotonic() - began)
                self._release(run)
        if others:
            self._return_to_primary(preparation)

    def judge_hidden(self, preparation: Preparation, primary_trials: Trials, streams: Streams) -> None:
        """Validates the hidden cases; nothing that a kernel prints or returns later may reach the response."""
        self._secret.shuffle(self._hidden)
        for run in self._hidden:
            with self._entered(run):
                self._validate(run, preparation, primary_trials, streams)
                self._release(run)
        if self._hidden:
            self._return_to_primary(preparation)

    def recheck(self, timekeeper: Timekeeper) -> None:
        """Ends the candidate, and leaves out or flags what it slowed: at `quick` in one case that is drawn only now."""
        self._own.timekeeper = timekeeper
        kept = [(run, run.timekeeper) for run in self._timed if run.timekeeper is not None]
        for run, kept_timekeeper in kept if self._thorough else [self._secret.choice(kept)]:
            if kept_timekeeper is timekeeper:
                timekeeper.recheck_without_candidate()
                continue
            with self._swapped(run):
                reference = self._kernel_runs[0]
                if reference.session is not None and run.case.contracts:
                    with suppress(KernelFault):  # The recheck says so, if that runner has ended.
                        reference.session.use_case(reference.kernel)
                kept_timekeeper.recheck_without_candidate()
                run.speedup = kept_timekeeper.speedup

    def results(self, own_speedup: Speedup | None) -> CaseResults:
        """The results of all cases; `own_speedup` is that of the primary, whose state the kernel runs have."""
        self._own.speedup = own_speedup
        if self._own.right:
            comparison = self._kernel_runs[-1].comparison  # Later checks may have found it wrong.
            self._own.right = comparison is None or comparison.passed
        for kernel_run in self._kernel_runs:
            self._own.states[kernel_run.role] = CaseState(
                kernel_run.kernel, kernel_run.probe, kernel_run.comparison, kernel_run.timing
            )
        return CaseResults(tuple(self._result(run) for run in self._runs.values()))

    def release(self) -> None:
        """Drops every reference to device memory."""
        for run in self._runs.values():
            run.inputs = run.trials = run.timekeeper = None
            run.example = {}
            for state in run.states.values():
                state.probe = None

    @property
    def fault_case(self) -> Case:
        """The case that was judged when a kernel failed."""
        return self._current

    @property
    def hidden_began(self) -> bool:
        """Whether a kernel may have seen the inputs of a hidden case."""
        return any(run.right is not None for run in self._hidden) or self._current.hidden

    @property
    def _own(self) -> _CaseRun:
        return self._runs[self._primary.name]

    def _states(self, case: Case) -> dict[str, CaseState]:
        owner = self._kernel_runs[0]
        return {
            kernel_run.role: CaseState(
                replace(
                    kernel_run.kernel,
                    io=case.contracts.get(kernel_run.role, kernel_run.kernel.io),
                    case=case.selector if kernel_run is owner else None,
                )
            )
            for kernel_run in self._kernel_runs
        }

    def _tell_runners(self) -> None:
        for kernel_run in self._kernel_runs:
            with kernel_run.attribute_faults():
                kernel_run.open_session.use_case(kernel_run.kernel)

    @contextmanager
    def _swapped(self, run: _CaseRun) -> Iterator[None]:
        """A block in which the kernel runs have the state of that case; the runners are not told."""
        before = {each.role: each.enter_case(run.states[each.role]) for each in self._kernel_runs}
        try:
            yield
        finally:
            for kernel_run in self._kernel_runs:
                run.states[kernel_run.role] = kernel_run.enter_case(before[kernel_run.role])

    @contextmanager
    def _entered(self, run: _CaseRun) -> Iterator[None]:
        """A block in which that case is judged; a failure inside it is that case's."""
        self._current = run.case
        with self._swapped(run):
            self._tell_runners()
            yield
        self._current = self._primary

    def _return_to_primary(self, preparation: Preparation) -> None:
        self._tell_runners()
        preparation.first_calls(self._own.example)

    def _validate(self, run: _CaseRun, preparation: Preparation, like: Trials, streams: Streams) -> None:
        owner, secret = self._kernel_runs[0], derive_seed(self._job.secret, "case", run.case.name)
        run.inputs = TrialInputs(owner, self._kernel_runs[-1], self._job.worker.device.name, secret)
        if self._choose_gradients is not None:
            self._choose_gradients(run.inputs)
        run.example = run.inputs.first()
        require_use(run.inputs.summary, owner)
        preparation.first_calls(run.example)
        streams.check_first_call()
        run.shapes = run.inputs.summary["shapes"]
        run.trials = like.for_other_inputs(run.inputs, run.example)
        run.trials.validate()
        run.right = run.trials.right

    def _time(self, run: _CaseRun, streams: Streams) -> None:
        assert run.trials is not None
        run.timekeeper = timekeeper = Timekeeper(run.trials, streams, self.plan, checked=run.checked)
        timekeeper.time()
        run.trials.note_fixed_outputs()
        run.right = run.trials.right
        run.speedup = timekeeper.speedup
        self.windows_s += timekeeper.window_runner.windows_s

    def _release(self, run: _CaseRun) -> None:
        """Keeps of the case what the recheck needs, if there is memory for it."""
        for kernel_run in self._kernel_runs:
            kernel_run.drop_probed_outputs()
        size = run.timekeeper.layout_bytes if run.timekeeper is not None else 0
        if self._kept_bytes + size > SHARE_KEPT * self._job.worker.window_memory:
            run.timekeeper = None
            if (timing := self._kernel_runs[-1].timing) is not None:
                timing.flags.append(Flag.of(FlagCode.CASE_NOT_RERUN))
        if run.timekeeper is None:
            run.inputs, run.trials, run.example = None, None, {}
        else:
            self._kept_bytes += size

    def _result(self, run: _CaseRun) -> CaseResult:
        candidate = self._kernel_runs[-1]
        own, reference = run.states[candidate.role], run.states[self._kernel_runs[0].role]
        status = None if run.right is None else Status.PASSED if run.right else Status.WRONG_RESULT
        if candidate.fault is not None and run.case is self._current:
            status = candidate.fault.status
        is_timed = self.right and run.case.timed and all(one.fault is None for one in self._kernel_runs)
        return CaseResult(
            run.case,
            status,
            NOT_TIMED if is_timed and not run.has_time else own.comparison.message if own.comparison else None,
            run.shapes,
            own.comparison,
            own.timing if is_timed else None,
            reference.timing if is_timed and candidate.reference is not None else None,
            run.speedup if is_timed else None,
            run.checked and is_timed,
        )


def require_use(summary: dict[str, Any], owner: KernelRun) -> None:
    """Records a fault of the owner, and raises Stopped, if its inputs were inferred and so follow no case."""
    if summary["source"] == "inferred":
        owner.fail(KernelFault(Status.RUNTIME_ERROR, NOT_USED, compiled=True))
