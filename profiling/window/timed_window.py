"""One window: K calls between the gun and the moment their outputs lie in the referee's private memory.

1. The runner queues its calls behind the gate and says "armed".
2. The referee copies fresh inputs and poisoned outputs in, flushes the cache. This is timed too: contexts of two
   processes do not run at the same time, so that work done on inputs as they come makes it longer.
3. Gun: the clock starts and the gate opens.
4. "Done" is advisory: the referee copies every output to private memory, and only then stops the clock. Two processes'
   contexts are time-sliced, so that a runner which says "done" early is charged its true time all the same
   (docs/measurements.md).

Behind the gate the referee's stream does 2 to 4 by itself, and the clock is the device's
(profiling.window.device_clock). Without the gate, where the runner launches its calls from the gun on, the host does
them, and the clock is the host's.

On the host, where processes do run at the same time, the runner and all that it has started are frozen while inputs are
written and while outputs are copied (`sandbox.supervisor.process_freezer`); the clock stops with them.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch

from domain.fault import KernelFault
from domain.result import Status
from profiling.gpu.timing_device import Device
from profiling.window.buffer_transfers import Overwritten, Taking
from profiling.window.call_buffers import Slots
from profiling.window.device_clock import DeviceClock
from sandbox.protocol.arena import Arena
from sandbox.protocol.channel import Message, finite_numbers
from sandbox.protocol.cuda_driver import Gate
from sandbox.supervisor.session import Session


class GateClosed(Exception):
    """The calls could not be queued behind the gate: they wait for the device, or launch more than its queue holds."""


NOT_REPORTED = "its stream never reported behind the calls, though it was said to be done"
PATIENCE_S = 5.0
"""When a runner is done there are only copies left to make. What it still computes, having said so, has so long."""
SPIN_S = 0.05
"""On a GPU's windows a wake-up costs as much as a kernel: the referee stays awake about as long as a window takes."""


@dataclass(frozen=True)
class HeldBack:
    """Answers are handed in when they are asked for, once outputs have been cleared and inputs overwritten.

    Where answers may lie `in_inputs` these are kept, and overwritten with random bytes: who hands those in has copied
    what lay there.
    """

    in_inputs: bool = False


@dataclass(frozen=True)
class Window:
    """The clock's reading, the runner's own (advisory) times of its calls, and every output in private memory.

    `call_ms` is empty for a window without marks between its calls. Whether inputs were changed is not known of null
    windows, where nobody asks, and of those that were held back, whose inputs are gone. `ready_ms` is what the referee
    took to make everything ready, from the first byte of the inputs to the gun.
    """

    elapsed_ms: float
    call_ms: list[float]
    snapshot: torch.Tensor
    inputs_changed: bool | None
    ready_ms: float
    overwritten: Overwritten | None = None

    @property
    def clock(self) -> Clock:
        """Its times alone, for a window whose outputs are of no use."""
        return Clock(self.elapsed_ms, self.ready_ms)


@dataclass(frozen=True)
class Clock:
    """The referee's clock of one window, in ms: from the gun to the snapshot, and of making ready before the gun."""

    elapsed_ms: float
    ready_ms: float


