"""One timed window: K calls, from their release until their outputs lie in the referee's private memory.

1. The runner queues its calls behind the gate and replies "armed".
2. Setup: the referee copies fresh inputs and poisoned outputs to the arena, and flushes the L2 cache. The setup is
timed, too. The device time-slices the contexts of two processes, so that work on the inputs before the release delays
it.
3. Release: the clock starts and the gate opens.
4. The runner's "done" is advisory. The referee copies every output to private memory and only then stops the clock.
   Contexts are time-sliced, so that a runner which says "done" early is still timed in full (docs/measurements.md).

In a gated window the referee's stream does steps 2 to 4, by the device's clock (profiling.window.device_clock). In a
streamed window there is no gate: the runner launches its calls after the release, and the host's clock counts.

On a CPU processes run at the same time, so that the time is only indicative. There the referee freezes the runner and
its children from "done" until outputs are copied and inputs compared (`sandbox.supervisor.process_freezer`)."""

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
from profiling.window.buffer_transfers import BufferTransfers, Overwritten, write_image
from profiling.window.call_buffers import Slots
from profiling.window.device_clock import DeviceClock
from sandbox.protocol.arena import Arena
from sandbox.protocol.channel import Message, finite_numbers
from sandbox.protocol.cuda_driver import Gate
from sandbox.supervisor.session import Session


class GateClosed(Exception):
    """The calls cannot be queued behind the gate: they wait for the device, or launch more than its queue holds."""


NOT_REPORTED = "its stream never reported behind the calls, though it was said to be done"
PATIENCE_S = 5.0
"""Maximum time of a window after the runner's "done", in s: only copies are left then."""
SPIN_S = 0.05
"""Time for which the referee polls before it sleeps, in s, about a window's length: a wake-up costs as much as a
kernel."""


@dataclass(frozen=True)
class DeferredReadback:
    """A window in which the runner hands in outputs only after the referee has cleared outputs and overwritten inputs.

    With `in_inputs`, outputs may be views of inputs. Then the referee saves the inputs and overwrites them with random
    bytes. A runner that hands in those bytes has copied an output that lay there.
    """

    in_inputs: bool = False


@dataclass(frozen=True)
class Window:
    """The result of one window: the referee's times, the runner's advisory times of its calls, and every output.

    `elapsed_ms` is the time from the release to the snapshot, `setup_ms` that from the first input byte to the release.
    `call_ms` is empty for a window without events. `inputs_changed` is None for null windows and for windows with
    deferred readback, whose inputs are overwritten. `snapshot` holds the outputs in private memory.
    """

    elapsed_ms: float
    call_ms: list[float]
    snapshot: torch.Tensor
    inputs_changed: bool | None
    setup_ms: float
    overwritten: Overwritten | None = None

    @property
    def clock(self) -> Clock:
        """The referee's times without the outputs."""
        return Clock(self.elapsed_ms, self.setup_ms)


@dataclass(frozen=True)
class Clock:
    """The referee's times of one window, in ms: from the release to the snapshot, and of the setup before it."""

    elapsed_ms: float
    setup_ms: float


