"""Runners with their contexts made ahead of time, of which each job gets those that launch alike.

Those that wait have contexts of one hardware queue, which take half as long to make (docs/adr/0035).

What a launch costs differs between contexts by up to 0.2 µs and stays as it is for a context's life
(docs/measurements.md). A kernel of a hundred launches is a tenth slower in one than in another, so what is compared has
to be run in two that are alike. All of this happens before a runner has a submission. Without a GPU they are all alike.
"""

from __future__ import annotations

import itertools
import logging
import secrets
import statistics
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path

from domain.fault import KernelFault
from sandbox.isolation.scratch_dir import remove
from sandbox.supervisor.session import Session

log = logging.getLogger(__name__)

SPARE = 3
"""So many more than a job needs: of five, two of the same kind are there."""
TO_CHOOSE = 2
"""So many times as many as a job needs have to wait, or more are made: others' windows wait for each step of that."""
LATELY = 4
"""Of so many jobs the one that took the most tells what one needs."""
AT_ONCE = 4
"""Made together, so many take twice as long as one (docs/measurements.md): between jobs they are."""
WARM_S = 60.0
WINDOWS_FIRST_S = 1.0
"""Windows that come within so long go before whoever makes contexts: for them a device is held. A few jobs' are over by
then; whoever comes later waits behind, so that contexts are made beside any number of jobs."""

Cancelled = Callable[[], bool]


@dataclass(frozen=True)
class Standby:
    """A runner without a submission, confined to that folder.

    `launch_ms`: what a launch costs in its context, None where that is not known. `one_queue`: its streams share it.
    """

    session: Session
    folder: Path
    launch_ms: float | None = None
    one_queue: bool = False


