"""A conversation with a runner in the referee's terms: typed questions, values in the referee's private memory."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable
from dataclasses import asdict
from typing import Any

import torch

from backends.base import Artifact, Target
from domain import value as values
from domain.dtype import ITEM_BYTES
from domain.fault import KernelFault, OutputFault
from domain.kernel import Kernel
from domain.listing import Form
from domain.result import Status
from domain.value import CodecError, TensorRef
from sandbox.protocol import arena as arenas
from sandbox.protocol.arena import Arena, aligned, view, write
from sandbox.protocol.channel import Message, ProtocolError, finite_numbers
from sandbox.protocol.launch_trace import LaunchTrace, read_trace
from sandbox.protocol.stacked_values import AlikeValues
from sandbox.supervisor.messages import Code, Loaded, Probe, State, code, facts, operations, probe, tensors
from sandbox.supervisor.reported_fault import MAX_LOG, MAX_MESSAGE
from sandbox.supervisor.runner_process import Runner

LAUNCHES_AGREE_MS = 100e-6
"""In one context, alone, tries twice as long have a standard deviation of 5 to 28 ns (docs/measurements.md)."""

FIRST_ARENA = 64 << 20
"""On a device, where each further one costs both sides some milliseconds."""


class Session:
    """One runner and its arena. Every method raises KernelFault when the runner fails, dies or runs out of time.

    `arena_device` is where the arena lies if not on the target's: the runner then has copies of what lies in it.
    """

    def __init__(self, runner: Runner, target: Target, arena_limit: int, arena_device: str | None = None) -> None:
        self.runner = runner
        self.target = target
        self.arena: Arena | None = None
        self._arena_limit = arena_limit
        self._arena_device = arena_device or target.device

    def build(self, kernel: Kernel) -> Artifact:
        """Has the runner compile, with no GPU visible; the runner is good for nothing else afterwards."""
        answer = self.runner.request({"op": "build", **self._assignment(kernel)})
        deferred = answer.get("deferred")
        return Artifact(
            facts=facts(answer.get("facts")),
            deferred=str(deferred)[:MAX_MESSAGE] if deferred is not None else None,
            log=str(answer.get("log") or "")[:MAX_LOG],
        )

    def code(self, forms: Iterable[Form]) -> Code:
        """Has a builder read the code that lies in its folder; by its own word."""
        wanted = [form.value for form in forms]
        return code(self.runner.request({"op": "listings", "forms": wanted, "arch": self.target.arch}))

    def until(self, deadline: float) -> None:
        """The runner is killed at that time (time.monotonic) and no sooner."""
        self.runner.deadline = deadline

    def open_device(self, *, one_queue: bool = False) -> None:
        """Has the runner make its context on the GPU, ahead of any submission; `opened` waits for it.

        With `one_queue` all streams share one: the context is made in half the time, and what waits makes all wait.
        """
        self.runner.send({"op": "open_device", "target": asdict(self.target), "one_queue": one_queue})

    def warm_libraries(self) -> None:
        """Has the runner load what nearly every kernel uses, in the context that it has; `opened` waits for it."""
        self.runner.send({"op": "warm_libraries", "target": asdict(self.target)})

    def opened(self) -> None:
        """Returns when the context is there, or the libraries."""
        self.runner.answer()

    def launch_ms(self) -> float | None:
        """What a launch costs in the runner's context (sandbox.runner.launch_latency), None where it cannot be told.

        Asked before `load`, never after it.
        """
        tries = finite_numbers(self.runner.request({"op": "launches", "target": asdict(self.target)}).get("launch_ms"))
        # Somebody else's work on the device is in none of the tries, or in tries that differ.
        return statistics.median(tries) if tries and max(tries) - min(tries) <= LAUNCHES_AGREE_MS else None

    def load(
        self,
        kernel: Kernel,
        artifact: Artifact,
        init: list[Any] | None,
        seed: int,
        *,
        noise: int | None = None,
        widely: bool = False,
    ) -> Loaded:
        """Makes the kernel callable. With a seed of `noise`, anew and with that on parameters of one value."""
        answer = self.runner.request(
            {
                "op": "load",
                **self._assignment(kernel),
                "artifact": asdict(artifact),
                "init": values.encode(init),
                "seed": seed,
                "noise": noise,
                "widely": widely,
            }
        )
        own = self._decoded(answer.get("init"))
        return Loaded(
            entry=str(answer.get("entry"))[:256],
            init=own if isinstance(own, list) else None,
            facts=facts(answer.get("facts")),
            keeps=answer.get("keeps") is True,
        )

    def load_null(self) -> None:
        """The trusted null kernel in place of a submission."""
        self.runner.request({"op": "load_null", "target": asdict(self.target)})

    def inputs(self, seeds: list[int], *, infer: bool) -> tuple[AlikeValues | list[list[Any]] | None, str | None]:
        """The source's own inputs under each seed, else inferred ones and what was inferred; None if it has none."""
        answer = self.runner.request({"op": "inputs", "seeds": seeds, "infer": infer})
        note = str(answer["note"])[:1024] if answer.get("note") is not None else None
        if answer.get("alike") is True:
            alike = self._fetch_all(answer, len(seeds))
            return (alike, note) if isinstance(alike.form, list) else (None, None)
        made = self._fetch(answer)
        fits = isinstance(made, list) and len(made) == len(seeds) and all(isinstance(one, list) for one in made)
        return (made, note) if fits else (None, None)

    def state(self) -> State:
        """The weights; none for what has none."""
        answer = self.runner.request({"op": "state"})
        state, parameters = self._fetch(answer), answer.get("parameters")
        if not isinstance(state, dict):
            return State({}, frozenset())
        names = parameters if isinstance(parameters, list) else []
        tensors = {name for name, weight in state.items() if isinstance(weight, torch.Tensor)}
        return State(state, frozenset(name for name in names if isinstance(name, str) and name in tensors))

    def load_state(self, state: dict[str, Any]) -> bool:
        """Weights into the model; False where names or shapes differ."""
        answer = self.runner.request({"op": "load_state", "state": values.encode(self.place(state))})
        return answer.get("loaded") is True

    def probe(self, args: list[Any], calls: int) -> Probe:
        """Calls until warm with those arguments."""
        self.start_probe(args, calls)
        return self.probed()

    def start_probe(self, args: list[Any], calls: int) -> None:
        """Has the runner begin; `probed` waits for it. What first calls load, several runners can load at once."""
        self.runner.send({"op": "probe", "args": values.encode(self.place(args)), "calls": calls})

    def probed(self) -> Probe:
        """What the started calls gave."""
        answer = self.runner.answer()
        outputs = tensors(self._fetch(answer))
        if outputs is None:
            raise KernelFault(Status.CRASHED, "the runner's answer has no outputs of their own")
        return probe(answer, outputs)

    def order(self, numbers: list[int]) -> None:
        """Has the outputs of every later window handed in in that order, by their numbers in the probe's answer."""
        slots = {number: slot for slot, number in enumerate(numbers)}
        self.runner.request({"op": "order", "slots": [slots[number] for number in range(len(numbers))]})

    def double(self, args: list[Any]) -> list[torch.Tensor] | None:
        """One call's outputs in float64, on a copy of the model and doubled inputs; None where it cannot be run so."""
        answer = self.runner.request({"op": "double", "args": values.encode(self.place(args))})
        return tensors(self._fetch(answer))

    def flops(self, args: list[Any]) -> dict[str, float] | None:
        """The operations of one call by the dtype they are done in, as the runner counts; None where it cannot."""
        return operations(self.runner.request({"op": "flops", "args": values.encode(self.place(args))}))

    def profile(self, args: list[Any]) -> LaunchTrace:
        """What warm calls launch, by the runner's own word. It may not survive this: ask it for nothing afterwards."""
        answer = self.runner.request({"op": "profile", "args": values.encode(self.place(args))})
        try:
            return read_trace(answer, is_cuda=self.target.is_cuda)
        except ProtocolError as error:
            raise KernelFault(Status.CRASHED, f"the runner's answer is no trace: {error}") from error

    def inspect(self, args: list[Any], warm_up: int) -> None:
        """Calls until warm, then one call for the tool that the runner was started beneath."""
        self.runner.request({"op": "inspect", "args": values.encode(self.place(args)), "warm_up": warm_up})

    def relocate(self, size: int) -> None:
        """Has what the calls of the layout keep on the device lie elsewhere, behind a pad of that many bytes."""
        self.runner.request({"op": "relocate", "bytes": size})

    def reserve(self, size: int) -> Arena:
        """An arena of at least that many bytes, known to the runner; what was in the previous one is gone."""
        self._admit(size)
        if self.arena is None or self.arena.bytes.numel() < size:
            if self._arena_device != "cpu":
                size = max(size, min(FIRST_ARENA, self._arena_limit))
            self.release()
            self.arena = arenas.create(size, self._arena_device)
            self.runner.lend(self.arena.descriptor)
            told = {"op": "attach", "size": size, "device": self._arena_device}
            self.runner.request(told, (self.arena.descriptor,))
        return self.arena

    def place(self, value: Any) -> Any:
        """Copies a value's tensors into the arena; the same value with references in their place."""
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
        """Has the runner give the arena back too; it lives on without one."""
        if self.arena is not None:
            self.runner.request({"op": "detach"})
            self.release()

    def release(self) -> None:
        """Gives the arena back."""
        if self.arena is not None:
            self.arena.close()
            self.arena = None

    def stop(self) -> None:
        """Has the system end the runner, without waiting for it."""
        self.runner.stop()

    def close(self) -> None:
        """Ends the runner and gives the arena back."""
        self.runner.close()
        self.release()

    def _fetch(self, answer: Message) -> Any:
        """A value that the runner retains, copied by way of the arena into private memory."""
        return next(iter(self._fetch_all(answer, 1)))

    def _fetch_all(self, answer: Message, count: int) -> AlikeValues:
        """So many values of one form, of which the answer has the first."""
        tree = self._decoded(answer.get("value"), count)
        end = 0

        def put(ref: TensorRef) -> TensorRef:
            nonlocal end
            placed = ref.at(end)
            end = aligned(end + ref.span)
            return placed

        tree = values.replace(tree, TensorRef, put)
        refs = values.leaves(tree, TensorRef)
        if not refs:
            return AlikeValues(tree, [], count)
        # By elements, not by bytes: an expanded tensor has many in little memory, and is looked at one by one.
        self._admit(count * sum(math.prod(ref.shape) * ITEM_BYTES[ref.dtype] for ref in refs))
        size = count * end
        arena = self.reserve(size)
        self.runner.request({"op": "export", "refs": values.encode(refs), "count": count, "step": end})
        private = arena.bytes[:size].clone()
        self.synchronize()
        return AlikeValues(tree, [view(private, ref.times(count, end)) for ref in refs], count)

    def _admit(self, size: int) -> None:
        if size > self._arena_limit:
            allowed = f"this worker allows {self._arena_limit >> 20} MiB a job"
            raise KernelFault(Status.OUT_OF_MEMORY, f"inputs and outputs take {size >> 20} MiB; {allowed}")

    def _assignment(self, kernel: Kernel) -> Message:
        return {"kernel": kernel.to_wire(), "target": asdict(self.target)}

    def _decoded(self, wire: Any, copies: int = 1) -> Any:
        try:
            return values.decode(wire, copies)
        except CodecError as error:
            raise OutputFault(f"a value of the kernel cannot cross to the referee: {error}") from error
