"""Runs one round: a window of each kernel over the same inputs, with the null windows next to them."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from profiling.results.samples import WindowSetup
from profiling.window.call_buffers import Slots
from profiling.window.timed_window import Clock, Window
from tasks.runtime.kernel_run import KernelRun
from tasks.timing.window_runner import WindowRunner


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
