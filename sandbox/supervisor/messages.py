"""Parses a runner's replies: typed, bounded, and trusted no further than necessary."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from backends.base import ReferenceArguments
from backends.code_listings import MAX_CHARS, MAX_CODES, CodeText, MissingText
from domain import value as values
from domain.fault import KernelFault
from domain.gradients import MOST_SCALE, GradientPlan
from domain.inputs import DrawOn
from domain.listing import Form
from domain.result import Status
from domain.value import MAX_BYTES, CodecError, TensorRef
from sandbox.protocol import output_structure
from sandbox.protocol.arena import describe, without_contents
from sandbox.protocol.channel import byte_count, finite_numbers
from sandbox.protocol.output_structure import OutputStructure
from sandbox.protocol.outputs import repeats

MAX_FACTS = 64
MAX_FLOPS = 10**21
"""Maximum operations of a call: one second of a thousand cards."""
MAX_LAUNCHES = 10**6
MAX_NAME = 64
MAX_FACT_CHARS = 2048
MAX_EXAMPLE_CHARS = 1 << 16
"""Maximum size of a reference's arguments as JSON, in characters: a builder of a candidate gets them."""
MAX_FACTS_CHARS = 1 << 20
"""Maximum size of all facts as JSON, in characters: they are sent to the runner and stored with the result."""


@dataclass(frozen=True)
class Loaded:
    """The runner's report of a loaded kernel: name of its entry, what a candidate gets of it, static facts.

    `left_state`: whether an earlier load left state that this one finds, if the kernel was loaded before.
    `constructed_on`: where the constructor made its tensors; None without a constructor. `has_inputs`: whether the
    source makes inputs itself.
    """

    entry: str
    arguments: ReferenceArguments
    facts: dict[str, Any]
    left_state: bool = False
    constructed_on: DrawOn | None = None
    has_inputs: bool = False


@dataclass(frozen=True)
class ModelState:
    """A model's weights by name, buffers included, and the names of those that are parameters."""

    weights: dict[str, Any]
    parameters: frozenset[str]


JOINED = 3
"""Queue entries of a launch among streams that wait for each other: it records an event and waits for another."""
COPIED_TOGETHER, CHUNK, CHUNKS = 48, 1 << 16, 320
"""Maximum tensors in one batched copy, elements in a chunk, and chunks (torch's ATen/native/cuda/MultiTensorApply.cuh).
"""


@dataclass(frozen=True)
class Probe:
    """Results of warm calls: private copies of the outputs, whether the call returned them, and its rough time.

    - `reuses_memory`: later calls write where earlier ones did, so the referee fetches outputs before the next call.
    - `launches`: launches of a call by the runner's count; None if unknown.
    - `views`: for each output its place in an argument; None if it has memory of its own.
    - `several_streams`: whether a call uses several streams, by the runner's report.
    - `compiled`: names of the extensions that the runner compiled since it was asked to load the kernel.
    - `not_built`: names of the extensions whose build failed there, without ending the kernel.
    - `form`: structure of the returned output; None if unknown.
    - `graph_breaks`: how often the calls left what torch.compile compiled; None without torch.compile.
    - `first_call_differs`: whether the first call's output differs from the last one's; None if unknown.
    - `call_bytes`: device memory in bytes that a large call allocates; None if unknown.
    """

    outputs: list[torch.Tensor]
    returned: bool
    estimate_ms: float
    reuses_memory: bool = False
    launches: int | None = None
    views: tuple[ArgumentView | None, ...] = ()
    several_streams: bool = False
    compiled: tuple[str, ...] = ()
    form: OutputStructure | None = None
    first_call_differs: bool | None = None
    graph_breaks: int | None = None
    call_bytes: int | None = None
    not_built: tuple[str, ...] = ()

    def ordered(self, order: Sequence[int]) -> Probe:
        """The same probe with its outputs in the order in which later windows return them; its structure is dropped."""
        outputs = [self.outputs[number] for number in order]
        return replace(self, outputs=outputs, views=tuple(self.views[number] for number in order), form=None)

    def without_contents(self) -> Probe:
        """The same probe with outputs that have no memory."""
        return replace(self, outputs=[without_contents(output) for output in self.outputs])

    @property
    def one_stream(self) -> bool:
        """Whether a call is known to use at most one stream."""
        return self.launches is not None and not self.several_streams

    @property
    def entries(self) -> float | None:
        """Approximate entries in the device's launch queue for a call and the copies of its output; None if unknown."""
        if self.launches is None:
            return None
        each = JOINED if self.several_streams else 1
        return each * max(self.launches, 1) + (self._copies if self.returned else 0.0)

    @property
    def _copies(self) -> float:
        """Launches that copy the output; a small output takes a fraction of a batched one (`copy_all`)."""
        together = len({output.dtype for output in self.outputs}) == 1 and all(map(_is_dense, self.outputs))
        return sum(map(_part, self.outputs)) if together and not self.reuses_memory else len(self.outputs)


