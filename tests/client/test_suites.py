"""Suites: what is found in each layout, what cannot be handed over, the score, and a run that is broken off."""

from __future__ import annotations

import dataclasses
import json
import math
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from domain.paths import ROOT
from kernel_eval_client import KernelType, Result, Speedup, errors
from kernel_eval_client.cli import show
from kernel_eval_client.flag import FIXED_OUTPUTS_PASS, Flag
from kernel_eval_client.result import Comparison
from kernel_eval_client.suites import STARTER, Outcome, cases, read, score
from kernel_eval_client.suites.modules import sort_by_imports
from kernel_eval_client.suites.problem import NotConvertible
from kernel_eval_client.suites.result_log import ResultLog, request_key
from kernel_eval_client.suites.sizes import read_sizes, with_sizes
from tests.client.suite_files import (
    CHECKED_BY_CODE,
    REFERENCE,
    flashinfer_set,
    gpu_mode_task,
    kernelbench_folder,
    result_of,
    robust_kbench_task,
    safetensors,
    workload,
)


def test_the_starter_suite_has_forty_problems_of_four_levels() -> None:
    problems = read("starter")
    assert [sum(each.level == level for each in problems) for level in (1, 2, 3, 4)] == [14, 13, 8, 5]
    labels = {each.name: {candidate.label for candidate in each.candidates} for each in problems}
    assert all("torch" in found for found in labels.values())
    types = {str(c.kernel.kernel_type) for each in problems for c in each.candidates if c.kernel}
    assert types == {"torch", "triton", "cuda", "torch_cuda"}
    counts = {label: sum(label in found for found in labels.values()) for label in types}
    told = " ".join((ROOT / "docs" / "suites.md").read_text(encoding="utf-8").split())
    assert "14 single operators, 13 fused sequences, 8 whole blocks, 5 small" in told
    sentence = "Each has a `torch` answer, {triton} a `triton` one, {cuda} raw `cuda`, {torch_cuda} `torch_cuda`."
    assert sentence.format(**counts) in told
    for each in problems:
        for candidate in each.candidates:
            assert candidate.kernel and candidate.kernel.kernel_type == candidate.label, (each.name, candidate.label)
        assert each.reference and each.reference.kernel_type is KernelType.TORCH and each.about.endswith(".")


@pytest.mark.parametrize("small", [False, True])
def test_a_contract_of_the_starter_suite_has_numbers_for_sizes(small: bool) -> None:
    (problem,) = [each for each in read("starter", small=small) if each.name == "level1/max_pool"]
    kernel = {each.label: each.kernel for each in problem.candidates}["cuda"]
    assert kernel is not None and kernel.io is not None
    wire = kernel.io.to_dict()
    assert wire["args"][1]["tensor_spec"]["shape"] == ([1, 3, 6, 8] if small else [1, 1024, 64, 64])
    assert wire["launch"]["grid"]["x"] == "cdiv(n, 256)"


def test_sizes_are_evaluated_and_what_is_no_size_is_named() -> None:
    sizes = read_sizes("SIZES = {'n': 6, 'm': 4}\nSMALL = {'n': 2, 'm': 1}\n", small=False)
    wire = {
        "args": [{"type": "int", "value": "n*m - 4"}, {"type": "str", "value": "n"}],
        "launch": {"grid": ["n", "k"]},
    }
    assert with_sizes(wire, sizes) == {
        "args": [{"type": "int", "value": 20}, {"type": "str", "value": "n"}],
        "launch": {"grid": [6, "k"]},
    }
    with pytest.raises(errors.CallerError, match="'k' is no size"):
        with_sizes({"shape": ["k"]}, sizes)
    with pytest.raises(errors.CallerError, match="no SMALL"):
        read_sizes("SIZES = {}", small=True)
    with pytest.raises(errors.CallerError, match="whole numbers"):
        read_sizes("SIZES = {'n': f()}", small=False)


