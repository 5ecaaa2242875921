"""One real service for all of them, an example as a module, and a package that may not be here."""

from __future__ import annotations

import importlib
import importlib.util
import os
from collections.abc import Iterator
from types import ModuleType

import pytest

from domain.paths import ROOT
from kernel_eval_client.suites import read
from tests.stack.serving import READY_S, serve, wait_for

EXAMPLES = ROOT / "examples" / "rl"
NAME = "level1/vector_add"


def package(name: str) -> ModuleType:
    """It, or a skipped test. `make frameworks` sets FRAMEWORKS: there a package that is not installed is a failure."""
    if "FRAMEWORKS" in os.environ:
        return importlib.import_module(name)
    return pytest.importorskip(name, reason=f"{name} is not installed here; `make frameworks` runs this test")


def example(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def reference_and_answer() -> tuple[str, str]:
    """A problem of the starter suite at its small sizes, and a completion that solves it."""
    (problem,) = [each for each in read("starter", small=True) if each.name == NAME]
    solution = {each.label: each.kernel for each in problem.candidates}["torch"]
    assert problem.reference is not None and solution is not None
    return problem.reference.source_code, f"```python\n{solution.source_code}```\n"


@pytest.fixture(scope="package")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """`make serve` on the CPU; stopped with the last of these tests."""
    with serve(tmp_path_factory.mktemp("frameworks"), GPU_DEVICE="cpu", MAX_WORKERS="2") as serving:
        wait_for(serving.ready, READY_S, "it is ready")
        yield serving.url


@pytest.fixture
def service(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Its address, as the examples read it; it is started by the first test that is not skipped."""
    found: str = request.getfixturevalue("url")
    monkeypatch.setenv("KERNEL_EVAL_URL", found)
    return found
