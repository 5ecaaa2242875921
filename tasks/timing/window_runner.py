"""Runs the windows of a round: one of each kernel over the same inputs, and the null windows next to them."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from profiling.results.samples import WindowSetup
from profiling.window.call_buffers import Slots
from profiling.window.timed_window import Clock, DeferredReadback, GateClosed, Window
from tasks.correctness.trials import Trials
from tasks.runtime.kernel_run import KernelRun
from tasks.runtime.null_window_cache import NullKind
from tasks.timing.allocation_shuffle import free_memory_to_move, shuffle_allocations


class WindowRunner:
    """Runs windows for one job. `streamed` holds the roles whose calls cannot all be queued behind the gate.

    `windows_s` is the time of all windows so far, in s, with null windows, queueing and setup.
    """

    def __init__(self, rounds: Trials) -> None:
        self.rounds = rounds
        self.kernel_runs = rounds.kernel_runs
        self.worker = rounds.worker
        self.streamed: set[str] = set()
        self._closed: set[str] = set()
        """The roles with a window that waited for the device behind the gate, once."""
        self.windows_s = 0.0

    def shuffle_allocations(
        self, slots: dict[str, Slots], setups: dict[str, WindowSetup], order: Sequence[KernelRun] = ()
    ) -> None:
        """Moves the memory between launches for every kernel, in that order (tasks.timing.allocation_shuffle)."""
        kernel_runs = order or self.kernel_runs
        for kernel_run in kernel_runs:
            with kernel_run.attribute_faults():
                free_memory_to_move(kernel_run, slots[kernel_run.role], setups[kernel_run.role])
        for kernel_run in kernel_runs:
            self.shuffle_allocations_of(kernel_run, slots, setups)

    def shuffle_allocations_of(
        self, kernel_run: KernelRun, slots: dict[str, Slots], setups: dict[str, WindowSetup]
    ) -> None:
        """Moves the memory between launches for one kernel."""
        with kernel_run.attribute_faults():
            shuffle_allocations(kernel_run, slots[kernel_run.role], setups[kernel_run.role])

    def run(
        self,
        kernel_run: KernelRun,
        slots: dict[str, Slots],
        setup: WindowSetup,
        *,
        with_events: bool = False,
        deferred_readback: DeferredReadback | None = None,
        after_window: dict[str, Slots] | None = None,
        meanwhile: Callable[[], None] | None = None,
    ) -> Window:
        """Runs one window of that kernel. `meanwhile` is called while the runner queues its calls.

        Without the gate it first runs an untimed window over the slots `after_window`. Host code that has not run for
        some milliseconds takes up to 300 µs longer, which would count in a window of few calls.

        Raises GateClosed if the kernel waited for the device in some calls only. The second time all of its windows are
        streamed: a library that loads code or allocates behind the gate does so once.
        """
        try:
            with self._counted():
                if after_window is not None and not setup.gated:
                    self.rounds.run_window(kernel_run, after_window)
                return self.rounds.run_window(
                    kernel_run,
                    slots,
                    gated=setup.gated,
                    with_events=with_events,
                    deferred_readback=deferred_readback,
                    meanwhile=meanwhile,
                )
        except GateClosed:
            if kernel_run.role in self._closed:
                self.streamed.add(kernel_run.role)
            self._closed.add(kernel_run.role)
            raise

    def null_windows(
        self, slots: dict[str, Slots], setups: dict[str, WindowSetup], after_window: dict[str, Slots] | None = None
    ) -> dict[str, Clock]:
        """A null window for each kernel; one for both if their outputs are alike."""
        kinds = {role: NullKind.of(layout, gated=setups[role].gated) for role, layout in slots.items()}
        clocks: dict[NullKind, Clock] = {}
        for role, kind in kinds.items():
            if kind not in clocks:
                usual = after_window[role] if after_window is not None else None
                clocks[kind] = self.null_window(slots[role], setups[role], after_window=usual)
        return {role: clocks[kind] for role, kind in kinds.items()}

    def null_window(
        self,
        layout: Slots,
        setup: WindowSetup,
        deferred_readback: DeferredReadback | None = None,
        after_window: Slots | None = None,
    ) -> Clock:
        """A null window, gated or streamed like the windows of that setup."""
        sessions = [kernel_run.session for kernel_run in self.kernel_runs]
        freed = [piece for session in sessions if session is not None for piece in session.take_freed()]
        self.worker.device.wait_until_cleared(freed)
        with self._counted():
            if after_window is not None and not setup.gated:
                self.worker.null_window(after_window, gated=False)
            return self.worker.null_window(layout, gated=setup.gated, deferred_readback=deferred_readback)

    @contextmanager
    def _counted(self) -> Iterator[None]:
        began = time.monotonic()
        try:
            yield
        finally:
            self.windows_s += time.monotonic() - began

    def send_layout(self, slots: dict[str, Slots]) -> None:
        """Sends the runners the layouts of the next windows, so that they prepare their calls at the same time.

        On the host each runner prepares its calls when its window comes, because they would slow each other.
        """
        for kernel_run in self.kernel_runs if self.worker.device.is_cuda else ():
            with kernel_run.attribute_faults():
                if kernel_run.window_session is not None:
                    kernel_run.window_session.send_layout(slots[kernel_run.role])

    def warm_up_null(self, slots: dict[str, Slots]) -> None:
        """Makes the null runner allocate its memory and load its code, which is impossible behind a closed gate."""
        for layout in {layout.handed_in: layout for layout in reversed(slots.values())}.values():
            self.worker.null_window(layout, gated=False)


def run_round(
    window_runner: WindowRunner,
    order: Sequence[KernelRun],
    slots: dict[str, Slots],
    setups: dict[str, WindowSetup],
    *,
    with_events: bool = False,
    after_window: Callable[[], None] = lambda: None,
) -> tuple[dict[str, Window], dict[str, Clock]]:
    """Runs one window of each kernel in that order, and judges the outputs; returns windows and null windows by role.

    `after_window` is called after each window. Events on the device take time between calls, so that windows have them
    only where asked for; host clocks do not.
    """
    rounds = window_runner.rounds
    # In turns: equal kernels must not differ because one of them always gets its memory second.
    window_runner.shuffle_allocations(slots, setups, order)
    fill = rounds.prepare_fill(slots)
    in_window = fills_in_window(setups[order[0].role], from_contract=rounds.inputs.contract is not None)
    if not in_window:
        fill()
    null = window_runner.null_windows(slots, setups)
    windows: dict[str, Window] = {}
    for kernel_run in order:
        setup, meanwhile = setups[kernel_run.role], fill if in_window and not windows else None
        events = with_events or not setup.is_cuda
        windows[kernel_run.role] = window_runner.run(kernel_run, slots, setup, with_events=events, meanwhile=meanwhile)
        after_window()
    rounds.judge(slots, windows)
    return windows, null


def fills_in_window(first: WindowSetup, *, from_contract: bool) -> bool:
    """Whether the referee writes a round's inputs while the runner queues the first window's calls.

    The null windows then run over the previous inputs, which does not matter to them. It is False if a runner makes the
    inputs, because it does one thing at a time, and without the gate, because no calls are queued ahead.
    """
    return first.gated and from_contract