def test_kernelbench_s_own_names_and_ours(tmp_path: Path) -> None:
    folder = kernelbench_folder(tmp_path)
    found = {each.name: {c.label for c in each.candidates} for each in read(folder)}
    assert found == {"level1/2_twice": {"candidate", "better"}, "level1/10_relu": set(), "level2/sums": {"torch"}}
    assert list(found) == ["level1/2_twice", "level1/10_relu", "level2/sums"]
    (samples := tmp_path / "samples").mkdir()
    for name in ("level_1_problem_2_sample_0_kernel.py", "level_1_problem_2_sample_1_kernel.py", "sums.cu"):
        (samples / name).write_text("class ModelNew:\n    pass\n")
    found = {each.name: {c.label for c in each.candidates} for each in read(folder, samples)}
    assert found == {"level1/2_twice": {"sample_0", "sample_1"}, "level1/10_relu": set(), "level2/sums": {"candidate"}}


def test_a_problem_without_candidates_is_a_case_that_says_so(tmp_path: Path) -> None:
    folder = kernelbench_folder(tmp_path)
    (case,) = [case for case in cases(read(folder)) if case.problem.name == "level1/10_relu"]
    assert case.submission is None and case.refused == "no candidate was found"


@pytest.mark.parametrize(
    ("folder", "message"), [("nosuch", "no folder"), ("empty", "no problem of the layout kernelbench")]
)
def test_a_folder_without_problems(tmp_path: Path, folder: str, message: str) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(errors.CallerError, match=message):
        read(tmp_path / folder)


def test_a_gpu_mode_task_becomes_a_problem_with_its_tests_and_benchmarks_as_cases(tmp_path: Path) -> None:
    (problem,) = read(gpu_mode_task(tmp_path))
    assert (problem.name, problem.timed) == ("add", True)
    cases = problem.options["cases"]
    assert [(case["name"], case["timed"]) for case in cases] == [
        ("benchmark_0", True),
        ("test_0", False),
        ("test_1", False),
    ]
    assert all({"size", "seed"} <= case["arguments"].keys() for case in cases)
    assert {**problem.options, "cases": None} == {"atol": 1e-4, "rtol": 1e-3, "cases": None}
    assert [each.label for each in problem.candidates] == ["submission", "wrong"]
    source = problem.candidates[0].kernel
    assert source is not None and source.metadata == {"function_name": "kernel_eval_entry"}
    first = problem.reference.source_code.splitlines() if problem.reference else []
    assert first[1] == "import torch"  # The prelude took the place of a comment, so that lines keep their numbers.


@pytest.mark.parametrize(
    "check",
    [
        "check_implementation = make_match_reference(ref_kernel, 1e-3, 1e-4)",
        "def check_implementation(data, output):\n    return torch.allclose(ref_kernel(data), output, 1e-3, atol=1e-4)",
    ],
)
def test_tolerances_of_a_gpu_mode_task_may_have_no_names(tmp_path: Path, check: str) -> None:
    folder = gpu_mode_task(tmp_path)
    named = "check_implementation = make_match_reference(ref_kernel, rtol=1e-3, atol=1e-4)"
    (folder / "add" / "reference.py").write_text(REFERENCE.replace(named, check))
    (problem,) = read(folder)
    assert {**problem.options, "cases": None} == {"atol": 1e-4, "rtol": 1e-3, "cases": None}


def test_computed_tolerances_of_a_gpu_mode_task_are_the_services_own(tmp_path: Path) -> None:
    folder = gpu_mode_task(tmp_path)
    computed = REFERENCE.replace("rtol=1e-3, atol=1e-4", "rtol=1e-5 * SCALE, atol=1e-4")
    (folder / "add" / "reference.py").write_text(computed)
    (problem,) = read(folder)
    assert problem.reference is not None and set(problem.options) == {"cases"}
    assert problem.about.startswith("Its check computes tolerances, so the service's own apply.")


