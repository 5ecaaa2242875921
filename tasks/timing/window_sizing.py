"""Chooses the number of calls in a job's windows: enough for the fastest kernel, and few enough for every queue."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from domain.flags.codes import FlagCode
from domain.flags.flag import Flag
from profiling.stats.stopping_rule import calls_that_fill, calls_that_fit
from profiling.window.call_buffers import bytes_per_call
from profiling.window.timed_window import GateClosed
from tasks.correctness.trials import Trials
from tasks.runtime.kernel_run import KernelRun
from tasks.timing.gate_calibration import Calibration, calibrate

FEW, FEW_MS = 16, 1.0
"""Minimum number of calls of a window, or minimum time of all of them in ms. In a smaller window an undetected error
(an early start of 70 µs, say) is more than 3 µs and 5 % of each call."""
LEAST_MS = 0.02
"""Minimum time of a call, in ms, if it is measured in a window of few calls."""
MOST_TIMES = 2
"""Maximum number of times that a job's windows are enlarged."""


class WindowSize:
    """The window size for kernels that passed validation, from calibration; windows are `window` times the usual
    length."""

    def __init__(self, rounds: Trials, window: float) -> None:
        self._rounds = rounds
        self._window = window
        self._device = rounds.worker.device
        self._enlarged = 0
        fitting = self._fitting(0.0, rounds.bytes_per_call())
        self._calibrations: dict[str, Calibration | None] = {
            # Without a limit by estimates: a kernel that claims to be slow would be tried with few calls.
            c.role: calibrate(c, rounds.filled_slots, fitting, self._device, window=window)
            for c in rounds.kernel_runs
        }

    def gated(self, kernel_run: KernelRun) -> bool:
        """Whether the kernel's calls are queued behind the gate."""
        return self._calibrations[kernel_run.role] is not None

    def stream(self, roles: Iterable[str]) -> None:
        """Switches those roles to windows without the gate."""
        self._calibrations |= dict.fromkeys(roles)

    @property
    def calls(self) -> int:
        """Number of calls in every window, the same for both kernels."""
        kernel_runs, needed = self._rounds.kernel_runs, self._rounds.bytes_per_call()
        return self._filling(min(map(self._call_ms, kernel_runs)), self._limit(kernel_runs, needed))

    def check(self, calls: int, call_ms: float, *, has_time: bool) -> Flag | None:
        """The flag for windows of `calls` calls of `call_ms`, if the candidate limited them to so few short calls that
        errors are a large part of them.

        Raises GateClosed if they have to be repeated: with more calls and without the gate, whose queue limits them.
        """
        call_ms = max(call_ms, LEAST_MS)
        if not self._limited_by_candidate(calls, call_ms):
            return None
        if not has_time or self._enlarged == MOST_TIMES:
            return Flag.of(FlagCode.FEW_CALLS_PER_WINDOW, calls_per_window=calls)
        self._enlarged += 1
        self._rounds.candidate.cap_estimate(call_ms)
        self.stream([self._rounds.candidate.role])
        raise GateClosed

    def _limited_by_candidate(self, calls: int, call_ms: float) -> bool:
        """Whether windows hold few, short calls although the limits of the other kernels allow more."""
        if not self._device.is_cuda or calls >= FEW or calls * call_ms >= FEW_MS:
            return False
        others = [kernel_run for kernel_run in self._rounds.kernel_runs if kernel_run is not self._rounds.candidate]
        return self._filling(call_ms, self._limit(others, self._required_bytes(others))) > calls

    def _call_ms(self, kernel_run: KernelRun) -> float:
        calibration = self._calibrations[kernel_run.role]
        return calibration.call_ms if calibration is not None else kernel_run.estimate_ms

    def _required_bytes(self, others: Sequence[KernelRun]) -> int:
        """Bytes of a call that the candidate cannot influence: its inputs, and all that the other kernels need."""
        example = self._rounds.example
        input_bytes = bytes_per_call(example[self._rounds.candidate.role], [])
        return max([input_bytes, *(bytes_per_call(example[other.role], other.returned) for other in others)])

    def _limit(self, kernel_runs: Sequence[KernelRun], needed: int) -> int:
        """Maximum number of calls by these kernels' times and queues, and by memory for calls of `needed` bytes."""
        calibrations = filter(None, (self._calibrations[kernel_run.role] for kernel_run in kernel_runs))
        slowest_ms = max(map(self._call_ms, kernel_runs), default=0.0)
        return min([self._fitting(slowest_ms, needed), *(calibration.calls for calibration in calibrations)])

    def _filling(self, call_ms: float, limit: int) -> int:
        return calls_that_fill(call_ms, limit, is_cuda=self._device.is_cuda, window=self._window)

    def _fitting(self, slowest_ms: float, needed: int) -> int:
        return calls_that_fit(
            slowest_ms,
            bytes_per_call=needed,
            memory=self._rounds.memory(),
            is_cuda=self._device.is_cuda,
            tensors_per_call=max(len(kernel_run.returned) for kernel_run in self._rounds.kernel_runs),
        )
