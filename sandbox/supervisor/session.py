"""The referee's side of a runner: typed requests, and results copied into the referee's private memory."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable
from dataclasses import asdict, replace
from typing import Any

import torch

from backends.base import ALONE, Artifact, ReferenceArguments, Target, Task
from backends.source import init_args
from domain import value as values
from domain.cases.case import Case, CaseError, CaseSource, parse_cases
from domain.dtype import ITEM_BYTES
from domain.fault import KernelFault, OutputFault
from domain.gradients import GradientPlan
from domain.inputs import DrawOn
from domain.kernel import Kernel
from domain.listing import Form
from domain.result import Status
from domain.value import CodecError, TensorRef
from sandbox.protocol import arena as arenas
from sandbox.protocol.arena import Arena, aligned, comparable, view, write
from sandbox.protocol.channel import Message, ProtocolError, finite_numbers
from sandbox.protocol.launch_trace import LaunchTrace, parse_trace
from sandbox.protocol.stacked_values import StackedValues
from sandbox.supervisor.arena_eviction import ArenaEviction
from sandbox.supervisor.messages import (
    CodeListing,
    Loaded,
    ModelState,
    Probe,
    parse_code,
    parse_draw_on,
    parse_example,
    parse_facts,
    parse_operations,
    parse_plan,
    parse_probe,
    parse_tensors,
)
from sandbox.supervisor.reported_fault import MAX_LOG, MAX_MESSAGE
from sandbox.supervisor.runner_process import RunnerProcess

LAUNCHES_AGREE_MS = 100e-6
"""Maximum difference of tries, in ms: undisturbed tries twice as long vary by 5 to 28 ns (docs/measurements.md)."""

MAX_LEFTOVER = 256
"""Maximum characters of the name of what a submission left in its runner."""
FIRST_ARENA = 64 << 20
"""Minimum size of an arena on a device, in bytes: each further arena costs both sides some milliseconds."""


class Session:
    """One runner and its arena. Every method raises KernelFault if the runner fails, dies or misses its deadline.

    `arena_device` is the arena's device if that is not the target's; the runner then works on copies.
    """

    def __init__(
        self, runner: RunnerProcess, target: Target, arena_limit: int, arena_device: str | None = None
    ) -> None:
        self.runner = runner
        self.target = target
        self.arena: Arena | None = None
        self.call_bytes: int | None = None
        """Device memory in bytes that a call allocates, if it is large or the session takes turns with others; None if
        unknown. By the runner's word."""
        self._eviction: ArenaEviction | None = None
        self.drawn_on: DrawOn | None = None
        """Where the source made the last inputs, by its runner's word; None if unknown."""
        self._arena_limit = arena_limit
        self._arena_device = arena_device or target.device

    def build(self, kernel: Kernel, task: Task = ALONE) -> Artifact:
        """Has the runner compile without a visible GPU. The runner can do nothing else afterwards."""
        reply = self.runner.request({"op": "build", "task": asdict(task), **self._assignment(kernel)})
        deferred = reply.get("deferred")
        return Artifact(
            facts=parse_facts(reply.get("facts")),
            deferred=str(deferred)[:MAX_MESSAGE] if deferred is not None else None,
            log=str(reply.get("log") or "")[:MAX_LOG],
            example=parse_example(reply.get("example")),
        )

    def code(self, forms: Iterable[Form]) -> CodeListing:
        """Has a builder list the code in its folder; the content is untrusted."""
        names = [form.value for form in forms]
        return parse_code(self.runner.request({"op": "listings", "forms": names, "arch": self.target.arch}))

    def set_deadline(self, deadline: float) -> None:
        """Sets the time at which the runner is killed (time.monotonic)."""
        self.runner.deadline = deadline

    def open_device(self, *, one_queue: bool = False) -> None:
        """Has the runner create its context on the GPU, before any submission; `wait_until_open` waits for it.

        With `one_queue` all streams share a hardware queue. The context opens in half the time, but a waiting stream
        blocks all others.
        """
        self.runner.send({"op": "open_device", "target": self.target.to_wire(), "one_queue": one_queue})

    def warm_libraries(self) -> None:
        """Has the runner load what nearly every kernel uses, in its context; `wait_until_open` waits for it."""
        self.runner.send({"op": "warm_libraries", "target": self.target.to_wire()})

    def wait_until_open(self) -> None:
        """Waits for the context, or for the libraries."""
        self.runner.receive()

    def launch_ms(self) -> float | None:
        """Cost of a launch in the runner's context (sandbox.runner.launch_latency), in ms; None if the tries disagree.

        Call it before `load`, never after.
        """
        tries = finite_numbers(
            self.runner.request({"op": "launches", "target": self.target.to_wire()}).get("launch_ms")
        )
        # Other work on the device slows tries differently, and that shows.
        return statistics.median(tries) if tries and max(tries) - min(tries) <= LAUNCHES_AGREE_MS else None

    def load(
        self,
        kernel: Kernel,
        artifact: Artifact,
        borrowed: ReferenceArguments | None,
        seed: int,
        *,
        noise: int | None = None,
        all_constants: bool = False,
        draw_on: DrawOn | None = None,
        may_stay: bool = False,
    ) -> Loaded:
        """Has the runner load the kernel. A seed as `noise` adds noise to parameters whose elements are all equal.

        `borrowed` are the reference's arguments, for a candidate. `draw_on` is where the source makes its tensors, here
        and in `inputs`; None: as the target says. With `may_stay` the runner notes its state first, so that `unload`
        can tell what is left of the kernel.
        """
        target = self.target if draw_on is None else replace(self.target, draw_on=draw_on)
        reply = self.runner.request(
            {
                "op": "load",
                **self._assignment(kernel),
                "target": target.to_wire(),
                "artifact": asdict(artifact),
                "borrowed": None if borrowed is None else init_args.to_wire(borrowed),
                "seed": seed,
                "noise": noise,
                "all_constants": all_constants,
                "may_stay": may_stay,
            }
        )
        return Loaded(
            entry=str(reply.get("entry"))[:256],
            arguments=init_args.from_wire(self._decoded(reply.get("arguments"))),
            facts=parse_facts(reply.get("facts")),
            left_state=reply.get("left_state") is True,
            constructed_on=parse_draw_on(reply.get("constructed_on")),
            has_inputs=reply.get("has_inputs") is True,
        )

    def cases(self) -> list[Case] | None:
        """The source's own cases; None if it defines none."""
        reply = self.runner.request({"op": "cases"})
        if (wire := reply.get("cases")) is None:
            return None
        yields = reply.get("source") == CaseSource.GET_INPUTS
        source = CaseSource.GET_INPUTS if yields else CaseSource.GET_CASES
        try:
            return [replace(case, index=index, source=source) for index, case in enumerate(parse_cases(wire))]
        except CaseError as error:
            at = "".join(f"[{step!r}]" for step in error.path)
            raise KernelFault(Status.RUNTIME_ERROR, f"{source}(){at}: {error}", compiled=True) from error

    def use_case(self, kernel: Kernel) -> None:
        """Has the runner make the inputs of that kernel's case, and call it by its contract."""
        self.runner.request({"op": "use_case", "kernel": replace(kernel, source_code="").to_wire()})

    def unload(self) -> list[str]:
        """Has the runner drop its kernel, so that it can load another one; names what is left in it, by its word."""
        self.detach()
        self._eviction = self.drawn_on = self.call_bytes = None
        left = self.runner.request({"op": "unload"}).get("leftovers")
        self.runner.end_submission()
        return [str(name)[:MAX_LEFTOVER] for name in left] if isinstance(left, list) else ["an unknown state"]

    def load_null(self) -> None:
        """Loads the trusted null kernel in place of a submission."""
        self.runner.request({"op": "load_null", "target": self.target.to_wire()})
        self.call_bytes = 0

    def inputs(self, seeds: list[int], *, infer: bool) -> tuple[StackedValues | list[list[Any]] | None, str | None]:
        """The source's own inputs for each seed, else inferred ones and a note about them; None if it has none."""
        reply = self.runner.request({"op": "inputs", "seeds": seeds, "infer": infer})
        note = str(reply["note"])[:1024] if reply.get("note") is not None else None
        self.drawn_on = parse_draw_on(reply.get("drawn_on"))
        if reply.get("stacked") is True:
            stacked = self._fetch_all(reply, len(seeds))
            return (stacked, note) if isinstance(stacked.form, list) else (None, None)
        sets = self._fetch(reply)
        fits = isinstance(sets, list) and len(sets) == len(seeds) and all(isinstance(one, list) for one in sets)
        return (sets, note) if fits else (None, None)

    def state(self) -> ModelState:
        """The model's weights; empty for a kernel without any."""
        reply = self.runner.request({"op": "state"})
        state, parameters = self._fetch(reply), reply.get("parameters")
        if not isinstance(state, dict):
            return ModelState({}, frozenset())
        names = parameters if isinstance(parameters, list) else []
        tensors = {name for name, weight in state.items() if isinstance(weight, torch.Tensor)}
        return ModelState(state, frozenset(name for name in names if isinstance(name, str) and name in tensors))

    def load_state(self, state: dict[str, Any]) -> bool:
        """Loads weights into the model; False if names or shapes differ."""
        reply = self.runner.request({"op": "load_state", "state": values.encode(self.place(state))})
        return reply.get("loaded") is True

    def differentiable(self, args: list[Any]) -> GradientPlan:
        """The gradients that a call's backward gives."""
        reply = self.runner.request({"op": "differentiable", "args": values.encode(self.place(args))})
        fields = ("inputs", "parameters", "outputs", "cotangents", "scale")
        return parse_plan({name: self._decoded(reply.get(name)) for name in fields})

    def probe(self, args: list[Any], calls: int) -> Probe:
        """Calls until warm with those arguments."""
        self.start_probe(args, calls)
        return self.finish_probe()

    def start_probe(self, args: list[Any], calls: int) -> None:
        """Has the runner begin; `finish_probe` waits for it. Several runners can so load libraries at once."""
        message = {"op": "probe", "args": values.encode(self.place(args)), "calls": calls}
        self.runner.send({**message, "takes_turns": self._eviction is not None})

    def finish_probe(self) -> Probe:
        """Waits for the calls that `start_probe` began."""
        reply = self.runner.receive()
        outputs = parse_tensors(self._fetch(reply))
        if outputs is None:
            raise KernelFault(Status.CRASHED, "the runner's reply has no valid outputs")
        probe = parse_probe(reply, outputs)
        self.call_bytes = probe.call_bytes
        return probe

    def order(self, numbers: list[int]) -> None:
        """Has later windows return outputs in that order, given by the outputs' indexes in the probe's reply."""
        slots = {number: slot for slot, number in enumerate(numbers)}
        self.runner.request({"op": "order", "slots": [slots[number] for number in range(len(numbers))]})

    def double(self, args: list[Any], *, rounds: bool = False) -> list[torch.Tensor] | None:
        """One call's outputs in float64, on a copy of the model and converted inputs; None if that cannot run.

        `rounds`: the source's casts to bfloat16 and float16 round.
        """
        reply = self.runner.request({"op": "double", "args": values.encode(self.place(args)), "rounds": rounds})
        tensors = parse_tensors(self._fetch(reply))
        return None if tensors is None else list(map(comparable, tensors))

    def flops(self, args: list[Any]) -> dict[str, float] | None:
        """Operations of one call by dtype, as the runner counts them; None if it cannot."""
        return parse_operations(self.runner.request({"op": "flops", "args": values.encode(self.place(args))}))

    def profile(self, args: list[Any]) -> LaunchTrace:
        """Traces what warm calls launch, as the runner reports it. Send it nothing afterwards: it may crash."""
        reply = self.runner.request({"op": "profile", "args": values.encode(self.place(args))})
        try:
            return parse_trace(reply, is_cuda=self.target.is_cuda)
        except ProtocolError as error:
            raise KernelFault(Status.CRASHED, f"the runner's reply is no valid trace: {error}") from error

    def inspect(self, args: list[Any], warm_up: int) -> None:
        """Calls until warm, then once for the tool above the runner."""
        self.runner.request({"op": "inspect", "args": values.encode(self.place(args)), "warm_up": warm_up})

    def free_cache(self) -> None:
        """Has the runner give back the device memory that its calls keep."""
        self.runner.request({"op": "free_cache"})

    def shift_allocations(self, size: int) -> None:
        """Has the runner move the device memory that its calls keep, behind a pad of `size` bytes."""
        self.runner.request({"op": "shift_allocations", "bytes": size})

    def take_freed(self) -> list[tuple[float, int]]:
        """When (time.monotonic) the runner freed how many bytes of device memory since this was last asked, by its
        word."""
        freed, self.runner.freed = self.runner.freed, []
        return freed

    def reserve(self, size: int) -> Arena:
        """An arena of at least `size` bytes that the runner has mapped; the content of the previous one is gone."""
        self._admit(size)
        if self._eviction is not None:
            fits = self.arena is not None and self.arena.bytes.numel() >= size
            if not fits:  # Before the new arena is made: the runner keeps the old one mapped until it gets that.
                self.detach()
            self._eviction.make_room(self, 0 if fits else size)
        if self.arena is None or self.arena.bytes.numel() < size:
            if self._arena_device != "cpu":
                size = max(size, min(FIRST_ARENA, self._arena_limit))
            self.release()
            self.arena = arenas.create(size, self._arena_device)
            self.runner.exempt(self.arena.descriptor)
            message = {"op": "attach", "size": size, "device": self._arena_device}
            self.runner.request(message, (self.arena.descriptor,))
        return self.arena

    def place(self, value: Any) -> Any:
        """Copies a value's tensors into the arena; returns the value with TensorRefs in their place."""
        placed: list[tuple[torch.Tensor, TensorRef]] = []
        end = 0

        def put(tensor: torch.Tensor) -> TensorRef:
            nonlocal end
            ref = arenas.describe(tensor, end)
            end = aligned(end + ref.span)
            placed.append((tensor, ref))
            return ref

        tree = values.replace(value, torch.Tensor, put)
        memory = self.reserve(end).bytes
        for tensor, ref in placed:
            write(view(memory, ref), tensor)
        self.synchronize()
        return tree

    def synchronize(self) -> None:
        """Waits for the referee's own work on the device."""
        if self.target.is_cuda:
            torch.cuda.synchronize()

    def detach(self) -> None:
        """Has the runner unmap the arena and free cached device memory; the session continues without an arena."""
        if self.arena is not None:
            self.runner.request({"op": "detach"})
            self.release()

    def evict_by(self, eviction: ArenaEviction | None) -> None:
        """From now on the session may lose its arena to others; with None, it has one for as long as it lives."""
        self._eviction = eviction
        if eviction is not None and self.arena is not None:
            eviction.make_room(self, 0)

    def reserve_call(self) -> None:
        """Has the runner allocate what a large call takes, off the clock. While it cannot, others give way."""
        while self.call_bytes and self.runner.request({"op": "reserve_call"}).get("reserved") is not True:
            if self._eviction is None:
                return
            if not self._eviction.evict_next(but=self):
                self._eviction.shortages += 1  # Its call allocates on the clock, or does with less.
                return

    def evict_others(self) -> None:
        """Has all others give up their arenas, because the referee itself lacks memory for this session's window."""
        while self._eviction is not None and self._eviction.evict_next(but=self):
            pass

    def give_up_arena(self) -> None:
        """Gives up the arena if others may need it; the runner has to run for that."""
        if self._eviction is not None:
            self._eviction.evict(self)

    def release(self) -> None:
        if self.arena is not None:
            self.arena.close()
            self.arena = None

    def stop(self) -> None:
        """Kills the runner without waiting for it."""
        self.runner.stop()

    def close(self) -> None:
        """Kills the runner and closes the arena."""
        self.runner.close()
        self.release()

    def _fetch(self, reply: Message) -> Any:
        """Copies a value that the runner retains, through the arena, into private memory."""
        return next(iter(self._fetch_all(reply, 1)))

    def _fetch_all(self, reply: Message, count: int) -> StackedValues:
        """`count` values of one structure; the reply describes the first."""
        tree = self._decoded(reply.get("value"), count)
        end = 0

        def put(ref: TensorRef) -> TensorRef:
            nonlocal end
            placed = ref.at(end)
            end = aligned(end + ref.span)
            return placed

        tree = values.replace(tree, TensorRef, put)
        refs = values.leaves(tree, TensorRef)
        if not refs:
            return StackedValues(tree, [], count)
        # By elements, not bytes: an expanded tensor has many elements in little memory, and each one is compared.
        self._admit(count * sum(math.prod(ref.shape) * ITEM_BYTES[ref.dtype] for ref in refs))
        size = count * end
        arena = self.reserve(size)
        self.runner.request({"op": "export", "refs": values.encode(refs), "count": count, "step": end})
        private = arena.bytes[:size].clone()
        self.synchronize()
        return StackedValues(tree, [view(private, ref.times(count, end)) for ref in refs], count)

    def _admit(self, size: int) -> None:
        if size > self._arena_limit:
            allowed = f"this worker allows {self._arena_limit >> 20} MiB a job"
            raise KernelFault(Status.OUT_OF_MEMORY, f"inputs and outputs take {size >> 20} MiB; {allowed}")

    def _assignment(self, kernel: Kernel) -> Message:
        return {"kernel": kernel.to_wire(), "target": self.target.to_wire()}

    def _decoded(self, wire: Any, copies: int = 1) -> Any:
        try:
            return values.decode(wire, copies)
        except CodecError as error:
            raise OutputFault(f"a value of the kernel cannot cross to the referee: {error}") from error