def test_a_gpu_mode_task_of_many_cases_becomes_several_problems(tmp_path: Path) -> None:
    folder = gpu_mode_task(tmp_path)
    tests = "".join(f"  - {{size: {size}, seed: 1}}\n" for size in range(1, 34))
    (folder / "add" / "task.yml").write_text(f"lang: py\ntests:\n{tests}")
    problems = read(folder)
    assert [(each.name, each.timed, len(each.options["cases"])) for each in problems] == [
        ("add/part_0", False, 32),
        ("add/part_1", False, 1),
    ]
    assert all(case["timed"] for each in problems for case in each.options["cases"])  # A job has to time one.


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"reference.py": CHECKED_BY_CODE}, "more than a comparison element by element"),
        ({"reference.py": "def ref_kernel(data):\n    return data\n"}, "no check_implementation"),
        ({"reference.py": REFERENCE.replace("rtol=1e-3", "rtol=1e-3, tol_err_ratio=0.05")}, "has tol_err_ratio"),
        ({"task.yml": "multi_gpu: true\ntests: [{size: 1, seed: 1}]\n"}, "several GPUs"),
        ({"task.yml": "lang: cu\ntests: [{size: 1, seed: 1}]\n"}, "written in cu"),
    ],
)
def test_a_gpu_mode_task_that_cannot_be_handed_over_says_why(tmp_path: Path, changes: dict[str, str], why: str) -> None:
    folder = gpu_mode_task(tmp_path)
    for name, text in changes.items():
        (folder / "add" / name).write_text(text)
    assert all(each.reference is None and why in (each.refused or "") for each in read(folder))


@pytest.mark.parametrize("size", ["size", "size + 1"])
def test_a_reference_returns_the_dtype_of_the_buffer_for_its_output(tmp_path: Path, size: str) -> None:
    folder = gpu_mode_task(tmp_path)
    reference = REFERENCE.replace("x + y * scale", "(x + y * scale).double()").replace(
        "torch.empty(size)\n\n", f"torch.empty({size})\n\n"
    )
    (folder / "add" / "reference.py").write_text(reference)
    (problem,) = read(folder)
    assert problem.reference is not None
    call = f"print({problem.reference.metadata['function_name']}(*get_inputs(size=8, seed=1)).dtype)"
    source = f"{problem.reference.source_code}\n{call}\n"
    done = subprocess.run([sys.executable, "-c", source], capture_output=True, text=True, timeout=120)
    assert done.stdout == ("torch.float32\n" if size == "size" else "torch.float64\n"), done.stderr


def test_a_robust_kbench_task_becomes_a_problem_with_its_configurations_as_cases(tmp_path: Path) -> None:
    folder = robust_kbench_task(tmp_path)
    (problem,) = read(folder)
    sizes = [(case["arguments"]["rows"], case["arguments"]["width"]) for case in problem.options["cases"]]
    assert problem.name == "linear" and sizes == [(3, 8), (3, 6), (5, 8), (5, 6)]
    (candidate,) = problem.candidates
    assert candidate.kernel is not None and candidate.kernel.kernel_type is KernelType.TORCH_CUDA
    assert candidate.kernel.metadata == {"entry_point": "forward"}
    (with_others,) = read(folder, folder / "mine")
    assert [each.label for each in with_others.candidates] == ["right", "wrong"]
    (folder / "linear" / "config_forward.json").write_text('{"single_input_configs": [{"rows": 4}]}')
    assert [case["arguments"] for case in read(folder)[0].options["cases"]] == [{"rows": 4}]
    (folder / "linear" / "config_forward.json").write_text("[1]")
    with pytest.raises(errors.CallerError, match="no configuration of a task"):
        read(folder)


