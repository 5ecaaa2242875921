"""Pages about several jobs: two side by side, and the attempts under one name."""

from __future__ import annotations

import json
import zlib
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest
from flask.testing import FlaskClient
from redis import Redis

from api.pages.several_jobs import suite
from api.pages.several_jobs.side_by_side import MAX_LINES, source_diff
from domain.access import Scope
from domain.kernel import Kernel, KernelType
from domain.request import Request
from domain.result import Speedup, Status
from tasks.jobs.job_search import JobFilter, search
from tasks.jobs.job_store import JobStore
from tasks.jobs.kept_request import NAME
from tests import device_answers
from tests.api import results
from tests.api.keyed import app_with, holder
from tests.api.payloads import RELU, kernel
from tests.api.routes.test_jobs import claimed
from tests.api.routes.test_report import EVIL, HTML, Page, sound_page


def kept(source: str) -> dict[str, bytes]:
    """What a completed job keeps of a request with that source."""
    return {NAME: zlib.compress(json.dumps(Request(Kernel(source, KernelType.TORCH)).to_wire()).encode())}


class Jobs:
    """Completes jobs."""

    def __init__(self, client: FlaskClient, records: JobStore, redis: Redis) -> None:
        self.client, self.records, self.redis = client, records, redis

    def __call__(self, body: dict[str, Any], name: str = "", source: str = "") -> str:
        """A completed job of that name, which kept the source."""
        job_id, attempt = claimed(self.client, self.records, name or None)
        assert self.records.complete(job_id, attempt, body, kept(source) if source else {})
        return job_id


@pytest.fixture
def completed(client: FlaskClient, records: JobStore, redis: Redis) -> Jobs:
    return Jobs(client, records, redis)


def shown(client: FlaskClient, path: str) -> Page:
    return sound_page(client.get(path, headers=HTML))


def both(client: FlaskClient, first: str, second: str) -> Page:
    return shown(client, f"/side-by-side?first={first}&second={second}")


def test_two_jobs_side_by_side(client: FlaskClient, completed: Jobs) -> None:
    slow, fast = results.passed(1.5, candidate="a" * 64), results.passed(3.0, candidate="b" * 64)
    for body in (slow, fast):
        body["kernel_exec_result"]["roofline"] = results.roofline()
    slow["kernel_exec_result"]["metadata"]["device_metrics"] = device_answers.measured(
        device_answers.side(device_answers.kernel("rows_of_slow")), device_answers.side()
    )
    first = completed(slow, "softmax", "import torch\nx = 1\nreturn x\n")
    second = completed(fast, "softmax", f"import torch\nx = 2  # {EVIL}\nreturn x\n")
    page = both(client, first, second)
    assert "The second is faster: its whole interval (2.70 to 3.30) lies above 1.35 to 1.65." in page.text
    for figure in ("1.50× (1.35 to 1.65)", "3.00× (2.70 to 3.30)", "12.40 µs ± 0.40 %", "37.20 µs", "208 of 208"):
        assert figure in page.text, figure
    assert "rows_of_slow" in page.text and "The service did not keep" not in page.text
    kinds = [span["class"] for span in page.those("span") if span.get("class") in ("added", "removed", "same")]
    assert kinds == ["same", "removed", "added", "same"]
    assert f"+x = 2 # {EVIL}" in page.text and "-x = 1" in page.text
    drawn = [circle["class"] for circle in page.those("circle")]
    assert drawn.count("first") == drawn.count("second") == 12, "eleven windows and a point of the roofline each"
    assert "The first is faster" in both(client, second, first).text


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({}, "Which is faster cannot be told: the intervals overlap (1.80 to 2.20; 1.80 to 2.20)."),
        ({"reference": "e" * 64}, "They were judged against different references"),
        ({"device": "NVIDIA H100"}, "They ran on different devices (NVIDIA H200, NVIDIA H100)"),
        ({"speedup": None}, "The second has no speed-up to compare."),
        (
            {"speedup": Speedup(9.0, 8.0, float("inf"), "faster")},
            "The second is faster: its whole interval (8.00 upwards)",
        ),
    ],
)
def test_when_two_jobs_can_be_compared(client: FlaskClient, completed: Jobs, change: dict[str, Any], says: str) -> None:
    body = results.passed(2.0, **({"speedup": change["speedup"]} if "speedup" in change else {}))
    body["ref_result"]["metadata"]["digest"] = change.get("reference", "d" * 64)
    body["environment"] = body["environment"] | {"gpu_name": change.get("device", "NVIDIA H200")}
    page = both(client, completed(results.passed(2.0)), completed(body))
    assert says in page.text and "The service did not keep the source of both jobs." in page.text