@dataclass(frozen=True)
class ArgumentView:
    """An output that lies in an argument: the argument's index among a call's tensors, and its layout there."""

    leaf: int
    form: TensorRef


@dataclass(frozen=True)
class CodeListing:
    """Compiled code in a folder: texts, reasons for missing ones, and the data that Triton's kernels need."""

    texts: list[CodeText | MissingText]
    kernels: list[dict[str, Any]]


def _part(output: torch.Tensor) -> float:
    """The fraction of a batched launch that copying it takes."""
    return max(1 / COPIED_TOGETHER, math.ceil(output.numel() / CHUNK) / CHUNKS)


def _is_dense(output: torch.Tensor) -> bool:
    """Whether its elements are adjacent in memory, in any order."""
    return describe(output).span == output.numel() * output.element_size()


def parse_probe(reply: dict[str, Any], outputs: list[torch.Tensor]) -> Probe:
    """Parses the reply of warm calls, whose outputs were fetched before."""
    return Probe(
        outputs,
        reply.get("returned") is True,
        max(min(finite_numbers(reply.get("elapsed_ms")), default=0.0), 0.0),
        reply.get("reuses_memory") is True,
        parse_launches(reply.get("launches")),
        parse_views(reply.get("views"), outputs),
        reply.get("several_streams") is True,
        _names(reply.get("compiled")),
        output_structure.parse(reply.get("form"), len(outputs)),
        differs if isinstance(differs := reply.get("first_call_differs"), bool) else None,
        parse_launches(reply.get("graph_breaks")),
        byte_count(reply.get("call_bytes")),
        _names(reply.get("not_built")),
    )


def _names(value: Any) -> tuple[str, ...]:
    return tuple(" ".join(str(name).split())[:MAX_NAME] for name in _list(value)[:MAX_FACTS])


def parse_tensors(value: Any) -> list[torch.Tensor] | None:
    """A list of tensors; None for anything else that a runner may send.

    None also for tensors whose elements share memory. Our own code sends none, and writing to one fails.
    """
    if not isinstance(value, list) or not all(isinstance(one, torch.Tensor) and not repeats(one) for one in value):
        return None
    return value


def parse_views(wire: Any, outputs: list[torch.Tensor]) -> tuple[ArgumentView | None, ...]:
    """One entry for each output; None where the runner reports no valid view."""
    views_wire = wire if isinstance(wire, list) and len(wire) == len(outputs) else [None] * len(outputs)
    return tuple(_view(each, output) for each, output in zip(views_wire, outputs, strict=True))


def _view(wire: Any, output: torch.Tensor) -> ArgumentView | None:
    if not isinstance(wire, list) or len(wire) != 2 + output.dim():
        return None
    if not all(type(number) is int and 0 <= number < MAX_BYTES for number in wire):
        return None
    leaf, offset, *strides = wire
    dtype = str(output.dtype).removeprefix("torch.")
    return ArgumentView(leaf, TensorRef(dtype, tuple(output.shape), tuple(strides), offset))


def parse_draw_on(wire: Any) -> DrawOn | None:
    """Where a source made its tensors, by its runner's word; None if that is malformed."""
    return DrawOn(wire) if isinstance(wire, str) and wire in list(DrawOn) else None


