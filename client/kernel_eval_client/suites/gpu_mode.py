"""Tasks of GPU MODE's layout: a folder with `task.yml`, a `reference.py` and submissions that define `custom_kernel`.

Each test and each benchmark of a task becomes a problem. The reference's `generate_input` makes the inputs, under a new
seed each time; its `check_implementation` stays behind: what it allows is read off as tolerances, and a check that is
more than a comparison element by element cannot be handed over.
"""

from __future__ import annotations

import ast
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from kernel_eval_client.errors import CallerError
from kernel_eval_client.kernel import Kernel, KernelType, guess_type
from kernel_eval_client.suites.folder import text_of
from kernel_eval_client.suites.problem import Candidate, Problem

TASK = "task.yml"
SUBMISSION = "@SUBMISSION@"
_EXACT = {"verbose_allequal", "equal"}
_CLOSE = {"make_match_reference", "match_reference", "verbose_allclose", "allclose"}
_HARMLESS = {
    "ref_kernel",
    "len",
    "isinstance",
    "zip",
    "tuple",
    "list",
    "bool",
    "str",
    "int",
    "range",
    "enumerate",
    "type",
}
_TOLERANCES = {"rtol", "atol", "reference", "max_print"}
_DEFAULTS = {"rtol": 1e-5, "atol": 1e-8}


_ENTRY = """

def _kernel_eval_filled(data):
    if isinstance(data, tuple) and len(data) == 5 and data[0] == "buffer to write to":
        _, make, shape, dtype, device = data
        return getattr(_kernel_eval_torch, make)(shape, dtype=getattr(_kernel_eval_torch, dtype), device=device)
    return type(data)(map(_kernel_eval_filled, data)) if isinstance(data, (tuple, list)) else data


def kernel_eval_entry(data):
    return %s(_kernel_eval_filled(data))


import torch as _kernel_eval_torch
"""
"""Buffers are made in the call: one that came with the inputs would be an input changed, which is wrong here."""

_GET_INPUTS = """

def get_inputs():
    import torch as _torch

    made = {}

    def kept(name, make):
        def making(*args, **more):
            tensor = make(*args, **more)
            made[id(tensor)] = (name, tensor)
            return tensor

        return making

    def told(data):
        if isinstance(data, _torch.Tensor) and id(data) in made and data._version == 0:
            device = data.device.type
            return "buffer to write to", made[id(data)][0], tuple(data.shape), str(data.dtype)[6:], device
        return type(data)(map(told, data)) if type(data) in (tuple, list) else data

    own = {name: getattr(_torch, name) for name in ("empty", "zeros", "empty_like", "zeros_like")}
    try:
        for name, make in own.items():
            setattr(_torch, name, kept(name.removesuffix("_like"), make))
        return [told(generate_input(**{%s}))]
    finally:
        for name, make in own.items():
            setattr(_torch, name, make)
"""
"""Nothing was written into what is of version 0: it is a buffer for the answer, not an input."""


class NotOurs(Exception):
    """Why something of this task cannot be handed over."""


def problems_in(folder: Path, candidates: Path | None = None) -> Iterator[Problem]:
    """The tests and benchmarks of every task below the folder. Raises CallerError for a file that cannot be read."""
    for path in sorted(folder.rglob(TASK)):
        task = _yaml(path)
        title = path.parent.relative_to(folder).as_posix()
        title = path.parent.resolve().name if title == "." else title
        yield from _problems(path.parent, title, task, candidates)


def _problems(folder: Path, title: str, task: Mapping[str, Any], candidates: Path | None) -> Iterator[Problem]:
    about = str(task.get("description") or "").strip().partition("\n")[0]
    cases = [
        (kind, number, case) for kind in ("tests", "benchmarks") for number, case in enumerate(task.get(kind) or ())
    ]
    try:
        prelude = _prelude(folder, task)
        source = text_of(folder / "reference.py")
        tolerances = _tolerances(source)
    except NotOurs as error:
        for kind, number, _ in cases or [("tests", 0, {})]:
            yield Problem(f"{title}/{kind[:-1]}_{number}", None, about=about, refused=str(error))
        return
    found = [
        Candidate(label, _kernel(_with(prelude, text) + _ENTRY % "custom_kernel", guess_type(text)))
        for label, text in _submissions(folder, title, candidates)
    ]
    for kind, number, case in cases:
        judged = _with(prelude, source) + _inputs(case) + _ENTRY % "ref_kernel"
        reference = _kernel(judged, KernelType.TORCH)
        name = f"{title}/{kind[:-1]}_{number}"
        yield Problem(name, reference, found, None, about, kind == "benchmarks", None, tolerances)


def _kernel(source: str, kernel_type: KernelType) -> Kernel:
    return Kernel(source, kernel_type, None, {"function_name": "kernel_eval_entry"})