@pytest.mark.parametrize("body", [results.wrong(EVIL), results.failed(Status.COMPILE_ERROR, EVIL), results.evaluated()])
def test_a_job_without_a_speedup_beside_one(client: FlaskClient, completed: Jobs, body: dict[str, Any]) -> None:
    first, second = completed(results.passed()), completed(body)
    assert "The second has no speed-up to compare." in both(client, first, second).text
    assert "The first has no speed-up to compare." in both(client, second, first).text
    assert "The first and the second have no speed-up" in both(client, second, second).text


def test_a_job_that_has_not_ended_beside_one(client: FlaskClient, records: JobStore, completed: Jobs) -> None:
    done = completed(results.passed())
    running, _ = claimed(client, records)
    assert "The second has no speed-up to compare." in both(client, done, running).text


def test_jobs_that_are_not_known(client: FlaskClient, completed: Jobs) -> None:
    first = f"/side-by-side?first={completed(results.passed())}"
    for path, status in ((first, 400), (f"{first}&second=no", 404), ("/kernel?name=none", 404)):
        answer = client.get(path, headers=HTML)
        assert (answer.status_code, answer.content_type) == (status, "text/html; charset=utf-8")


def test_sources_that_are_equal_or_too_long_have_no_lines() -> None:
    assert source_diff("a", "a").reason == "Both sources are the same."
    assert "more than 2000 lines" in str(source_diff("a\n" * (MAX_LINES + 1), "b").reason)
    assert [kind for kind, _ in source_diff("a\nb\n", "a\nc\n").lines] == ["place", "same", "removed", "added"]


def test_the_attempts_under_a_name(client: FlaskClient, completed: Jobs) -> None:
    name = "team/softmax <rows>"
    jobs = [completed(results.passed(ratio, candidate=f"{ratio}"), name) for ratio in (1.2, 3.0, 2.0)]
    lucky = results.passed(9.0)
    lucky["speedup"]["ci_low"] = 1.0
    jobs += [completed(lucky, name), completed(results.wrong(), name)]
    completed(results.passed(8.0), "another")
    page = shown(client, "/kernel?name=team/softmax%20%3Crows%3E")
    assert "4 of 5 attempts passed. The best is attempt 2: at least 2.70 times as fast as the reference" in page.text
    assert "as the reference class Model (dddddddd) on" in page.text
    assert sum(circle["class"] == "point" for circle in page.those("circle")) == 4
    assert "attempt 1: 1.20; attempt 2: 3.00; attempt 3: 2.00; attempt 4: 9.00" in page.text
    links = [link["href"] for link in page.those("a")]
    assert f"/side-by-side?first={jobs[0]}&second={jobs[1]}" in links, "what changed since the attempt before"
    assert [option["value"] for option in page.those("option")] == jobs[::-1] * 2
    assert [option["value"] for option in page.those("option") if "selected" in option] == [jobs[1], jobs[4]]
    report = shown(client, f"/job/{jobs[0]}/report")
    assert name in report.text and {"href": "/kernel?name=team/softmax%20%3Crows%3E"} in report.those("a")