def test_a_flashinfer_definition_becomes_a_problem_for_each_workload(tmp_path: Path) -> None:
    problems = {each.name: each for each in read(flashinfer_set(tmp_path))}
    scaled = problems["scaled_rows/aaaa0001"]
    assert scaled.reference is not None and scaled.reference.io is not None
    wire = [arg.to_dict() for arg in scaled.reference.io.args]
    roles = [("x", "input"), ("scale", "input"), ("y", "output"), ("negative", "output")]
    assert [(arg["name"], arg["role"]) for arg in wire] == roles
    assert wire[0]["tensor_spec"]["shape"] == [5, 8] and wire[1]["value"] == 0.5
    assert {each.label: each.refused for each in scaled.candidates if each.refused} == {
        "host": "its entry point is main.cpp: host code in C++ behind a binding",
        "stranger": "its run takes factor by keyword, and not the definition's inputs by name",
        "header": "it brings a file notes; a kernel is modules of Python in one folder",
    }
    gathered = problems["gathered/bbbb0001"]
    assert gathered.reference is not None and gathered.reference.io is not None
    assert gathered.reference.io.args[1].to_dict()["tensor_spec"]["data"]["shape"] == [3]


def test_workloads_that_differ_in_sizes_alone_are_the_cases_of_one_problem(tmp_path: Path) -> None:
    root = flashinfer_set(tmp_path)
    random = {"type": "random"}
    lines = [
        workload("scaled_rows", f"{uuid}-x", {"rows": rows}, x=random, scale={"type": "scalar", "value": scale})
        for uuid, rows, scale in (
            ("aaaa0001", 5, 0.5),
            ("aaaa0002", 33, 0.5),
            ("aaaa0003", 5, 2.0),
            ("aaaa0004", 8, 0.5),
        )
    ]
    lines.append(workload("scaled_rows", "aaaa0005", {}, x=random, scale={"type": "scalar", "value": 0.5}))
    (root / "workloads" / "rows" / "scaled_rows.jsonl").write_text("".join(lines))
    problems = {each.name: each for each in read(root) if each.name.startswith("scaled_rows")}
    assert list(problems) == ["scaled_rows/aaaa0001", "scaled_rows/aaaa0003", "scaled_rows/aaaa0005"]
    first, other, without_size = problems.values()
    assert [(case["name"], case["arguments"]["rows"]) for case in first.options["cases"]] == [
        ("1 aaaa0001", 5),
        ("2 aaaa0002", 33),
        ("3 aaaa0004", 8),
    ]
    assert first.reference is not None and first.reference.io is not None
    shapes = [arg.tensor_spec.shape for arg in first.reference.io.args if arg.tensor_spec is not None]
    assert shapes == [["rows", "width"]] * 3
    assert "cases" not in other.options and "is no size: rows" in str(without_size.refused)


def test_an_axis_is_worked_out_and_never_run(tmp_path: Path) -> None:
    root = flashinfer_set(tmp_path)
    path = root / "definitions" / "rows" / "scaled_rows.json"
    wire = json.loads(path.read_text())
    wire["axes"]["twice"]["expression"] = "__import__('os').getpid()"
    path.write_text(json.dumps(wire))
    (problem,) = [each for each in read(root) if each.name == "scaled_rows/aaaa0001"]
    assert problem.reference is None and "the axis twice: \"__import__('os').getpid()\" is no size" in str(
        problem.refused
    )


def test_files_that_import_each_other_are_refused() -> None:
    assert list(sort_by_imports({"a": "import b\n", "b": "from c import x\n", "c": "import torch\n"})) == [
        "c",
        "b",
        "a",
    ]
    with pytest.raises(NotConvertible, match="import each other: a, b"):
        sort_by_imports({"a": "import b\n", "b": "def f():\n    from a import x\n"})


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("gathered/bbbb0002", "its bounds are in no definition"),
        ("gathered/bbbb0003", "is not here"),
        ("gathered/bbbb0004", "outside the data set"),
        ("gathered/bbbb0005", "no size for the axis count"),
        ("unused", "has no workload"),
        ("gathered/bbbb0006", "the workload has no index"),
    ],
)
def test_a_workload_that_cannot_be_handed_over_says_why(tmp_path: Path, name: str, why: str) -> None:
    problems = {each.name: each for each in read(flashinfer_set(tmp_path))}
    assert problems[name].reference is None and why in (problems[name].refused or "")


