"""The runner: UNTRUSTED. The zygote forks it for one submission, or for several without host code of a candidate
(docs/adr/0040); it obeys the referee's messages, then is killed.

Nothing that it replies is a verdict: the referee reads outputs from the arena, and its own clock. The replies only
report progress. A wrong reply can harm only the runner's own submission.
"""

from __future__ import annotations

import os
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import torch

from backends.base import Executable, Target, Task
from backends.registry import backend
from domain import value as values
from domain.cases.case import described_case
from domain.kernel import Kernel
from domain.value import TensorRef
from sandbox.isolation.clean_env import NVML_CHECK
from sandbox.protocol import output_structure
from sandbox.protocol.arena import Arena, argument, attach, begins_in, copy_all
from sandbox.protocol.call_layout import Call, decode_calls
from sandbox.protocol.channel import Channel, Message
from sandbox.protocol.cuda_driver import ONE_QUEUE, Gate
from sandbox.protocol.outputs import Keys, outside, portable, put, tensors_of
from sandbox.runner.call_loop import WindowCalls, call_all
from sandbox.runner.flop_count import count_flops
from sandbox.runner.launch_count import count_launches
from sandbox.runner.launch_latency import launch_times_ms
from sandbox.runner.launch_tracer import trace_launches
from sandbox.runner.load import assignment, load_kernel
from sandbox.runner.null_kernel import NullKernel
from sandbox.runner.output_aliasing import OutputAliasing
from sandbox.runner.output_views import argument_views, detached_outputs
from sandbox.runner.process_state import ProcessState
from sandbox.runner.timestamps import milliseconds, record_event
from sandbox.runner.window import RunnerWindow

LARGE, LARGE_CALLS = 256 << 20, 2
"""Minimum bytes of a large call's inputs and outputs, and the number of such calls whose outputs a runner holds."""
SMALL = 1 << 20
"""Maximum bytes of a tensor in the small pool of torch's allocator, whose segments hold two such."""


