"""Data sets of flashinfer-bench's layout: `definitions/`, `workloads/` and `solutions/`.

Each workload of a definition becomes a problem: the definition's `run` is the reference, its axes with the workload's
values make the IO contract, and solutions in Python are the candidates.
"""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from kernel_eval_client.contract import ArgSpec, IOContract, TensorData, TensorInit, TensorSpec
from kernel_eval_client.errors import CallerError
from kernel_eval_client.kernel import Kernel, KernelType, guess_type
from kernel_eval_client.live import DTYPES, INLINE_BYTES
from kernel_eval_client.suites.flashinfer_call import called
from kernel_eval_client.suites.modules import absolute, in_order, prelude, with_prelude
from kernel_eval_client.suites.problem import Candidate, NotOurs, Problem
from kernel_eval_client.suites.safetensors import tensor_in
from kernel_eval_client.suites.sizes import evaluated
from kernel_eval_client.text_file import text_of

Json = Mapping[str, Any]
_NAMES = {"float8_e4m3": "float8_e4m3fn"}
_DRAWN = ("float", "bfloat", "bool")
"""What a `random` input may be: whole numbers are indices and lengths as a rule, whose bounds no definition has."""


def problems_in(root: Path, candidates: Path | None = None) -> Iterator[Problem]:
    """Every workload of every definition. Raises CallerError for a file that cannot be read."""
    solutions = _solutions(candidates or root / "solutions")
    for path in sorted((root / "definitions").rglob("*.json")):
        definition = _object(text_of(path), path)
        name = str(definition.get("name") or path.stem)
        files = sorted((root / "workloads").rglob(f"{name}.jsonl"))
        if not files:
            yield Problem(name, None, refused="it has no workload, so that its variable axes have no values")
        for file in files:
            for number, line in enumerate(text_of(file).splitlines(), 1):
                if line.strip():
                    wire = _object(line, f"{file}, line {number}")
                    yield _problem(root, name, definition, wire.get("workload") or wire, solutions.get(name, []))


def _problem(root: Path, name: str, definition: Json, workload: Json, solutions: list[Json]) -> Problem:
    title = f"{name}/{str(workload.get('uuid', ''))[:8] or 'workload'}"
    about = str(definition.get("description") or "")
    try:
        contract = _contract(root, definition, workload)
    except NotOurs as error:
        return Problem(title, None, about=about, refused=str(error))
    try:
        reference = _kernel(str(definition.get("reference", "")), {}, KernelType.TORCH, contract, "run")
    except NotOurs as error:
        return Problem(title, None, about=about, refused=f"its reference: {error}")
    return Problem(title, reference, [_candidate(each, contract) for each in solutions], about=about)


def _kernel(text: str, others: Mapping[str, str], kind: KernelType, contract: IOContract, function: str) -> Kernel:
    """The source with those modules beside it; raises NotOurs where it cannot be called."""
    inputs, outputs = (
        [arg.name for arg in contract.args if (arg.role == "output") == is_output] for is_output in (False, True)
    )
    source, entry = called(text, [*others.values()], function, inputs, outputs)
    return Kernel(with_prelude(prelude(others), source), kind, contract, {"function_name": entry})


def _contract(root: Path, definition: Json, workload: Json) -> IOContract:
    sizes = _sizes(definition.get("axes") or {}, workload.get("axes") or {})
    arguments, left = [], INLINE_BYTES
    for name, spec in (definition.get("inputs") or {}).items():
        given = (workload.get("inputs") or {}).get(name)
        if given is None:
            raise NotOurs(f"the workload has no {name}, and a contract no argument that is left out")
        argument, used = _input(root, name, spec, given, sizes, left)
        arguments.append(argument)
        left -= used
    for name, spec in (definition.get("outputs") or {}).items():
        if spec.get("shape") is None:
            raise NotOurs(f"its output {name} is a number and no tensor")
        arguments.append(ArgSpec(name, "tensor", tensor_spec=_tensor(name, spec, sizes), role="output"))
    return IOContract(tuple(arguments))


def _sizes(axes: Json, given: Json) -> dict[str, Any]:
    """Of every axis: constant, given by the workload, or an expression over the others."""
    sizes = {axis: wire.get("value", given.get(axis)) for axis, wire in axes.items() if wire.get("type") != "expr"}
    left = {axis: str(wire.get("expression")) for axis, wire in axes.items() if wire.get("type") == "expr"}
    while left:
        known = {axis: size for axis, size in sizes.items() if isinstance(size, int)}
        found, told = {}, []
        for axis, expression in left.items():
            try:
                found[axis] = evaluated(expression, known)
            except CallerError as error:
                told.append(f"the axis {axis}: {error}")
        if not found:
            raise NotOurs("; ".join(told))
        sizes.update(found)
        left = {axis: expression for axis, expression in left.items() if axis not in found}
    return sizes