def test_a_source_on_a_page_keeps_the_line_break_that_it_begins_with(client: FlaskClient, completed: Jobs) -> None:
    job_id = completed(results.passed(), source="\nx = 1\n")
    text = client.get(f"/job/{job_id}/report", headers=HTML).text
    # A browser drops the line break right after the tag.
    assert 'aria-label="Source of the kernel">\n\nx = 1\n</pre>' in text


def test_a_report_shows_the_source_that_was_kept(client: FlaskClient, completed: Jobs) -> None:
    source = f"# {EVIL}\nreturn 'a/b?'\n"
    page = shown(client, f"/job/{completed(results.passed(), source=source)}/report")
    (link,) = [link for link in page.those("a") if "download" in link]
    assert (link["download"], unquote(link["href"])) == ("kernel.py", f"data:text/plain;charset=utf-8,{source}")
    assert f"# {EVIL}" in page.text and "The kernel: 2 lines" in page.text
    assert "Sources" not in shown(client, f"/job/{completed(results.passed())}/report").text


def test_attempts_on_another_task_are_listed_and_not_compared(client: FlaskClient, completed: Jobs) -> None:
    other = results.passed(50.0)
    other["ref_result"]["metadata"]["digest"] = "e" * 64
    for body in (other, results.passed(2.0)):
        completed(body, "gelu")
    page = shown(client, "/kernel?name=gelu")
    assert "The best is attempt 2" in page.text and "50.0×" in page.text and "1 other task Passed" in page.text
    assert sum(circle["class"] == "point" for circle in page.those("circle")) == 1


def test_attempts_without_a_speedup(client: FlaskClient, completed: Jobs) -> None:
    completed(results.wrong(), "gelu")
    page = shown(client, "/kernel?name=gelu")
    assert "0 of 1 attempt passed. None has a measured speed-up yet." in page.text and page.those("circle") == []
    assert client.get("/kernel?name=gelu&refresh=on", headers=HTML).headers["Refresh"] == "3"


def test_a_bound_of_a_speedup_is_shown_as_one(client: FlaskClient, completed: Jobs) -> None:
    slow, fast = results.passed(0.25), results.passed(4.0)
    slow["speedup"] |= {"ci_low": 0.0, "ci_high": 0.25}
    fast["speedup"] |= {"ci_low": 4.0, "ci_high": None}
    reports = [f"/job/{completed(body, 'gelu')}/report" for body in (slow, fast)]
    for path, sign in zip(reports, ("≤ 0.250×", "≥ 4.00×"), strict=True):
        assert sign in shown(client, path).text and sign in shown(client, "/jobs").text


def test_a_suite(client: FlaskClient, completed: Jobs) -> None:
    for problem, ratio in (("gelu", 3.0), ("sum", 1.05), ("relu", 0.5)):
        completed(results.passed(ratio), f"level1/{problem}:triton")
    completed(results.passed(1.5), "level1/gelu:torch")
    completed(results.wrong(), "level1/sum:torch")
    completed(results.failed(Status.COMPILE_ERROR, EVIL), "level1/conv:torch")
    completed(results.failed(Status.REFERENCE_FAILED, "no"), "level1/scan:torch")
    fixed = results.passed(80.0)
    fixed["kernel_exec_result"]["comparison"]["weak_reference"] = [{"code": "fixed_outputs_pass", "message": "zeros"}]
    completed(fixed, "level1/mean:triton")
    completed(results.passed(70.0), "level2/other:triton")
    completed(results.passed(70.0), "level1/no candidate")
    page = shown(client, "/suite?name=level1/")
    assert "4 of 5 problems correct" in page.text, "gelu, sum, relu, mean of those and conv"
    assert "75.0 % above 0.8" not in page.text and "50.0 % above 0.8; 50.0 % above 1; 25.0 % above 1.5" in page.text
    scores = page.text.split("Mean")[1]
    assert "Best of all 4 of 5 50.0 % (50.0 %) 50.0 % (25.0 %) 25.0 % (25.0 %) 25.0 % (25.0 %) 1.16×" in scores
    assert "torch 1 of 3 33.3 %" in scores and "triton 4 of 4 66.7 %" in scores
    assert len(page.those("polyline")) == 2 and "level2/other" not in page.text and "level1/scan:torch" in page.text
    assert "5 of 6 problems correct" in shown(client, "/suite").text


