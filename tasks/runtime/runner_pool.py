"""A pool of runners whose CUDA contexts are made ahead of time; each job gets the ones with the closest launch times.

Pooled runners have contexts of one hardware queue, which take half as long to make (docs/adr/0023).

The time of a launch differs between contexts by up to 0.2 µs and is constant over a context's life
(docs/measurements.md). A kernel of a hundred launches can be a tenth slower in one context than in another. A fair
comparison therefore needs two contexts with close launch times. The pool measures them before a runner has a
submission. Without a GPU all runners are equal."""

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
from tasks.node.idle_processes import IdleProcesses

log = logging.getLogger(__name__)

SPARE = 3
"""Number of runners to choose from beyond those that a job needs: among five, two have close launch times."""
TO_CHOOSE = 2
"""Minimum ratio of waiting runners to those that a job needs; below it the pool makes more. Other jobs' windows wait
for each step of that."""
LATELY = 4
"""Number of recent jobs whose largest demand is taken for that of the next job."""
AT_ONCE = 4
"""Number of runners made together between jobs: four take twice as long as one (docs/measurements.md)."""
WARM_S = 60.0
"""Maximum time of one step of making contexts, in s."""
WINDOWS_FIRST_S = 1.0
"""Time for which windows go before context creation, in s, because a job holds the device for its windows. The windows
of a few jobs are over by then. Later windows wait, so that contexts are made under any load."""

Cancelled = Callable[[], bool]


@dataclass(frozen=True)
class PooledRunner:
    """A runner without a submission, confined to `folder`.

    `launch_ms` is the time of a launch in its context, in ms, None if unknown. `one_queue`: all of its streams share
    one hardware queue."""

    session: Session
    folder: Path
    launch_ms: float | None = None
    one_queue: bool = False


