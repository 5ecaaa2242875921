"""Tables as they are printed: what they say is whole, and only names and remarks give way."""

from __future__ import annotations

import dataclasses
import io

import pytest

from kernel_eval_client import Job, Speedup, Submission, torch
from kernel_eval_client.async_client import Finished
from kernel_eval_client.cli import show, show_suite
from kernel_eval_client.cli.terminal import Terminal
from kernel_eval_client.flag import FIXED_OUTPUTS_PASS, Flag
from kernel_eval_client.result import Comparison
from kernel_eval_client.suites import Outcome
from tests.client.suite_files import result_of

FASTER = Speedup(1.234, 1.1, 1.4, "faster")
NAME = "attention/grouped_query_with_a_long_name_and_a_paged_cache/benchmark_12"


def printed(width: int, *shown: object) -> str:
    written = io.StringIO()
    terminal = Terminal(written, width)
    for show_it, *given in shown:  # type: ignore[misc,attr-defined]
        show_it(terminal, *given)  # type: ignore[operator]
    return written.getvalue()


@pytest.mark.parametrize("width", [100, 400])
def test_only_names_and_remarks_are_cut(width: int) -> None:
    results = [result_of(verdict, FASTER) for verdict in ("reference_failed", "contract_mismatch")]
    outcomes = [Outcome(NAME, "submission_of_mine", result=each) for each in results]
    finished = [Finished(0, Submission(torch("x"), label=NAME), each, None) for each in results]
    suite, batch = printed(width, (show_suite.table, outcomes)), printed(width, (show.summary, finished))
    for lines in (suite.splitlines(), batch.splitlines()[:3]):
        assert len(lines) == 3 and all(len(line) <= width for line in lines)
        for line, verdict in zip(lines[1:], ("reference_failed", "contract_mismatch"), strict=True):
            assert f" {verdict} " in line and "1.23x (1.10 to 1.40)" in line
            assert (NAME in line) == (width == 400)
    assert "submission_of_mine" in suite


def test_a_problem_that_fixed_outputs_pass_is_listed_and_its_speed_up_says_nothing() -> None:
    weak = Comparison(True, weak_reference=(Flag(FIXED_OUTPUTS_PASS, "zeros would pass"),))
    result = result_of("passed", FASTER)
    result = dataclasses.replace(result, kernel=dataclasses.replace(result.kernel, comparison=weak))
    outcomes = [Outcome(NAME, "mine", result=result)]
    scores = printed(400, (show_suite.scores, show_suite.groups(outcomes), outcomes))
    assert f"Outputs fixed beforehand would pass, so that no speed-up counts: {NAME}." in scores
    verdict = " ".join(printed(400, (show.result, "mine", "", result)).split())
    assert "1.23x (1.10 to 1.40), says nothing" in verdict and "weak zeros would pass" in verdict


def test_a_remark_about_the_reference_is_printed_once() -> None:
    weak = Flag(FIXED_OUTPUTS_PASS, "zeros would pass")
    result = result_of("passed", FASTER, flags=[{"code": weak.code, "message": weak.message, "kernel": "candidate"}])
    kernel = dataclasses.replace(result.kernel, comparison=Comparison(True, weak_reference=(weak,)))
    text = printed(400, (show.result, "mine", "", dataclasses.replace(result, kernel=kernel)))
    assert text.count("zeros would pass") == 1


@pytest.mark.parametrize(("finding", "says"), show.FINDINGS.items())
def test_a_confirmation_says_what_it_found(finding: str, says: str) -> None:
    result = result_of("passed", FASTER, confirmation={"of": "the-first", "finding": finding})
    assert f"confirms  job the-first: {says}\n" in printed(400, (show.result, "mine", "", result))


def test_a_kernel_that_passes_and_is_unfit_is_told_the_next_step() -> None:
    unfit = {"fit": False, "sentence": "Not fit to be merged: slower.", "checks": []}
    result = result_of("passed", FASTER, qualification=unfit, next="Make it faster.")
    assert "next      Make it faster." in printed(400, (show.result, "mine", "", result))


def test_each_case_has_a_line_and_hidden_ones_are_counted() -> None:
    ratio = {"ratio": 1.234, "ci_low": 1.1, "ci_high": 1.4, "verdict": "faster"}
    cases = [
        {"name": "n=64", "verdict": "passed", "runtime_ms": 0.25, "ref_runtime_ms": 0.3, "speedup": ratio},
        {"name": "odd", "verdict": "wrong_result", "runtime_ms": None, "mismatch": {"index": [0]}},
        {"name": "large", "verdict": None, "runtime_ms": None},
    ]
    summary = {"count": 5, "passed": 2, "judged": 3, "hidden": {"count": 2, "passed": 1, "judged": 1}}
    result = dataclasses.replace(result_of("passed", FASTER), raw={"cases": cases, "cases_summary": summary})
    assert [case.speedup for case in result.cases] == [FASTER, None, None]
    assert result.cases[1].mismatch == {"index": [0]}
    lines = [line.split() for line in printed(200, (show.cases, result)).splitlines()]
    assert lines[1:] == [
        ["n=64", "passed", "250", "µs", "1.23x", "(1.10", "to", "1.40)"],
        ["odd", "wrong_result", "–", "–"],
        ["large", "not", "judged", "–", "–"],
        ["1", "of", "2", "hidden", "cases", "passed"],
    ]


def test_a_reference_that_failed_says_how_in_a_table() -> None:
    told = (
        "validation was skipped: the reference failed (compile_error): importing the source: NameError: name 'boom' is"
    )
    outcome = Outcome(NAME, "mine", reason=told)
    assert "name 'boom' is" in printed(400, (show_suite.table, [outcome]))


def test_a_list_of_jobs_has_their_verdicts() -> None:
    wire = {"job_id": "36577283-4c8f-4da5-b829-9ee20f85e00f", "state": "completed", "stage": "completed"}
    jobs = [Job.from_dict({**wire, "summary": {"verdict": "wrong_result"}, "worker": "w" * 80}), Job.from_dict(wire)]
    assert [each.verdict for each in jobs] == ["wrong_result", None]
    head, first, second = printed(100, (show.jobs, jobs)).splitlines()
    assert head.split()[:3] == ["job", "state", "verdict"]
    assert first.split()[:4] == [wire["job_id"], "completed", "wrong_result", "completed"] and second.split()[2] == "–"