def test_names_are_found_by_an_index_and_forgotten_with_their_last_job(
    client: FlaskClient, records: JobStore, redis: Redis, completed: Jobs
) -> None:
    name = "level1/../a//é:triton"
    jobs = [completed(results.passed(ratio), name) for ratio in (1.5, 3.0)]
    for number in range(3):
        completed(results.passed(2.0), f"level2/{number}:triton")
    found = search(records, JobFilter(name=name), limit=5)
    assert ([view.job_id for view in found.views], found.searched) == (jobs[::-1], 2)
    assert [view.job_id for view in records.newest_named("level1/", None, 9)] == jobs[1:]
    assert [view.name for view in records.newest_named("", None, 2)] == [name, "level2/0:triton"]
    assert records.newest_named("level1/", "another key", 9) == []
    links = {link["href"] for link in shown(client, "/jobs").those("a") if link["href"].startswith("/kernel?")}
    assert len(links) == 4 and all("2 attempts" in shown(client, link).text for link in links if "level1" in link)
    assert records.cleanup(records.now() + 1) == 5
    assert redis.keys("jobs:name*") == []


def test_a_mere_bound_is_in_no_mean(client: FlaskClient, completed: Jobs) -> None:
    bound = results.passed(4.0)
    bound["speedup"] |= {"ci_low": 4.0, "ci_high": None}
    completed(bound, "level1/gelu:triton")
    assert "No speed-up was measured." in shown(client, "/suite?name=level1/").text
    completed(results.passed(2.0), "level1/sum:triton")
    assert "The geometric mean of the speed-ups is 2.00." in shown(client, "/suite?name=level1/").text


def test_a_suite_without_jobs_or_speedups(client: FlaskClient, completed: Jobs) -> None:
    assert "No suite yet" in shown(client, "/suite").text
    completed(results.wrong(), "gelu:triton")
    page = shown(client, "/suite")
    assert "0 of 1 problem correct No speed-up was measured." in page.text and page.those("polyline") == []


def test_a_suite_says_that_names_were_left_out(
    client: FlaskClient, completed: Jobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(suite, "MAX_NAMES", 2)
    for name in ("a", "b", "gelu:triton"):
        completed(results.passed(2.0), name)
    assert "No suite yet" in shown(client, "/suite").text and "Of the first 2 names" in shown(client, "/suite").text
    assert "Of the first" not in shown(client, "/suite?name=gelu").text


def test_with_keys_one_sees_ones_own_attempts(redis: Redis, tmp_path: Path) -> None:
    with app_with(REQUIRE_API_KEYS="on", API_KEYS_FILE=str(tmp_path / "keys.json")) as app:
        alice, bob = (holder(app, name, Scope.SUBMIT, Scope.READ) for name in ("alice", "bob"))
        accepted = alice("POST", "/evaluate", json={"kernel": kernel(RELU, "torch"), "name": "mine"})
        job_id = accepted.get_json()["job_id"]
        command = "curl -H \"Authorization: Bearer $KERNEL_EVAL_API_KEY\" 'http://localhost/job/x;reboot;$(id)/report'"
        assert command in Page(app.test_client().get("/job/x;reboot;$(id)/report", headers=HTML).text).text
        for path in ("/kernel?name=mine", f"/side-by-side?first={job_id}&second={job_id}"):
            assert (alice("GET", path).status_code, bob("GET", path).status_code) == (200, 404)
