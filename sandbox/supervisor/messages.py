"""What a runner answers, in the referee's terms: typed, bounded, and believed no further than it has to be."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from backends.code_listings import MAX_CHARS, MAX_CODES, CodeText, MissingText
from domain.listing import Form
from domain.value import MAX_BYTES, TensorRef
from sandbox.protocol import output_structure
from sandbox.protocol.arena import describe
from sandbox.protocol.channel import finite_numbers
from sandbox.protocol.output_structure import AnswerForm
from sandbox.protocol.outputs import repeats

MAX_FACTS = 64
MAX_FLOPS = 10**21
"""A second of a thousand cards."""
MAX_LAUNCHES = 10**6
MAX_NAME = 64
MAX_FACT_CHARS = 2048
MAX_FACTS_CHARS = 1 << 20
"""Of all facts as JSON: they are sent on to the runner, and kept with the result."""


@dataclass(frozen=True)
class Loaded:
    """What the runner says of a loaded kernel: the entry by name, its own constructor arguments, static facts.

    `keeps` where it is loaded anew: whether the load before has left what this one finds.
    """

    entry: str
    init: list[Any] | None
    facts: dict[str, Any]
    keeps: bool = False


@dataclass(frozen=True)
class State:
    """A model's weights by name (buffers too), and the names of those that are parameters."""

    weights: dict[str, Any]
    parameters: frozenset[str]


JOINED = 3
"""Entries for a launch among streams that wait for each other: an event is recorded, and another waited for."""
COPIED_TOGETHER, CHUNK, CHUNKS = 48, 1 << 16, 320
"""Of one launch that copies many tensors: so many of them at most, of so many elements as a chunk, so many of these
(torch's ATen/native/cuda/MultiTensorApply.cuh)."""


@dataclass(frozen=True)
class Probe:
    """What a warm call gave: its outputs (private copies), whether they were returned, and about how long it took.

    `reuses_memory`: a later call answered where an earlier one had; each answer is then fetched before the next call.
    `launches`: of a call, by the runner's count; None where that is not known.
    `views`: for each output where in the arguments it lies; None for one that has memory of its own.
    `several_streams`: whether a call works on more than one, by the runner's word.
    `compiled`: the extensions that it had to compile since it was asked to load the kernel, by name.
    `form`: of the answer that it returned; None where that is not known.
    `first_differs`: whether the first call answered otherwise than the last, by its own word; None: not known.
    """

    outputs: list[torch.Tensor]
    returned: bool
    estimate_ms: float
    reuses_memory: bool = False
    launches: int | None = None
    views: tuple[ArgumentView | None, ...] = ()
    several_streams: bool = False
    compiled: tuple[str, ...] = ()
    form: AnswerForm | None = None
    first_differs: bool | None = None

    def ordered(self, order: Sequence[int]) -> Probe:
        """The same with its outputs in that order, in which they are handed in from now on; of no form any more."""
        outputs = [self.outputs[number] for number in order]
        return replace(self, outputs=outputs, views=tuple(self.views[number] for number in order), form=None)

    @property
    def one_stream(self) -> bool:
        """Whether a call is known to work on no more than one."""
        return self.launches is not None and not self.several_streams

    @property
    def entries(self) -> float | None:
        """Of the device's launch queue, about so many for a call and the copies of its answer; None: not known."""
        if self.launches is None:
            return None
        each = JOINED if self.several_streams else 1
        return each * max(self.launches, 1) + (self._copies if self.returned else 0.0)

    @property
    def _copies(self) -> float:
        """Launches that copy the answer: its part of those that copy many, where that is done (`copy_all`)."""
        together = len({answer.dtype for answer in self.outputs}) == 1 and all(map(_is_dense, self.outputs))
        return sum(map(_part, self.outputs)) if together and not self.reuses_memory else len(self.outputs)


@dataclass(frozen=True)
class ArgumentView:
    """So many bytes into that argument's memory, by its number among a call's tensors, an answer of this form lies."""

    leaf: int
    form: TensorRef


@dataclass(frozen=True)
class Code:
    """What a folder holds of compiled code: texts and those that cannot be had, and what Triton's kernels need."""

    texts: list[CodeText | MissingText]
    kernels: list[dict[str, Any]]


def _part(answer: torch.Tensor) -> float:
    """The part of a launch that copying it takes among others."""
    return max(1 / COPIED_TOGETHER, math.ceil(answer.numel() / CHUNK) / CHUNKS)


def _is_dense(answer: torch.Tensor) -> bool:
    """Whether its elements lie side by side, in whichever order."""
    return describe(answer).span == answer.numel() * answer.element_size()


