"""How many calls a job's windows hold: what every contender can have queued, and the fastest needs to fill its own."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from profiling.results.samples import TimeRecord
from profiling.stats.stopping_rule import calls_that_fill, calls_that_fit
from profiling.window.call_buffers import bytes_per_call
from tasks.correctness.trials import Trials
from tasks.runtime.kernel_run import Contender
from tasks.timing.gate_calibration import Rehearsal, rehearse

FEW, FEW_MS = 16, 1.0
"""Of fewer calls in a window, which take less together, what a window may be off by unseen (a head start of 70 µs, say)
is more than 3 µs and 5 % of each."""
LEAST_MS = 0.02
"""What a call is taken for at least where a few of them have told."""
MOST_TIMES = 2


class WindowSize:
    """Of validated rounds, found out by rehearsal; windows are `window` times as long as usual."""

    def __init__(self, rounds: Trials, window: float) -> None:
        self._rounds = rounds
        self._window = window
        self._device = rounds.bench.device
        self._enlarged = 0
        fitting = self._fitting(0.0, rounds.bytes_per_call())
        self._rehearsals: dict[str, Rehearsal | None] = {
            # With no patience for any estimate: who calls itself slow would have few calls tried.
            c.role: rehearse(c, rounds.example[c.role], fitting, self._device, window=window)
            for c in rounds.contenders
        }

    def gated(self, contender: Contender) -> bool:
        """Whether its calls are queued behind the gate."""
        return self._rehearsals[contender.role] is not None

    def stream(self, roles: Iterable[str]) -> None:
        """Those contenders' calls cannot be queued after all, or are not to be."""
        self._rehearsals |= dict.fromkeys(roles)

    @property
    def calls(self) -> int:
        """Of every window, the same for all contenders."""
        contenders, needed = self._rounds.contenders, self._rounds.bytes_per_call()
        return self._filling(min(map(self._call_ms, contenders)), self._limit(contenders, needed))

    def kept_few(self, record: TimeRecord) -> bool:
        """Whether windows held only a few short calls by the candidate's doing, be it as no more could be queued."""
        call_ms = _told_ms(record)
        if not self._device.is_cuda or record.calls >= FEW or record.calls * call_ms >= FEW_MS:
            return False
        others = [contender for contender in self._rounds.contenders if contender is not self._rounds.candidate]
        return self._filling(call_ms, self._limit(others, self._asked(others))) > record.calls

    def enlarge(self, record: TimeRecord) -> bool:
        """Has windows that are taken anew hold more calls, by what these took; False where that has not helped."""
        if self._enlarged == MOST_TIMES:
            return False
        self._enlarged += 1
        own = self._rounds.candidate
        own.at_most_ms = min(own.at_most_ms, _told_ms(record))
        return True

    def _call_ms(self, contender: Contender) -> float:
        rehearsal = self._rehearsals[contender.role]
        return rehearsal.call_ms if rehearsal is not None else contender.estimate_ms

    def _asked(self, others: Sequence[Contender]) -> int:
        """Bytes of a call that the candidate has no say in: what it is given, and what the others need."""
        example = self._rounds.example
        given = bytes_per_call(example[self._rounds.candidate.role], [])
        return max([given, *(bytes_per_call(example[other.role], other.returned) for other in others)])

    def _limit(self, contenders: Sequence[Contender], needed: int) -> int:
        """What those have patience and a queue for, and calls of so many bytes room."""
        found = filter(None, (self._rehearsals[contender.role] for contender in contenders))
        slowest_ms = max(map(self._call_ms, contenders), default=0.0)
        return min([self._fitting(slowest_ms, needed), *(rehearsal.calls for rehearsal in found)])

    def _filling(self, call_ms: float, limit: int) -> int:
        return calls_that_fill(call_ms, limit, is_cuda=self._device.is_cuda, window=self._window)

    def _fitting(self, slowest_ms: float, needed: int) -> int:
        return calls_that_fit(
            slowest_ms,
            bytes_per_call=needed,
            memory=self._rounds.memory(),
            is_cuda=self._device.is_cuda,
            tensors_per_call=max(len(contender.returned) for contender in self._rounds.contenders),
        )


def _told_ms(record: TimeRecord) -> float:
    """What a call takes by those windows."""
    return max(record.after_gun_ms, LEAST_MS)
