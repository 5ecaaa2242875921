"""The timing of a job: how many windows of how many calls, in which order, under which state of the card."""

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
from tasks.runtime.kernel_run import Contender
from tasks.runtime.stream_isolation import NOT_CHOSEN, ONE_QUEUE, Streams, in_one_queue
from tasks.timing.consistency_checks import CrossChecks
from tasks.timing.gate_calibration import HELD_UP
from tasks.timing.null_window_recheck import Alone
from tasks.timing.window_retry import Retakes
from tasks.timing.window_runner import Shooting
from tasks.timing.window_sizing import WindowSize

RESERVE_S = 1.0
LATE_AT_MOST = 2
"""Takes behind the gate of a kernel of one stream whose windows are ready late in each: then that is its own doing."""
REPLAYED = Flag(
    FlagCode.INPUTS_REPLAYED,
    "a replay: the request named the seed, so the inputs were known beforehand; use it to find bugs, not to rank",
)
COPIED_EACH = "calls answer in the same memory: each answer is copied before the next call, on the kernel's time"
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
    """Times the contenders of validated rounds."""

    def __init__(self, rounds: Trials, streams: Streams, cancelled: Callable[[], bool]) -> None:
        self.rounds = rounds
        self.streams = streams
        self.cancelled = cancelled
        self.contenders = rounds.contenders
        self.bench = rounds.bench
        self.plan = Plan.of(rounds.request, is_cuda=self.bench.device.is_cuda)
        self.shooting = Shooting(rounds)
        self._held_up, self._late_takes = False, 0
        self._card = CardReadings(self.bench.card, self.bench.card_owners())
        self._retakes = Retakes()
        self._slots: dict[str, Slots] = {}
        self._records: dict[str, TimeRecord] = {}
        self._checks: CrossChecks | None = None

    def time(self) -> Speedup | None:
        """Windows of the contenders in turn (A B, B A, ...) until the plan or the time says that it is enough."""
        size = WindowSize(self.rounds, self.plan.window)
        while not self._take(size):
            size.stream(self.shooting.streamed)
        if not self.rounds.right:
            return None
        for contender in self.contenders:
            self._conclude(contender, self._records[contender.role])
        return self._speedup()

    def check_alone(self, speedup: Speedup | None) -> Speedup | None:
        """Corrects times and speed-up for what the candidate slowed, once its process is gone.

        It lives on where null windows are known to take without it what they took beside it: nothing is corrected then.
        """
        alone = Alone(
            self.contenders,
            self._slots,
            self._records,
            lambda: self.shooting.null_windows(self._slots, self._records),
            self._checks.nulls if self._checks is not None else (),
            self.rounds.deadline - RESERVE_S,
        )
        candidate = self.rounds.candidate
        if alone.is_known(self.bench.known_nulls):
            if candidate.range is not None and candidate.timing is not None:
                candidate.timing = replace(candidate.timing, baseline_from_cache=True)
            return speedup
        candidate.close()
        reference = self.contenders[0]
        if reference.session is not None:
            reference.session.set_deadline(self.rounds.deadline)
        with self._quiet():
            alone.shoot()
        if not self._retakes.throttled:  # A throttled card takes more than it will in other jobs.
            alone.keep(self.bench.known_nulls)
        before = {role: record.timing(self.bench.device.cache).flags for role, record in self._records.items()}
        alone.correct()
        if not alone.corrected:
            return speedup
        for contender in self.contenders:
            if contender.timing is not None:
                corrected = self._records[contender.role].timing(self.bench.device.cache)
                # What the windows said before they were corrected they say anew, or no longer.
                kept = [flag for flag in contender.timing.flags if flag not in before[contender.role]]
                told = list(dict.fromkeys([*kept, *corrected.flags, *alone.flags]))
                contender.timing = replace(corrected, method=alone.method(contender.timing, contender.role), flags=told)
        return self._speedup()

    @contextmanager
    def _quiet(self) -> Iterator[None]:
        """Waits until nobody makes or ends a context on the device, which is no kernel's time."""
        asked = time.monotonic()
        with self.bench.quiet(self.cancelled):
            self.rounds.extend_deadline(time.monotonic() - asked)
            yield

    def _speedup(self) -> Speedup | None:
        return paired_speedup(*(self._records[c.role] for c in self.contenders)) if len(self.contenders) > 1 else None

    def _take(self, size: WindowSize) -> bool:
        """All windows; False where a contender whose rehearsal could be queued could not be later."""
        slots = self.rounds.slots(size.calls)
        records = {c.role: self._record(c, size.calls, gated=size.gated(c)) for c in self.contenders}
        self.shooting.announce(slots)
        self.shooting.warm_null(slots)
        self._card.take(thorough=True)
        began = time.monotonic()
        self._retakes = Retakes()
        try:
            with self._quiet():
                slowest = self._windows(slots, records)
                if self.rounds.right:
                    self._look_for_few_calls(records, size, began)
                    self._look_for_hold_up(records, began)
                    self._checks = CrossChecks(self.shooting, records, slowest)
                    self._checks.held_back(slots)
                    if self.rounds.right:
                        self._checks.single_calls(slots)
        except GateClosed:
            return False
        self._card.take(thorough=True)
        self._slots, self._records = slots, records
        return True

    def _look_for_few_calls(self, records: dict[str, TimeRecord], size: WindowSize, began: float) -> None:
        """Raises GateClosed where the candidate had windows hold so few short calls that they tell too little.

        Launched on the clock, as it does not matter then how many can be queued.
        """
        own = self.rounds.candidate.role
        if not size.kept_few(records[own]):
            return
        if self._time_for_as_long(began) and size.enlarge(records[own]):
            self.shooting.streamed.add(own)
            raise GateClosed
        calls = records[own].calls
        few = Flag(FlagCode.FEW_CALLS_PER_WINDOW, FEW_CALLS.format(calls=calls), {"calls_per_window": calls})
        records[own].flags.append(few)

    def _time_for_as_long(self, began: float) -> bool:
        """Whether as long again as since then is left of the job's time."""
        now = time.monotonic()
        return now + (now - began) + RESERVE_S < self.rounds.deadline

    def _look_for_hold_up(self, records: dict[str, TimeRecord], began: float) -> None:
        """Raises GateClosed where gated windows were made ready late, and there is time to take them anew.

        A process whose work waits at the gate on several streams keeps the device for whole slices of its time, though
        it computes nothing (docs/measurements.md): it is tried in one queue first, then without the gate. Of one stream
        it may have been somebody else: then the gate is tried once more, and stays. Worked ahead is charged anyhow.
        """
        # Never the reference: its windows may be late through the candidate, which would gain by that.
        own, probe = self.rounds.candidate.role, self.rounds.candidate.probe
        if not (records[own].gated and records[own].held_up):
            self.streams.look_at_time(records[own].after_gun_ms)
            return
        self.streams.look_at_hold_up(records[own].after_gun_ms)
        self._late_takes += 1
        one_stream = probe is not None and probe.one_stream
        if self._time_for_as_long(began) and not (one_stream and self._late_takes >= LATE_AT_MOST):
            if not one_stream:
                self._held_up = True
                self.shooting.streamed.add(own)
            raise GateClosed

    def _record(self, contender: Contender, calls: int, *, gated: bool) -> TimeRecord:
        shift_ms = contender.launch_shift_ms if gated else 0.0  # Else a launch costs the host's time.
        launches = contender.probe.launches if contender.probe is not None else None
        return TimeRecord(
            calls,
            self.bench.device.is_cuda,
            gated,
            launch_shift_ms=shift_ms or 0.0,
            launches=launches,
            charged=contender is self.rounds.candidate,
            weight_bytes=contender.weight_bytes,
            flags=[] if shift_ms is not None else [LAUNCHES_UNKNOWN],
        )

    def _windows(self, slots: dict[str, Slots], records: dict[str, TimeRecord]) -> float:
        """Those that give the times; the seconds that their slowest round took."""
        # The first round warms up, and its marked windows give the distribution; the others give the level.
        self._round(slots, records, reverse=False, marked=True)
        begun = time.monotonic()
        done, slowest = 0, 0.0
        stop: Stop | None = None
        while stop is None and self.rounds.right:
            started = time.monotonic()
            if done and started + slowest + RESERVE_S > self.rounds.deadline:
                stop = Stop.TIMEOUT
                break
            reason = self._round(slots, records, reverse=done % 2 == 0, marked=False)
            slowest = max(slowest, time.monotonic() - started)
            if self._retakes.again(reason, list(records.values())):
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
        self, slots: dict[str, Slots], records: dict[str, TimeRecord], *, reverse: bool, marked: bool
    ) -> str | None:
        """One window for each contender, a null window beside them; why the card spoiled it, if it did."""
        turns = self.contenders[::-1] if reverse else self.contenders
        self.shooting.relocate(slots, records)
        fill = self.rounds.prepare_fill(slots)
        at_once = self._at_once(records[turns[0].role])
        if not at_once:
            fill()
        null = self.shooting.null_windows(slots, records)
        windows: dict[str, Window] = {}
        reason = None
        for contender in turns:
            record = records[contender.role]
            # Host clocks cost nothing between calls; events on the device do, so only the first windows have them.
            marks, meanwhile = marked or not record.is_cuda, fill if at_once and not windows else None
            window = self.shooting.shoot(contender, slots, record, marked=marks, meanwhile=meanwhile)
            (record.warm_up if marked else record.add)(window, null[contender.role])
            windows[contender.role] = window
            reading = self._card.take()
            reason = reason or throttled(reading)
        self.rounds.judge(slots, windows)
        return reason

    def _at_once(self, first: TimeRecord) -> bool:
        """Whether a round's inputs are written while the first window's calls are queued.

        Null windows are then taken over what lay there before, which means nothing to them. Not where a runner makes
        the inputs, as it does one after the other; nor without the gate, where calls are not queued ahead.
        """
        return first.gated and self.rounds.inputs.contract is not None

    def _half_width(self, records: dict[str, TimeRecord]) -> float:
        each = list(records.values())
        return pairs_half_width(*each) if len(each) > 1 else each[0].half_width

    def _conclude(self, contender: Contender, record: TimeRecord) -> None:
        state = self._card.state()
        ceilings = self.bench.ceilings()
        told = (flags.inputs_came_again(self.rounds.inputs.reused), view_outputs_warning(self.contenders))
        found = [
            *flags.windows_taken_again(self._retakes.told, self._retakes.kept, len(record.elapsed_ms)),
            flags.others_on_the_card(state),
            INTERPRETED if contender.facts.get("interpreted") else None,
            RATES_UNKNOWN if self.bench.device.is_cuda and ceilings == UNKNOWN else None,
            NOT_CHOSEN if in_one_queue(contender) and not self.streams.queues.apart else None,
            REPLAYED if self.rounds.request.replay_seed is not None else None,
            *((*self.rounds.warnings, *told) if contender is self.rounds.candidate else ()),
        ]
        record.flags += [flag for flag in found if flag is not None]
        record.gpu_state = asdict(state)
        timing = record.timing(self.bench.device.cache)
        if contender.probe is not None and contender.probe.reuses_memory:
            timing = replace(timing, method=f"{timing.method}; {COPIED_EACH}")
        if in_one_queue(contender):
            timing = replace(timing, method=f"{timing.method}; {ONE_QUEUE}")
        if self._held_up and contender is self.rounds.candidate:
            timing = replace(timing, method=f"{timing.method}; {HELD_UP}")
        too_fast = impossible(
            timing.latency_ms,
            self.rounds.written_bytes(contender),
            ceilings,
            calls=record.calls,
            resolution_ms=timing.resolution_us / 1e3,
        )
        timing.flags.extend([too_fast] if too_fast is not None else [])
        contender.timing = timing
