"""The runner: UNTRUSTED. Forked from the zygote for one submission, obeys the referee's messages, then is killed.

Nothing that it answers is a verdict: the referee reads output bytes from the arena and its own clock. Its words only
say how far it has come, and where they are wrong they can only harm its own submission.
"""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path
from typing import Any

import torch

from backends.base import Executable, Target
from backends.registry import backend
from domain import value as values
from domain.value import TensorRef
from sandbox.isolation.clean_env import NVML_CHECK
from sandbox.protocol import output_structure
from sandbox.protocol.arena import Arena, argument, attach, copy_all, lies_in
from sandbox.protocol.call_layout import Call, laid_out
from sandbox.protocol.channel import Channel, Message
from sandbox.protocol.cuda_driver import ONE_QUEUE, Gate
from sandbox.protocol.outputs import Keys, outside, portable, put, tensors_of
from sandbox.runner.call_loop import Made, call_all
from sandbox.runner.flop_count import counted
from sandbox.runner.launch_count import counted_launches
from sandbox.runner.launch_latency import launch_times_ms
from sandbox.runner.launch_tracer import traced
from sandbox.runner.load import loaded
from sandbox.runner.message_args import assignment
from sandbox.runner.null_kernel import NullKernel
from sandbox.runner.output_aliasing import AnswerMemory
from sandbox.runner.output_views import argument_views, kept
from sandbox.runner.profiled_call import inspected
from sandbox.runner.timestamps import mark, milliseconds
from sandbox.runner.window import WindowTurn


