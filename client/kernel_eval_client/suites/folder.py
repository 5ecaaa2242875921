"""Suites of KernelBench's layout: files with `Model`, `get_inputs` and `get_init_inputs`, and `ModelNew` candidates.

A problem is either a file `NAME.py`, or a folder `NAME/` with a `reference.py`. Its candidates are in the same folder,
or under the same path in a separate folder. Their names are `NAME.py`, `NAME.LABEL.py`, `NAME_LABEL.py` or
`NAME/LABEL.py`, also with `.cu`. KernelBench's `level_1_problem_3_sample_0_kernel.py` is a candidate for the file that
begins with `3_` in the folder `level1`.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator
from pathlib import Path

from kernel_eval_client.contract import IOContract
from kernel_eval_client.errors import CallerError
from kernel_eval_client.kernel import Kernel, KernelType, guess_type
from kernel_eval_client.suites.problem import Candidate, Problem
from kernel_eval_client.suites.sizes import read_sizes, with_sizes, with_small_sizes
from kernel_eval_client.text_file import read_text

REFERENCE = "reference.py"
SOURCES = frozenset({".py", ".cu"})
_MODEL = re.compile(r"^class Model\b", re.MULTILINE)
_NEW = re.compile(r"^class ModelNew\b", re.MULTILINE)
_INPUTS = re.compile(r"^def get_inputs\b", re.MULTILINE)
_LEVEL = re.compile(r"level_?(\d+)")
_SAMPLE = re.compile(r"level_(\d+)_problem_(\d+)(?:_(sample_\d+))?")


def read_problems(folder: Path, candidates: Path | None = None, *, small: bool = False) -> Iterator[Problem]:
    """Yields each problem below the folder, sorted by path. Raises CallerError for a file that it cannot read."""
    for path in _references(folder, candidates):
        in_folder = path.name == REFERENCE
        name = (path.parent if in_folder else path.with_suffix("")).relative_to(folder).as_posix()
        name = folder.resolve().name if name == "." else name
        source = read_text(path)
        paths = [path]
        if candidates is not None:
            by_title = candidates / _title(path) / path.name if in_folder else candidates / path.name
            paths = [candidates / path.relative_to(folder), by_title]
        files = {
            file.resolve(): file
            for location in paths
            for file in _candidate_files(location, _title(path), in_folder=in_folder)
        }
        if candidates is not None:
            files |= {file.resolve(): file for file in _samples(candidates, path, folder)}
        files.pop(path.resolve(), None)
        try:
            sizes = read_sizes(source, small=small)
            solutions = [_candidate(file, _label(file, _title(path)), sizes) for file in sorted(files.values())]
        except CallerError as error:
            raise CallerError(f"{path}: {error}") from error
        reference = Kernel(with_small_sizes(source) if small else source, KernelType.TORCH)
        yield Problem(name, reference, solutions, _level(path, folder), _summary(source))


def _references(folder: Path, candidates: Path | None) -> Iterator[Path]:
    excluded = candidates.resolve() if candidates is not None else None
    with_folder = {path.parent for path in folder.rglob(REFERENCE)}
    for path in sorted(folder.rglob("*.py"), key=_natural_key):
        if excluded is not None and excluded != folder.resolve() and path.resolve().is_relative_to(excluded):
            continue
        if path.name == REFERENCE:
            yield path
        elif path.parent not in with_folder:
            source = read_text(path)
            if _MODEL.search(source) and _INPUTS.search(source) and not _NEW.search(source):
                yield path


def _natural_key(path: Path) -> list[tuple[int, str]]:
    """A sort key that puts `2_b` before `10_a`."""
    return [
        (int(number) if number else 0, text) for part in path.parts for number, text in re.findall(r"(\d*)(\D*)", part)
    ]


def _title(reference: Path) -> str:
    return reference.parent.name if reference.name == REFERENCE else reference.stem


def _candidate_files(reference: Path, title: str, *, in_folder: bool) -> Iterator[Path]:
    """Source files for one problem: all in the problem's folder (`in_folder`), and those with its name next to it."""
    folder = reference.parent
    if in_folder:
        yield from (file for file in folder.glob("*") if file.suffix in SOURCES and file.name != REFERENCE)
        folder = folder.parent
    yield from (file for file in (folder / title).glob("*") if file.suffix in SOURCES and file.name != REFERENCE)
    for file in folder.glob("*"):
        if file.suffix in SOURCES and re.fullmatch(re.escape(title) + r"(?:[._].+)?", file.stem):
            yield file


def _samples(candidates: Path, reference: Path, folder: Path) -> Iterator[Path]:
    number, level = re.match(r"\d+", _title(reference)), _level(reference, folder)
    for file in candidates.rglob("level_*_problem_*.py"):
        sample = _SAMPLE.match(file.name)
        if sample and number and int(sample[2]) == int(number[0]) and level in (None, int(sample[1])):
            yield file


def _label(file: Path, title: str) -> str:
    if sample := _SAMPLE.match(file.name):
        return sample[3] or "candidate"
    label = file.stem.removeprefix(title).lstrip("._")
    return label or "candidate"


def _candidate(file: Path, label: str, sizes: dict[str, int]) -> Candidate:
    source = read_text(file)
    contract, io = file.with_suffix(".io.json"), None
    if contract.exists():
        try:
            io = IOContract.from_dict(with_sizes(json.loads(read_text(contract)), sizes))
        except (ValueError, TypeError, AttributeError) as error:
            raise CallerError(f"{contract} is no contract: {error}") from error
    return Candidate(label, Kernel(source, guess_type(source, file.name), io))


def _level(path: Path, folder: Path) -> int | None:
    matches = [_LEVEL.fullmatch(part) for part in (folder.resolve().name, *path.relative_to(folder).parts)]
    levels = [int(match[1]) for match in matches if match]
    return levels[-1] if levels else None


def _summary(source: str) -> str:
    try:
        return (ast.get_docstring(ast.parse(source)) or "").partition("\n")[0]
    except SyntaxError:
        return ""