def parse_plan(fields: dict[str, Any]) -> GradientPlan:
    """The gradients that a reference has, by its runner's word; raises KernelFault if it sends no such thing."""
    inputs, parameters, outputs, cotangents = map(_list, (fields[name] for name in fields if name != "scale"))
    scale = fields["scale"]
    numbers = all(type(number) is int and 0 <= number < values.MAX_NODES for number in [*inputs, *outputs])
    names = all(isinstance(name, str) for name in parameters)
    refs = len(cotangents) == len(outputs) and all(isinstance(ref, TensorRef) for ref in cotangents)
    if not (numbers and names and refs and outputs and isinstance(scale, float) and 1 <= scale <= MOST_SCALE):
        raise KernelFault(Status.CRASHED, "the runner's reply names no valid gradients")
    return GradientPlan(tuple(inputs), tuple(parameters), tuple(outputs), tuple(cotangents), scale)


def parse_launches(wire: Any) -> int | None:
    """The number of launches of a call; None if it is malformed."""
    return wire if type(wire) is int and 0 <= wire <= MAX_LAUNCHES else None


def parse_code(reply: dict[str, Any]) -> CodeListing:
    """Parses a listing of code and drops malformed parts."""
    most = MAX_CODES * len(Form)
    listings, lacking = (
        [one for one in _list(reply.get(key))[:most] if _is_of_code(one)] for key in ("found", "lacking")
    )
    texts = [
        CodeText(
            one["kernel"],
            Form(one["form"]),
            one["text"][:MAX_CHARS],
            truncated=one.get("truncated") is True or len(one["text"]) > MAX_CHARS,
            variant=_text(one["variant"]) if one.get("variant") is not None else None,
        )
        for one in listings
        if isinstance(one.get("text"), str)
    ]
    reasons = [MissingText(one["kernel"], Form(one["form"]), _text(one.get("reason"))) for one in lacking]
    kernels = [_group(one) for one in _list(reply.get("kernels"))[:MAX_CODES] if isinstance(one, dict)]
    return CodeListing([*texts, *reasons], kernels)


def _list(wire: Any) -> list[Any]:
    return wire if isinstance(wire, list) else []


def _is_of_code(wire: Any) -> bool:
    return isinstance(wire, dict) and isinstance(wire.get("kernel"), str) and wire.get("form") in list(Form)


def parse_facts(wire: Any) -> dict[str, Any]:
    """Static facts from the runner, for a human reader: bounded, plain and finite."""
    if not isinstance(wire, dict):
        return {}
    plain_facts: dict[str, Any] = {}
    left = MAX_FACTS_CHARS
    for key, value in list(wire.items())[:MAX_FACTS]:
        fact = _fact(value)
        left -= len(json.dumps(fact))
        if left < 0:
            break
        plain_facts[str(key)[:64]] = fact
    return plain_facts


def parse_example(wire: Any) -> Any:
    """A builder's example of inputs, which only another builder reads; None unless it is small and valid."""
    try:
        values.decode(wire)
        return wire if len(json.dumps(wire)) <= MAX_EXAMPLE_CHARS else None
    except CodecError:
        return None


def _fact(value: Any) -> Any:
    """A plain value, a group of plain values and lists of texts, or a list of either."""
    match value:
        case dict() if len(value) <= MAX_FACTS:
            return _group(value)
        case list() if len(value) <= MAX_FACTS:
            return [_group(item) if isinstance(item, dict) else _text(item) for item in value]
    return _plain(value)


def _group(wire: dict[Any, Any]) -> dict[str, Any]:
    return {
        str(key)[:64]: [_text(item) for item in value[:MAX_FACTS]] if isinstance(value, list) else _plain(value)
        for key, value in list(wire.items())[:MAX_FACTS]
    }


def _plain(value: Any) -> Any:
    match value:
        case None | bool():
            return value
        case int() if -(2**63) <= value < 2**64:
            return value
        case float() if math.isfinite(value):
            return value
    return _text(value)


def _text(value: Any) -> str:
    return str(value)[:MAX_FACT_CHARS]


def parse_operations(reply: dict[str, Any]) -> dict[str, float] | None:
    """Operations of a call by dtype; None if the reply has no plausible ones."""
    counts = reply.get("flops")
    if not isinstance(counts, dict) or len(counts) > MAX_FACTS:
        return None
    if not all(type(count) is int and 0 <= count < MAX_FLOPS for count in counts.values()):
        return None
    return {dtype[:64]: float(count) for dtype, count in counts.items()}