def _input(root: Path, name: str, spec: Json, given: Json, sizes: Json, left: int) -> tuple[ArgSpec, int]:
    kind = given.get("type")
    if spec.get("shape") is None:
        if kind != "scalar" or not isinstance(given.get("value"), (bool, int, float)):
            raise NotOurs(f"the workload gives no value for {name}")
        value = given["value"]
        dtype = "float" if "float" in str(spec.get("dtype")) else type(value).__name__
        return ArgSpec(name, dtype, float(value) if dtype == "float" else value), 0
    tensor = _tensor(name, spec, sizes)
    if kind == "safetensors":
        path = (root / str(given.get("path"))).resolve()
        if not path.is_relative_to(root.resolve()):
            raise NotOurs(f"the values of {name} are outside the data set: {given.get('path')}")
        if not path.exists():
            raise NotOurs(f"the file with the values of {name} is not here: {given.get('path')}")
        try:
            dtype, shape, raw = tensor_in(path, str(given.get("tensor_key")), left)
        except CallerError as error:
            raise NotOurs(str(error)) from error
        data = TensorData(base64.b64encode(zlib.compress(raw)).decode(), dtype, shape, "zlib")
        return ArgSpec(name, "tensor", tensor_spec=TensorSpec(shape, dtype, data=data)), len(raw)
    if kind != "random":
        raise NotOurs(f"{name} is given as {kind!r}, which is not known here")
    if not tensor.dtype.startswith(_DRAWN):
        raise NotOurs(f"{name} is to be drawn at random and is {tensor.dtype}: its bounds are in no definition")
    return ArgSpec(name, "tensor", tensor_spec=TensorSpec(tensor.shape, tensor.dtype, TensorInit("randn"))), 0


def _tensor(name: str, spec: Json, sizes: Json) -> TensorSpec:
    dtype = _NAMES.get(str(spec.get("dtype")), str(spec.get("dtype")))
    if dtype not in DTYPES:
        raise NotOurs(f"{name} is {dtype}, which the service does not know")
    shape = []
    for axis in spec["shape"]:
        size = axis if isinstance(axis, int) else sizes.get(axis)
        if not isinstance(size, int) or size < 0:
            raise NotOurs(f"the workload gives no size for the axis {axis} of {name}")
        shape.append(size)
    return TensorSpec(shape, dtype)


def _solutions(folder: Path) -> dict[str, list[Json]]:
    found: dict[str, list[Json]] = {}
    for path in sorted(folder.rglob("*.json")):
        wire = _object(text_of(path), path)
        found.setdefault(str(wire.get("definition")), []).append({"name": path.stem, **wire})
    return found


def _candidate(solution: Json, contract: IOContract) -> Candidate:
    label, spec = str(solution["name"]), solution.get("spec") or {}
    file, _, function = str(spec.get("entry_point", "")).partition("::")
    if not file.endswith(".py"):
        return Candidate(label, None, f"its entry point is {file or 'not named'}: host code in C++ behind a binding")
    try:
        modules = _modules(solution.get("sources") or [])
        if file not in modules:
            raise NotOurs(f"its entry point {file} is none of its sources")
        text = modules.pop(file)
        kind = guess_type("\n".join([text, *modules.values()]), file)
        others = in_order({name.removesuffix(".py"): each for name, each in modules.items()})
        return Candidate(label, _kernel(text, others, kind, contract, function or "run"))
    except NotOurs as error:
        return Candidate(label, None, str(error))


def _modules(sources: Sequence[Json]) -> dict[str, str]:
    """Every file's source by its name, as if none of them were in a package. Raises NotOurs for what is no module."""
    found = {}
    for each in sources:
        name = str(each.get("path"))
        if not name.removesuffix(".py").isidentifier() or not name.endswith(".py"):
            raise NotOurs(f"it brings a file {name}; a kernel is modules of Python in one folder")
        found[name] = str(each.get("content", ""))
    return {name: absolute(text) for name, text in found.items()} if len(found) > 1 else found


def _object(text: str, where: object) -> Json:
    try:
        wire = json.loads(text)
    except ValueError as error:
        raise CallerError(f"{where} is not JSON: {error}") from error
    if not isinstance(wire, dict):
        raise CallerError(f"{where} holds no JSON object")
    return wire