def probe(answer: dict[str, Any], outputs: list[torch.Tensor]) -> Probe:
    """Of a warm call that gave those outputs."""
    return Probe(
        outputs,
        answer.get("returned") is True,
        max(min(finite_numbers(answer.get("elapsed_ms")), default=0.0), 0.0),
        answer.get("reuses_memory") is True,
        launches(answer.get("launches")),
        views(answer.get("views"), outputs),
        answer.get("several_streams") is True,
        tuple(" ".join(str(name).split())[:MAX_NAME] for name in _list(answer.get("compiled"))[:MAX_FACTS]),
        output_structure.parsed(answer.get("form"), len(outputs)),
        told if isinstance(told := answer.get("first_differs"), bool) else None,
    )


def tensors(value: Any) -> list[torch.Tensor] | None:
    """A list of tensors; None for whatever else a runner may send in its place.

    Nor one whose elements are one in memory: ours sends none, and whoever writes into such a one fails, be it the null
    runner.
    """
    if not isinstance(value, list) or not all(isinstance(one, torch.Tensor) and not repeats(one) for one in value):
        return None
    return value


def views(wire: Any, outputs: list[torch.Tensor]) -> tuple[ArgumentView | None, ...]:
    """For each output; None for what is no view of that output's shape."""
    told = wire if isinstance(wire, list) and len(wire) == len(outputs) else [None] * len(outputs)
    return tuple(_view(each, output) for each, output in zip(told, outputs, strict=True))


def _view(wire: Any, output: torch.Tensor) -> ArgumentView | None:
    if not isinstance(wire, list) or len(wire) != 2 + output.dim():
        return None
    if not all(type(number) is int and 0 <= number < MAX_BYTES for number in wire):
        return None
    leaf, offset, *strides = wire
    dtype = str(output.dtype).removeprefix("torch.")
    return ArgumentView(leaf, TensorRef(dtype, tuple(output.shape), tuple(strides), offset))


def launches(wire: Any) -> int | None:
    """A call's launches; None for what is no such count."""
    return wire if type(wire) is int and 0 <= wire <= MAX_LAUNCHES else None


def code(answer: dict[str, Any]) -> Code:
    """Without whatever is no such thing."""
    most = MAX_CODES * len(Form)
    found, lacking = (
        [one for one in _list(answer.get(key))[:most] if _is_of_code(one)] for key in ("found", "lacking")
    )
    texts = [
        CodeText(
            one["kernel"],
            Form(one["form"]),
            one["text"][:MAX_CHARS],
            truncated=one.get("truncated") is True or len(one["text"]) > MAX_CHARS,
            variant=_text(one["variant"]) if one.get("variant") is not None else None,
        )
        for one in found
        if isinstance(one.get("text"), str)
    ]
    reasons = [MissingText(one["kernel"], Form(one["form"]), _text(one.get("reason"))) for one in lacking]
    kernels = [_group(one) for one in _list(answer.get("kernels"))[:MAX_CODES] if isinstance(one, dict)]
    return Code([*texts, *reasons], kernels)


def _list(wire: Any) -> list[Any]:
    return wire if isinstance(wire, list) else []


def _is_of_code(wire: Any) -> bool:
    return isinstance(wire, dict) and isinstance(wire.get("kernel"), str) and wire.get("form") in list(Form)


def facts(wire: Any) -> dict[str, Any]:
    """Static facts as the runner tells them: for the reader, bounded, plain and finite."""
    if not isinstance(wire, dict):
        return {}
    found: dict[str, Any] = {}
    left = MAX_FACTS_CHARS
    for key, value in list(wire.items())[:MAX_FACTS]:
        fact = _fact(value)
        left -= len(json.dumps(fact))
        if left < 0:
            break
        found[str(key)[:64]] = fact
    return found


def _fact(value: Any) -> Any:
    """Plain, a group of plain ones, or a list of either."""
    match value:
        case dict() if len(value) <= MAX_FACTS:
            return _group(value)
        case list() if len(value) <= MAX_FACTS:
            return [_group(item) if isinstance(item, dict) else _text(item) for item in value]
    return _plain(value)


def _group(wire: dict[Any, Any]) -> dict[str, Any]:
    return {str(key)[:64]: _plain(value) for key, value in list(wire.items())[:MAX_FACTS]}


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


def operations(answer: dict[str, Any]) -> dict[str, float] | None:
    """Of a call, by the dtype that they are done in; None where the answer has none that could be."""
    found = answer.get("flops")
    if not isinstance(found, dict) or len(found) > MAX_FACTS:
        return None
    if not all(type(count) is int and 0 <= count < MAX_FLOPS for count in found.values()):
        return None
    return {dtype[:64]: float(count) for dtype, count in found.items()}
