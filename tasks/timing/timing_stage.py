"""The timing stage of a job: chooses the window size, runs windows in alternating order, and checks the result."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from functools import partial

from domain.fault import KernelFault
from domain.flags.codes import SPEEDUP_UNKNOWN, FlagCode
from domain.flags.flag import Flag
from domain.kernel_guess import uses_triton
from domain.result import Speedup, Timing
from profiling.gpu.measured_peaks import UNKNOWN
from profiling.gpu.state_summary import throttled
from profiling.results.estimate import TimeEstimate, early_starts, estimate, post_release_ms
from profiling.results.samples import KernelWindows, Samples, WindowSetup
from profiling.results.speedup import paired_speedup, pairs_half_width
from profiling.results.timing import Circumstances, render_timing
from profiling.roofline.limits import impossible
from profiling.stats import flags
from profiling.stats.stopping_rule import Plan, Stop
from profiling.window.call_buffers import Slots
from profiling.window.timed_window import GateClosed, Window
from tasks.correctness.trials import Trials
from tasks.correctness.view_outputs import view_outputs_warning
from tasks.node.gpu_process_owners import CardReadings
from tasks.runtime.build_stage import gpu_build_warning, not_built_warning
from tasks.runtime.kernel_run import KernelRun
from tasks.runtime.null_window_cache import NullKind
from tasks.runtime.stream_isolation import ONE_QUEUE, Streams, in_one_queue
from tasks.runtime.teardown import retire
from tasks.timing.allocation_shuffle import shuffle_allocations
from tasks.timing.consistency_checks import CrossChecks
from tasks.timing.gate_calibration import HELD_UP
from tasks.timing.null_window_recheck import ISOLATED_ROUNDS, CheckNullWindows, NullWindowRecheck
from tasks.timing.window_retry import RetryPolicy, is_late, repeat_delayed
from tasks.timing.window_runner import WindowRunner, run_round
from tasks.timing.window_sizing import WindowSize

RESERVE_S = 1.0
COPIED_EACH = "calls answer in the same memory: each answer is copied before the next call, on the kernel's time"


@dataclass(frozen=True)
class _Measurement:
    """One measurement: layouts and windows by role, and what it found about the times.

    `own_flags` are those of the candidate's time alone; `nulls` are of its check windows.
    """

    slots: dict[str, Slots]
    windows: dict[str, KernelWindows]
    stop: Stop | None = None
    own_flags: Sequence[Flag] = ()
    nulls: Sequence[CheckNullWindows] = ()
    took_turns: bool = False
    """Whether the runners had to give up their arenas for each other between the windows."""

    @property
    def setups(self) -> dict[str, WindowSetup]:
        return {role: windows.usual.setup for role, windows in self.windows.items()}

    def estimates(self) -> dict[str, TimeEstimate]:
        """Each kernel's time, by role: of the reference (if there is one) and of the candidate."""
        *references, own = self.windows.values()
        return dict(zip(self.windows, [*map(estimate, references), estimate(own, *references)], strict=True))


