"""The samples of one kernel's windows, as the timing stage measures them."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial

from profiling.integrity.disagreement import CheckWindows
from profiling.window.timed_window import Clock, Window


@dataclass(frozen=True)
class WindowSetup:
    """How one kernel's usual windows run; known before the first of them.

    - `launch_shift_ms`: a launch's time in this process minus the card's usual one, measured before the process had a
      submission; subtracted once a call.
    - `launches`: a call's launches by the runner's own count, None if unknown; used only for the possible error
      and for whether memory moves between windows.
    - `is_candidate`: extra setup time and slower check windows count. For a reference they do not, because the
      candidate's process could cause both.
    - `weight_bytes`: size of the task's weights.
    """

    calls: int
    is_cuda: bool
    gated: bool
    launch_shift_ms: float = 0.0
    launches: int | None = 1
    is_candidate: bool = True
    weight_bytes: int = 0

    @property
    def kind(self) -> str:
        """How the windows are measured: "gated", "streamed" (without the gate) or "host"."""
        return "host" if not self.is_cuda else "gated" if self.gated else "streamed"

    @property
    def moves_memory(self) -> bool:
        """Whether the memory between a call's launches moves before each window: it has several, or an unknown number.

        `tasks.timing.allocation_shuffle` moves it.
        """
        return self.gated and self.launches != 1


@dataclass(frozen=True)
class Samples:
    """One kernel's usual windows, each with a trusted null window next to it; times in ms by the referee's clock.

    The referee subtracts each null window from its own window: both drift together, and the noise of null windows shows
    in the spread of the difference.

    - `setup_ms`, `null_setup_ms`: the setup times of the windows and of their null windows. A longer setup is work
      before the release.
    - `event_samples`: a window's time less its null window's, and the runner's own times of its calls.
    """

    setup: WindowSetup
    elapsed_ms: list[float] = field(default_factory=list)
    null_ms: list[float] = field(default_factory=list)
    setup_ms: list[float] = field(default_factory=list)
    null_setup_ms: list[float] = field(default_factory=list)
    event_samples: list[tuple[float, list[float]]] = field(default_factory=list)

    def warm_up(self, window: Window, null: Clock) -> None:
        """Adds a window that gives only the distribution: on a GPU its events make it longer than the others."""
        if window.call_ms and self.setup.calls > 1:  # A single call has no distribution.
            self.event_samples.append((window.elapsed_ms - null.elapsed_ms, window.call_ms))

    def add(self, window: Window, null: Clock) -> None:
        self.elapsed_ms.append(window.elapsed_ms)
        self.null_ms.append(null.elapsed_ms)
        self.setup_ms.append(window.setup_ms)
        self.null_setup_ms.append(null.setup_ms)
        self.warm_up(window, null)


@dataclass(frozen=True)
class KernelWindows:
    """One kernel's usual windows, its check windows, and what another process changed about them.

    - `single`, `deferred_readback`: check windows of one call, and those whose outputs are copied after all calls.
    - `comparable_singles`: the reference's single calls have null windows of the same kind, so that they show what an
      honest single call takes longer.
    - `slow_rounds`: those in which the other kernel's process slowed this one's window, or a disturbance did; left out.
    - `host_pace_ratio`: the windows took that many times as long as without that process, because of the host's pace.
    """

    usual: Samples
    single: CheckWindows = field(default_factory=partial(CheckWindows, paired=False))
    deferred_readback: CheckWindows = field(default_factory=CheckWindows)
    comparable_singles: bool = True
    slow_rounds: tuple[int, ...] = ()
    host_pace_ratio: float = 1.0
