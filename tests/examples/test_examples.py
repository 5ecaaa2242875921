"""Every example is complete, and among them they show what the service promises."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from domain.kernel import KernelType
from domain.result import Status
from stack.example import FOLDER, KERNELS, Example, every_example

EXAMPLES = every_example()
PROGRAMS = "rl"
"""Programs over the client, tried by tests/client/test_frameworks.py."""


def kernels(example: Example) -> list[dict[str, object]]:
    return [example.body[key] for key in KERNELS if key in example.body]


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example.name)
def test_an_example_is_complete(example: Example) -> None:
    assert example.endpoint in ("/evaluate", "/compare")
    wanted = 1 if example.endpoint == "/evaluate" else 2
    assert len(kernels(example)) == wanted
    assert all(kernel["source_code"] for kernel in kernels(example))
    assert example.note
    assert f"`{example.name}`" in (FOLDER / "README.md").read_text()


def test_every_folder_is_an_example_and_every_file_of_it_is_used() -> None:
    folders = {path.name for path in FOLDER.iterdir() if path.is_dir() and path.name not in ("__pycache__", PROGRAMS)}
    assert folders == {example.name for example in EXAMPLES}
    for folder in (FOLDER / name for name in folders):
        used = {"request.json", "expect.json", *_source_files(folder)}
        assert {path.name for path in folder.iterdir() if path.is_file()} == used


def _source_files(folder: Path) -> set[str]:
    body = json.loads((folder / "request.json").read_text())
    return {body[key]["source_file"] for key in KERNELS if key in body}


@pytest.mark.parametrize("kernel_type", KernelType)
def test_every_kernel_type_has_an_example_that_passes_on_a_gpu(kernel_type: KernelType) -> None:
    passing = [example for example in EXAMPLES if example.on_gpu is Status.PASSED]
    assert any(kernel["kernel_type"] == kernel_type for example in passing for kernel in kernels(example))


def test_the_ways_to_fail_are_shown() -> None:
    shown = {example.on_cpu for example in EXAMPLES}
    assert shown >= {Status.WRONG_RESULT, Status.COMPILE_ERROR, Status.CRASHED, Status.TIMEOUT}
    assert any(example.faster for example in EXAMPLES)
