"""What a batch takes for a kernel: all that the service would call, and what does not parse."""

from __future__ import annotations

import warnings
from pathlib import Path

import pytest

from domain.paths import ROOT
from kernel_eval_client.cli.main import main
from kernel_eval_client.cli.no_submission import not_a_submission
from kernel_eval_client.cli.source import Choices, submissions_in
from kernel_eval_client.kernel import KernelType
from tests.mutants.corpus import originals


def test_of_the_examples_only_the_programs_are_skipped() -> None:
    below = submissions_in(ROOT / "examples", Choices(), None)
    found, skipped = below.submissions, below.skipped
    assert set(skipped) == {f"rl/{path.name}" for path in (ROOT / "examples" / "rl").glob("*.py")}
    assert {str(Path(each.label or "").name) for each in found} == {"request.json"}


@pytest.mark.parametrize(
    ("source", "name", "entry", "why"),
    [
        ("def kernel_fn(x:\n", "a.py", None, None),
        ("from other import kernel_fn\n", "a.py", None, None),
        ("kernel_fn = object()\n", "a.py", None, None),
        ("def only(x):\n    return x\n\ndef get_inputs():\n    return [1]\n", "a.py", None, None),
        ("@triton.jit\ndef add(x):\n    pass\n\n@triton.jit\ndef mul(x):\n    pass\n", "a.py", None, None),
        ("def one(x):\n    pass\n\ndef two(x):\n    pass\n", "a.py", None, "defines no Model, ModelNew, kernel"),
        ("def one(x):\n    pass\n\ndef two(x):\n    pass\n", "a.py", "two", None),
        ("def only(x):\n    return x\n", "a.py", "other", "it defines no other"),
        ("import kernel_eval_client as ke\n\ndef kernel_fn(x):\n    return x\n", "a.py", None, "uses this client"),
        ("#pragma once\n", "a.cu", None, "no __global__"),
    ],
)
def test_a_source_is_none_where_nothing_in_it_can_be_called(
    source: str, name: str, entry: str | None, why: str | None
) -> None:
    told = not_a_submission(source, name, entry)
    assert told is None if why is None else why in (told or "")


def test_no_kernel_of_the_corpus_is_skipped() -> None:
    names = {KernelType.CUDA.value: "a.cu"}
    skipped = [
        name
        for name, each in originals().items()
        if each.kernel_type != "multi_kernel"
        and not_a_submission(each.source, names.get(each.kernel_type, "a.py"), None)
    ]
    assert skipped == []


def test_a_source_that_is_only_read_makes_python_warn_of_nothing(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text('PATTERN = "\\ "\n')
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        assert main(["batch", str(tmp_path), "--url", "http://127.0.0.1:9"]) == 2
        assert not seen
        not_a_submission((tmp_path / "a.py").read_text(), "a.py", None)
    assert len(seen) == 1