def _yaml(path: Path) -> Mapping[str, Any]:
    try:
        import yaml
    except ModuleNotFoundError as error:
        raise CallerError("GPU MODE's tasks are read with pyyaml: pip install 'kernel-eval-client[suites]'") from error
    try:
        task = yaml.safe_load(text_of(path))
    except yaml.YAMLError as error:
        raise CallerError(f"{path} is not YAML: {error}") from error
    if not isinstance(task, dict):
        raise CallerError(f"{path} holds no task")
    return task


def _prelude(folder: Path, task: Mapping[str, Any]) -> str:
    """One line that puts the task's own modules where `import` finds them."""
    if task.get("multi_gpu"):
        raise NotOurs("the task wants several GPUs; a kernel is judged on one")
    if str(task.get("lang", "py")) != "py":
        raise NotOurs(
            f"its submissions are written in {task['lang']} with a main() of their own; Python ones can be judged"
        )
    modules = {}
    for file in task.get("files") or ():
        name, source = str(file.get("name", "")), str(file.get("source", ""))
        if source == SUBMISSION or name in ("eval.py", "reference.py"):
            continue
        if not name.endswith(".py"):
            raise NotOurs(f"it brings a file {name}; a kernel is one source of Python")
        modules[name.removesuffix(".py")] = text_of(folder / source)
    lines = "".join(
        f"_m = sys.modules[{name!r}] = types.ModuleType({name!r}); exec({text!r}, _m.__dict__); "
        for name, text in modules.items()
    )
    return f"import sys, types; {lines}del sys, types" if lines else ""


def _with(prelude: str, source: str) -> str:
    """The prelude in place of the first line where that is a comment, so that line numbers stay."""
    if not prelude:
        return source
    lines = source.splitlines()
    future = [number for number, line in enumerate(lines) if line.startswith("from __future__")]
    place = future[-1] + 1 if future else 0
    rest = lines[place + 1 :] if lines[place : place + 1] and lines[place].startswith("#") else lines[place:]
    return "\n".join([*lines[:place], prelude, *rest]) + "\n"


def _inputs(case: Mapping[str, Any]) -> str:
    """`get_inputs` for one case. Its seed is drawn anew each time: with the task's own every set would be the same."""
    arguments = ", ".join(f"{name!r}: {value!r}" for name, value in case.items() if name != "seed")
    seed = "'seed': int(_torch.randint(1 << 31, (), device='cpu'))" if "seed" in case else ""
    return _GET_INPUTS % ", ".join(filter(None, (arguments, seed)))


def _submissions(folder: Path, title: str, candidates: Path | None) -> Iterator[tuple[str, str]]:
    if candidates is None:
        files = [*folder.glob("submission*.py"), *folder.glob("solutions/**/*.py")]
    else:
        name = title.rpartition("/")[2]
        files = [*candidates.glob(f"{name}.py"), *candidates.glob(f"{name}/*.py"), *candidates.glob(f"{title}/*.py")]
    for file in sorted(set(files), key=lambda each: each.stem):
        text = text_of(file)
        if "custom_kernel" in text:
            yield file.stem, text


def _tolerances(source: str) -> dict[str, float]:
    """What the check allows, the tightest where it compares several outputs."""
    try:
        tree = ast.parse(source)
    except SyntaxError as error:
        raise NotOurs(f"reference.py does not parse: {error}") from error
    check = next((node for node in tree.body if _defines(node, "check_implementation")), None)
    if check is None:
        raise NotOurs("reference.py has no check_implementation, so that nothing says what is right")
    found = []
    for call in (node for node in ast.walk(check) if isinstance(node, ast.Call)):
        name = call.func.id if isinstance(call.func, ast.Name) else getattr(call.func, "attr", "")
        if name in _EXACT:
            found.append({"rtol": 0.0, "atol": 0.0})
        elif name in _CLOSE:
            found.append(_DEFAULTS | _literals(call))
        elif isinstance(call.func, ast.Name) and name not in _HARMLESS:
            raise NotOurs(f"its check calls {name}(): more than a comparison element by element, which is all we have")
    if not found:
        raise NotOurs("its check is code of its own; here outputs are compared with the reference's element by element")
    return {name: min(each[name] for each in found) for name in ("atol", "rtol")}


def _defines(node: ast.stmt, name: str) -> bool:
    if isinstance(node, ast.Assign):
        return any(isinstance(target, ast.Name) and target.id == name for target in node.targets)
    return isinstance(node, ast.FunctionDef) and node.name == name


def _literals(call: ast.Call) -> dict[str, float]:
    found = {}
    for keyword in call.keywords:
        if keyword.arg not in _TOLERANCES:
            raise NotOurs(f"its check has {keyword.arg}, which a comparison element by element here has not")
        if keyword.arg in ("rtol", "atol"):
            try:
                found[keyword.arg] = float(json.loads(ast.unparse(keyword.value)))
            except (ValueError, TypeError):
                raise NotOurs(f"its check's {keyword.arg} is worked out, {ast.unparse(keyword.value)}") from None
    return found
