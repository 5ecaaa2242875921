"""The timing stage of a job: chooses the window size, runs windows in alternating order, and checks the result."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, replace

from domain.flags import TIMEOUT_NEAR, Flag, FlagCode
from domain.result import Speedup
from profiling.gpu.measured_peaks import UNKNOWN
from profiling.gpu.state_summary import throttled
from profiling.results.samples import TimeRecord
from profiling.results.speedup import paired_speedup, pairs_half_width
from profiling.roofline.limits import RATES_UNKNOWN, impossible
from profiling.stats import flags
from profiling.stats.stopping_rule import Plan, Stop
from profiling.window.call_buffers import Slots
from profiling.window.timed_window import GateClosed, Window
from tasks.correctness.trials import Trials
from tasks.correctness.view_outputs import view_outputs_warning
from tasks.node.gpu_readings import CardReadings
from tasks.runtime.kernel_run import KernelRun
from tasks.runtime.stream_isolation import NOT_CHOSEN, ONE_QUEUE, Streams, in_one_queue
from tasks.timing.consistency_checks import CrossChecks
from tasks.timing.gate_calibration import HELD_UP
from tasks.timing.null_window_recheck import NullWindowRecheck
from tasks.timing.window_retry import RetryPolicy
from tasks.timing.window_runner import WindowRunner
from tasks.timing.window_sizing import WindowSize

RESERVE_S = 1.0
MAX_DELAYED = 2
"""Maximum number of gated measurements with delayed setup, for a kernel of one stream; then the delay counts as its
own."""
REPLAYED = Flag(
    FlagCode.INPUTS_REPLAYED,
    "a replay: the request named the seed, so the inputs were known beforehand; use it to find bugs, not to rank",
)
COPIED_EACH = "calls answer in the same memory: each answer is copied before the next call, on the kernel's time"
CPU_TIME_INDICATIVE = Flag(
    FlagCode.CPU_TIME_INDICATIVE,
    "timed on a CPU, where a kernel can compute before the clock starts and slow others: the time is only indicative",
)
INTERPRETED = Flag(
    FlagCode.INTERPRETED,
    "run by Triton's interpreter on the CPU, and never compiled: the time says nothing about the speed on a GPU",
)
FEW_CALLS = (
    "the kernel allows no more than {calls} calls in a window, and taking windows again did not help or "
    f"{TIMEOUT_NEAR}: the error of a window is a large part of its time"
)
LAUNCHES_UNKNOWN = Flag(
    FlagCode.LAUNCH_COST_UNKNOWN,
    "what a launch costs in this process could not be measured: nothing is subtracted, and a call may be off by 0.2 µs",
)


class Timekeeper:
    """Times the kernels of a job after they have passed validation."""

    def __init__(self, rounds: Trials, streams: Streams, cancelled: Callable[[], bool]) -> None:
        self.rounds = rounds
        self.streams = streams
        self.cancelled = cancelled
        self.kernel_runs = rounds.kernel_runs
        self.worker = rounds.worker
        self.plan = Plan.of(rounds.request, is_cuda=self.worker.device.is_cuda)
        self.window_runner = WindowRunner(rounds)
        self._streamed_for_delay, self._delayed_takes = False, 0
        self._card = CardReadings(self.worker.card, self.worker.card_owners())
        self._retry = RetryPolicy()
        self._slots: dict[str, Slots] = {}
        self._records: dict[str, TimeRecord] = {}
        self._checks: CrossChecks | None = None

    def time(self) -> Speedup | None:
        """Runs windows of the kernels in alternating order (A B, B A, ...) until the plan or the job's time ends it."""
        size = WindowSize(self.rounds, self.plan.window)
        while not self._take(size):
            size.stream(self.window_runner.streamed)
        if not self.rounds.right:
            return None
        for kernel_run in self.kernel_runs:
            self._conclude(kernel_run, self._records[kernel_run.role])
        return self._speedup()

    def recheck_without_candidate(self, speedup: Speedup | None) -> Speedup | None:
        """Ends the candidate's process, and corrects times and speed-up for what it slowed.

        If cached null windows match those next to the candidate, there is nothing to correct, and its process lives on.
        """
        recheck = NullWindowRecheck(
            self.kernel_runs,
            self._slots,
            self._records,
            lambda: self.window_runner.null_windows(self._slots, self._records),
            self._checks.nulls if self._checks is not None else (),
            self.rounds.deadline - RESERVE_S,
        )
        candidate = self.rounds.candidate
        if recheck.can_skip(self.worker.null_window_cache):
            if candidate.window_session is not None and candidate.timing is not None:
                candidate.timing = replace(candidate.timing, baseline_from_cache=True)
            return speedup
        candidate.close()
        reference = self.kernel_runs[0]
        if reference.session is not None:
            reference.session.set_deadline(self.rounds.deadline)
        with self._quiet():
            recheck.measure()
        if not self._retry.throttled:  # The times of a throttled card would be too long for later jobs.
            recheck.store(self.worker.null_window_cache)
        before = {role: record.timing(self.worker.device.cache).flags for role, record in self._records.items()}
        recheck.apply()
        if not recheck.corrected:
            return speedup
        for kernel_run in self.kernel_runs:
            if kernel_run.timing is not None:
                corrected = self._records[kernel_run.role].timing(self.worker.device.cache)
                # The corrected record makes its own flags again; flags from elsewhere stay.
                others = [flag for flag in kernel_run.timing.flags if flag not in before[kernel_run.role]]
                all_flags = list(dict.fromkeys([*others, *corrected.flags, *recheck.flags]))
                method = recheck.method(kernel_run.timing, kernel_run.role)
                kernel_run.timing = replace(corrected, method=method, flags=all_flags)
        return self._speedup()

    @contextmanager
    def _quiet(self) -> Iterator[None]:
        """Waits until no process makes or ends a context on the device; that wait does not count as the job's time."""
        began = time.monotonic()
        with self.worker.block_context_creation(self.cancelled):
            self.rounds.extend_deadline(time.monotonic() - began)
            yield

    def _speedup(self) -> Speedup | None:
        return paired_speedup(*(self._records[c.role] for c in self.kernel_runs)) if len(self.kernel_runs) > 1 else None

    def _take(self, size: WindowSize) -> bool:
        """Runs all windows; False if they have to be repeated with another size or without the gate."""
        slots = self.rounds.slots(size.calls)
        records = {c.role: self._record(c, size.calls, gated=size.gated(c)) for c in self.kernel_runs}
        self.window_runner.send_layout(slots)
        self.window_runner.warm_up_null(slots)
        self._card.take(thorough=True)
        began = time.monotonic()
        self._retry = RetryPolicy()
        try:
            with self._quiet():
                slowest = self._windows(slots, records)
                if self.rounds.right:
                    self._check_window_size(records, size, began)
                    self._check_setup_delay(records, began)
                    self._checks = CrossChecks(self.window_runner, records, slowest)
                    self._checks.deferred_readback(slots)
                    if self.rounds.right:
                        self._checks.single_call_windows(slots)
        except GateClosed:
            return False
        self._card.take(thorough=True)
        self._slots, self._records = slots, records
        return True

    def _check_window_size(self, records: dict[str, TimeRecord], size: WindowSize, began: float) -> None:
        """Raises GateClosed if the candidate limited windows to so few short calls that errors are a large part of
        them.

        The repetition is streamed, so that the queue no longer limits the number of calls.
        """
        own = self.rounds.candidate.role
        if not size.limited_by_candidate(records[own]):
            return
        if self._time_for_as_long(began) and size.enlarge(records[own]):
            self.window_runner.streamed.add(own)
            raise GateClosed
        calls = records[own].calls
        few = Flag(FlagCode.FEW_CALLS_PER_WINDOW, FEW_CALLS.format(calls=calls), {"calls_per_window": calls})
        records[own].flags.append(few)

    def _time_for_as_long(self, began: float) -> bool:
        """Whether the job has as much time left as has passed since `began`."""
        now = time.monotonic()
        return now + (now - began) + RESERVE_S < self.rounds.deadline

    def _check_setup_delay(self, records: dict[str, TimeRecord], began: float) -> None:
        """Raises GateClosed if the setup of gated windows was delayed, and there is time to repeat them.

        A process whose work waits at the gate on several streams keeps the device for whole time slices, although it
        computes nothing (docs/measurements.md). It is tried in one queue first, then without the gate. With one stream,
        another process may be the cause: then the gate is tried once more and stays. Work before the release counts in
        any case.
        """
        # Not for the reference: the candidate could delay its windows, and would gain by that.
        own, probe = self.rounds.candidate.role, self.rounds.candidate.probe
        if not (records[own].gated and records[own].setup_delayed):
            self.streams.check_call_time(records[own].post_release_ms)
            return
        self.streams.check_setup_delay(records[own].post_release_ms)
        self._delayed_takes += 1
        one_stream = probe is not None and probe.one_stream
        if self._time_for_as_long(began) and not (one_stream and self._delayed_takes >= MAX_DELAYED):
            if not one_stream:
                self._streamed_for_delay = True
                self.window_runner.streamed.add(own)
            raise GateClosed

    def _record(self, kernel_run: KernelRun, calls: int, *, gated: bool) -> TimeRecord:
        shift_ms = kernel_run.launch_shift_ms if gated else 0.0  # Without the gate a launch takes the host's time.
        launches = kernel_run.probe.launches if kernel_run.probe is not None else None
        return TimeRecord(
            calls,
            self.worker.device.is_cuda,
            gated,
            launch_shift_ms=shift_ms or 0.0,
            launches=launches,
            is_candidate=kernel_run is self.rounds.candidate,
            weight_bytes=kernel_run.weight_bytes,
            flags=[] if shift_ms is not None else [LAUNCHES_UNKNOWN],
        )

    def _windows(self, slots: dict[str, Slots], records: dict[str, TimeRecord]) -> float:
        """Runs the rounds that give the times; returns the time of the slowest round, in s."""
        # The first round warms up, and its events give the distribution; the other rounds give the time.
        self._round(slots, records, reverse=False, with_events=True)
        begun = time.monotonic()
        done, slowest = 0, 0.0
        stop: Stop | None = None
        while stop is None and self.rounds.right:
            started = time.monotonic()
            if done and started + slowest + RESERVE_S > self.rounds.deadline:
                stop = Stop.TIMEOUT
                break
            reason = self._round(slots, records, reverse=done % 2 == 0, with_events=False)
            slowest = max(slowest, time.monotonic() - started)
            if self._retry.should_retry(reason, list(records.values())):
                for record in records.values():
                    record.drop_last()
                continue
            done += 1
            stop = self.plan.stop(done, time.monotonic() - begun, self._half_width(records))
        for record in records.values():
            record.stopped = stop
            if stop is Stop.TIMEOUT:
                message = f"stopped after window {done}: {TIMEOUT_NEAR}"
                record.flags.append(Flag(FlagCode.STOPPED_BY_TIMEOUT, message, {"windows": done}))
        return slowest

    def _round(
        self, slots: dict[str, Slots], records: dict[str, TimeRecord], *, reverse: bool, with_events: bool
    ) -> str | None:
        """Runs one window for each kernel and their null windows; returns why throttling spoiled the round, or None."""
        order = self.kernel_runs[::-1] if reverse else self.kernel_runs
        self.window_runner.shuffle_allocations(slots, records)
        fill = self.rounds.prepare_fill(slots)
        fills_in_window = self._fills_in_window(records[order[0].role])
        if not fills_in_window:
            fill()
        null = self.window_runner.null_windows(slots, records)
        windows: dict[str, Window] = {}
        reason = None
        for kernel_run in order:
            record = records[kernel_run.role]
            # Events on the device take time between calls, so that only the first round has them. Host clocks do not.
            events, meanwhile = with_events or not record.is_cuda, fill if fills_in_window and not windows else None
            window = self.window_runner.run(kernel_run, slots, record, with_events=events, meanwhile=meanwhile)
            (record.warm_up if with_events else record.add)(window, null[kernel_run.role])
            windows[kernel_run.role] = window
            reading = self._card.take()
            reason = reason or throttled(reading)
        self.rounds.judge(slots, windows)
        return reason

    def _fills_in_window(self, first: TimeRecord) -> bool:
        """Whether the referee writes a round's inputs while the runner queues the first window's calls.

        The null windows then run over the previous inputs, which does not matter to them. It is False if a runner makes
        the inputs, because it does one thing at a time, and without the gate, because no calls are queued ahead.
        """
        return first.gated and self.rounds.inputs.contract is not None

    def _half_width(self, records: dict[str, TimeRecord]) -> float:
        ordered = list(records.values())
        return pairs_half_width(*ordered) if len(ordered) > 1 else ordered[0].half_width

    def _conclude(self, kernel_run: KernelRun, record: TimeRecord) -> None:
        state = self._card.state()
        ceilings = self.worker.ceilings()
        candidate_only = (flags.inputs_came_again(self.rounds.inputs.reused), view_outputs_warning(self.kernel_runs))
        possible = [
            *flags.retaken_windows(self._retry.reasons, self._retry.suppressed, len(record.elapsed_ms)),
            flags.others_on_the_card(state),
            None if self.worker.device.is_cuda else CPU_TIME_INDICATIVE,
            INTERPRETED if kernel_run.facts.get("interpreted") else None,
            RATES_UNKNOWN if self.worker.device.is_cuda and ceilings == UNKNOWN else None,
            NOT_CHOSEN if in_one_queue(kernel_run) and not self.streams.queues.multi_queue_roles else None,
            REPLAYED if self.rounds.request.replay_seed is not None else None,
            *((*self.rounds.warnings, *candidate_only) if kernel_run is self.rounds.candidate else ()),
        ]
        record.flags += [flag for flag in possible if flag is not None]
        record.gpu_state = asdict(state)
        timing = record.timing(self.worker.device.cache)
        if kernel_run.probe is not None and kernel_run.probe.reuses_memory:
            timing = replace(timing, method=f"{timing.method}; {COPIED_EACH}")
        if in_one_queue(kernel_run):
            timing = replace(timing, method=f"{timing.method}; {ONE_QUEUE}")
        if self._streamed_for_delay and kernel_run is self.rounds.candidate:
            timing = replace(timing, method=f"{timing.method}; {HELD_UP}")
        too_fast = impossible(
            timing.latency_ms,
            self.rounds.written_bytes(kernel_run),
            ceilings,
            calls=record.calls,
            resolution_ms=timing.resolution_us / 1e3,
        )
        timing.flags.extend([too_fast] if too_fast is not None else [])
        kernel_run.timing = timing
