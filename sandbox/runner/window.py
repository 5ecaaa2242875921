"""The runner's side of one window: calls behind the gate or at the gun, answers handed in, "done".

Both kernels of a round get the same seed, which comes with the gun: who knows it sooner draws its random numbers off
the clock. Calls behind a gate are queued before that, and need it then.
"""

from __future__ import annotations

from collections.abc import Callable

import torch

from backends.base import Target
from backends.source.rng_state import seed_everything
from sandbox.protocol.channel import Channel, Message
from sandbox.protocol.cuda_driver import Gate
from sandbox.runner.call_loop import Made
from sandbox.runner.timestamps import milliseconds

AWAKE_S = 0.05
"""Until the gun, without the gate: code that has slept for a millisecond takes twice as long to run, and more after ten
(docs/measurements.md). Inputs are written in less."""


class WindowTurn:
    """One window, as its message says: `gated`, `marked` (the kernel's own clock is read between calls, and told if it
    is to be `read`), `held_back`.

    Held back, answers are kept until the referee has cleared what they are copied to. A GPU then waits at the gate for
    the second time, at the next shot's number.
    """

    def __init__(self, message: Message, channel: Channel, gate: Gate | None, target: Target) -> None:
        self.shot = int(message["shot"])
        self.marked = bool(message["marked"])
        self.held_back = bool(message["held_back"])
        self._read = bool(message["read"])
        self._gated = bool(message["gated"])
        self._message = message
        self._channel = channel
        self._gate = gate
        self._target = target
        self._stream = int(torch.cuda.current_stream().cuda_stream) if gate is not None else 0

    def take(self, make: Callable[[], Made]) -> Message:
        """Has `make` make the calls; the answer to the message."""
        if self._gated:
            seed_everything(int(self._message["seed"]))
            self._hold(self.shot)
        else:
            self._channel.send({"op": "armed"})
            seed_everything(int(self._channel.receive(self._awake_s)["seed"]))
        made = make()
        if self.held_back:
            made.look_for_answers()
        else:
            made.hand_in()
        if self._gated:
            self._report(self.shot)
        if self.held_back:
            self._hand_in_later(made)
        elif self._gated:
            self._channel.send({"op": "armed"})
        self._synchronize()
        # The referee's clock runs until it hears this and has copied the outputs: nothing else before it.
        self._channel.send({"op": "done"})
        return {"op": "times", "call_ms": [milliseconds(*pair) for pair in made.marks] if self._read else []}

    def _hand_in_later(self, made: Made) -> None:
        if not self._gated:
            self._synchronize()
        if self._gate is None:
            self._channel.send({"op": "computed"})
            self._channel.receive()
            made.hand_in()
            return
        self._hold(self.shot + 1)
        made.hand_in()
        self._report(self.shot + 1)
        self._channel.send({"op": "armed" if self._gated else "computed"})

    @property
    def _awake_s(self) -> float:
        """On a host it would be in the way of whoever writes the inputs, and is stopped meanwhile."""
        return AWAKE_S if self._target.is_cuda else 0.0

    def _hold(self, shot: int) -> None:
        if self._gate is None:
            raise ValueError("no gate")
        self._gate.hold(self._stream, shot)

    def _report(self, shot: int) -> None:
        if self._gate is not None:
            self._gate.report(self._stream, shot)

    def _synchronize(self) -> None:
        if self._target.is_cuda:
            torch.cuda.synchronize()
