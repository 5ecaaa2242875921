"""The runner's side of one window: it makes calls behind the gate or after "go", copies outputs, and reports "done".

Both kernels of a round get the same seed at the release. A runner that knew it earlier could draw its random numbers
off the clock. Calls behind a gate are queued before the release, and need the seed then.
"""

from __future__ import annotations

from collections.abc import Callable

import torch

from backends.base import Target
from backends.source.rng_state import seed_everything
from sandbox.protocol.channel import Channel, Message
from sandbox.protocol.cuda_driver import Gate
from sandbox.runner.call_loop import WindowCalls
from sandbox.runner.timestamps import milliseconds

AWAKE_S = 0.05
"""Busy waiting for the release without a gate, in s; writing inputs takes less.

Code that has slept for a millisecond takes twice as long to run, and longer after ten (docs/measurements.md).
"""


class RunnerWindow:
    """One window, as its message describes it.

    `gated`: calls wait at the gate. `with_events`: timestamps are recorded between calls, and returned if they are to
    be `read`. `deferred_readback`: outputs are kept until the referee has cleared their slots. On a GPU, the runner
    then waits at the gate again, for the next sequence number.
    """

    def __init__(self, message: Message, channel: Channel, gate: Gate | None, target: Target) -> None:
        self.sequence_number = int(message["sequence_number"])
        self.with_events = bool(message["with_events"])
        self.deferred_readback = bool(message["deferred_readback"])
        self._read = bool(message["read"])
        self._gated = bool(message["gated"])
        self._request = message
        self._channel = channel
        self._gate = gate
        self._target = target
        self._stream = int(torch.cuda.current_stream().cuda_stream) if gate is not None else 0

    def run(self, make: Callable[[], WindowCalls]) -> Message:
        """Makes the calls through `make`; returns the reply to the message."""
        if self._gated:
            seed_everything(int(self._request["seed"]))
            self._wait_on_gate(self.sequence_number)
        else:
            self._channel.send({"op": "armed"})
            seed_everything(int(self._channel.receive(self._awake_s)["seed"]))
        calls = make()
        if self.deferred_readback:
            calls.collect_outputs()
        else:
            calls.copy_outputs()
        if self._gated:
            self._signal_done(self.sequence_number)
        if self.deferred_readback:
            self._copy_outputs_later(calls)
        elif self._gated:
            self._channel.send({"op": "armed"})
        self._synchronize()
        # The referee's clock runs until it receives this and has copied the outputs: nothing else may come before.
        self._channel.send({"op": "done"})
        return {"op": "times", "call_ms": [milliseconds(*pair) for pair in calls.events] if self._read else []}

    def _copy_outputs_later(self, calls: WindowCalls) -> None:
        if not self._gated:
            self._synchronize()
        if self._gate is None:
            self._channel.send({"op": "computed"})
            self._channel.receive()
            calls.copy_outputs()
            return
        self._wait_on_gate(self.sequence_number + 1)
        calls.copy_outputs()
        self._signal_done(self.sequence_number + 1)
        self._channel.send({"op": "armed" if self._gated else "computed"})

    @property
    def _awake_s(self) -> float:
        """On the host, busy waiting would take a processor from the referee as it writes inputs."""
        return AWAKE_S if self._target.is_cuda else 0.0

    def _wait_on_gate(self, sequence_number: int) -> None:
        if self._gate is None:
            raise ValueError("no gate")
        self._gate.wait_on_gate(self._stream, sequence_number)

    def _signal_done(self, sequence_number: int) -> None:
        if self._gate is not None:
            self._gate.signal_done(self._stream, sequence_number)

    def _synchronize(self) -> None:
        if self._target.is_cuda:
            torch.cuda.synchronize()
