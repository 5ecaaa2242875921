"""The report of a job: what it says in every state, that it is well formed, and that nobody's text gets out of it."""

from __future__ import annotations

import base64
import re
from dataclasses import asdict
from hashlib import sha256
from html.parser import HTMLParser
from itertools import pairwise
from typing import Any

import pytest
from flask.testing import FlaskClient
from redis import Redis
from werkzeug.test import TestResponse

from api.pages.stages import MEANS
from domain.flags.codes import FlagCode
from domain.flags.flag import Flag
from domain.job import Stage
from domain.result import Speedup, Status
from domain.speed.baseline import Baseline, BaselineResult
from domain.speed.confirmation import Confirmation, Finding, FirstResult
from tasks.jobs import job_store
from tasks.jobs.job_store import JobStore
from tests import device_answers
from tests.api import results
from tests.api.routes.test_jobs import RESULT, claimed, submit

HTML = {"Accept": "text/html,application/xhtml+xml,*/*;q=0.8"}
EVIL = "<script>alert(1)</script><img src=x onerror=alert(2)>\"' onload=alert(3) {{7*7}}"
VOID = {"meta", "br", "link", "img", "input"}


class Page(HTMLParser):
    """A page's text and its elements; fails where tags do not match."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.said: list[str] = []
        self.feed(text)
        self.close()
        assert self.open == [], self.open
        self.text = re.sub(r"\s+", " ", " ".join(self.said))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open and self.open.pop() == tag, tag

    def handle_data(self, data: str) -> None:
        if not {"style", "script"} & set(self.open):
            self.said.append(data)

    def those(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.elements if name == tag]


def completed(client: FlaskClient, records: JobStore, body: dict[str, Any]) -> str:
    job_id, attempt = claimed(client, records)
    for stage in (Stage.BUILD, Stage.VALIDATE, Stage.TIME):
        records.enter_stage(job_id, attempt, stage)
    assert records.complete(job_id, attempt, body)
    return job_id


def report(client: FlaskClient, job_id: str, status: int = 200) -> Page:
    return sound_page(client.get(f"/job/{job_id}/report", headers=HTML), status)


def sound_page(answer: TestResponse, status: int = 200) -> Page:
    assert (answer.status_code, answer.content_type) == (status, "text/html; charset=utf-8")
    page = Page(answer.get_data(as_text=True))
    assert_sound(page)
    return page


def assert_sound(page: Page) -> None:
    """Nothing of another host, one inline script, headings in order, names that are there."""
    tags = {tag for tag, _ in page.elements}
    assert not tags & {"link", "img", "iframe", "object"} and page.those("script") == [{}]
    assert all((form["method"], form["action"][0]) == ("get", "/") for form in page.those("form"))
    labelled = {label["for"] for label in page.those("label")}
    assert labelled == {each["id"] for tag in ("input", "select") for each in page.those(tag) if "id" in each}
    assert all("id" in each or each["type"] == "hidden" for each in page.those("input"))
    assert {"href": "/"} in page.those("a"), "a link home"
    assert not [
        name for _, attributes in page.elements for name in attributes if name.startswith("on") or name == "style"
    ]
    assert "http://" not in " ".join(a.get("href") or "" for a in page.those("a"))
    levels = [int(tag[1]) for tag, _ in page.elements if re.fullmatch(r"h[1-6]", tag)]
    assert levels[0] == 1 and levels.count(1) == 1
    assert all(after <= before + 1 for before, after in pairwise(levels))
    ids = [attributes["id"] for _, attributes in page.elements if "id" in attributes]
    assert len(ids) == len(set(ids))
    for _, attributes in page.elements:
        for name in (attributes.get("aria-labelledby") or "").split():
            assert name in ids
    assert all(attributes.get("scope") for attributes in page.those("th"))
    assert page.those("html")[0]["lang"] == "en"


def test_a_faster_candidate(client: FlaskClient, records: JobStore) -> None:
    page = report(client, completed(client, records, results.passed(2.0)))
    assert "It compiles, and its outputs are right in 208 compared calls." in page.text
    assert "It is 2.00 times as fast as the reference (95 % interval 1.80 to 2.20)." in page.text
    for told in ("1,755 to 1,980 MHz, of 1,980", "12.4 µs", "24.8 µs", "sw power cap", "NVIDIA H200", "replay_seed"):
        assert told in page.text, told
    assert "Calls got inputs a second time" in page.text
    dots = [circle for circle in page.those("circle") if circle["class"] in ("candidate", "reference", "out")]
    assert len(dots) == 24 and sum(circle["class"] == "out" for circle in dots) == 2


@pytest.mark.parametrize(
    ("speedup", "says"),
    [
        (Speedup(0.5, 0.4, 0.6, "slower"), "It is slower than the reference: 0.500 times as fast"),
        (Speedup(0.0007, 0.0, 0.00149, "slower"), "It is at least 671 times slower than the reference."),
        (Speedup(1.0, 0.9, 1.1, "not_distinguishable"), "No significant difference in speed to the reference"),
        (Speedup(30.0, 30.0, float("inf"), "faster"), "It is at least 30.0 times as fast as the reference."),
        (
            Speedup(1.5, 0.0, float("inf"), "not_distinguishable"),
            "too noisy to tell which is faster (speed-up at least 0).",
        ),
        (None, "A call takes 12.4 µs (± 0.40 %). No speed-up is reported"),
    ],
)
def test_every_kind_of_speedup(client: FlaskClient, records: JobStore, speedup: Speedup | None, says: str) -> None:
    assert says in report(client, completed(client, records, results.passed(speedup=speedup))).text


def test_a_speedup_that_a_flag_makes_unknown_has_its_reason(client: FlaskClient, records: JobStore) -> None:
    flag = Flag(FlagCode.REFERENCE_SLOWED, "windows of the reference took 9 ms beside this kernel's process")
    text = report(client, completed(client, records, results.passed(2.0, flag, speedup=None))).text
    assert "No speed-up is reported: windows of the reference took 9 ms" in text
    assert "too short" not in text


def test_each_case_has_a_row_and_a_place_in_the_drawing(client: FlaskClient, records: JobStore) -> None:
    job_id = completed(client, records, results.of_cases())
    page = report(client, job_id)
    assert "its outputs are right in 208 compared calls in all 4 cases." in page.text
    assert "4 of 4 passed, 1 of 1 hidden ones." in page.text and "secret" not in page.text
    assert "Ratios: n=64: 1.50; odd: 0.800; large: 3.00; 1 is as fast as the reference." in page.text
    assert sum(circle["class"] == "point" and circle["r"] == "4" for circle in page.those("circle")) == 3
    assert [case["name"] for case in client.get(f"/job/{job_id}").json["result"]["cases"]] == ["n=64", "odd", "large"]


def test_cases_of_several_sizes_are_drawn_against_their_size(client: FlaskClient, records: JobStore) -> None:
    page = report(client, completed(client, records, results.of_cases(sizes=(64, 100, 4096))))
    assert "Speed-up against size n=64: 1.50; odd: 0.800; large: 3.00." in page.text
    assert "524,288" in page.text and "Speed-up of each case with its 95 % interval" not in page.text
    points = [circle for circle in page.those("circle") if circle["class"] == "point" and circle["r"] == "4"]
    places = [float(point["cx"] or 0) for point in points]
    assert len(places) == 3 and places == sorted(places)
    assert places[2] - places[1] > places[1] - places[0] > 0, "a logarithmic axis"


def test_a_wrong_case_is_named(client: FlaskClient, records: JobStore) -> None:
    page = report(client, completed(client, records, results.of_cases(wrong_in="odd")))
    told = "its outputs are wrong in 1 of 4 cases, first in 'odd' (5 of 5 compared calls there): 61,039 elements"
    assert told in page.text
    assert "3 of 4 passed" in page.text


def test_one_kernel_alone(client: FlaskClient, records: JobStore) -> None:
    page = report(client, completed(client, records, results.evaluated()))
    assert "There was no reference, so correctness was not checked. A call takes 500 µs" in page.text
    assert "No flags." in page.text


def test_a_time_too_short_to_be_measured_is_told_as_a_bound(client: FlaskClient, records: JobStore) -> None:
    flag = Flag(FlagCode.UPPER_BOUND, "too short for what a window can resolve here")
    page = report(client, completed(client, records, results.passed(2.0, flag, speedup=None)))
    assert "A call takes at most 12.4 µs" in page.text


def test_where_outputs_differ(client: FlaskClient, records: JobStore) -> None:
    page = report(client, completed(client, records, results.wrong()))
    assert (
        "its outputs are wrong in 5 of 5 compared calls: 61,039 elements of 655,360 are out of tolerance" in page.text
    )
    assert "All wrong elements lie in rows 32 to 63 and columns 46 to 47." in page.text
    assert "in the slice [1]" in page.text and "64 wrong elements here, 70 in the whole output" in page.text
    assert sum(each["class"] == "heat" for each in page.those("rect")) == 16


@pytest.mark.parametrize("status", list(Status))
def test_every_verdict_has_a_page(client: FlaskClient, records: JobStore, status: Status) -> None:
    body = results.failed(status, "it went\nthis way", compiled=status is not Status.COMPILE_ERROR, log="kernel.cu(3)")
    page = report(client, completed(client, records, body))
    if status is not Status.PASSED:
        assert "it went" in page.text


def test_the_least_that_a_result_may_hold(client: FlaskClient, records: JobStore) -> None:
    assert "Passed" in report(client, completed(client, records, RESULT)).text


def test_a_profiled_job(client: FlaskClient, records: JobStore) -> None:
    launches = {
        "advisory": True, "source": "cupti", "calls": 2, "device_time_us": 11.5, "launches": 2.0, "streams": 1,
        "custom_share": 0.75, "kernels": [{"name": f"k{index}", "launches": 1.0, "share": 0.05, "origin": "custom"}
        for index in range(20)], "kernels_omitted": 7,
        "flags": [asdict(Flag(FlagCode.WORK_ON_OTHER_STREAMS, "work was left on another stream"))],
    }  # fmt: skip
    page = report(client, completed(client, records, results.evaluated(launches=launches)))
    assert "75.0 % of it in kernels of its own" in page.text and "11 more, shorter ones" in page.text
    assert "work was left on another stream" in page.text
    nothing = {"status": "unavailable", "reason": "the profiler is missing", "advisory": True}
    page = report(client, completed(client, records, results.evaluated(launches=nothing)))
    assert "Not known: the profiler is missing." in page.text


def test_what_weights_and_distributions_showed_is_told_in_words(client: FlaskClient, records: JobStore) -> None:
    body = results.passed()
    late, agree = Flag(FlagCode.DISTRIBUTION_TIMEOUT, "no time"), Flag(FlagCode.WEIGHTS_AGREE, "both still agree")
    body["kernel_exec_result"]["inputs"] |= {"weights": "copied", "weight_findings": [asdict(agree)]} | {
        "distributions": {"checked": ["small"], "skipped": {"tiny": asdict(late)}, "unmodified_inputs": {}}
    }
    page = report(client, completed(client, records, body))
    assert "Weights copied; both still agree" in page.text and "Skipped distribution: tiny no time" in page.text


def test_nobodys_text_becomes_markup(client: FlaskClient, records: JobStore, redis: Redis) -> None:
    flag = Flag(FlagCode.WORK_BEFORE_CLOCK, EVIL)
    body = results.passed(2.0, flag)
    kernel_result = body["kernel_exec_result"]
    kernel_result["output"] = kernel_result["metadata"]["kernel_name"] = EVIL
    kernel_result["build"] |= {"log": EVIL, "entry": EVIL, "notes": [EVIL]}
    kernel_result["comparison"] |= {"message": EVIL} | {
        "weak_reference": [asdict(Flag(FlagCode.OUTPUT_EMPTY, f"0: {EVIL}"))],
        "layout": [asdict(Flag(FlagCode.OUTPUT_LAYOUT_DIFFERS, f"1: {EVIL}"))],
    }
    kernel_result["inputs"] |= {"inferred": EVIL, "weights": EVIL, "weight_findings": [asdict(flag)]}
    body["environment"] = {**body["environment"], "gpu_name": EVIL}
    page = report(client, completed(client, records, body))
    assert page.text.count("<script>alert(1)</script>") >= 8 and "49" not in page.text.split("{{7*7}}")[0][-10:]
    wrong = report(client, completed(client, records, results.wrong(EVIL)))
    assert "<script>alert(1)</script>" in wrong.text


def test_the_policy_lets_nothing_in_but_style_and_script_as_they_are(client: FlaskClient, records: JobStore) -> None:
    answer = client.get(f"/job/{completed(client, records, results.passed())}/report")
    allowed = {"default-src 'none'", "base-uri 'none'", "frame-ancestors 'none'", "form-action 'self'"}
    for name in ("style", "script"):
        (text,) = re.findall(rf"<{name}>(.*?)</{name}>", answer.get_data(as_text=True), re.DOTALL)
        assert "url(" not in text and "@import" not in text
        allowed.add(f"{name}-src 'sha256-{base64.b64encode(sha256(text.encode()).digest()).decode()}'")
    assert set(answer.headers["Content-Security-Policy"].split("; ")) == allowed
    assert answer.headers["Cache-Control"].startswith("no-cache")


def test_a_job_that_goes_on_has_a_page_that_asks_again(client: FlaskClient, records: JobStore) -> None:
    job_id, attempt = claimed(client, records)
    answer = client.get(f"/job/{job_id}/report")
    assert (answer.status_code, answer.headers["Refresh"], answer.headers["Retry-After"]) == (202, "3", "3")
    records.enter_stage(job_id, attempt, Stage.VALIDATE)
    page = report(client, job_id, 202)
    assert "gpu0@node" in page.text and "first calls, compared" in page.text
    still = client.get(f"/job/{job_id}/report?refresh=off")
    assert still.status_code == 202 and "Refresh" not in still.headers
    assert client.get(f"/job/{job_id}/report?refresh=never").status_code == 400


def test_a_queued_job_says_how_many_are_before_it(client: FlaskClient) -> None:
    submit(client)
    assert "It is queued: 1 job before it." in report(client, submit(client), 202).text


def test_a_job_that_pauses_before_its_last_attempt_says_so(
    client: FlaskClient, records: JobStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(job_store, "LAST_PAUSE_S", 60)
    job_id, attempt = claimed(client, records)
    records.requeue(job_id, attempt, "the disk is full")
    claim = records.claim("gpu0@node")
    assert claim is not None
    records.requeue(job_id, claim.attempt, "the disk is full")
    assert "It pauses before its last attempt" in report(client, job_id, 202).text
    job = client.get(f"/job/{job_id}").get_json()
    assert (job["state"], job["queue_position"]) == ("queued", None)


def test_jobs_that_ended_without_a_verdict(client: FlaskClient, records: JobStore) -> None:
    job_id, attempt = claimed(client, records)
    records.fail(job_id, attempt, f"the driver went away {EVIL}")
    assert "The service failed, not the kernel: the driver went away" in report(client, job_id).text
    job_id = submit(client)
    records.cancel(job_id)
    assert "was cancelled before there was a verdict: on request." in report(client, job_id).text


def test_the_history_of_a_job_that_was_tried_again(client: FlaskClient, records: JobStore) -> None:
    job_id, attempt = claimed(client, records)
    records.requeue(job_id, attempt, "the zygote died")
    claim = records.claim("gpu1@node")
    assert claim is not None
    records.complete(job_id, claim.attempt, results.passed())
    page = report(client, job_id)
    assert "(attempt 2)" in page.text and "Attempt 1 on gpu0@node" in page.text and "the zygote died" in page.text


@pytest.mark.parametrize("job_id", ["nope", "%3Cscript%3Ealert(1)"])
def test_an_unknown_job_is_a_page_for_who_reads_pages(client: FlaskClient, job_id: str) -> None:
    page = report(client, job_id, 404)
    assert "No such job" in page.text
    answer = client.get(f"/job/{job_id}/report")
    assert (answer.status_code, answer.content_type) == (404, "application/problem+json")


def test_commands_hold_no_more_than_an_address(client: FlaskClient, records: JobStore) -> None:
    job_id = completed(client, records, results.passed())
    assert "rm -rf" not in client.get(f"/job/{job_id}/report", headers={"Host": "a;rm -rf $HOME"}).get_data(
        as_text=True
    )
    text = report(client, job_id).text
    assert "curl -X POST 'http://localhost/evaluate?wait=600' -H" in text and f"http://localhost/job/{job_id}" in text
    assert '{"replay_seed": "5b1f"}' in text and "Bearer" not in text


def test_an_answer_that_was_given_before(client: FlaskClient, records: JobStore) -> None:
    body = {**results.passed(), "reused_from": {"job_id": "6b55be7b", "at": 1.0}}
    assert "the same work was judged before, as job 6b55be7b" in report(client, completed(client, records, body)).text


def test_what_was_left_out_and_what_the_machine_code_needs(client: FlaskClient, records: JobStore) -> None:
    body = {**results.passed(), "budget": {"name": "quick", "skipped_checks": ["other_weights", "float64_precision"]}}
    body["kernel_exec_result"]["build"] = {
        "arch": "sm_90", "registers": 40, "spill_store_bytes": 0, "spill_load_bytes": 0, "static_shared_bytes": 4096,
        "occupancy": {"theoretical": 0.75, "limited_by": "shared_memory"},
    }  # fmt: skip
    variant = {"registers": 255, "spill_store_bytes": 16, "spill_load_bytes": 8, "occupancy": None}
    body["ref_result"]["build"] = {"variants": [variant], "kernels": [{"name": EVIL, "registers": 1}, "nonsense"]}
    page = report(client, completed(client, records, body))
    assert "the budget quick skipped these checks: other weights, float64 precision" in page.text
    assert "kernel relu 40 – none 4.00 KiB 75.0 % shared memory" in page.text
    assert "Variant 1 255 – 16 B, 8 B read back – – –" in page.text
    assert f"{EVIL} 1 – – – – –" in page.text


def test_texts_of_the_code_are_linked_and_what_is_not_there_has_a_reason(
    client: FlaskClient, records: JobStore
) -> None:
    body = results.passed()
    text = {"name": "relu.ptx", "format": "ptx", "kernel": EVIL, "variant": EVIL, "bytes": 2048, "truncated": True}
    body["kernel_exec_result"]["artifacts"] = [text]
    body["ref_result"]["artifacts"] = [{"name": None, "format": "sass", "kernel": EVIL, "unavailable": f"it is {EVIL}"}]
    job_id = completed(client, records, body)
    page = report(client, job_id)
    assert f"/job/{job_id}/artifacts/candidate/relu.ptx" in [link["href"] for link in page.those("a")]
    assert f"relu.ptx (2.00 KiB, {EVIL}, its end left out)" in page.text
    assert f"No sass of {EVIL}: it is {EVIL}." in page.text
    assert "What it is compiled to" not in report(client, completed(client, records, results.passed())).text


def test_device_metrics_are_a_table_with_advice(client: FlaskClient, records: JobStore) -> None:
    body = results.passed()
    metrics = device_answers.measured(reference=device_answers.side(device_answers.kernel("gemm", memory=None)))
    metrics["candidate"]["reason"] = "of a call's launches the first 64 were counted"
    body["kernel_exec_result"]["metadata"]["device_metrics"] = metrics
    kept = {"name": "profile.ncu-rep", "format": "ncu-rep", "kernel": None, "bytes": 2048}
    body["kernel_exec_result"]["artifacts"] = [kept]
    body["ref_result"]["artifacts"] = [{**kept, "name": None, "unavailable": "it is too large"}]
    job_id = completed(client, records, body)
    page = report(client, job_id)
    assert "(by ncu 2025.3.1.0, basic)" in page.text and page.text.count("3 more kernels.") == 2
    assert "The candidate of a call's launches the first 64 were counted." in page.text
    assert "softmax_rows 41.5 µs, 83.0 %, 2 launches 22.4 % 91.2 % 90.1 %, 2,980 GiB/s 12.0 %, 50.3 %" in page.text
    assert "71.5 % of 75.0 %, limited by registers 0 % 810 GFLOP/s, 0.250 a byte, memory" in page.text
    assert "memory long scoreboard 61.0 %, barrier 12.5 %" in page.text
    assert "About softmax_rows It moves 90 % of what the memory can" in page.text and "dram percent 90.1" in page.text
    assert f"gemm {device_answers.OFFSET} 9,437,184 inst" in page.text
    path = f"/job/{job_id}/artifacts/candidate/profile.ncu-rep"
    assert path in [link["href"] for link in page.those("a")] and "No report for the window" in page.text
    assert "What it is compiled to" not in page.text


def test_every_stage_has_words_and_a_colour(client: FlaskClient, records: JobStore) -> None:
    style = client.get(f"/job/{completed(client, records, results.passed())}/report").get_data(as_text=True)
    assert all(stage.value in MEANS for stage in Stage)
    assert all(f"svg .{stage.value} {{" in style for stage in Stage if stage is not Stage.DONE)


def test_where_there_are_no_counters_the_page_says_why(client: FlaskClient, records: JobStore) -> None:
    body = results.evaluated()
    body["kernel_exec_result"]["metadata"]["device_metrics"] = device_answers.unavailable()
    page = report(client, completed(client, records, body))
    assert "Device metrics Not available: the driver lets only administrators read the counters" in page.text
    assert "Device metrics" not in report(client, completed(client, records, results.evaluated())).text


def test_what_the_sanitizer_found_is_told_as_a_wrong_result_is(client: FlaskClient, records: JobStore) -> None:
    answer = device_answers.sanitizer(device_answers.finding(), device_answers.finding(line=None, kernel=None, count=1))
    answer["tools"]["memcheck"]["findings_omitted"] = 2
    job_id = completed(client, records, results.evaluated(sanitizer=answer))
    page = report(client, job_id)
    assert "But compute-sanitizer found errors in it: 6 by memcheck." in page.text
    assert "Errors found" in page.text and "They count as much as a wrong result" in page.text
    assert "line 3 of kernel.cu in scale block (3,0,0), thread (255,0,0) 3" in page.text and "2 more." in page.text
    job = client.get(f"/job/{job_id}").get_json()
    assert job["result"]["verdict"] == "passed" and job["result"]["kernel_exec_result"]["sanitizer"] == answer
    message = "compute-sanitizer found errors in it: 6 by memcheck"
    flag = {"kernel": "candidate", "code": "sanitizer_errors", "message": message, "data": {}}
    assert job["result"]["flags"] == [flag]
    assert "But compute-sanitizer found errors" in job["explanation"]


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        (device_answers.sanitizer(), "Clean compute-sanitizer found nothing wrong"),
        ({"status": "unavailable", "reason": "no GPU", "tools": {}, "seconds": 0.0}, "not to its end: no GPU."),
        ({"status": "unavailable", "reason": None, "tools": {}, "seconds": 0.0}, "no reason was given"),
    ],
)
def test_what_else_may_become_of_the_sanitizer(
    client: FlaskClient, records: JobStore, answer: dict[str, Any], says: str
) -> None:
    assert says in report(client, completed(client, records, results.evaluated(sanitizer=answer))).text


def test_figures_of_another_form_break_no_page(client: FlaskClient, records: JobStore) -> None:
    strange = {
        "name": EVIL,
        "speed_of_light": 3,
        "stalls": [7, {"reason": EVIL}],
        "requested_metrics": {EVIL: {"unit": EVIL}},
    }
    side = {
        "status": "measured",
        "kernels": [strange, {}, None],
        "advice": [{"message": EVIL, "figures": {EVIL: EVIL}}],
    }
    body = results.evaluated(
        sanitizer=device_answers.sanitizer(device_answers.finding(kind=EVIL, message=EVIL, file=EVIL))
    )
    body["kernel_exec_result"]["build"] |= {"notes": 7, "arch": [EVIL], "entry": {EVIL: EVIL}}
    body["kernel_exec_result"]["metadata"]["device_metrics"] = {
        "status": "measured",
        "candidate": side,
        "profiler": EVIL,
    }
    assert report(client, completed(client, records, body)).text.count("<script>alert(1)</script>") >= 10


def test_many_windows_and_none(client: FlaskClient, records: JobStore) -> None:
    body = results.passed()
    body["kernel_exec_result"]["timing"]["window_ms"] = [-0.001, 0.0, 0.5]
    drawn = report(client, completed(client, records, body)).text
    for side in ("kernel_exec_result", "ref_result"):
        del body[side]["timing"]["window_ms"], body[side]["timing"]["excluded_windows"]
    assert len(report(client, completed(client, records, body)).text) < len(drawn), "windows that it has are drawn"


def test_each_side_is_shown_beneath_the_roofline(client: FlaskClient, records: JobStore) -> None:
    body = results.passed(2.0)
    body["kernel_exec_result"]["roofline"] = results.roofline()
    body["ref_result"]["roofline"] = results.roofline(flops_per_s=3.5e14, arithmetic_share=0.46, bound="neither")
    page = report(client, completed(client, records, body))
    assert "96.0 MiB a call" in page.text and "710 TFLOP/s, 1,365 operations a byte" in page.text
    assert "93.0 %" in page.text and "the arithmetic: it computes nearly as fast as this card can" in page.text
    assert "candidate: 710 TFLOP/s at 1,365 operations a byte; reference: 350 TFLOP/s" in page.text
    big = [circle for circle in page.those("circle") if circle["r"] == "6"]
    assert [circle["class"] for circle in big] == ["candidate", "reference"]
    assert float(big[0]["cy"] or 0) < float(big[1]["cy"] or 0)  # the faster one is higher, under the flat roof
    roof = [line for line in page.those("line") if line["class"] == "level" and line["y1"] == line["y2"]]
    assert len(roof) == 1 and float(roof[0]["y1"] or 0) < float(big[0]["cy"] or 0)


def test_without_counted_operations_there_is_no_drawing(client: FlaskClient, records: JobStore) -> None:
    unknown = {"flops": None, "flops_per_s": None, "arithmetic_share": None, "flops_per_byte": None}
    copy = results.roofline(**unknown, memory_share=0.81, bound="memory", roof_flops_per_s=None)
    page = report(client, completed(client, records, results.evaluated(roofline=copy)))
    assert "81.0 %" in page.text and "not counted: request “profile”" in page.text
    assert "beneath the card's roofline" not in [each.get("aria-labelledby") for each in page.those("svg")]
    assert not [circle for circle in page.those("circle") if circle["r"] == "6"]
    assert "roofline" not in report(client, completed(client, records, results.evaluated())).text


def test_times_of_several_processes_are_told_as_their_range(client: FlaskClient, records: JobStore) -> None:
    body = results.evaluated()
    assert "Processes" not in report(client, completed(client, records, body)).text
    body["kernel_exec_result"]["timing"]["per_process_ms"] = [0.0123, 0.0126, 0.0121]
    assert "Processes 3: 12.1 µs to 12.6 µs" in report(client, completed(client, records, body)).text


@pytest.mark.parametrize(
    ("compiled", "says"),
    [
        (
            BaselineResult(Baseline.COMPILE, 0.02, Speedup(1.5, 1.4, 1.6, "faster"), 2),
            ["1.50×", "1.40 to 1.60; 2 graph breaks"],
        ),
        (
            BaselineResult(Baseline.COMPILE, code="compile_error", message="torch.compile failed: Unsupported"),
            ["unknown", "torch.compile failed: Unsupported."],
        ),
    ],
)
def test_the_speedup_over_torch_compile_stands_beside_the_eager_one(
    client: FlaskClient, records: JobStore, compiled: BaselineResult, says: list[str]
) -> None:
    eager = BaselineResult(Baseline.EAGER, 0.0248, Speedup(2.0, 1.8, 2.2, "faster"))
    body = results.passed(2.0) | {"baselines": [eager.to_dict(), compiled.to_dict()]}
    page = report(client, completed(client, records, body)).text
    assert "2.00×" in page and "Over torch.compile" in page
    assert all(text in page for text in says)


@pytest.mark.parametrize("finding", Finding)
def test_a_confirmation_is_told_in_a_sentence(client: FlaskClient, records: JobStore, finding: Finding) -> None:
    first = FirstResult("the-first-job", Speedup(2.0, 1.8, 2.2, "faster"))
    together = Speedup(1.9, 1.8, 2.0, "faster") if finding is Finding.CONFIRMED else None
    found = Confirmation(first, True, finding, together, None).to_dict()
    page = report(client, completed(client, records, results.passed(2.0) | {"confirmation": found})).text
    assert "the-first-job" in page
    assert ("Both together support 1.90 times (95 % interval 1.80 to 2.00)" in page.replace("\u00a0", " ")) == bool(
        together
    )


@pytest.mark.parametrize("fit", [True, False])
def test_whether_a_kernel_is_fit_is_the_headline_and_a_table(client: FlaskClient, records: JobStore, fit: bool) -> None:
    check = {"name": "same_bits", "result": "passed" if fit else "failed", "message": "bits <b>", "required": False}
    found = {"fit": fit, "sentence": "Said in a sentence.", "checks": [check]}
    page = report(client, completed(client, records, results.passed(2.0) | {"qualification": found})).text
    assert ("Not fit to be merged" in page) != fit and "Said in a sentence." in page
    assert "same bits" in page and "bits <b>" in page
