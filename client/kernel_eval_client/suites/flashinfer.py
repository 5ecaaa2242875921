"""Data sets of flashinfer-bench's layout: `definitions/`, `workloads/` and `solutions/`.

Each workload of a definition becomes a problem; workloads that differ in sizes alone are the cases of one. The
definition's `run` is the reference, and its axes with the workload's values give the IO contract. Solutions in Python
are the candidates.
"""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from kernel_eval_client.contract import ArgSpec, IOContract, TensorData, TensorInit, TensorSpec
from kernel_eval_client.contract_from_args import DTYPES, INLINE_BYTES
from kernel_eval_client.errors import CallerError
from kernel_eval_client.kernel import Kernel, KernelType, guess_type
from kernel_eval_client.suites.flashinfer_call import with_entry
from kernel_eval_client.suites.modules import prelude, sort_by_imports, with_prelude, without_package
from kernel_eval_client.suites.problem import MAX_CASES, Candidate, NotConvertible, Problem
from kernel_eval_client.suites.safetensors import read_tensor
from kernel_eval_client.suites.sizes import evaluate_size
from kernel_eval_client.text_file import read_text

Json = Mapping[str, Any]
_DTYPE_NAMES = {"float8_e4m3": "float8_e4m3fn"}
_RANDOM_DTYPES = ("float", "bfloat", "bool")
"""Dtypes of inputs that may be `random`. Integers are mostly indices and lengths, whose bounds no definition has."""


def read_problems(root: Path, candidates: Path | None = None) -> Iterator[Problem]:
    """Yields the problems of each definition. Raises CallerError for a file that it cannot read."""
    solutions = _solutions(candidates or root / "solutions")
    for path in sorted((root / "definitions").rglob("*.json")):
        definition = _parse_object(read_text(path), path)
        name = str(definition.get("name") or path.stem)
        files = sorted((root / "workloads").rglob(f"{name}.jsonl"))
        if not files:
            yield Problem(name, None, refused="it has no workload, so that its variable axes have no values")
        for workloads in _alike(definition, [workload for file in files for workload in _workloads(file)]):
            yield _problem(root, name, definition, workloads, solutions.get(name, []))


def _workloads(file: Path) -> Iterator[Json]:
    for number, line in enumerate(read_text(file).splitlines(), 1):
        if line.strip():
            wire = _parse_object(line, f"{file}, line {number}")
            yield wire.get("workload") or wire


def _alike(definition: Json, workloads: Sequence[Json]) -> Iterator[Sequence[Json]]:
    """Groups workloads that differ in sizes alone, at most MAX_CASES in a group."""
    groups: dict[str, list[Json]] = {}
    names = {*(definition.get("inputs") or {}), *(definition.get("outputs") or {})}
    symbols = _symbols(definition)
    can_vary = symbols and all(symbol.isidentifier() and symbol not in names for symbol in symbols)
    for number, workload in enumerate(workloads):
        inputs = workload.get("inputs") or {}
        is_drawn = all(value.get("type") in ("random", "scalar") for value in inputs.values())
        is_case = can_vary and is_drawn and _case(definition, workload, 0) is not None
        key = json.dumps(inputs, sort_keys=True) if is_case else str(number)
        groups.setdefault(key, []).append(workload)
    for group in groups.values():
        for start in range(0, len(group), MAX_CASES):
            yield group[start : start + MAX_CASES]


def _symbols(definition: Json) -> dict[str, None]:
    """The axes of the definition's tensors that have no constant size, in order."""
    tensors = [*(definition.get("inputs") or {}).values(), *(definition.get("outputs") or {}).values()]
    axes = definition.get("axes") or {}
    named = [axis for spec in tensors for axis in spec.get("shape") or () if isinstance(axis, str)]
    return dict.fromkeys(axis for axis in named if (axes.get(axis) or {}).get("type") != "const")