class RunnerPool:
    """Makes runners, keeps them until a job takes them, and chooses the ones for each job.

    `fork` starts a runner in a folder, `new_folder` makes such a folder, and `quiet` is a block in which no window
    runs. The pool offers a job `spare` runners more than it needs, and keeps at most `room` between jobs. Without
    `contexts`, as on a host without a GPU, it only forks them. Any job of the device may end the runners that are in
    `idle`, if it lacks device memory. While `is_crowded()`, the pool makes no runner that a job does not need."""

    def __init__(
        self,
        fork: Callable[[Path, Cancelled], Session],
        new_folder: Callable[[], Path],
        quiet: Callable[[Cancelled], AbstractContextManager[None]],
        spare: int = SPARE,
        room: int = 0,
        *,
        contexts: bool = True,
        idle: IdleProcesses | None = None,
        is_crowded: Callable[[], bool] = lambda: False,
    ) -> None:
        self._fork = fork
        self._new_folder = new_folder
        self._quiet = quiet
        self._spare = spare
        self._room = room
        self._contexts = contexts
        self._idle = idle
        self._is_crowded = is_crowded
        self._lately: deque[int] = deque(maxlen=LATELY)
        self._waiting: list[PooledRunner] = []

    @property
    def ready(self) -> int:
        return len(self._waiting)

    def take(
        self,
        folders: list[Path],
        usual_ms: float | None,
        cancelled: Cancelled,
        multi_queue: Sequence[bool] = (),
        *,
        more_follow: bool = False,
    ) -> list[PooledRunner]:
        """One runner for each folder; their launch times are close to each other and to `usual_ms`, the card's median.

        The caller sets a runner's deadline, closes it and removes its folder. If the device has no memory for a context
        now, the runners make theirs at first use and are confined to `folders`. `multi_queue` says for each folder
        whether the context needs several hardware queues; such a runner is made now, because the pool holds none.
        With `more_follow`, for a job that runs in several processes, the pool makes as many as it has room for.
        """
        with self._claimed():
            return self._take(folders, usual_ms, cancelled, multi_queue, more_follow=more_follow)

    def _take(
        self,
        folders: list[Path],
        usual_ms: float | None,
        cancelled: Cancelled,
        multi_queue: Sequence[bool],
        *,
        more_follow: bool,
    ) -> list[PooledRunner]:
        kinds = list(multi_queue) or [False] * len(folders)
        one_queue_folders = [folder for folder, several in zip(folders, kinds, strict=True) if not several]
        multi_queue_folders = [folder for folder, several in zip(folders, kinds, strict=True) if several]
        fresh = self._with_all_queues(multi_queue_folders, usual_ms, cancelled) if multi_queue_folders else []
        try:
            pooled = (
                self._from_pool(one_queue_folders, usual_ms, cancelled, more_follow=more_follow)
                if one_queue_folders
                else []
            )
        except BaseException:
            end(fresh)
            raise
        runners = {True: iter(fresh), False: iter(pooled)}
        return [next(runners[several]) for several in kinds]

    def refill(self, calm: Callable[[], bool] = lambda: False) -> None:
        """Adds runners for the next jobs, up to the pool's room. Raises KernelFault if the device has no memory.

        If few are left, it adds AT_ONCE beyond what the next job needs. While `calm()` is true (no window is due), it
        also replaces each runner that a job has taken.
        """
        with self._claimed():
            if self._is_crowded():
                return
            needed = max(self._lately, default=0)
            most = min(needed + self._spare - 1 + AT_ONCE, self._room) if needed else 0
            # Not for each runner that is taken, where there is room for more: several take hardly longer than one.
            few = len(self._waiting) < min(TO_CHOOSE * needed, max(self._room - 1, 1), self._room)
            if few or (len(self._waiting) < most and calm()):
                self._add(most - len(self._waiting), lambda: False)

    def make(self, count: int, cancelled: Cancelled, *, one_queue: bool = True) -> list[PooledRunner]:
        """Makes `count` runners with their contexts, all together, and measures the time of a launch in each.

        It takes three steps, each under the lock of its own: a window that is due waits for one step at most.
        """
        runners = self._forked([self._new_folder() for _ in range(count)], cancelled)
        if not self._contexts:
            return runners
        try:
            with self._step(runners, cancelled):
                for one in runners:
                    one.session.open_device(one_queue=one_queue)
                for one in runners:
                    one.session.wait_until_open()
            with self._step(runners, cancelled):
                for one in runners:
                    one.session.warm_libraries()
                for one in runners:
                    one.session.wait_until_open()
            with self._step(runners, cancelled):
                return [PooledRunner(one.session, one.folder, _launch_ms(one.session), one_queue) for one in runners]
        except BaseException:
            end(runners)
            raise

    def close(self) -> None:
        """Ends the runners that no job took."""
        for one in self._waiting:
            self._claim(one)
        end(self._waiting)
        self._waiting = []

    @contextmanager
    def _step(self, runners: list[PooledRunner], cancelled: Cancelled) -> Iterator[None]:
        """Waits until no window runs, and then gives the runners WARM_S for the block."""
        with self._quiet(cancelled):
            for one in runners:
                one.session.set_deadline(time.monotonic() + WARM_S)
            yield

    def _from_pool(
        self, folders: list[Path], usual_ms: float | None, cancelled: Cancelled, *, more_follow: bool
    ) -> list[PooledRunner]:
        self._lately.append(len(folders))
        if self._is_crowded() and len(self._waiting) < len(folders):
            return self._forked(folders, cancelled)  # Contexts made ahead would take memory from the job that runs now.
        enough = len(folders) + self._spare
        fewest = min(TO_CHOOSE * len(folders), enough)
        beyond = max(min(AT_ONCE - 1, self._room - enough), 0) if more_follow else 0
        # With too few to choose from, it tries for all of them with those that follow, then for fewer, then for the
        # need.
        for target in dict.fromkeys((enough + beyond, enough, len(folders))):
            missing = target - len(self._waiting)
            if len(self._waiting) >= fewest or missing <= 0:
                break
            try:
                self._add(missing, cancelled)
                break
            except KernelFault as error:
                log.warning("%d contexts could not be made ahead of the device's lease: %s", missing, error)
        if len(self._waiting) < len(folders):
            return self._forked(folders, cancelled)
        closest = closest_pair(self._waiting, len(folders), usual_ms)
        self._waiting = [one for one in self._waiting if one not in closest]
        for one in closest:
            one.session.runner.cancelled = cancelled
        if all(one.launch_ms is not None for one in closest):
            # A runner with an unknown launch time would never be chosen, and would take the place of one that is.
            self._discard([one for one in self._waiting if one.launch_ms is None])
        return closest

    def _with_all_queues(self, folders: list[Path], usual_ms: float | None, cancelled: Cancelled) -> list[PooledRunner]:
        """Makes runners whose contexts have all of the driver's hardware queues."""
        for count in (len(folders) + self._spare, len(folders)):
            try:
                runners = self.make(count, cancelled, one_queue=False)
            except KernelFault as error:
                log.warning("%d contexts of several queues could not be made: %s", count, error)
                self._discard(self._waiting)
                continue
            closest = closest_pair(runners, len(folders), usual_ms)
            end([one for one in runners if one not in closest])
            for one in closest:
                one.session.runner.cancelled = cancelled
            return closest
        return self._forked(folders, cancelled)

    def _forked(self, folders: list[Path], cancelled: Cancelled) -> list[PooledRunner]:
        forked: list[PooledRunner] = []
        try:
            for folder in folders:
                forked.append(PooledRunner(self._fork(folder, cancelled), folder))
        except BaseException:
            end(forked)
            raise
        return forked

    def _add(self, count: int, cancelled: Cancelled) -> None:
        runners = self.make(count, cancelled)
        # Read `_waiting` only now: `close` empties it if the zygote died while these were made.
        self._waiting = [*self._waiting, *runners]

    @contextmanager
    def _claimed(self) -> Iterator[None]:
        """A block in which no other process may end a waiting runner; those that have ended are removed before."""
        self._discard([one for one in self._waiting if not (self._claim(one) and one.session.runner.alive)])
        try:
            yield
        finally:
            if self._idle is not None:
                for one in self._waiting:
                    self._idle.offer(one.session.runner.pid)

    def _claim(self, one: PooledRunner) -> bool:
        return self._idle is None or self._idle.claim(one.session.runner.pid)

    def _discard(self, runners: list[PooledRunner]) -> None:
        self._waiting = [one for one in self._waiting if one not in runners]
        end(runners)


def closest_pair(waiting: list[PooledRunner], count: int, usual_ms: float | None) -> list[PooledRunner]:
    """The `count` runners with launch times closest to each other and to `usual_ms`, in random order."""

    def difference(group: Iterable[PooledRunner]) -> tuple[int, float]:
        times = [one.launch_ms for one in group if one.launch_ms is not None]
        if not times:
            return count, 0.0
        bias = abs(statistics.mean(times) - usual_ms) if usual_ms is not None else 0.0
        # A difference between two compared runners matters more than a bias of both.
        return count - len(times), 2 * (max(times) - min(times)) + bias

    best = list(min(itertools.combinations(waiting, count), key=difference))
    secrets.SystemRandom().shuffle(best)
    return best


def _launch_ms(session: Session) -> float | None:
    """Measures the launch latency in the runner's context, in ms; None if it stays unknown.

    It measures once more if the first tries disagree, because a new context costs far more.
    """
    launch_ms = session.launch_ms()
    return launch_ms if launch_ms is not None else session.launch_ms()


def end(runners: list[PooledRunner]) -> None:
    for one in runners:
        one.session.stop()
    for one in runners:
        one.session.close()
        remove(one.folder)
