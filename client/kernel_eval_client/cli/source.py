"""Reads submissions from files: a source with its contract, or a JSON request with the sources that it names."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from kernel_eval_client.cli.no_submission import not_a_submission
from kernel_eval_client.contract import IOContract
from kernel_eval_client.errors import CallerError
from kernel_eval_client.kernel import Kernel, KernelType, guess_type
from kernel_eval_client.submission import Submission
from kernel_eval_client.text_file import read_text

SOURCES = frozenset({".py", ".cu"})
_ENTRY_KEYS = {
    KernelType.CUDA: "kernel_name",
    KernelType.TRITON: "kernel_name",
    KernelType.GLUON: "kernel_name",
    KernelType.MULTI_KERNEL: "entry_point",
}
_KERNELS = ("kernel", "ref_kernel", "custom_kernel")


@dataclass(frozen=True)
class Choices:
    """The command line's options about a source. None: the client guesses it or does without."""

    kernel_type: str | None = None
    io: Path | None = None
    entry: str | None = None
    compiler_options: tuple[str, ...] = ()


def read_kernel(path: Path, choices: Choices) -> Kernel:
    """The kernel in a source file.

    Its contract is `choices.io`, else an existing `NAME.io.json` in its folder. Raises CallerError for a file that
    cannot be read.
    """
    source = read_text(path)
    kernel_type = KernelType(choices.kernel_type) if choices.kernel_type else guess_type(source, path.name)
    default_contract = path.with_suffix(".io.json")
    contract = choices.io or (default_contract if default_contract.exists() else None)
    metadata: dict[str, Any] = {}
    if choices.entry:
        metadata[_ENTRY_KEYS.get(kernel_type, "function_name")] = choices.entry
    if choices.compiler_options:
        metadata["compiler_options"] = list(choices.compiler_options)
    io = None if contract is None else IOContract.from_dict(_object(contract))
    return Kernel(source, kernel_type, io, metadata or None)


def read_submission(path: Path, choices: Choices, reference: Kernel | None = None) -> Submission:
    """One kernel to evaluate, or to compare with a reference; a `.json` file is a whole request."""
    if path.suffix != ".json":
        return Submission(read_kernel(path, choices), reference, label=str(path))
    body = _object(path)
    for kernel in (body[name] for name in _KERNELS if isinstance(body.get(name), dict)):
        if "source_file" in kernel:
            kernel["source_code"] = read_text(path.parent / str(kernel.pop("source_file")))
    return Submission.from_dict({**body, "label": str(path)})


def read_cases(path: Path) -> list[dict[str, Any]]:
    """The list of cases in a JSON file. Raises CallerError for another file; the service checks the cases."""
    wire = _json(path)
    if not isinstance(wire, list):
        raise CallerError(f'{path} holds no JSON list of cases, such as [{{"name": "odd", "arguments": {{"n": 33}}}}]')
    return wire


@dataclass(frozen=True)
class Folder:
    """The content of a folder: submissions, and by file name the reasons for skipped and for unreadable files."""

    submissions: list[Submission]
    skipped: dict[str, str]
    unreadable: dict[str, CallerError]


def submissions_in(folder: Path, choices: Choices, reference: Kernel | None) -> Folder:
    """Reads every request and every source below a folder.

    A source that a request names is no submission by itself. A source with a contract always is one.
    """
    requests: dict[Path, dict[str, Any]] = {}
    result = Folder([], {}, {})
    for path in folder.rglob("*.json"):
        try:
            if _is_request(request := _json(path)):
                requests[path] = request
        except CallerError as error:
            result.unreadable[str(path.relative_to(folder))] = error
    named = {
        (path.parent / str(kernel["source_file"])).resolve()
        for path, request in requests.items()
        for kernel in (request[name] for name in _KERNELS if isinstance(request.get(name), dict))
        if "source_file" in kernel
    }
    sources = [path for path in folder.rglob("*") if path.suffix in SOURCES and not path.is_dir()]
    separate = [path for path in sources if path.resolve() not in named]
    for path in sorted([*requests, *separate]):
        name = str(path.relative_to(folder))
        try:
            reason = None
            if path not in requests and not path.with_suffix(".io.json").exists():
                reason = not_a_submission(read_text(path), path.name, choices.entry)
            if reason is None:
                result.submissions.append(replace(read_submission(path, choices, reference), label=name))
            else:
                result.skipped[name] = reason
        except CallerError as error:
            result.unreadable[name] = error
    return result


def _is_request(wire: Any) -> bool:
    return isinstance(wire, dict) and not {"kernel", "custom_kernel", "custom_code"}.isdisjoint(wire)


def _json(path: Path) -> Any:
    try:
        return json.loads(read_text(path))
    except ValueError as error:
        raise CallerError(f"{path} is not JSON: {error}") from error


def _object(path: Path) -> dict[str, Any]:
    wire = _json(path)
    if not isinstance(wire, dict):
        raise CallerError(f"{path} holds no JSON object")
    return wire