def test_a_safetensors_file_is_read_within_bounds(tmp_path: Path) -> None:
    from kernel_eval_client.suites.safetensors import read_tensor

    path = safetensors(tmp_path / "values.safetensors", "I32", [3], b"abcdabcdabcd")
    assert read_tensor(path, "values", 12) == ("int32", [3], b"abcdabcdabcd")
    for key, most, message in (("values", 11, "11 can be sent at most"), ("nosuch", 12, "cannot be read")):
        with pytest.raises(errors.CallerError, match=message):
            read_tensor(path, key, most)
    path.write_bytes(b"\xff" * 40)
    with pytest.raises(errors.CallerError, match="no safetensors file"):
        read_tensor(path, "values", 12)


def outcome(problem: str, verdict: str | None, ratio: float | None = None, **more: Any) -> Outcome:
    speedup = None if ratio is None else Speedup(ratio, ratio * 0.9, ratio * 1.1, "faster")
    found = None if verdict is None else result_of(verdict, speedup)
    return Outcome(problem, more.pop("candidate", "c"), result=found, **more)


def test_the_score_counts_each_problem_once_with_its_best_candidate() -> None:
    found = score(
        [
            outcome("a", "wrong_result", candidate="one"),
            outcome("a", "passed", 2.0, candidate="two"),
            outcome("a", "passed", 1.2, candidate="three"),
            outcome("b", "passed", 1.05),
            outcome("c", "passed"),  # Right, and too short to be told from zero.
            outcome("d", "compile_error"),
            outcome("e", "unsupported"),
            outcome("f", None, reason="the service failed"),
        ]
    )
    assert (found.problems, found.not_judged) == (6, 2)
    assert (found.correct.count, found.correct.of) == (3, 4)
    assert {p: share.count for p, share in found.fast.items()} == {"0.8": 2, "1": 2, "1.5": 1, "2": 0}
    assert {p: share.count for p, share in found.surely_fast.items()} == {"0.8": 2, "1": 1, "1.5": 1, "2": 0}
    assert found.speedup is not None and found.speedup.of == 2
    assert found.speedup.ratio == pytest.approx(math.sqrt(2.0 * 1.05))
    assert found.speedup.ci_low < found.speedup.ratio < found.speedup.ci_high
    assert json.loads(json.dumps(found.to_dict()))["correct"]["count"] == 3


def test_a_kernel_does_not_get_out_of_the_score_by_calling_itself_unsupported() -> None:
    there, nowhere = outcome("a", "unsupported"), outcome("b", "unsupported")
    assert there.result is not None
    on_a_gpu = dataclasses.replace(there.result, environment={"gpu_name": "NVIDIA H200"})
    found = score([dataclasses.replace(there, result=on_a_gpu), nowhere, outcome("c", "passed", 2.0)])
    assert (found.not_judged, found.correct.count, found.correct.of) == (1, 1, 2)


def test_what_the_service_failed_is_no_speed_up_of_one() -> None:
    judged = [outcome("a", "passed", 2.0), outcome("b", "wrong_result")]
    failed = [outcome("c", None, reason="the service failed"), outcome("d", "reference_failed")]
    found = score([*judged, *failed])
    assert dataclasses.replace(found, problems=2, not_judged=0) == score(judged)
    assert found.not_judged == 2 and score(failed).speedup is None


def test_a_bound_is_no_ratio() -> None:
    at_least, at_most = Speedup(1.6, 1.6, None, "faster"), Speedup(0.9, 0.0, 0.9, "slower")
    low = Speedup(0.2, 0.2, None, "not_distinguishable")
    outcomes = [Outcome(each.verdict, "c", result=result_of("passed", each)) for each in (at_least, at_most, low)]
    found = score([*outcomes, outcome("measured", "passed", 2.0)])
    assert found.bounds == 3 and found.speedup is not None and (found.speedup.of, found.speedup.ratio) == (1, 2.0)
    assert {p: share.count for p, share in found.fast.items()} == {"0.8": 2, "1": 2, "1.5": 2, "2": 0}
    assert [show.speedup(each) for each in (at_least, at_most, low)] == [">= 1.60x", "<= 0.90x", ">= 0.20x"]