class Runner:
    """The state of one submission between messages; each method named after a message answers it."""

    def __init__(self, channel: Channel, folder: Path) -> None:
        self.channel = channel
        self.executable: Executable | None = None
        self.target = Target("cpu", None)
        self.folder = folder
        self.arena: Arena | None = None
        self.gate: Gate | None = None
        self.retained: list[torch.Tensor] = []
        self.calls: list[Call] = []
        self.keys, self.slots = list[Keys](), list[int]()
        self.output_arguments: tuple[int, ...] = ()
        self.reuses_memory = False
        self.views: list[list[int] | None] = []
        self.pad: torch.Tensor | None = None

    def build(self, message: Message) -> Message:
        """Compiles in this process, with no GPU visible."""
        os.environ["CUDA_VISIBLE_DEVICES"] = ""
        kernel, target = assignment(message)
        artifact = backend(kernel.kernel_type).build(kernel, self.folder, target)
        return {"op": "built", "facts": artifact.facts, "deferred": artifact.deferred, "log": artifact.log}

    def open_device(self, message: Message) -> Message:
        """Makes the GPU's context, before there is a submission."""
        if message["one_queue"]:
            os.environ |= ONE_QUEUE
        torch.empty((), device=message["target"]["device"])
        # The driver has read it, and whoever asks whether there is a GPU need not start NVML any more. What a
        # submission starts has nothing to do with either.
        for name in (*ONE_QUEUE, NVML_CHECK):
            os.environ.pop(name, None)
        return {"op": "ok"}

    def warm_libraries(self, message: Message) -> Message:
        """Loads what nearly every job uses, before there is a submission: others load the rest when they need it."""
        device = message["target"]["device"]
        torch.manual_seed(0)
        drawn = torch.randn(16, 16, device=device)
        with counted_launches(Target(device, None)):
            copy_all([drawn.clone()], [drawn])  # As inputs and answers are copied, of whatever type.
        # Several runners load at once, and are asked for what a launch costs one after the other.
        launch_times_ms(device, tries=1, again=True)
        torch.cuda.synchronize()
        return {"op": "ok"}

    def launches(self, message: Message) -> Message:
        """What a launch costs in this context; asked before there is a submission."""
        return {"op": "times", "launch_ms": launch_times_ms(message["target"]["device"])}

    def load(self, message: Message) -> Message:
        """Makes the kernel callable, or anew with noise on its constant parameters."""
        kernel, self.target = assignment(message)
        self._open_device()
        self.executable, told = loaded(kernel, self.target, message, self.folder)
        self.output_arguments = kernel.io.outputs if kernel.io is not None else ()
        return told

    def load_null(self, message: Message) -> Message:
        """The trusted null kernel instead of a submission: what a window costs when nothing is computed."""
        self.target = Target(message["target"]["device"], message["target"]["arch"])
        self._open_device()
        self.executable = NullKernel(self.target)
        return {"op": "ok"}

    def inputs(self, message: Message) -> Message:
        """The source's own inputs for each seed, else inferred ones, for `export`; what is alike is told once."""
        made: list[list[Any]] = []
        note = None
        for seed in message["seeds"]:
            own = self._loaded.own_inputs(int(seed))
            if own is None and message["infer"]:
                own, note = self._loaded.inferred_inputs(int(seed)) or (None, None)
            if own is None:
                return {"op": "value", "value": None, "note": None}
            made.append(own)
        sets = self._retain(made)
        alike = len(set(map(repr, sets))) == 1  # -0.0, 0 and False are equal, and different arguments.
        return {"op": "value", "value": sets[0] if alike else sets, "alike": alike, "note": note}

    def state(self, message: Message) -> Message:
        """The weights, and which of them are parameters; retained for `export`."""
        names = list(map(str, self._loaded.parameters()))
        return {"op": "value", "value": self._retain(self._loaded.state()), "parameters": names}

    def export(self, message: Message) -> Message:
        """Copies the retained tensors into the arena where the referee says."""
        refs = values.leaves(values.decode(message["refs"]), TensorRef)
        put(self.retained, self._memory, refs, int(message["count"]), int(message["step"]))
        self._synchronize()
        self.retained = []
        return {"op": "ok"}

    def load_state(self, message: Message) -> Message:
        """Weights out of the arena into the model, where all of them fit."""
        state = self._placed(message["state"])
        fits = self._loaded.load_state(state) if isinstance(state, dict) else False
        self._synchronize()
        return {"op": "ok", "loaded": fits}

    def attach(self, message: Message) -> Message:
        """Another arena instead of the present one, from which nothing that is retained may be a view."""
        self.retained = outside(self.arena, self.retained)
        self._leave_arena()
        self.arena = attach(int(message["size"]), message["device"], self.channel.descriptor())
        return {"op": "ok"}

    def detach(self, _: Message) -> Message:
        """Gives the arena back, and with it whatever memory the libraries keep for later."""
        self._leave_arena()
        if self.target.is_cuda:
            torch.cuda.empty_cache()
        return {"op": "ok"}

    def attach_gate(self, message: Message) -> Message:
        """The word that gated windows wait for."""
        self.gate = Gate(self.channel.descriptor())
        return {"op": "ok"}

    def probe(self, message: Message) -> Message:
        """Calls until warm, then says what came out and about how long a call takes (advisory, for sizing windows)."""
        args = self._placed(message["args"])
        results, elapsed_ms = list[Any](), list[float]()
        places = AnswerMemory(self._memory)
        self.keys, self.slots = [], []
        self._loaded.resume()
        for _ in range(int(message["calls"])):
            start = mark(self.target)
            results.append(self._loaded.call(args))
            elapsed_ms.append(milliseconds(start, mark(self.target)))
            if results[-1] is not None:
                places.note(self._outputs(results[-1], args))
        with counted_launches(self.target) as count:
            if self.target.is_cuda:
                self._loaded.call(args)
        self._synchronize()
        self.reuses_memory = places.comes_again
        outputs = self._outputs(results[-1], args)
        self.views = argument_views(outputs, args)
        return {
            "op": "value",
            "value": self._retain(outputs),
            "views": self.views,
            "form": output_structure.wire(results[-1], self.keys),
            "returned": results[-1] is not None,
            **places.told(outputs),
            "elapsed_ms": elapsed_ms,
            "launches": count.launches,
            "several_streams": count.several_streams,
            "compiled": list(self._loaded.compiled),
        }

    def order(self, message: Message) -> Message:
        """In which slots the outputs of the next windows' calls belong, by their numbers in the probe's answer."""
        self.slots = list(map(int, message["slots"]))
        return {"op": "ok"}

    def double(self, message: Message) -> Message:
        """One call in float64; a kernel that has no such form says so with None."""
        try:
            result = self._loaded.call_double(self._placed(message["args"]))
            outputs = None if result is None else tensors_of(result, self.target, self.keys)
        except Exception:
            outputs = None
        return {"op": "value", "value": None if outputs is None else self._retain(outputs)}

    def layout(self, message: Message) -> Message:
        """Where the arguments and answers of the next windows' calls lie."""
        self.calls = laid_out(message, self._memory, self.slots)
        return {"op": "ok"}

    def flops(self, message: Message) -> Message:
        """The operations of one call by torch's own count; None for a call that cannot be counted."""
        args = self._placed(message["args"])
        try:
            return {"op": "flops", "flops": counted(partial(self._loaded.call, args))}
        except Exception:
            return {"op": "flops", "flops": None}

    def profile(self, message: Message) -> Message:
        """What warm calls launch. A profiler may bring its process down: the last thing that a runner is asked."""
        return traced(partial(self._loaded.call, self._placed(message["args"])), self.target)

    def inspect(self, message: Message) -> Message:
        """Calls until warm, then one call more for the tool that it runs beneath."""
        inspected(partial(self._loaded.call, self._placed(message["args"])), int(message["warm_up"]), self.target)
        return {"op": "ok"}

    def window(self, message: Message) -> Message:
        """One window over the layout."""
        turn = WindowTurn(message, self.channel, self.gate, self.target)
        return turn.take(lambda: self._call_all(marked=turn.marked, held_back=turn.held_back))

    def relocate(self, message: Message) -> Message:
        """Has what calls keep between launches lie elsewhere; made once, as the next window is to find its memory."""
        torch.cuda.empty_cache()
        self.pad = torch.empty(int(message["bytes"]), dtype=torch.uint8, device=self.target.device)
        self._call_all(marked=False).hand_in()
        self._synchronize()
        return {"op": "ok"}

    def _call_all(self, *, marked: bool, held_back: bool = False) -> Made:
        at_once = (self.reuses_memory or not self.target.is_cuda) and not held_back
        outputs = self._kept_outputs if held_back else self._outputs
        return call_all(self.calls, self._loaded.call, outputs, self.target, at_once=at_once, marked=marked)

    def _leave_arena(self) -> None:
        self.calls = []
        if self.arena is not None:
            self.arena.close()
            self.arena = None

    @property
    def _loaded(self) -> Executable:
        if self.executable is None:
            raise ValueError("nothing is loaded")
        return self.executable

    @property
    def _memory(self) -> torch.Tensor:
        if self.arena is None:
            raise ValueError("no arena")
        return self.arena.bytes

    def _placed(self, wire: Any) -> Any:
        """A value whose tensors lie in the arena, or copies of them where that is on another device."""
        where = self.target.device
        return values.replace(values.decode(wire), TensorRef, lambda ref: argument(self._memory, ref, where))

    def _outputs(self, result: Any, args: list[Any]) -> list[torch.Tensor]:
        """The answer's tensors: what the call returned, else the contract's output arguments."""
        if result is None:
            return [args[index] for index in self.output_arguments]
        return tensors_of(result, self.target, self.keys)

    def _kept_outputs(self, result: Any, args: list[Any]) -> list[torch.Tensor]:
        """The answer's tensors for a time when the arguments are overwritten."""
        found = self._outputs(result, args)
        # First the arena as a whole: to look at each argument takes microseconds, which may be on the clock.
        return kept(found, args, self.views) if any(lies_in(self._memory, each) for each in found) else found

    def _retain(self, value: Any) -> Any:
        """Keeps the value's tensors for `export`; its wire form, with sizes but no places yet."""
        wire, self.retained = portable(value, self.target)
        return wire

    def _open_device(self) -> None:
        """Makes the GPU's context, which the driver calls for the arena and the gate need; nothing on the CPU."""
        if self.target.is_cuda:
            torch.empty((), device=self.target.device)

    def _synchronize(self) -> None:
        if self.target.is_cuda:
            torch.cuda.synchronize()
