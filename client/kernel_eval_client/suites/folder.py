"""Suites of KernelBench's layout: files with `Model`, `get_inputs` and `get_init_inputs`, and `ModelNew` candidates.

A problem is either a file `NAME.py`, or a folder `NAME/` with a `reference.py`. Its candidates stand beside it or in a
folder of their own, under the same path: `NAME.py`, `NAME.LABEL.py`, `NAME_LABEL.py` or `NAME/LABEL.py` (`.cu` too), or
KernelBench's `level_1_problem_3_sample_0_kernel.py` for the file that begins with `3_` in the folder `level1`.
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
from kernel_eval_client.suites.sizes import filled, shrunk, sizes_of
from kernel_eval_client.text_file import text_of

REFERENCE = "reference.py"
SOURCES = frozenset({".py", ".cu"})
_MODEL = re.compile(r"^class Model\b", re.MULTILINE)
_NEW = re.compile(r"^class ModelNew\b", re.MULTILINE)
_INPUTS = re.compile(r"^def get_inputs\b", re.MULTILINE)
_LEVEL = re.compile(r"level_?(\d+)")
_SAMPLE = re.compile(r"level_(\d+)_problem_(\d+)(?:_(sample_\d+))?")


def problems_in(folder: Path, candidates: Path | None = None, *, small: bool = False) -> Iterator[Problem]:
    """Every problem below the folder, by name. Raises CallerError for a file that cannot be read."""
    for path in _references(folder, candidates):
        own = path.name == REFERENCE
        name = (path.parent if own else path.with_suffix("")).relative_to(folder).as_posix()
        name = folder.resolve().name if name == "." else name
        source = text_of(path)
        places = [path]
        if candidates is not None:
            by_title = candidates / _title(path) / path.name if own else candidates / path.name
            places = [candidates / path.relative_to(folder), by_title]
        files = {file.resolve(): file for place in places for file in _beside(place, _title(path), own=own)}
        if candidates is not None:
            files |= {file.resolve(): file for file in _samples(candidates, path, folder)}
        files.pop(path.resolve(), None)
        try:
            sizes = sizes_of(source, small=small)
            found = [_candidate(file, _label(file, _title(path)), sizes) for file in sorted(files.values())]
        except CallerError as error:
            raise CallerError(f"{path}: {error}") from error
        reference = Kernel(shrunk(source) if small else source, KernelType.TORCH)
        yield Problem(name, reference, found, _level(path, folder), _about(source))


def _references(folder: Path, candidates: Path | None) -> Iterator[Path]:
    theirs = candidates.resolve() if candidates is not None else None
    with_folder = {path.parent for path in folder.rglob(REFERENCE)}
    for path in sorted(folder.rglob("*.py"), key=_in_order):
        if theirs is not None and theirs != folder.resolve() and path.resolve().is_relative_to(theirs):
            continue
        if path.name == REFERENCE:
            yield path
        elif path.parent not in with_folder:
            source = text_of(path)
            if _MODEL.search(source) and _INPUTS.search(source) and not _NEW.search(source):
                yield path


def _in_order(path: Path) -> list[tuple[int, str]]:
    """`2_b` before `10_a`."""
    return [
        (int(number) if number else 0, rest) for part in path.parts for number, rest in re.findall(r"(\d*)(\D*)", part)
    ]


def _title(reference: Path) -> str:
    return reference.parent.name if reference.name == REFERENCE else reference.stem


def _beside(place: Path, title: str, *, own: bool) -> Iterator[Path]:
    """What stands in the problem's own folder; else what has its name, in its folder or in one called as it is."""
    folder = place.parent
    if own:
        yield from (file for file in folder.glob("*") if file.suffix in SOURCES and file.name != REFERENCE)
        folder = folder.parent
    yield from (file for file in (folder / title).glob("*") if file.suffix in SOURCES and file.name != REFERENCE)
    for file in folder.glob("*"):
        if file.suffix in SOURCES and re.fullmatch(re.escape(title) + r"(?:[._].+)?", file.stem):
            yield file


def _samples(candidates: Path, reference: Path, folder: Path) -> Iterator[Path]:
    number, level = re.match(r"\d+", _title(reference)), _level(reference, folder)
    for file in candidates.rglob("level_*_problem_*.py"):
        found = _SAMPLE.match(file.name)
        if found and number and int(found[2]) == int(number[0]) and level in (None, int(found[1])):
            yield file


def _label(file: Path, title: str) -> str:
    if sample := _SAMPLE.match(file.name):
        return sample[3] or "candidate"
    rest = file.stem.removeprefix(title).lstrip("._")
    return rest or "candidate"


def _candidate(file: Path, label: str, sizes: dict[str, int]) -> Candidate:
    source = text_of(file)
    contract, io = file.with_suffix(".io.json"), None
    if contract.exists():
        try:
            io = IOContract.from_dict(filled(json.loads(text_of(contract)), sizes))
        except (ValueError, TypeError, AttributeError) as error:
            raise CallerError(f"{contract} is no contract: {error}") from error
    return Candidate(label, Kernel(source, guess_type(source, file.name), io))


def _level(path: Path, folder: Path) -> int | None:
    found = [_LEVEL.fullmatch(part) for part in (folder.resolve().name, *path.relative_to(folder).parts)]
    levels = [int(each[1]) for each in found if each]
    return levels[-1] if levels else None


def _about(source: str) -> str:
    try:
        return (ast.get_docstring(ast.parse(source)) or "").partition("\n")[0]
    except SyntaxError:
        return ""