class Runner:
    """The state of one submission between messages. Each method handles the message of its name and returns a reply."""

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
        self.large_call = (0, 0)
        """Device memory that one call with large inputs or outputs allocates: in large tensors, and in small ones."""
        self.freed_bytes = 0
        """Device memory that torch's allocator has given back to the driver since the last reply."""
        self.first_state: ProcessState | None = None
        """The state of the process before its first submission; None if it is a builder, or has none yet."""

    def build(self, message: Message) -> Message:
        """Compiles in this process, with no GPU visible."""
        os.environ["CUDA_VISIBLE_DEVICES"] = ""
        kernel, target = assignment(message)
        artifact = backend(kernel.kernel_type).build(kernel, self.folder, target, Task(**message["task"]))
        return {"op": "built", **asdict(artifact)}

    def open_device(self, message: Message) -> Message:
        """Creates the GPU's context, before there is a submission."""
        if message["one_queue"]:
            os.environ |= ONE_QUEUE
        torch.empty((), device=message["target"]["device"])
        # The driver has read these. Later checks for a GPU need not start NVML, and programs of the submission must not
        # inherit them.
        for name in (*ONE_QUEUE, NVML_CHECK):
            os.environ.pop(name, None)
        return {"op": "ok"}

    def warm_libraries(self, message: Message) -> Message:
        """Loads what nearly every job uses, before there is a submission. Kernels load the rest on first use."""
        device = message["target"]["device"]
        torch.manual_seed(0)
        drawn = torch.randn(16, 16, device=device)
        with count_launches(Target(device, None)):
            copy_all([drawn.clone()], [drawn])  # Loads the kernels that copy inputs and outputs of any type.
        # Several runners load at once; the referee asks them for launch latencies one after the other.
        launch_times_ms(device, tries=1, again=True)
        torch.cuda.synchronize()
        return {"op": "ok"}

    def launches(self, message: Message) -> Message:
        """The cost of a launch in this context; requested before there is a submission."""
        return {"op": "times", "launch_ms": launch_times_ms(message["target"]["device"])}

    def load(self, message: Message) -> Message:
        """Loads the kernel, optionally with noise on its constant parameters."""
        kernel, self.target = assignment(message)
        self._open_device()
        self.first_state = self.first_state or (ProcessState() if message["may_stay"] else None)
        self.executable, reply = load_kernel(kernel, self.target, message, self.folder)
        self._free_drawn(0)  # Weights that it drew in another type, or initialised on the way.
        self.output_arguments = kernel.io.outputs if kernel.io is not None else ()
        return reply

    def cases(self, _: Message) -> Message:
        """The source's own cases, for display; None without any."""
        before = self._cached()
        own, source = self._loaded.cases(), self._loaded.case_source
        self._free_drawn(before)
        return {"op": "cases", "cases": None if own is None else list(map(described_case, own)), "source": source}

    def use_case(self, message: Message) -> Message:
        """Sets the contract of the next calls, and the case of the next inputs."""
        kernel = Kernel.from_wire(message["kernel"])
        self._loaded.use_case(kernel)
        self.output_arguments = kernel.io.outputs if kernel.io is not None else ()
        return {"op": "ok"}

    def unload(self, _: Message) -> Message:
        """Drops the kernel and what belongs to its job; names what is still there, which a later job could see."""
        if self.gate is not None:
            self.gate.withdraw()
            self.gate.close()
        first_state, left = self.first_state, self._loaded.close()
        vars(self).update(vars(Runner(self.channel, self.folder)))
        self.first_state = first_state
        left += first_state.leftovers(self.folder) if first_state else ["an unknown first state"]
        return {"op": "unloaded", "leftovers": left}

    def load_null(self, message: Message) -> Message:
        """Loads the trusted null kernel instead of a submission, to measure windows that compute nothing."""
        self.target = Target.from_wire(message["target"])
        self._open_device()
        self.executable = NullKernel(self.target)
        return {"op": "ok"}

    def inputs(self, message: Message) -> Message:
        """The source's inputs for each seed, else inferred ones, for `export`. Sets of one structure are sent once."""
        sets: list[list[Any]] = []
        note, before = None, self._cached()
        for seed in message["seeds"]:
            own = self._loaded.own_inputs(int(seed))
            if own is None and message["infer"]:
                own, note = self._loaded.inferred_inputs(int(seed)) or (None, None)
            if own is None:
                return {"op": "value", "value": None, "note": None}
            sets.append(own)
        sets = self._retain(sets)
        self._free_drawn(before)
        same_structure = len(set(map(repr, sets))) == 1  # -0.0, 0 and False are equal, but are different arguments.
        return {
            "op": "value",
            "value": sets[0] if same_structure else sets,
            "stacked": same_structure,
            "note": note,
            "drawn_on": self._loaded.drawn_on,
        }

    def state(self, message: Message) -> Message:
        """The weights, and which of them are parameters; retained for `export`."""
        names = list(map(str, self._loaded.parameters()))
        return {"op": "value", "value": self._retain(self._loaded.state()), "parameters": names}

    def differentiable(self, message: Message) -> Message:
        """Calls forward and backward once, and says what has a gradient."""
        self._loaded.resume()
        fields = self._loaded.differentiable(self._placed(message["args"]))
        return {"op": "value", **{name: values.encode(field) for name, field in fields.items()}}

    def export(self, message: Message) -> Message:
        """Copies the retained tensors into the arena where the referee says."""
        refs = values.leaves(values.decode(message["refs"]), TensorRef)
        put(self.retained, self._memory, refs, int(message["count"]), int(message["step"]))
        self._synchronize()
        is_large = self.target.is_cuda and _bytes(self.retained) >= LARGE
        self.retained = []
        if is_large:
            self._free_cached()
        return {"op": "ok"}

    def load_state(self, message: Message) -> Message:
        """Copies weights from the arena into the model, if all of them fit."""
        state = self._placed(message["state"])
        fits = self._loaded.load_state(state) if isinstance(state, dict) else False
        self._synchronize()
        return {"op": "ok", "loaded": fits}

    def attach(self, message: Message) -> Message:
        """Maps another arena instead of the present one; copies retained tensors that are views of the latter."""
        self.retained = outside(self.arena, self.retained)
        self._leave_arena()
        self.arena = attach(int(message["size"]), message["device"], self.channel.descriptor())
        return {"op": "ok"}

    def detach(self, _: Message) -> Message:
        """Unmaps the arena, and frees the memory that libraries have cached."""
        self.retained = outside(self.arena, self.retained)
        self._leave_arena()
        if self.target.is_cuda:
            self._free_cached()
        return {"op": "ok"}

    def attach_gate(self, message: Message) -> Message:
        self.gate = Gate(self.channel.descriptor())
        return {"op": "ok"}

    def probe(self, message: Message) -> Message:
        """Calls until warm, then replies with outputs and rough call times (advisory, to size windows)."""
        args = self._placed(message["args"])
        input_bytes, is_large = _bytes(values.leaves(args, torch.Tensor)), False
        result, elapsed_ms = None, list[float]()
        aliasing = OutputAliasing(self._memory)
        self.keys, self.slots = [], []
        self._loaded.resume()
        for number in range(1, int(message["calls"]) + 1):
            start = record_event(self.target)
            result = self._loaded.call(args)
            elapsed_ms.append(milliseconds(start, record_event(self.target)))
            if result is not None:
                aliasing.note(self._outputs(result, args))
            is_large = input_bytes + aliasing.held_bytes // number >= LARGE
            if is_large and number >= LARGE_CALLS:
                break
        # In turns with others, what a small call allocates may be theirs meanwhile.
        is_large = is_large or bool(message["takes_turns"])
        if self.target.is_cuda and is_large:
            self._free_cached()
        with count_launches(self.target) as count:
            if self.target.is_cuda:
                self._loaded.call(args)
        self._synchronize()
        if self.target.is_cuda and is_large:
            self.large_call = _cached_bytes("large_pool"), _cached_bytes("small_pool")
        self.reuses_memory = aliasing.memory_reused
        outputs = self._outputs(result, args)
        self.views = argument_views(outputs, args)
        return {
            "op": "value",
            "value": self._retain(outputs),
            "views": self.views,
            "form": output_structure.to_wire(result, self.keys),
            "returned": result is not None,
            **aliasing.to_wire(outputs),
            "elapsed_ms": elapsed_ms,
            "launches": count.launches,
            "several_streams": count.several_streams,
            "compiled": list(self._loaded.compiled),
            "not_built": sorted(self._loaded.not_built),
            "graph_breaks": self._loaded.graph_breaks,
            "call_bytes": sum(self.large_call) or None,
        }

    def order(self, message: Message) -> Message:
        """Sets the slots of the outputs in later windows, by the outputs' indexes in the probe's reply."""
        self.slots = list(map(int, message["slots"]))
        return {"op": "ok"}

    def double(self, message: Message) -> Message:
        """Makes one call in float64; the value is None if the kernel has no such form."""
        try:
            result = self._loaded.call_double(self._placed(message["args"]), rounds=bool(message["rounds"]))
            outputs = None if result is None else tensors_of(result, self.target, self.keys)
        except Exception:
            outputs = None
        return {"op": "value", "value": None if outputs is None else self._retain(outputs)}

    def layout(self, message: Message) -> Message:
        """Sets the places of arguments and outputs of the next windows' calls."""
        self.calls = decode_calls(message, self._memory, self.slots)
        return {"op": "ok"}

    def flops(self, message: Message) -> Message:
        """Operations of one call by torch's own counter; None if it cannot count the call."""
        args = self._placed(message["args"])
        try:
            return {"op": "flops", "flops": count_flops(partial(self._loaded.call, args))}
        except Exception:
            return {"op": "flops", "flops": None}

    def profile(self, message: Message) -> Message:
        """Traces what warm calls launch. The profiler may crash the process, so this is the last request to it."""
        return trace_launches(partial(self._loaded.call, self._placed(message["args"])), self.target)

    def inspect(self, message: Message) -> Message:
        """Calls until warm, then once with the profiler on, for a tool started with `--profile-from-start off`."""
        call = partial(self._loaded.call, self._placed(message["args"]))
        for _ in range(int(message["warm_up"])):
            call()
        if not self.target.is_cuda:
            call()
            return {"op": "ok"}
        torch.cuda.synchronize()
        torch.cuda.profiler.start()  # type: ignore[no-untyped-call]
        call()
        torch.cuda.synchronize()
        torch.cuda.profiler.stop()  # type: ignore[no-untyped-call]
        return {"op": "ok"}

    def reserve_call(self, _: Message) -> Message:
        """Caches new device memory for one large call, so that no call allocates on the clock; says whether it could.

        New for each window: a runner that has drawn inputs since then has none left, and equal kernels must not differ
        because one of them makes the inputs.
        """
        self._free_cached()
        large, small = self.large_call
        sizes = [large, *[SMALL] * -(-small // SMALL)]
        try:
            buffers = [torch.empty(size, dtype=torch.uint8, device=self.target.device) for size in sizes]
            buffers.clear()
        except torch.OutOfMemoryError:
            return {"op": "ok", "reserved": False}
        return {"op": "ok", "reserved": True}

    def window(self, message: Message) -> Message:
        window = RunnerWindow(message, self.channel, self.gate, self.target)
        return window.run(
            lambda: self._call_all(with_events=window.with_events, deferred_readback=window.deferred_readback)
        )

    def free_cache(self, _: Message) -> Message:
        """Gives back the device memory that calls leave cached, and the pad before it."""
        self.pad = None
        self._free_cached()
        return {"op": "ok"}

    def shift_allocations(self, message: Message) -> Message:
        """Shifts the kernel's temporary device memory to new addresses, behind a pad, and runs the calls once.

        The allocator reuses these addresses in the next window. A large call gets its memory there, behind the pad.
        """
        self._free_cached()
        self.pad = torch.empty(int(message["bytes"]), dtype=torch.uint8, device=self.target.device)
        if not any(self.large_call):
            self._call_all(with_events=False).copy_outputs()
            self._synchronize()
        return {"op": "ok"}

    def _call_all(self, *, with_events: bool, deferred_readback: bool = False) -> WindowCalls:
        immediate = (self.reuses_memory or not self.target.is_cuda) and not deferred_readback
        outputs = self._detached_outputs if deferred_readback else self._outputs
        return call_all(
            self.calls, self._loaded.call, outputs, self.target, immediate=immediate, with_events=with_events
        )

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
        """A value whose tensors lie in the arena, or copies of them if that is on another device."""
        where = self.target.device
        return values.replace(values.decode(wire), TensorRef, lambda ref: argument(self._memory, ref, where))

    def _outputs(self, result: Any, args: list[Any]) -> list[torch.Tensor]:
        """The output tensors: what the call returned, else the contract's output arguments."""
        if result is None:
            return [args[index] for index in self.output_arguments]
        return tensors_of(result, self.target, self.keys)

    def _detached_outputs(self, result: Any, args: list[Any]) -> list[torch.Tensor]:
        """The output tensors, safe to read after the arguments are overwritten."""
        outputs = self._outputs(result, args)
        # Checks the whole arena first: checking each argument takes microseconds, which may be on the clock.
        return (
            detached_outputs(outputs, args, self.views)
            if any(begins_in(self._memory, each) for each in outputs)
            else outputs
        )

    def _retain(self, value: Any) -> Any:
        """Keeps the value's tensors for `export`; returns its wire form, whose tensors have no offsets yet."""
        wire, self.retained = portable(value, self.target)
        return wire

    def _open_device(self) -> None:
        """Creates the GPU's context, which the driver's calls for arena and gate need; does nothing on the CPU."""
        if self.target.is_cuda:
            torch.empty((), device=self.target.device)

    def _free_drawn(self, before: int) -> None:
        """Gives back what drawing left cached beyond `before`, if that is large: it may take several times what it
        returns.

        What windows left cached stays, because the next window would allocate it again.
        """
        if self._cached() - before >= LARGE:
            self._free_cached()

    def _cached(self) -> int:
        """Device memory in bytes that torch holds for later tensors."""
        return torch.cuda.memory_reserved() - torch.cuda.memory_allocated() if self.target.is_cuda else 0

    def _free_cached(self) -> None:
        """Gives back the device memory that torch caches."""
        before = torch.cuda.memory_reserved()
        torch.cuda.empty_cache()
        self.freed_bytes += before - torch.cuda.memory_reserved()

    def _synchronize(self) -> None:
        if self.target.is_cuda:
            torch.cuda.synchronize()


def _cached_bytes(pool: str) -> int:
    """Device memory that torch caches in that pool of its allocator."""
    figures = torch.cuda.memory_stats()
    return int(figures[f"reserved_bytes.{pool}.current"] - figures[f"allocated_bytes.{pool}.current"])


def _bytes(tensors: list[torch.Tensor]) -> int:
    return sum(tensor.untyped_storage().nbytes() for tensor in tensors)