def test_the_interval_of_the_mean_covers_what_it_should(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of suites drawn from a known distribution: the true mean is inside 95 % of the intervals, or nearly."""
    monkeypatch.setattr("kernel_eval_client.suites.scoring.BOOTSTRAP_DRAWS", 300)
    chance, inside = random.Random(1), 0
    for _ in range(60):
        ratios = [math.exp(chance.gauss(math.log(1.5), 0.5)) for _ in range(30)]
        found = score([outcome(str(n), "passed", ratio) for n, ratio in enumerate(ratios)]).speedup
        inside += found is not None and found.ci_low <= 1.5 <= found.ci_high
    assert inside >= 52


def test_an_untimed_problem_counts_for_correctness_only() -> None:
    found = score([outcome("a", "passed", 3.0, timed=False), outcome("b", "passed", 1.3)])
    assert found.correct.of == 2 and found.fast["1"].of == 1
    assert found.speedup is not None and found.speedup.ratio == pytest.approx(1.3)


def test_a_problem_that_fixed_outputs_pass_counts_for_correctness_only_and_is_listed() -> None:
    weak = outcome("a", "passed", 13.0)
    assert weak.result is not None
    comparison = Comparison(True, weak_reference=(Flag(FIXED_OUTPUTS_PASS, "zeros would pass"),))
    told = dataclasses.replace(weak.result, kernel=dataclasses.replace(weak.result.kernel, comparison=comparison))
    found = score([dataclasses.replace(weak, result=told), outcome("a", "wrong_result"), outcome("b", "passed", 1.3)])
    assert found.fixed_outputs_pass == ["a"] and found.correct.count == 2 and found.fast["1"].of == 1
    assert found.speedup is not None and found.speedup.ratio == pytest.approx(1.3)


def test_nothing_judged_has_no_score() -> None:
    found = score([outcome("a", "reference_failed")])
    assert found.correct.part is None and found.speedup is None and found.not_judged == 1


def test_a_book_goes_on_after_a_line_that_was_cut_off(tmp_path: Path) -> None:
    path = tmp_path / "book.jsonl"
    (first, second) = [case.submission for case in cases(read("starter")) if case.submission][:2]
    assert first is not None and second is not None and request_key(first) != request_key(second)
    with ResultLog(path) as book:
        book.write(request_key(first), "p", "c", result_of("passed", None))
        book.write(request_key(second), "q", "c", {"fault": "service"})
    whole = path.read_text()
    path.write_text(whole + whole.splitlines()[0][:40])
    for _ in range(2):
        with ResultLog(path) as book:
            assert set(book.results) == {request_key(first)}
    with ResultLog(path) as book:
        book.write(request_key(second), "q", "c", result_of("wrong_result", None))
    with ResultLog(path) as book:
        assert {each.verdict for each in book.results.values()} == {"passed", "wrong_result"}
    with ResultLog(path, again=True) as book:
        assert book.results == {}


def test_a_book_with_something_else_in_it_is_refused(tmp_path: Path) -> None:
    (path := tmp_path / "book.jsonl").write_text("not ours\n")
    with pytest.raises(errors.CallerError, match="line 1"):
        ResultLog(path)


def test_results_in_a_book_are_whole(tmp_path: Path) -> None:
    found = result_of("passed", Speedup(1.5, 1.4, None, "faster"))
    with ResultLog(tmp_path / "b", again=True) as book:
        book.write("k", "p", "c", found)
    with ResultLog(tmp_path / "b") as book:
        assert book.results["k"].speedup == Result.from_dict(found.raw).speedup == found.speedup


def test_the_suite_that_comes_along_is_where_it_says() -> None:
    assert (STARTER / "level1" / "softmax" / "reference.py").exists()