class WindowSession:
    """Runs windows over one session on one device; owns the gate between referee and runner."""

    def __init__(self, session: Session, device: Device, *, null: bool = False) -> None:
        self.session = session
        self.device = device
        self._null = null
        self._gate: Gate | None = None
        self._clock: DeviceClock | None = None
        self._sequence_number = 0
        self._sent_layout: tuple[Slots, Arena] | None = None

    def window(
        self,
        slots: Slots,
        *,
        gated: bool = False,
        with_events: bool = False,
        read: bool = True,
        deferred_readback: DeferredReadback | None = None,
        arm_within: float = 2.0,
        meanwhile: Callable[[], None] | None = None,
    ) -> Window:
        """Runs one window over the slots' image; `meanwhile` may still write that while the runner queues its calls.

        `with_events` records an event after each call, and `read` has the runner send the times: 4 ms for 400 calls.

        Raises GateClosed if a gated window is not armed within `arm_within` seconds; the runner is idle then. An
        exception of `meanwhile` leaves the runner in the middle of a window, so that the caller has to close this
        session."""
        before, arena = self.session.arena, self.session.reserve(slots.size)
        self.session.reserve_call()
        made_way = [(time.monotonic(), slots.size)] if arena is not before else []
        self.device.wait_until_cleared([*self.session.take_freed(), *made_way])
        first = self._sequence_number + 1
        self._sequence_number += 1 if deferred_readback is None else 2  # A deferred readback waits at the gate twice.
        gate = self._open_gate() if gated or (deferred_readback is not None and self.device.is_cuda) else None
        self._send_layout(slots, arena)
        runner = self.session.runner
        options = {
            "gated": gated,
            "with_events": with_events,
            "read": read,
            "deferred_readback": deferred_readback is not None,
        }
        runner.send({"op": "window", "sequence_number": first, **options, **({"seed": slots.seed} if gated else {})})
        if meanwhile is not None:
            meanwhile()
        # Touch the pages while the runner queues its calls; otherwise page faults would be timed in the window.
        snapshot = self._made(
            lambda: torch.empty(slots.output_bytes, dtype=torch.uint8, device=self.device.name).fill_(0)
        )
        overwritten = None
        if deferred_readback is not None and deferred_readback.in_inputs:
            noise = self._made(slots.noise)
            overwritten = Overwritten(self._made(lambda: torch.zeros_like(noise)), noise)
        try:
            self._expect("armed", arm_within if gated else None)
        except TimeoutError:
            # The queued calls will run. They need real inputs: an index from old memory could crash the kernel.
            write_image(self.device, slots, arena)
            self.device.synchronize()
            self._call_off(gate)
            raise GateClosed from None
        self.device.synchronize()
        transfers = BufferTransfers(self.device, slots, arena, snapshot, deferred_readback is not None, overwritten)
        with _without_gc():
            if gated and gate is not None:
                clock, stream_done = self._run_on_device(gate, transfers, first)
            else:
                clock, stream_done = self._run_on_host(gate, transfers)
        changed = None
        if not self._null and deferred_readback is None:  # Before the runner is thawed and could restore its inputs.
            # Compare as 8-byte words: bytes take eight times as long.
            now, drawn = (memory[: slots.inputs_end].view(torch.int64) for memory in (arena.bytes, slots.image))
            changed = not torch.equal(now, drawn)
        runner.thaw()
        if stream_done:
            self._expect("done")
        call_ms = finite_numbers(self._expect("times").get("call_ms"))
        return Window(clock.elapsed_ms, call_ms, snapshot, changed, clock.setup_ms, overwritten)

    def shift_allocations(self, slots: Slots, size: int) -> None:
        """Moves the memory that calls use between launches, by one run of the calls over the image.

        The image must not hold the next window's inputs. It holds them as drawn, not as the last window left them: a
        kernel that increments an index in place would otherwise run past the end of its memory.
        """
        arena = self.session.reserve(slots.size)
        self._send_layout(slots, arena)
        write_image(self.device, slots, arena)
        self.device.synchronize()
        self.session.shift_allocations(size)

    def send_layout(self, slots: Slots) -> None:
        """Sends the runner the layout of a later window, so that it prepares its calls while others are busy."""
        self._send_layout(slots, self.session.reserve(slots.size))

    def close(self) -> None:
        """Ends the runner and unmaps the gate from this process's context."""
        try:
            self.session.close()
        finally:
            if self._gate is not None:
                self._gate.withdraw()

    def leave(self) -> Session:
        """Unmaps the gate from this process's context; the runner lives on in the session that this returns."""
        if self._gate is not None:
            self._gate.withdraw()
        return self.session

    def drop_layout(self) -> None:
        """Drops the layout that was sent last, and so the memory of its image."""
        self._sent_layout = None

    def _send_layout(self, slots: Slots, arena: Arena) -> None:
        """Tells the runner where each call's arguments and outputs lie; sent again only if layout or arena changes."""
        sent = self._sent_layout
        if sent is None or sent[0] is not slots or sent[1] is not arena:
            calls = slots.null_wire() if self._null else slots.wire()
            self.session.runner.post({"op": "layout", **calls})
            self._sent_layout = slots, arena

    def _made(self, make: Callable[[], torch.Tensor]) -> torch.Tensor:
        """The tensor that `make` allocates; if the device lacks memory, other sessions give up their arenas first."""
        try:
            return make()
        except torch.OutOfMemoryError:
            self.session.evict_others()
            self.device.empty_cache()
            return make()

    def _run_on_device(self, gate: Gate, transfers: BufferTransfers, first: int) -> tuple[Clock, bool]:
        """Runs a gated window; returns its times, and whether the runner's stream signalled done within SPIN_S.

        The referee's stream waits for that signal, which a runner can withhold. Then the referee kills the runner and
        releases its own stream.
        """
        if self._clock is None:
            self._clock = DeviceClock(gate)
        clock, last = self._clock, self._sequence_number
        try:
            clock.begin_setup()
            transfers.upload()
            clock.start(first)
            clock.wait_until_done(first)
            if transfers.deferred_readback:
                transfers.clear_inputs()
                clock.release(last)
                clock.wait_until_done(last)
            transfers.copy_outputs()
            clock.stop()
            if not (stream_done := self._poll_done(gate, last)):
                self._expect("done")
            if not clock.ends(PATIENCE_S):
                raise KernelFault(Status.CRASHED, NOT_REPORTED)
        except BaseException:
            # Kill first, whatever went wrong: no thread or kernel of the runner may undo the forced release.
            try:
                self.session.runner.kill()
            finally:
                clock.force_release(last)
            raise
        return Clock(*clock.read()), stream_done

    def _run_on_host(self, gate: Gate | None, transfers: BufferTransfers) -> tuple[Clock, bool]:
        """Like `_run_on_device`, for a streamed window or for a window on the CPU."""
        runner = self.session.runner
        setup_begin = time.perf_counter_ns()
        transfers.upload()
        self.device.synchronize()
        start = time.perf_counter_ns()
        runner.send({"op": "go", "seed": transfers.slots.seed})
        if transfers.deferred_readback:
            self._expect("computed")
            transfers.clear_inputs()
            self.device.synchronize()
            if gate is not None:
                gate.release(self._sequence_number)
            else:
                runner.send({"op": "hand_in"})
        stream_done = gate is not None and self._poll_done(gate, self._sequence_number)
        if not stream_done:
            self._expect("done")
        if not self.device.is_cuda:
            runner.freeze()
        transfers.copy_outputs()
        self.device.synchronize()
        end = time.perf_counter_ns()
        return Clock((end - start) / 1e6, (start - setup_begin) / 1e6), stream_done

    def _poll_done(self, gate: Gate, sequence_number: int) -> bool:
        """Polls up to SPIN_S for the signal of the runner's stream; returns whether it came."""
        until = time.perf_counter_ns() + int(SPIN_S * 1e9)
        while gate.last_done < sequence_number:
            if time.perf_counter_ns() > until:
                return False
        return True

    def _open_gate(self) -> Gate:
        if self._gate is None:
            self._gate = Gate()
            try:
                self.session.runner.request({"op": "attach_gate"}, (self._gate.descriptor,))
            finally:
                self._gate.close()
        return self._gate

    def _call_off(self, gate: Gate | None) -> None:
        """Opens the gate for the queued calls and waits until the runner is idle."""
        if gate is not None:
            gate.release(self._sequence_number)
        for op in ("armed", "done", "times"):
            self._expect(op)

    def _expect(self, op: str, within: float | None = None) -> Message:
        answer = self.session.runner.receive(within)
        if answer["op"] != op:
            self.session.runner.kill()
            raise KernelFault(Status.CRASHED, f"the runner answered {answer['op'][:32]!r} instead of {op!r}")
        return answer


@contextmanager
def _without_gc() -> Iterator[None]:
    """Disables the referee's garbage collection while its clock runs."""
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