class Standbys:
    """`fork` gives a runner in a folder, `new_folder` such a folder, `quiet` a block in which nobody's windows run.

    Each lives until it is taken or closed. `spare` are to choose from beside those that a job needs, and at most `room`
    wait between jobs. Without `contexts`, as on a host without a GPU, they are forked and no more.
    """

    def __init__(
        self,
        fork: Callable[[Path, Cancelled], Session],
        new_folder: Callable[[], Path],
        quiet: Callable[[Cancelled], AbstractContextManager[None]],
        spare: int = SPARE,
        room: int = 0,
        *,
        contexts: bool = True,
    ) -> None:
        self._fork = fork
        self._new_folder = new_folder
        self._quiet = quiet
        self._spare = spare
        self._room = room
        self._contexts = contexts
        self._lately: deque[int] = deque(maxlen=LATELY)
        self._waiting: list[Standby] = []

    @property
    def ready(self) -> int:
        """How many wait."""
        return len(self._waiting)

    def take(
        self,
        folders: list[Path],
        usual_ms: float | None,
        cancelled: Cancelled,
        apart: Sequence[bool] = (),
        *,
        more_follow: bool = False,
    ) -> list[Standby]:
        """As many as folders, those of a kind alike in what a launch costs, and as this card's as a rule, if there are.

        Whoever takes one closes it, sets its deadline and removes its folder. Where the device has no
        room for a context now, as the holder of its lease may use all of it, they make theirs when they are used, and
        are confined to the given folders. Those whose streams have queues `apart` are made for it: none waits. Where
        `more_follow`, as of a job that is judged in several processes, as many are made at once as there is room for.
        """
        self._bury()
        chosen = list(apart) or [False] * len(folders)
        in_turn = [folder for folder, is_apart in zip(folders, chosen, strict=True) if not is_apart]
        beside = [folder for folder, is_apart in zip(folders, chosen, strict=True) if is_apart]
        made = self._of_all_queues(beside, usual_ms, cancelled) if beside else []
        try:
            taken = self._waiting_ones(in_turn, usual_ms, cancelled, more_follow=more_follow) if in_turn else []
        except BaseException:
            end(made)
            raise
        each = {True: iter(made), False: iter(taken)}
        return [next(each[is_apart]) for is_apart in chosen]

    def stock_up(self, calm: Callable[[], bool] = lambda: False) -> None:
        """As many as a job has to choose from, as far as there is room. Raises KernelFault where there is none.

        Where too few are left AT_ONCE are made, so that the next jobs need none; where it is `calm`, and nobody's
        windows are kept waiting, whenever one is gone.
        """
        self._bury()
        needed = max(self._lately, default=0)
        most = min(needed + self._spare - 1 + AT_ONCE, self._room) if needed else 0
        # Never as soon as one is gone, where there is room for more: several are made in hardly more time.
        few = len(self._waiting) < min(TO_CHOOSE * needed, max(self._room - 1, 1), self._room)
        if few or (len(self._waiting) < most and calm()):
            self._add(most - len(self._waiting), lambda: False)

    def make(self, count: int, cancelled: Cancelled, *, one_queue: bool = True) -> list[Standby]:
        """So many with their contexts made, all at once, and what a launch costs in each.

        In three steps, each in quiet by itself: windows that are due wait for one of them at most.
        """
        made = self._forked([self._new_folder() for _ in range(count)], cancelled)
        if not self._contexts:
            return made
        try:
            with self._step(made, cancelled):
                for one in made:
                    one.session.open_device(one_queue=one_queue)
                for one in made:
                    one.session.wait_until_open()
            with self._step(made, cancelled):
                for one in made:
                    one.session.warm_libraries()
                for one in made:
                    one.session.wait_until_open()
            with self._step(made, cancelled):
                return [Standby(one.session, one.folder, _launch_ms(one.session), one_queue) for one in made]
        except BaseException:
            end(made)
            raise

    def close(self) -> None:
        """Ends those that nobody took."""
        end(self._waiting)
        self._waiting = []

    @contextmanager
    def _step(self, made: list[Standby], cancelled: Cancelled) -> Iterator[None]:
        """Inside it is quiet, and those have WARM_S, which begin when others' windows are over."""
        with self._quiet(cancelled):
            for one in made:
                one.session.set_deadline(time.monotonic() + WARM_S)
            yield

    def _waiting_ones(
        self, folders: list[Path], usual_ms: float | None, cancelled: Cancelled, *, more_follow: bool
    ) -> list[Standby]:
        self._lately.append(len(folders))
        enough = len(folders) + self._spare
        fewest = min(TO_CHOOSE * len(folders), enough)
        beyond = max(min(AT_ONCE - 1, self._room - enough), 0) if more_follow else 0
        # Where there are too few to choose from: all of those, and for whoever follows, or else as many as are needed.
        for wanted in dict.fromkeys((enough + beyond, enough, len(folders))):
            missing = wanted - len(self._waiting)
            if len(self._waiting) >= fewest or missing <= 0:
                break
            try:
                self._add(missing, cancelled)
                break
            except KernelFault as error:
                log.warning("%d contexts could not be made ahead of the device's lease: %s", missing, error)
        if len(self._waiting) < len(folders):
            return self._forked(folders, cancelled)
        taken = alike(self._waiting, len(folders), usual_ms)
        self._waiting = [one for one in self._waiting if one not in taken]
        for one in taken:
            one.session.runner.cancelled = cancelled
        if all(one.launch_ms is not None for one in taken):
            # The others of which that is not known would never be chosen, and leave the next job no choice.
            self._let_go([one for one in self._waiting if one.launch_ms is None])
        return taken

    def _of_all_queues(self, folders: list[Path], usual_ms: float | None, cancelled: Cancelled) -> list[Standby]:
        """Made anew, with the driver's queues."""
        for count in (len(folders) + self._spare, len(folders)):
            try:
                made = self.make(count, cancelled, one_queue=False)
            except KernelFault as error:
                log.warning("%d contexts of several queues could not be made: %s", count, error)
                self._let_go(self._waiting)
                continue
            taken = alike(made, len(folders), usual_ms)
            end([one for one in made if one not in taken])
            for one in taken:
                one.session.runner.cancelled = cancelled
            return taken
        return self._forked(folders, cancelled)

    def _forked(self, folders: list[Path], cancelled: Cancelled) -> list[Standby]:
        forked: list[Standby] = []
        try:
            for folder in folders:
                forked.append(Standby(self._fork(folder, cancelled), folder))
        except BaseException:
            end(forked)
            raise
        return forked

    def _add(self, count: int, cancelled: Cancelled) -> None:
        made = self.make(count, cancelled)
        # Only now: whoever waited may have gone with a zygote that died meanwhile (`close`).
        self._waiting = [*self._waiting, *made]

    def _bury(self) -> None:
        self._let_go([one for one in self._waiting if not one.session.runner.alive])

    def _let_go(self, those: list[Standby]) -> None:
        self._waiting = [one for one in self._waiting if one not in those]
        end(those)


def alike(waiting: list[Standby], count: int, usual_ms: float | None) -> list[Standby]:
    """Those of them, in an order that means nothing, whose launches are closest to each other and to the usual."""

    def apart(group: Iterable[Standby]) -> tuple[int, float]:
        times = [one.launch_ms for one in group if one.launch_ms is not None]
        if not times:
            return count, 0.0
        off = abs(statistics.mean(times) - usual_ms) if usual_ms is not None else 0.0
        # What differs between two that are compared counts more than what both are off by.
        return count - len(times), 2 * (max(times) - min(times)) + off

    best = list(min(itertools.combinations(waiting, count), key=apart))
    secrets.SystemRandom().shuffle(best)
    return best


def _launch_ms(session: Session) -> float | None:
    """What a launch costs there. Asked once more where it cannot be told: a context costs far more than a question."""
    told = session.launch_ms()
    return told if told is not None else session.launch_ms()


def end(standbys: list[Standby]) -> None:
    """Ends them, and removes their folders."""
    for one in standbys:
        one.session.stop()
    for one in standbys:
        one.session.close()
        remove(one.folder)
