"""The arguments of the tools, described for a model."""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field

from kernel_eval_client.artifact import FORMS, Form

WAIT_S = 45.0
"""Default time to wait, in s: most programs abandon a call after a minute."""

_UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}", re.IGNORECASE)


def _lower(value: Any) -> Any:
    return value.strip().lower() if isinstance(value, str) else value


def _source(value: str) -> str:
    text = value.strip()
    if text.startswith("```"):
        raise ValueError("it begins with the ``` of markdown: send only the text between the fences")
    if text.endswith((".py", ".cu")) and len(text.split()) == 1:
        raise ValueError("this is a path: send the source itself, as text")
    return value


def _id(value: str) -> str:
    if not _UUID.fullmatch(value):
        raise ValueError("this is no job's id, which is a UUID as an earlier answer named it; `jobs` lists them")
    return value


Source = Annotated[str, AfterValidator(_source), Field(description="The whole source, at most 1 MiB.")]
Type = Annotated[
    Literal["torch", "torch_cuda", "triton", "cuda", "multi_kernel"]
    | Literal["gluon", "helion", "tilelang", "cute_dsl"]
    | None,
    BeforeValidator(_lower),
    Field(description="Default: guessed."),
]
Contract = Annotated[
    dict[str, Any] | None,
    Field(
        description='For raw CUDA and bare Triton kernels. {"args": [{"name": "x", "type": "tensor", "role": "input",'
        ' "tensor_spec": {"shape": [64], "dtype": "float32"}}, {…, "role": "output"}, {"name": "n", "type": "int",'
        ' "value": 64}], "launch": {"grid": [1], "block": [64]}}; list_examples has whole ones.'
    ),
]
Entry = Annotated[
    str | None, Field(description="The kernel, function or entry point to call, if the source has several.")
]
Absolute = Annotated[
    float | None,
    Field(
        ge=0, description="|actual - expected| <= atol + rtol * |expected|. Without both: 0.01 each, rtol of the scale."
    ),
]
Relative = Annotated[float | None, Field(ge=0, description="See atol.")]
Effort = Annotated[
    Literal["quick", "default", "precise"] | None,
    Field(description="Device time to spend; quick skips checks: confirm a pass with default."),
]
Trials = Annotated[int | None, Field(ge=1, le=10000, description="Maximum rounds of timing (100).")]
Seconds = Annotated[int | None, Field(ge=5, le=600, description="Seconds of building, and of running (120).")]
Wait = Annotated[
    float, Field(ge=0, le=600, description="Seconds to wait; then the answer is the job's id, for `result`.")
]
JobId = Annotated[str, AfterValidator(_id), Field(description="As an earlier answer named it.")]
Texts = Annotated[
    list[Form] | None,
    BeforeValidator(lambda value: [value] if value in FORMS else value),
    Field(description="Keep the code in these forms; the tool `artifact` reads them."),
]
Counters = Annotated[
    Literal["basic", "full"] | list[str] | None,
    BeforeValidator(lambda value: {True: "basic", False: None}[value] if isinstance(value, bool) else value),
    Field(description="Also hardware counters and advice: seconds a kernel, full 10 to 40; or names of ncu."),
]
DrawOn = Annotated[Literal["device", "host"], Field(description="Where get_inputs() draws.")]
Strictness = Annotated[Literal["task", "robust"], Field(description="robust: unusual inputs decide.")]
Sanitize = Annotated[bool, Field(description="compute-sanitizer: bounds, races, unset memory.")]
Cases = Annotated[
    list[dict[str, Any]] | None,
    Field(
        description='One kernel for several sizes: [{"name": "odd", "arguments": {"n": 33}}], arguments of '
        "get_inputs() or symbols of the contract."
    ),
]
Gradients = Annotated[bool, Field(description="Also judge and time the backward.")]
Determinism = Annotated[bool, Field(description="Do equal inputs give equal bits?")]
Name = Annotated[str | None, Field(description="For lists and pages.")]
Gpu = Annotated[str | None, Field(description="Model to run on: h200, cpu, …")]
Reuse = Annotated[Literal["never", "allow"], Field(description="allow: an earlier equal result will do.")]
Profile = Annotated[bool, Field(description="List the kernels that a call launches: part=launches.")]
Offset = Annotated[int, Field(description="Character to read on from; below 0 from the end.")]
Part = Annotated[
    Literal[
        "error",
        "timing",
        "comparison",
        "inputs",
        "build",
        "launches",
        "device_metrics",
        "sanitizer",
        "artifacts",
        "output",
        "speedup",
        "environment",
    ]
    | None,
    Field(description="A part of the whole result; `output` is what the kernel printed. Without: the verdict."),
]
Text = Annotated[str | None, Field(description="As the list names it; without, the list.")]
Problem = Annotated[str | None, Field(description="As the list names it: level1/softmax, or softmax.")]
Label = Annotated[
    str | None,
    BeforeValidator(_lower),
    Field(description="torch, triton, cuda or torch_cuda: that solution; without a name, the problems that have one."),
]
Count = Annotated[int, Field(ge=1, le=20, description="How many, newest first.")]