class Timekeeper:
    """Times the kernels of a job after they have passed validation.

    `plan` replaces the request's own. Without `checked` no windows of other kinds check the time.
    """

    def __init__(self, rounds: Trials, streams: Streams, plan: Plan | None = None, *, checked: bool = True) -> None:
        self.rounds = rounds
        self.streams = streams
        self.budget = rounds.budget
        self.kernel_runs = rounds.kernel_runs
        self.worker = rounds.worker
        self.plan = plan or Plan.of(rounds.request, is_cuda=self.worker.device.is_cuda)
        self.checked = checked
        self.window_runner = WindowRunner(rounds)
        self._streamed_for_delay, self._delayed_measurements = False, 0
        self._card = CardReadings(self.worker.card, self.worker.card_owners())
        self._retry = RetryPolicy()
        self._measurement = _Measurement({}, {})
        self._circumstances: dict[str, Circumstances] = {}
        self._rendered: dict[str, Timing] = {}
        self.speedup: Speedup | None = None

    def time(self) -> None:
        """Runs windows of the kernels in alternating order (A B, B A, ...) until the plan or the job's time ends it."""
        began, size = time.monotonic(), WindowSize(self.rounds, self.plan.window)
        while (measurement := self._measure(size)) is None:
            size.stream(self.window_runner.streamed)
        if not self.rounds.right:
            self.rounds.explain_late_mistake(measurement.slots, time.monotonic() - began)
            return
        self._measurement = measurement
        self._circumstances = {c.role: self._circumstances_of(c, measurement) for c in self.kernel_runs}
        self._rendered = self._render(measurement)
        for kernel_run in self.kernel_runs:
            kernel_run.timing = self._concluded(kernel_run, self._rendered[kernel_run.role])
        self.speedup = self._speedup(measurement)

    @property
    def layout_bytes(self) -> int:
        """Bytes of the layouts of its windows, which it keeps for `recheck_without_candidate`."""
        return sum(layout.size for layout in set(self._measurement.slots.values()))

    def discard_times(self) -> None:
        """Discards times and speed-up: a later check found the kernel wrong, and a wrong kernel has no time."""
        self.speedup = None
        for kernel_run in self.kernel_runs:
            kernel_run.timing = None

    def recheck_without_candidate(self) -> None:
        """Ends the candidate's process, and leaves out or flags what it slowed.

        If cached null windows match those next to the candidate, nothing was slowed, and its process lives on.
        """
        candidate, measurement = self.rounds.candidate, self._measurement
        recheck = NullWindowRecheck(
            NullKind.of(measurement.slots[candidate.role], gated=measurement.setups[candidate.role].gated),
            measurement.windows,
            lambda: self.window_runner.null_windows(measurement.slots, measurement.setups),
            lambda: _isolated_window(self.kernel_runs[0], measurement),
            others=measurement.nulls,
            until=self.budget.deadline - RESERVE_S,
        )
        if recheck.can_skip(self.worker.null_window_cache):
            if candidate.window_session is not None and candidate.timing is not None:
                candidate.timing = replace(candidate.timing, baseline_from_cache=True)
            return
        retire(candidate, self.worker)
        reference = self.kernel_runs[0]
        if reference.window_session is not None:
            reference.open_session.set_deadline(self.budget.deadline)
        with self._quiet():
            layout = measurement.slots[candidate.role]
            ended = layout.size + layout.output_bytes  # The candidate's arena, and what it returned.
            self.worker.device.wait_until_cleared([(time.monotonic(), ended)])
            recheck.measure()
        if not self._retry.throttled:  # The times of a throttled card would be too long for later jobs.
            alone = all(kernel_run.session is None or kernel_run.emptied for kernel_run in self.kernel_runs)
            recheck.store(self.worker.null_window_cache, alone=alone)
        measurement = replace(measurement, windows=recheck.apply())
        if measurement.windows == self._measurement.windows and not recheck.flags:
            return
        rendered = self._render(measurement)
        for kernel_run in self.kernel_runs:
            if kernel_run.timing is not None:
                timing, before = rendered[kernel_run.role], self._rendered[kernel_run.role].flags
                # These windows give their own flags again; flags from elsewhere stay.
                others = [flag for flag in kernel_run.timing.flags if flag not in before]
                all_flags = list(dict.fromkeys([*others, *timing.flags, *recheck.flags]))
                kernel_run.timing = replace(timing, method=kernel_run.timing.method, flags=all_flags)
        self.speedup = self._speedup(measurement)

    @contextmanager
    def _quiet(self) -> Iterator[None]:
        """Waits until no process makes or ends a context on the device; that wait does not count as the job's time."""
        began = time.monotonic()
        with self.worker.block_context_creation(self.rounds.job.cancelled):
            self.budget.extend(time.monotonic() - began)
            for kernel_run in self.kernel_runs:
                if kernel_run.session is not None:
                    kernel_run.session.set_deadline(self.budget.deadline)
            yield

    def _speedup(self, measurement: _Measurement) -> Speedup | None:
        """None too beside a flag that says so: equal kernels that took turns in memory had ratios of 0.74 and 4.4."""
        timing = self.rounds.candidate.timing
        unknown = timing is None or any(flag.code in SPEEDUP_UNKNOWN for flag in timing.flags)
        if len(self.kernel_runs) == 1 or unknown:
            return None
        return paired_speedup(*measurement.estimates().values())

    def _render(self, measurement: _Measurement) -> dict[str, Timing]:
        return {
            role: render_timing(measurement.windows[role], estimated, self._circumstances[role])
            for role, estimated in measurement.estimates().items()
        }

    def _measure(self, size: WindowSize) -> _Measurement | None:
        """Runs all windows; None if they have to be repeated with another size or without the gate."""
        slots = self.rounds.slots(size.calls)
        samples = {c.role: Samples(self._setup(c, size.calls, gated=size.gated(c))) for c in self.kernel_runs}
        own = samples[self.rounds.candidate.role]
        self.window_runner.send_layout(slots)
        self.window_runner.warm_up_null(slots)
        self._card.take(thorough=True)
        began = time.monotonic()
        self._retry = RetryPolicy()
        few_calls = None
        try:
            with self._quiet():
                stop, slowest_s, took_turns = self._windows(slots, samples)
                checks = CrossChecks(self.window_runner, samples, slowest_s)
                if self.rounds.right:
                    has_time = self._time_for_as_long(began)
                    few_calls = size.check(own.setup.calls, post_release_ms(own), has_time=has_time)
                    self._check_setup_delay(own, has_time=has_time)
                    if self.checked:
                        checks.deferred_readback(slots)
                    if self.checked and self.rounds.right:
                        checks.single_call_windows(slots)
        except GateClosed:
            return None
        self._card.take(thorough=True)
        own_flags = [*([few_calls] if few_calls is not None else []), *checks.flags]
        return _Measurement(slots, checks.windows, stop, own_flags, checks.nulls, took_turns)

    def _time_for_as_long(self, began: float) -> bool:
        """Whether the job has as much time left as has passed since `began`."""
        return self.budget.fits(time.monotonic() - began + RESERVE_S)

    def _check_setup_delay(self, own: Samples, *, has_time: bool) -> None:
        """Raises GateClosed if the setup of gated windows was delayed, and they are repeated (`repeat_delayed`).

        A kernel of several streams is tried in one queue first.
        """
        # Not for the reference: the candidate could delay its windows, and would gain by that.
        candidate, call_ms = self.rounds.candidate, post_release_ms(own)
        if not (own.setup.gated and early_starts(own).flag is not None):
            self.streams.check_call_time(call_ms)
            return
        self.streams.check_setup_delay(call_ms)
        self._delayed_measurements += 1
        one_stream = candidate.probe is not None and candidate.probe.one_stream
        repeat = repeat_delayed(self._delayed_measurements, one_stream=one_stream, has_time=has_time)
        if repeat == "streamed":
            self._streamed_for_delay = True
            self.window_runner.streamed.add(candidate.role)
        if repeat is not None:
            raise GateClosed

    def _setup(self, kernel_run: KernelRun, calls: int, *, gated: bool) -> WindowSetup:
        return WindowSetup(
            calls,
            self.worker.device.is_cuda,
            gated,
            # Without the gate a launch takes the host's time.
            launch_shift_ms=(kernel_run.launch_shift_ms or 0.0) if gated else 0.0,
            launches=kernel_run.probe.launches if kernel_run.probe is not None else None,
            is_candidate=kernel_run is self.rounds.candidate,
            weight_bytes=kernel_run.weight_bytes,
        )

    def _windows(self, slots: dict[str, Slots], samples: dict[str, Samples]) -> tuple[Stop | None, float, bool]:
        """Runs the rounds that give the times; returns why they ended, and the time of the slowest round in s.

        They end without a reason where an output is wrong. The last value is `_Measurement.took_turns`.
        """
        plan = self.rounds.memory_plan
        # The first round warms up, and its events give the distribution; the other rounds give the time.
        self._round(slots, samples, self.kernel_runs, warms_up=True)
        begun, shortages = time.monotonic(), plan.shortages
        done, slowest_s = 0, 0.0
        # A reference has to run again without the candidate, or there is no speed-up.
        rounds_left = 1 if len(self.kernel_runs) == 1 else 1 + ISOLATED_ROUNDS
        stop: Stop | None = None
        while stop is None and self.rounds.right:
            started = time.monotonic()
            if done and not self.budget.fits(rounds_left * slowest_s + RESERVE_S):
                return Stop.TIMEOUT, slowest_s, plan.shortages > shortages
            order = self.kernel_runs[::-1] if done % 2 == 0 else self.kernel_runs
            counts = self._round(slots, samples, order)
            slowest_s = max(slowest_s, time.monotonic() - started)
            if counts:
                done += 1
                stop = self.plan.stop(done, time.monotonic() - begun, _half_width(samples))
        return stop, slowest_s, plan.shortages > shortages

    def _round(
        self, slots: dict[str, Slots], samples: dict[str, Samples], order: list[KernelRun], *, warms_up: bool = False
    ) -> bool:
        """Runs one window for each kernel and their null windows; returns False if they have to be repeated."""
        throttling: list[str | None] = []
        setups = {role: each.setup for role, each in samples.items()}
        windows, null = run_round(
            self.window_runner,
            order,
            slots,
            setups,
            with_events=warms_up,
            after_window=lambda: throttling.append(throttled(self._card.take())),
        )
        late = any(is_late(setups[role], window.clock, null[role]) for role, window in windows.items())
        if not warms_up and self._retry.should_retry(next(filter(None, throttling), None), late=late):
            return False
        for role, window in windows.items():
            (samples[role].warm_up if warms_up else samples[role].add)(window, null[role])
        return True

    def _circumstances_of(self, kernel_run: KernelRun, measurement: _Measurement) -> Circumstances:
        state = self._card.state()
        usual, is_candidate = measurement.windows[kernel_run.role].usual, kernel_run is self.rounds.candidate
        windows, is_cuda = len(usual.elapsed_ms), self.worker.device.is_cuda
        applies = {
            FlagCode.LAUNCH_COST_UNKNOWN: usual.setup.gated and kernel_run.launch_shift_ms is None,
            FlagCode.MEMORY_TAKEN_IN_TURNS: measurement.took_turns,
            FlagCode.CPU_TIME_INDICATIVE: not is_cuda,
            FlagCode.INTERPRETED: not is_cuda and uses_triton(kernel_run.kernel.source_code),
            FlagCode.GPU_RATES_UNKNOWN: is_cuda and self.worker.ceilings() == UNKNOWN,
            FlagCode.SHARED_HARDWARE_QUEUE: in_one_queue(kernel_run) and not self.streams.queues.multi_queue_roles,
            FlagCode.INPUTS_REPLAYED: self.rounds.request.replay_seed is not None,
        }
        possible = [
            *(Flag.of(code) for code, is_so in applies.items() if is_so),
            Flag.of(FlagCode.STOPPED_BY_TIMEOUT, windows=windows) if measurement.stop is Stop.TIMEOUT else None,
            *(measurement.own_flags if is_candidate else ()),
            *flags.retaken_windows(self._retry.reasons, self._retry.suppressed, windows),
            flags.others_on_the_card(state),
            *(self.rounds.warnings if is_candidate else ()),
            gpu_build_warning(kernel_run) if is_candidate else None,
            not_built_warning(kernel_run) if is_candidate else None,
            flags.inputs_came_again(self.rounds.inputs.reused) if is_candidate else None,
            view_outputs_warning(self.kernel_runs) if is_candidate else None,
        ]
        present = [flag for flag in possible if flag is not None]
        return Circumstances(self.worker.device.cache, present, measurement.stop, asdict(state))

    def _concluded(self, kernel_run: KernelRun, timing: Timing) -> Timing:
        """The timing with remarks about its method, and a flag if it is impossible on this card."""
        remarks = [
            COPIED_EACH if kernel_run.probe is not None and kernel_run.probe.reuses_memory else None,
            ONE_QUEUE if in_one_queue(kernel_run) else None,
            HELD_UP if self._streamed_for_delay and kernel_run is self.rounds.candidate else None,
        ]
        finding = partial(
            impossible,
            timing.latency_ms,
            ceilings=self.worker.ceilings(),
            calls=timing.calls_per_window,
            resolution_ms=timing.resolution_us / 1e3,
        )
        # What a call certainly wrote takes a search, which is idle where all of its outputs could have been written.
        suspicious = finding(self.rounds.output_bytes(kernel_run)) is not None
        too_fast = finding(self.rounds.written_bytes(kernel_run)) if suspicious else None
        method = "; ".join([timing.method, *filter(None, remarks)])
        return replace(timing, method=method, flags=[*timing.flags, *([too_fast] if too_fast is not None else [])])


def _half_width(samples: dict[str, Samples]) -> float:
    each = [estimate(KernelWindows(usual)) for usual in samples.values()]
    return pairs_half_width(*each) if len(each) > 1 else each[0].half_width


def _isolated_window(reference: KernelRun, measurement: _Measurement) -> Window | None:
    """One more window of the reference; None if it can no longer run."""
    slots, setup = measurement.slots[reference.role], measurement.setups[reference.role]
    if reference.window_session is None or reference.session is None:
        return None
    try:
        # As in the windows next to the candidate: at a fixed address its time would be another.
        shuffle_allocations(reference, slots, setup)
        return reference.window_session.window(slots, gated=setup.gated)
    except (KernelFault, GateClosed):
        return None