class Range:
    """The place where windows are shot: one session, one device, and the gate between them."""

    def __init__(self, session: Session, device: Device, *, null: bool = False) -> None:
        self.session = session
        self.device = device
        self._null = null
        self._gate: Gate | None = None
        self._clock: DeviceClock | None = None
        self._shots = 0
        self._told: tuple[Slots, Arena] | None = None

    def window(
        self,
        slots: Slots,
        *,
        gated: bool = False,
        marked: bool = False,
        read: bool = True,
        held_back: HeldBack | None = None,
        arm_within: float = 2.0,
        meanwhile: Callable[[], None] | None = None,
    ) -> Window:
        """Runs one window over what the slots' image holds, be it that `meanwhile` writes it, while calls are queued.
        What marks say is told if it is to be `read`: of 400 calls that takes 4 ms.

        Raises GateClosed when a gated window is not armed within that many seconds; the runner is then at rest again.
        What `meanwhile` raises finds it in the middle of a window: it can only be ended then.
        """
        arena = self.session.reserve(slots.size)
        shot = self._shots + 1
        self._shots += 1 if held_back is None else 2  # Whose answers are held back waits at the gate twice.
        gate = self._opened() if gated or (held_back is not None and self.device.is_cuda) else None
        self._tell(slots, arena)
        runner = self.session.runner
        how = {"gated": gated, "with_events": marked, "read": read, "deferred_readback": held_back is not None}
        runner.send({"op": "window", "sequence_number": shot, **how, **({"seed": slots.seed} if gated else {})})
        if meanwhile is not None:
            meanwhile()
        # While the runner queues its calls. Touched now, as fresh pages would be paid for inside the window.
        snapshot = torch.empty(slots.output_bytes, dtype=torch.uint8, device=self.device.name).fill_(0)
        overwritten = None
        if held_back is not None and held_back.in_inputs:
            noise = slots.noise()
            overwritten = Overwritten(torch.zeros_like(noise), noise)
        try:
            self._expect("armed", arm_within if gated else None)
        except TimeoutError:
            # What is queued will run: on real inputs, as an index out of old memory would be the kernel's end.
            arena.bytes[: slots.size].copy_(slots.image)
            self.device.synchronize()
            self._call_off(gate)
            raise GateClosed from None
        self.device.synchronize()
        taking = Taking(self.device, slots, arena, snapshot, held_back is not None, overwritten)
        with _undisturbed():
            if gated and gate is not None:
                clock, heard = self._by_device(gate, taking, shot)
            else:
                clock, heard = self._by_host(gate, taking)
        changed = None
        if not self._null and held_back is None:  # Before it may go on, and put back what it has changed.
            # In words: in bytes it takes eight times as long.
            now, drawn = (each[: slots.inputs_end].view(torch.int64) for each in (arena.bytes, slots.image))
            changed = not torch.equal(now, drawn)
        runner.check_frozen()
        runner.thaw()
        if heard:
            self._expect("done")
        call_ms = finite_numbers(self._expect("times").get("call_ms"))
        return Window(clock.elapsed_ms, call_ms, snapshot, changed, clock.ready_ms, overwritten)

    def relocate(self, slots: Slots, size: int) -> None:
        """Has what calls keep between launches lie elsewhere, by calling them once over what the image holds.

        That has to be inputs which the next window does not have. As they were drawn, and not as the last window left
        them: a kernel that counts an argument up in place would find it past its end.
        """
        arena = self.session.reserve(slots.size)
        self._tell(slots, arena)
        self.device.copy(slots.image, arena.bytes[: slots.size])
        self.device.synchronize()
        self.session.relocate(size)

    def announce(self, slots: Slots) -> None:
        """Has the runner lay out these calls while others are busy: for a window that is taken later."""
        self._tell(slots, self.session.reserve(slots.size))

    def close(self) -> None:
        """Ends the runner, and takes the gate from this process's context."""
        try:
            self.session.close()
        finally:
            if self._gate is not None:
                self._gate.withdraw()

    def forget(self) -> None:
        """Lets go of the layout that was told last, and of the memory of its image."""
        self._told = None

    def _tell(self, slots: Slots, arena: Arena) -> None:
        """Where each call's arguments and answers lie: told once, as long as neither layout nor arena changes."""
        if self._told is None or self._told[0] is not slots or self._told[1] is not arena:
            calls = slots.null_wire() if self._null else slots.wire()
            self.session.runner.post({"op": "layout", **calls})
            self._told = slots, arena

    def _by_device(self, gate: Gate, taking: Taking, shot: int) -> tuple[Clock, bool]:
        """The clock of a window behind the gate, and whether the runner's stream was heard, or else its process.

        The stream waits for a word that the runner can keep from it: one that does is killed, and the stream let go.
        """
        if self._clock is None:
            self._clock = DeviceClock(gate)
        clock, last = self._clock, self._shots
        try:
            clock.begin()
            taking.make_ready()
            clock.start(shot)
            clock.wait(shot)
            if taking.held_back:
                taking.take_away()
                clock.fire(last)
                clock.wait(last)
            taking.keep()
            clock.stop()
            if not (heard := self._heard(gate, last)):
                self._expect("done")
            if not clock.ends(PATIENCE_S):
                raise KernelFault(Status.CRASHED, NOT_REPORTED)
        except BaseException:
            # First, and whatever went wrong: neither a thread of it nor a kernel may undo what lets the stream go.
            try:
                self.session.runner.kill()
            finally:
                clock.let_go(last)
            raise
        return Clock(*clock.read()), heard

    def _by_host(self, gate: Gate | None, taking: Taking) -> tuple[Clock, bool]:
        """As `_by_device`, where calls are launched from the gun on, or there is no device."""
        runner = self.session.runner
        if not self.device.is_cuda:
            runner.freeze()
        begun = time.perf_counter_ns()
        taking.make_ready()
        self.device.synchronize()
        runner.check_frozen()
        start = time.perf_counter_ns()
        runner.send({"op": "go", "seed": taking.slots.seed})
        runner.thaw()
        if taking.held_back:
            self._expect("computed")
            taking.take_away()
            self.device.synchronize()
            if gate is not None:
                gate.release(self._shots)
            else:
                runner.send({"op": "hand_in"})
        heard = gate is not None and self._heard(gate, self._shots)
        if not heard:
            self._expect("done")
        frozen = None if self.device.is_cuda else runner.freeze()
        taking.keep()
        self.device.synchronize()
        end = frozen or time.perf_counter_ns()
        return Clock((end - start) / 1e6, (start - begun) / 1e6), heard

    def _heard(self, gate: Gate, shot: int) -> bool:
        """Waits a short while, awake, for the runner's stream; False when it is better waited for asleep."""
        until = time.perf_counter_ns() + int(SPIN_S * 1e9)
        while gate.last_done < shot:
            if time.perf_counter_ns() > until:
                return False
        return True

    def _opened(self) -> Gate:
        if self._gate is None:
            self._gate = Gate()
            try:
                self.session.runner.request({"op": "attach_gate"}, (self._gate.descriptor,))
            finally:
                self._gate.close()
        return self._gate

    def _call_off(self, gate: Gate | None) -> None:
        """Opens the gate on whatever is queued and waits until the runner is at rest."""
        if gate is not None:
            gate.release(self._shots)
        for op in ("armed", "done", "times"):
            self._expect(op)

    def _expect(self, op: str, within: float | None = None) -> Message:
        answer = self.session.runner.receive(within)
        if answer["op"] != op:
            self.session.runner.kill()
            raise KernelFault(Status.CRASHED, f"the runner answered {answer['op'][:32]!r} instead of {op!r}")
        return answer


@contextmanager
def _undisturbed() -> Iterator[None]:
    """No garbage collection of the referee's own while its clock runs."""
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
