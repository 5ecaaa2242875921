"""`kernel-eval suite` against the real service, in each layout."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from kernel_eval_client.suites import read
from tests.client.failing import Reply, Told, listening
from tests.client.suite_files import (
    NEW,
    TWICE,
    flashinfer_set,
    gpu_mode_structures,
    gpu_mode_task,
    kernelbench_folder,
    robust_kbench_task,
    write,
)
from tests.client.test_cli import QUICK, Command, run  # noqa: F401
from tests.conftest import free_port

BRIEF = (*QUICK, "--budget", "quick")


def lines(command: Command) -> tuple[dict[str, dict[str, Any]], dict[str, Any]]:
    """What was said of each candidate, and the scores."""
    *found, last = map(json.loads, command.out.splitlines())
    return {f"{each['problem']}:{each['candidate']}": each for each in found}, last["scores"]


def verdicts(found: dict[str, dict[str, Any]]) -> dict[str, str | None]:
    return {name: each["result"] and each["result"]["verdict"] for name, each in found.items()}


def test_a_suite_is_scored_and_goes_on_where_it_was(run: Command, tmp_path: Path) -> None:  # noqa: F811
    folder, results = kernelbench_folder(tmp_path), tmp_path / "results.jsonl"
    command = ("suite", folder, "--results", results, "--json", *BRIEF)
    assert run(*command, "--level", "1") == 0
    found, scores = lines(run)
    assert verdicts(found) == {
        "level1/2_twice:candidate": "passed",
        "level1/2_twice:better": "passed",
        "level1/10_relu:–": None,
    }
    assert found["level1/10_relu:–"]["reason"] == "no candidate was found"
    assert scores["all"]["correct"]["count"] == 1 and scores["all"]["not_judged"] == 1
    assert run(*command) == 0
    assert "2 of 4 are in" in run.err
    again, _ = lines(run)
    assert again["level1/2_twice:better"]["result"]["job_id"] == found["level1/2_twice:better"]["result"]["job_id"]
    assert again["level2/sums:torch"]["result"]["verdict"] == "passed"
    written = [json.loads(line) for line in results.read_text().splitlines()]
    assert len(written) == 2  # Two candidates of the first problem are the same request, judged once.


def test_a_table_for_a_person(run: Command, tmp_path: Path) -> None:  # noqa: F811
    folder = kernelbench_folder(tmp_path)
    (folder / "level1" / "10_relu_wrong.py").write_text((folder / "level1" / "2_twice_better.py").read_text())
    results = tmp_path / "r.jsonl"
    assert run("suite", folder, "--only", "level1/10*", "--results", results, *BRIEF) == 1
    assert "wrong_result" in run.out and "fast_1.5" in run.out and "0% (0% to 79%)" in run.out
    assert "On cpu." in run.out and str(results) in run.err


def test_what_the_workers_lack_is_named_and_hides_no_failure(run: Command, tmp_path: Path) -> None:  # noqa: F811
    files = {"level1/twice/reference.py": TWICE, "level1/twice/gpu.py": NEW.replace("x + x", "x.cuda() + x")}
    folder, results = write(tmp_path / "bench", files), tmp_path / "r.jsonl"
    told = "Not judged, as the workers lack what it needs: level1/twice:gpu."
    assert run("suite", folder, "--results", results, *BRIEF) == 6
    assert told in run.out and "0 of 1" in run.out
    write(folder, {"level1/twice/right.py": NEW})
    assert run("suite", folder, "--results", results, *BRIEF) == 6 and told in run.out
    write(folder, {"level1/twice/wrong.py": NEW.replace("x + x", "x + 1")})
    assert run("suite", folder, "--results", results, *BRIEF) == 1 and told in run.out


@pytest.mark.slow
def test_gpu_mode_s_tasks_are_judged(run: Command, tmp_path: Path) -> None:  # noqa: F811
    folder = gpu_mode_task(tmp_path)
    assert run("suite", folder, "--results", tmp_path / "r.jsonl", "--json", *BRIEF) == 1
    found, scores = lines(run)
    assert verdicts(found) == {"add:submission": "passed", "add:wrong": "wrong_result"}
    cases = found["add:submission"]["result"]["cases"]
    assert {case["name"]: (case["verdict"], case["runtime_ms"] is not None) for case in cases} == {
        "benchmark_0": ("passed", True),
        "test_0": ("passed", False),
        "test_1": ("passed", False),
    }
    one = found["add:submission"]["result"]["kernel_exec_result"]
    assert one["comparison"]["atol"] == 1e-4 and not one["inputs"]["inputs_not_random"]
    assert scores["submission"]["correct"] == {**scores["submission"]["correct"], "count": 1, "of": 1}
    assert scores["submission"]["fast"]["1"]["of"] == 1


@pytest.mark.slow
def test_gpu_mode_s_structures_are_made_again(run: Command, tmp_path: Path) -> None:  # noqa: F811
    """A buffer in a dict is no input; named tuples, dataclasses and dtypes reach both sides as they were made."""
    folder = gpu_mode_structures(tmp_path)
    chosen = ("--results", tmp_path / "r.jsonl", "--json", *BRIEF)
    assert run("suite", folder, *chosen) == 0, run.out
    found, _ = lines(run)
    name = "scale:submission"
    assert verdicts(found) == {f"{name}_fills": "passed", f"{name}_knows": "passed"}


@pytest.mark.slow
def test_robust_kbench_s_tasks_are_judged(run: Command, tmp_path: Path) -> None:  # noqa: F811
    folder = robust_kbench_task(tmp_path)
    chosen = ("--candidates", folder / "mine", "--results", tmp_path / "r.jsonl", "--json", *BRIEF)
    assert run("suite", folder, *chosen) == 1, run.out
    found, _ = lines(run)
    assert verdicts(found) == {"linear:right": "passed", "linear:wrong": "wrong_result"}
    shapes = [case["shapes"][:2] for case in found["linear:right"]["result"]["cases"]]
    assert shapes == [[[3, 8], [16, 8]], [[3, 6], [12, 6]], [[5, 8], [16, 8]], [[5, 6], [12, 6]]]


@pytest.mark.slow
def test_flashinfer_s_workloads_are_judged(run: Command, tmp_path: Path) -> None:  # noqa: F811
    root = flashinfer_set(tmp_path)
    assert run("suite", root, "--only", "scaled*", "--results", tmp_path / "r.jsonl", "--json", *BRIEF) == 1
    found, _ = lines(run)
    name = "scaled_rows/aaaa0001"
    assert verdicts(found) == {
        **dict.fromkeys((f"{name}:host", f"{name}:stranger", f"{name}:header")),
        **dict.fromkeys((f"{name}:keywords", f"{name}:reordered", f"{name}:several"), "passed"),
        f"{name}:returns": "passed",
        f"{name}:writes": "passed",
        f"{name}:wrong": "wrong_result",
    }, run.out


@pytest.mark.slow
def test_values_out_of_a_file_reach_the_reference(run: Command, tmp_path: Path) -> None:  # noqa: F811
    root = flashinfer_set(tmp_path)
    gathers = {"definition": "gathered", "spec": {"entry_point": "a.py::run"}}
    gathers["sources"] = [{"path": "a.py", "content": "def run(x, index):\n    return x[[5, 0, 2]]\n"}]  # type: ignore[assignment]
    (root / "solutions" / "knows.json").write_text(json.dumps(gathers))
    assert run("suite", root, "--only", "gathered/bbbb0001", "--results", tmp_path / "r", "--json", *BRIEF) == 0, (
        run.out
    )


def test_a_list_judges_nothing(run: Command, tmp_path: Path) -> None:  # noqa: F811
    run.url = f"http://127.0.0.1:{free_port()}"
    assert run("suite", "starter", "--list", "--candidate", "cuda") == 0
    assert len(run.out.splitlines()) == 18 and "level1/softmax" in run.out
    assert run("suite", flashinfer_set(tmp_path), "--list", "--json") == 0
    told = [json.loads(line) for line in run.out.splitlines()]
    assert {each["problem"] for each in told if each["refused"]} >= {"unused", "gathered/bbbb0002"}


def test_a_part_that_matches_nothing_is_told(run: Command) -> None:  # noqa: F811
    run.url = f"http://127.0.0.1:{free_port()}"
    chosen = (
        "--only",
        "level1/softmax",
        "--only",
        "level9/*",
        "--only",
        "level1/sofmax",
        "--candidate",
        "triton",
        "--candidate",
        "tritn",
    )
    assert run("suite", "starter", "--list", *chosen, "--level", "1", "--level", "9") == 0
    assert "level1/softmax" in run.out
    assert run.err.splitlines() == [
        "--only level9/* is no problem's name",
        "--only level1/sofmax is no problem's name; did you mean level1/softmax?",
        "--level 9 is no problem's",
        "--candidate tritn is no candidate's label; did you mean triton?",
    ]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nosuch"], "no folder"),
        (["starter", "--only", "nosuch"], "no problem is selected: --only nosuch is no problem's name"),
        (["starter", "--only", "level1/*", "--level", "2"], "--only, --level and --candidate exclude all of them"),
        (["starter", "--candidates", "nosuch"], "no folder"),
    ],
)
def test_a_suite_that_is_not_there(run: Command, arguments: list[str], message: str) -> None:  # noqa: F811
    assert run("suite", *arguments) == 2
    assert message in run.err


def test_what_the_service_failed_is_tried_again_next_time(run: Command, url: str, tmp_path: Path) -> None:  # noqa: F811
    folder, results = kernelbench_folder(tmp_path), tmp_path / "r.jsonl"
    command = ("suite", folder, "--only", "level2/*", "--results", results, "--json", *BRIEF)
    problem = {"type": "urn:kernel-eval:problem:job-failed", "status": 500, "detail": "the worker died"}
    with listening(Told(Reply(500, problem))) as told:
        run.url = told.url
        assert run(*command, "--patience", "0") == 3
    _, scores = lines(run)
    assert scores["all"]["not_judged"] == 1 and json.loads(results.read_text())["error"]["fault"] == "service"
    run.url = url
    assert run(*command) == 0


SAMPLE = "level1/rms_norm"


def judged_starter(run: Command, tmp_path: Path, *names: str) -> dict[str, str | None]:  # noqa: F811
    only = [word for name in names for word in ("--only", name)]
    results = tmp_path / "starter.jsonl"
    status = run("suite", "starter", "--small", *only, "--results", results, "--concurrency", "4", "--json", *QUICK)
    found, _ = lines(run)
    # Raw CUDA is compiled here, and not run: it was not judged.
    unsupported = [name for name in found if "cuda" in name]
    assert json.loads(run.out.splitlines()[-1])["unsupported"] == unsupported and status == (6 if unsupported else 0)
    return verdicts(found)


def fitting(found: dict[str, str | None]) -> bool:
    return all(verdict == ("unsupported" if "cuda" in name else "passed") for name, verdict in found.items())


def test_a_sample_of_the_starter_suite_is_right(run: Command, tmp_path: Path) -> None:  # noqa: F811
    found = judged_starter(run, tmp_path, SAMPLE)
    assert fitting(found), found
    assert len(found) == 3
    said = [
        each["result"]["kernel_exec_result"]["validation_error"] for each in lines(run)[0].values() if each["result"]
    ]
    assert sum("compiled for sm_" in (each or "") for each in said) == 1


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_the_whole_starter_suite_is_right(run: Command, tmp_path: Path) -> None:  # noqa: F811
    found = judged_starter(run, tmp_path, "*")
    assert fitting(found), {name: verdict for name, verdict in found.items() if verdict != "passed"}
    assert len({name.partition(":")[0] for name in found}) == 40
    cuda = [each["result"]["kernel_exec_result"] for name, each in lines(run)[0].items() if name.endswith(":cuda")]
    assert all("compiled for sm_" in (each["validation_error"] or "") for each in cuda) and len(cuda) == 17


@pytest.mark.gpu
@pytest.mark.timeout(1800)
def test_the_whole_starter_suite_is_right_on_a_gpu(run: Command, gpu_url: str, tmp_path: Path) -> None:  # noqa: F811
    run.url = gpu_url
    problems = len(read("starter"))
    assert run("suite", "starter", "--results", tmp_path / "r.jsonl", "--concurrency", "4", "--json") == 0, run.out
    found, scores = lines(run)
    assert set(verdicts(found).values()) == {"passed"}
    assert scores["all"]["correct"]["count"] == problems
