"""Tasks of GPU MODE's layout: a folder with `task.yml`, a `reference.py` and submissions that define `custom_kernel`.

Each test and each benchmark of a task becomes a problem. The reference's `generate_input` makes the inputs, under a new
seed each time; its `check_implementation` stays behind: what it allows is read off as tolerances, and a check that is
more than a comparison element by element cannot be handed over.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from kernel_eval_client.errors import CallerError
from kernel_eval_client.kernel import Kernel, KernelType, guess_type
from kernel_eval_client.suites.gpu_mode_check import tolerances_of
from kernel_eval_client.suites.gpu_mode_source import ENTRY, REFERENCE, entry, inputs
from kernel_eval_client.suites.modules import prelude, with_prelude
from kernel_eval_client.suites.problem import Candidate, NotOurs, Problem
from kernel_eval_client.text_file import text_of

TASK = "task.yml"
SUBMISSION = "@SUBMISSION@"
_CLASS = re.compile(r"^class |\bnamedtuple\(", re.MULTILINE)
_OF_REFERENCE = re.compile(rf"^\s*(?:from|import) {REFERENCE}\b", re.MULTILINE)
"""Where a submission has the reference as a module: the data may be of its classes, or it imports it."""


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
        modules = _modules(folder, task)
        source = text_of(folder / "reference.py")
        tolerances = tolerances_of(source)
    except NotOurs as error:
        for kind, number, _ in cases or [("tests", 0, {})]:
            yield Problem(f"{title}/{kind[:-1]}_{number}", None, about=about, refused=str(error))
        return
    found = []
    for label, text in _submissions(folder, title, candidates):
        wanted = _CLASS.search(source) or _OF_REFERENCE.search(text)
        theirs = prelude({**modules, REFERENCE: source} if wanted else modules)
        found.append(Candidate(label, _kernel(with_prelude(theirs, text) + entry("custom_kernel"), guess_type(text))))
    for kind, number, case in cases:
        judged = with_prelude(prelude(modules), source) + inputs(case) + entry("ref_kernel")
        reference = _kernel(judged, KernelType.TORCH)
        name = f"{title}/{kind[:-1]}_{number}"
        yield Problem(name, reference, found, None, about, kind == "benchmarks", None, tolerances)


def _kernel(source: str, kernel_type: KernelType) -> Kernel:
    return Kernel(source, kernel_type, None, {"function_name": ENTRY})


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


def _modules(folder: Path, task: Mapping[str, Any]) -> dict[str, str]:
    """The task's own modules by name, beside its reference."""
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
    return modules


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