def _problem(root: Path, name: str, definition: Json, workloads: Sequence[Json], solutions: list[Json]) -> Problem:
    title = f"{name}/{_title(workloads[0])}"
    description = str(definition.get("description") or "")
    options: dict[str, Any] = {}
    try:
        contract = _contract(root, definition, workloads[0])
        if len(workloads) > 1:
            options["cases"] = [_case(definition, workload, number) for number, workload in enumerate(workloads, 1)]
            contract = _with_symbols(contract, definition)
    except NotConvertible as error:
        return Problem(title, None, about=description, refused=str(error))
    try:
        reference = _kernel(str(definition.get("reference", "")), {}, KernelType.TORCH, contract, "run")
    except NotConvertible as error:
        return Problem(title, None, about=description, refused=f"its reference: {error}")
    candidates = [_candidate(solution, contract) for solution in solutions]
    return Problem(title, reference, candidates, about=description, options=options)


def _title(workload: Json) -> str:
    return str(workload.get("uuid", ""))[:8] or "workload"


def _case(definition: Json, workload: Json, number: int) -> dict[str, Any] | None:
    """The workload as a case: the sizes of the axes. None if it lacks one."""
    try:
        sizes = _sizes(definition.get("axes") or {}, workload.get("axes") or {})
    except NotConvertible:
        return None
    arguments = {symbol: sizes.get(symbol) for symbol in _symbols(definition)}
    has_all = all(isinstance(size, int) for size in arguments.values())
    return {"name": f"{number} {_title(workload)}", "arguments": arguments} if has_all else None


def _with_symbols(contract: IOContract, definition: Json) -> IOContract:
    """The contract with the names of axes in its shapes, where these have no constant size."""
    specs = {**(definition.get("inputs") or {}), **(definition.get("outputs") or {})}
    symbols, args = _symbols(definition), []
    for arg in contract.args:
        if (tensor := arg.tensor_spec) is not None:
            axes = zip(specs[arg.name]["shape"], tensor.shape, strict=True)
            shape = [axis if axis in symbols else size for axis, size in axes]
            arg = replace(arg, tensor_spec=replace(tensor, shape=shape))
        args.append(arg)
    return replace(contract, args=tuple(args))


def _kernel(text: str, modules: Mapping[str, str], kind: KernelType, contract: IOContract, function: str) -> Kernel:
    """The source together with its modules. Raises NotConvertible where the contract's arguments do not fit."""
    inputs, outputs = (
        [arg.name for arg in contract.args if (arg.role == "output") == is_output] for is_output in (False, True)
    )
    source, entry = with_entry(text, [*modules.values()], function, inputs, outputs)
    return Kernel(with_prelude(prelude(modules), source), kind, contract, {"function_name": entry})


def _contract(root: Path, definition: Json, workload: Json) -> IOContract:
    sizes = _sizes(definition.get("axes") or {}, workload.get("axes") or {})
    arguments, bytes_left = [], INLINE_BYTES
    for name, spec in (definition.get("inputs") or {}).items():
        value = (workload.get("inputs") or {}).get(name)
        if value is None:
            raise NotConvertible(f"the workload has no {name}, and every argument of a contract has a value")
        argument, used = _input(root, name, spec, value, sizes, bytes_left)
        arguments.append(argument)
        bytes_left -= used
    for name, spec in (definition.get("outputs") or {}).items():
        if spec.get("shape") is None:
            raise NotConvertible(f"its output {name} is a number and no tensor")
        arguments.append(ArgSpec(name, "tensor", tensor_spec=_tensor(name, spec, sizes), role="output"))
    return IOContract(tuple(arguments))


def _sizes(axes: Json, workload_axes: Json) -> dict[str, Any]:
    """Each axis's size: a constant, the workload's value, or the value of an expression over other axes."""
    sizes = {
        axis: wire.get("value", workload_axes.get(axis)) for axis, wire in axes.items() if wire.get("type") != "expr"
    }
    expressions = {axis: str(wire.get("expression")) for axis, wire in axes.items() if wire.get("type") == "expr"}
    while expressions:
        numbers = {axis: size for axis, size in sizes.items() if isinstance(size, int)}
        evaluated, errors = {}, []
        for axis, expression in expressions.items():
            try:
                evaluated[axis] = evaluate_size(expression, numbers)
            except CallerError as error:
                errors.append(f"the axis {axis}: {error}")
        if not evaluated:
            raise NotConvertible("; ".join(errors))
        sizes.update(evaluated)
        expressions = {axis: expression for axis, expression in expressions.items() if axis not in evaluated}
    return sizes


