"""Tasks of GPU MODE's layout: a folder with `task.yml`, a `reference.py` and submissions that define `custom_kernel`.

A task becomes a problem, with its tests and benchmarks as cases. The reference's `generate_input` draws the inputs,
with a new seed for each input set. The service never runs its `check_implementation`: the tolerances in it become
options of the problem. A task whose check is more than an element-wise comparison cannot be converted.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from kernel_eval_client.errors import CallerError
from kernel_eval_client.kernel import Kernel, KernelType, guess_type
from kernel_eval_client.suites.gpu_mode_check import read_tolerances
from kernel_eval_client.suites.gpu_mode_source import ENTRY, REFERENCE, REFERENCE_ENTRY, entry, inputs, reference_entry
from kernel_eval_client.suites.modules import prelude, with_prelude
from kernel_eval_client.suites.problem import MAX_CASES, Candidate, NotConvertible, Problem
from kernel_eval_client.text_file import read_text

TASK = "task.yml"
SUBMISSION = "@SUBMISSION@"
_DEFAULT_TOLERANCES = "Its check computes tolerances, so the service's own apply."
_CLASS = re.compile(r"^class |\bnamedtuple\(", re.MULTILINE)
_IMPORTS_REFERENCE = re.compile(rf"^\s*(?:from|import) {REFERENCE}\b", re.MULTILINE)
"""A submission gets the reference as a module if it imports it, or if the inputs may be objects of its classes."""


def read_problems(folder: Path, candidates: Path | None = None) -> Iterator[Problem]:
    """Yields a problem for each task, several where it has more than MAX_CASES cases.

    Raises CallerError for a file that it cannot read.
    """
    for path in sorted(folder.rglob(TASK)):
        task = _read_task(path)
        title = path.parent.relative_to(folder).as_posix()
        title = path.parent.resolve().name if title == "." else title
        yield from _problems(path.parent, title, task, candidates)


def _problems(
    folder: Path, title: str, task: Mapping[str, Any], folder_of_candidates: Path | None
) -> Iterator[Problem]:
    description = str(task.get("description") or "").strip().partition("\n")[0]
    cases = _cases(task)
    try:
        modules = _modules(folder, task)
        source = read_text(folder / "reference.py")
        tolerances = read_tolerances(source)
    except NotConvertible as error:
        yield Problem(title, None, about=description, refused=str(error))
        return
    if not tolerances:
        description = f"{_DEFAULT_TOLERANCES} {description}".strip()
    candidates = []
    for label, text in _submissions(folder, title, folder_of_candidates):
        needs_reference = _CLASS.search(source) or _IMPORTS_REFERENCE.search(text)
        line = prelude({**modules, REFERENCE: source} if needs_reference else modules)
        candidates.append(
            Candidate(label, _kernel(with_prelude(line, text) + entry("custom_kernel"), guess_type(text)))
        )
    source = with_prelude(prelude(modules), source) + inputs() + reference_entry("ref_kernel")
    reference = _kernel(source, KernelType.TORCH, REFERENCE_ENTRY)
    for start in range(0, len(cases), MAX_CASES):
        part = cases[start : start + MAX_CASES]
        is_timed = any(case["timed"] for case in part)
        name = title if len(cases) <= MAX_CASES else f"{title}/part_{start // MAX_CASES}"
        options = {**tolerances, "cases": part if is_timed else [{**case, "timed": True} for case in part]}
        yield Problem(name, reference, candidates, None, description, is_timed, None, options)


def _cases(task: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The benchmarks, which are timed, and the tests, which are not, as cases of a job."""
    return [
        {"name": f"{kind[:-1]}_{number}", "timed": kind == "benchmarks", "arguments": dict(case)}
        for kind in ("benchmarks", "tests")
        for number, case in enumerate(task.get(kind) or ())
    ]


def _kernel(source: str, kernel_type: KernelType, function: str = ENTRY) -> Kernel:
    return Kernel(source, kernel_type, None, {"function_name": function})


def _read_task(path: Path) -> Mapping[str, Any]:
    try:
        import yaml
    except ModuleNotFoundError as error:
        raise CallerError("GPU MODE's tasks are read with pyyaml: pip install 'kernel-eval-client[suites]'") from error
    try:
        task = yaml.safe_load(read_text(path))
    except yaml.YAMLError as error:
        raise CallerError(f"{path} is not YAML: {error}") from error
    if not isinstance(task, dict):
        raise CallerError(f"{path} holds no task")
    return task


def _modules(folder: Path, task: Mapping[str, Any]) -> dict[str, str]:
    """The source of each further module of the task, by name, without its reference."""
    if task.get("multi_gpu"):
        raise NotConvertible("the task wants several GPUs; a kernel is judged on one")
    if str(task.get("lang", "py")) != "py":
        raise NotConvertible(
            f"its submissions are written in {task['lang']} with a main() of their own; Python ones can be judged"
        )
    modules = {}
    for file in task.get("files") or ():
        name, source = str(file.get("name", "")), str(file.get("source", ""))
        if source == SUBMISSION or name in ("eval.py", "reference.py"):
            continue
        if not name.endswith(".py"):
            raise NotConvertible(f"it brings a file {name}; a kernel is one source of Python")
        modules[name.removesuffix(".py")] = read_text(folder / source)
    return modules


def _submissions(folder: Path, title: str, candidates: Path | None) -> Iterator[tuple[str, str]]:
    if candidates is None:
        files = [*folder.glob("submission*.py"), *folder.glob("solutions/**/*.py")]
    else:
        name = title.rpartition("/")[2]
        files = [*candidates.glob(f"{name}.py"), *candidates.glob(f"{name}/*.py"), *candidates.glob(f"{title}/*.py")]
    for file in sorted(set(files), key=lambda each: each.stem):
        text = read_text(file)
        if "custom_kernel" in text:
            yield file.stem, text
