"""Tasks of robust-kbench's layout: a folder with `func_forward.py`, `config_forward.json` and kernels in `.cu` files.

A task becomes a problem, with every combination of its configurations as a case. `Model` passes its inputs and
parameters to `forward_fn`, and a kernel gets the same arguments.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from kernel_eval_client.errors import CallerError
from kernel_eval_client.kernel import Kernel, KernelType, guess_type
from kernel_eval_client.suites.problem import MAX_CASES, Candidate, Problem
from kernel_eval_client.text_file import read_text

REFERENCE, CONFIG = "func_forward.py", "config_forward.json"
_INPUTS = """

_kernel_eval_own_inputs = get_inputs


def get_inputs(**arguments):
    import inspect as _inspect

    def fitting(function):
        return {name: arguments[name] for name in _inspect.signature(function).parameters if name in arguments}

    passed = []

    def keep(*values, **named):
        passed.extend([*values, *named.values()])
        return values[0]

    with torch.no_grad():
        Model(**fitting(Model)).forward(*_kernel_eval_own_inputs(**fitting(_kernel_eval_own_inputs)), fn=keep)
    return [value.detach() if isinstance(value, torch.Tensor) else value for value in passed]
"""
"""Follows a reference's source: its model, made for the case, passes the arguments of `forward_fn` to `keep`."""


def read_problems(folder: Path, candidates: Path | None = None) -> Iterator[Problem]:
    """Yields a problem for each task. Raises CallerError for a file that it cannot read."""
    for path in sorted(folder.rglob(REFERENCE)):
        task = path.parent.relative_to(folder).as_posix()
        task = path.parent.resolve().name if task == "." else task
        reference = Kernel(read_text(path) + _INPUTS, KernelType.TORCH, None, {"function_name": "forward_fn"})
        solutions = [_candidate(file) for file in sorted(_files(path.parent, task, candidates))]
        cases = _cases(path.with_name(CONFIG))
        for start in range(0, len(cases), MAX_CASES):
            name = task if len(cases) <= MAX_CASES else f"{task}/part_{start // MAX_CASES}"
            yield Problem(name, reference, solutions, options={"cases": cases[start : start + MAX_CASES]})


def _cases(path: Path) -> list[dict[str, Any]]:
    """Each combination of the configurations of constructor, inputs and both; those of both take precedence."""
    try:
        config = json.loads(read_text(path))
        combined: list[dict[str, Any]] = []
        for count in ("multi", "single"):  # Most tasks leave the former empty.
            groups = [config.get(f"{count}_{kind}_configs") or [{}] for kind in ("init", "input", "shared")]
            if not any(combined):
                combined = [{**init, **inputs, **both} for init, inputs, both in itertools.product(*groups)]
    except (ValueError, TypeError, AttributeError) as error:
        raise CallerError(f"{path} is no configuration of a task: {error}") from error
    distinct = [case for number, case in enumerate(combined) if case not in combined[:number]]
    return [{"name": f"case_{number}", "arguments": case} for number, case in enumerate(distinct)]


def _files(folder: Path, task: str, candidates: Path | None) -> Iterator[Path]:
    if candidates is None:
        yield from folder.glob("forward*.cu")
        return
    for place in {candidates / task, candidates / task.rpartition("/")[2]}:
        yield from (file for file in place.glob("*") if file.suffix in (".cu", ".py"))


def _candidate(file: Path) -> Candidate:
    text = read_text(file)
    if file.suffix == ".cu":
        return Candidate(file.stem, Kernel(text, KernelType.TORCH_CUDA, None, {"entry_point": "forward"}))
    return Candidate(file.stem, Kernel(text, guess_type(text), None, {"function_name": "forward"}))