def _input(root: Path, name: str, spec: Json, value: Json, sizes: Json, bytes_left: int) -> tuple[ArgSpec, int]:
    kind = value.get("type")
    if spec.get("shape") is None:
        if kind != "scalar" or not isinstance(value.get("value"), (bool, int, float)):
            raise NotConvertible(f"the workload gives no value for {name}")
        number = value["value"]
        dtype = "float" if "float" in str(spec.get("dtype")) else type(number).__name__
        return ArgSpec(name, dtype, float(number) if dtype == "float" else number), 0
    tensor = _tensor(name, spec, sizes)
    if kind == "safetensors":
        path = (root / str(value.get("path"))).resolve()
        if not path.is_relative_to(root.resolve()):
            raise NotConvertible(f"the values of {name} are outside the data set: {value.get('path')}")
        if not path.exists():
            raise NotConvertible(f"the file with the values of {name} is not here: {value.get('path')}")
        try:
            dtype, shape, raw = read_tensor(path, str(value.get("tensor_key")), bytes_left)
        except CallerError as error:
            raise NotConvertible(str(error)) from error
        data = TensorData(base64.b64encode(zlib.compress(raw)).decode(), dtype, shape, "zlib")
        return ArgSpec(name, "tensor", tensor_spec=TensorSpec(shape, dtype, data=data)), len(raw)
    if kind != "random":
        raise NotConvertible(f"{name} is given as {kind!r}, which is not known here")
    if not tensor.dtype.startswith(_RANDOM_DTYPES):
        raise NotConvertible(f"{name} is to be drawn at random and is {tensor.dtype}: its bounds are in no definition")
    return ArgSpec(name, "tensor", tensor_spec=TensorSpec(tensor.shape, tensor.dtype, TensorInit("randn"))), 0


def _tensor(name: str, spec: Json, sizes: Json) -> TensorSpec:
    dtype = _DTYPE_NAMES.get(str(spec.get("dtype")), str(spec.get("dtype")))
    if dtype not in DTYPES:
        raise NotConvertible(f"{name} is {dtype}, which the service does not know")
    shape = []
    for axis in spec["shape"]:
        size = axis if isinstance(axis, int) else sizes.get(axis)
        if not isinstance(size, int) or size < 0:
            raise NotConvertible(f"the workload gives no size for the axis {axis} of {name}")
        shape.append(size)
    return TensorSpec(shape, dtype)


def _solutions(folder: Path) -> dict[str, list[Json]]:
    solutions: dict[str, list[Json]] = {}
    for path in sorted(folder.rglob("*.json")):
        wire = _parse_object(read_text(path), path)
        solutions.setdefault(str(wire.get("definition")), []).append({"name": path.stem, **wire})
    return solutions


def _candidate(solution: Json, contract: IOContract) -> Candidate:
    label, spec = str(solution["name"]), solution.get("spec") or {}
    file, _, function = str(spec.get("entry_point", "")).partition("::")
    if not file.endswith(".py"):
        return Candidate(label, None, f"its entry point is {file or 'not named'}: host code in C++ behind a binding")
    try:
        sources = _modules(solution.get("sources") or [])
        if file not in sources:
            raise NotConvertible(f"its entry point {file} is none of its sources")
        text = sources.pop(file)
        kind = guess_type("\n".join([text, *sources.values()]), file)
        modules = sort_by_imports({name.removesuffix(".py"): text for name, text in sources.items()})
        return Candidate(label, _kernel(text, modules, kind, contract, function or "run"))
    except NotConvertible as error:
        return Candidate(label, None, str(error))


def _modules(sources: Sequence[Json]) -> dict[str, str]:
    """Each file's source by its name, without relative imports. Raises NotConvertible for a file that is no module."""
    modules = {}
    for file in sources:
        name = str(file.get("path"))
        if not name.removesuffix(".py").isidentifier() or not name.endswith(".py"):
            raise NotConvertible(f"it brings a file {name}; a kernel is modules of Python in one folder")
        modules[name] = str(file.get("content", ""))
    return {name: without_package(text) for name, text in modules.items()} if len(modules) > 1 else modules


def _parse_object(text: str, where: object) -> Json:
    try:
        wire = json.loads(text)
    except ValueError as error:
        raise CallerError(f"{where} is not JSON: {error}") from error
    if not isinstance(wire, dict):
        raise CallerError(f"{where} holds no JSON object")
    return wire
