"""What is tried again, what is not, and what is sent then; against a server that fails on purpose."""

from __future__ import annotations

import re
import socket
import time
from typing import Any

import pytest

from kernel_eval_client import Retry, Submission, errors, torch
from tests.client.conftest import Asked
from tests.client.failing import BROKEN, Reply, Told, job, listening, problem, result
from tests.conftest import free_port

QUICK = Retry(patience_s=20.0, first_pause_s=0.01, max_pause_s=0.02)
KERNEL = torch("def kernel_fn(x):\n    return x\n")
PASSED = Reply(200, result())


@pytest.mark.parametrize("failure", [BROKEN, problem(503), problem(502), problem(500), problem(429, "too-many-jobs")])
def test_a_submission_is_sent_again_as_it_was_under_one_key(ask: Asked, failure: Reply) -> None:
    with listening(Told(failure, failure, PASSED)) as told:
        assert ask(told.url, QUICK, "judge", KERNEL).passed
    assert len(told.seen) == 3
    keys = {request.headers["Idempotency-Key"] for request in told.seen}
    assert len(keys) == 1 and len(keys.pop()) == 36
    assert len({request.body for request in told.seen}) == 1


def test_a_key_of_ones_own_is_sent(ask: Asked) -> None:
    with listening(Told(PASSED)) as told:
        ask(told.url, QUICK, "judge", Submission(KERNEL, idempotency_key="mine"))
    assert told.seen[0].headers["Idempotency-Key"] == "mine"


def test_two_submissions_have_two_keys(ask: Asked) -> None:
    with listening(Told(PASSED)) as told:
        ask(told.url, QUICK, "judge", KERNEL)
        ask(told.url, QUICK, "judge", KERNEL)
    assert len({request.headers["Idempotency-Key"] for request in told.seen}) == 2


def test_retry_after_is_waited_for(ask: Asked) -> None:
    with listening(Told(problem(503, "queue-full", Retry_After="0.4"), PASSED)) as told:
        began = time.monotonic()
        ask(told.url, QUICK, "judge", KERNEL)
        assert time.monotonic() - began >= 0.4


def test_a_rate_limit_beyond_our_patience_is_raised_at_once(ask: Asked) -> None:
    refusal = problem(429, "too-many-requests", Retry_After="3600")
    with listening(Told(refusal)) as told, pytest.raises(errors.RateLimited) as raised:
        ask(told.url, QUICK, "judge", KERNEL)
    assert raised.value.retry_after == 3600
    assert len(told.seen) == 1


def test_patience_has_an_end(ask: Asked) -> None:
    brief = Retry(patience_s=0.2, first_pause_s=0.05, max_pause_s=0.05)
    with listening(Told(problem(503, "broker-unreachable"))) as told, pytest.raises(errors.ServiceError, match="503"):
        ask(told.url, brief, "judge", KERNEL)
    assert len(told.seen) > 2


@pytest.mark.parametrize(
    ("reply", "kind"),
    [
        (problem(400, "invalid-request"), errors.CallerError),
        (problem(422, "idempotency-key-reused"), errors.CallerError),
        (problem(401, "key-required"), errors.KeyRefused),
        (problem(403, "scope-missing"), errors.KeyRefused),
        (problem(404), errors.CallerError),
        (problem(409, "job-cancelled"), errors.JobCancelled),
        (problem(500, "job-failed"), errors.JobFailed),
        (Reply(200, {"hello": "world"}), errors.ServiceError),
    ],
)
def test_what_would_fail_again_is_not_tried_again(ask: Asked, reply: Reply, kind: type[Exception]) -> None:
    with listening(Told(reply)) as told, pytest.raises(kind):
        ask(told.url, QUICK, "judge", KERNEL)
    assert len(told.seen) == 1


def test_nobody_listening_is_said_with_the_address(ask: Asked) -> None:
    url = f"http://127.0.0.1:{free_port()}"
    with pytest.raises(errors.Unreachable, match=url):
        ask(url, Retry(patience_s=0.1, first_pause_s=0.05), "judge", KERNEL)


def test_who_waits_for_a_service_that_is_away_is_told_once(ask: Asked, caplog: pytest.LogCaptureFixture) -> None:
    with listening(Told(BROKEN, BROKEN, PASSED)) as told:
        ask(told.url, QUICK, "judge", KERNEL)
    (said,) = caplog.messages
    assert (
        said.startswith(f"no response from {told.url}: ")
        and said.endswith("Trying again for 20 s")
        and ".." not in said
    )


@pytest.mark.parametrize("given", ["def kernel_fn(x): ...", 7, None])
def test_what_is_no_kernel_is_said_before_anything_is_sent(ask: Asked, given: Any) -> None:
    for method in ("evaluate", "judge", "submit"):
        with pytest.raises(errors.CallerError, match=r"a kernel is a Kernel or a dict.*pathlib\.Path"):
            ask("http://127.0.0.1:9", QUICK, method, given)


def test_an_answer_that_does_not_come_in_time_is_none(ask: Asked, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kernel_eval_client.wire.SLACK_S", 0.1)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        with pytest.raises(errors.Unreachable):
            ask(url, Retry(patience_s=0.1, first_pause_s=0.05), "job", "j1")


def test_a_job_is_asked_for_with_long_polls(ask: Asked) -> None:
    held = (
        Reply(202, job("queued")),
        Reply(200, job("running"), {"Retry-After": "0"}),
        Reply(200, job("completed", found=result())),
    )
    with listening(Told(*held)) as told:
        assert ask(told.url, QUICK, "judge", KERNEL).job_id == "j1"
    assert [(request.method, request.path) for request in told.seen] == [
        ("POST", "/evaluate"),
        ("GET", "/job/j1"),
        ("GET", "/job/j1"),
    ]
    assert {*told.seen[0].query["wait"], *told.seen[1].query["wait"]} == {"60"}


def test_a_service_without_a_place_to_wait_is_not_asked_again_at_once(ask: Asked) -> None:
    crowded = Reply(200, job("running"), {"Retry-After": "0.4"})
    with listening(Told(crowded, Reply(200, job("completed", found=result())))) as told:
        began = time.monotonic()
        ask(told.url, QUICK, "wait", "j1")
        assert time.monotonic() - began >= 0.4
    assert len(told.seen) == 2


def test_waiting_has_an_end_and_the_job_goes_on(ask: Asked) -> None:
    with listening(Told(Reply(202, job("running")))) as told, pytest.raises(errors.StillRunning) as raised:
        ask(told.url, QUICK, "judge", KERNEL, max_wait_s=0.2)
    assert raised.value.job_id == "j1"
    assert isinstance(raised.value, TimeoutError)
    seconds = re.search(r"after ([\d.]+) s", str(raised.value))
    assert seconds is not None and float(seconds[1]) >= 0.2, "counted from the beginning, not from the last poll"


@pytest.mark.parametrize(("state", "kind"), [("failed", errors.JobFailed), ("cancelled", errors.JobCancelled)])
def test_a_job_without_a_result_says_whose_fault_it_is(ask: Asked, state: str, kind: type[Exception]) -> None:
    ended = Reply(200, job(state, error="the zygote died"))
    with listening(Told(ended)) as told, pytest.raises(kind, match="the zygote died"):
        ask(told.url, QUICK, "wait", "j1")


def test_a_submission_known_by_its_key_that_has_ended_is_answered_as_a_job(ask: Asked) -> None:
    with listening(Told(PASSED, Reply(200, job("completed", found=result())))) as told:
        assert ask(told.url, QUICK, "submit", KERNEL).state == "completed"
    assert told.seen[1].path == "/job/j1"


def test_an_accepted_job_whose_record_is_lost_is_handed_in_again(ask: Asked) -> None:
    with listening(Told(Reply(202, job("queued")), problem(404, "unknown-job"), PASSED)) as told:
        assert ask(told.url, QUICK, "judge", KERNEL).passed
    first, _, second = told.seen
    assert first.body == second.body
    assert first.headers["Idempotency-Key"] == second.headers["Idempotency-Key"]


def test_what_json_does_not_have_is_the_callers_fault(ask: Asked) -> None:
    with pytest.raises(errors.CallerError, match="JSON"):
        ask("http://127.0.0.1:9", QUICK, "judge", Submission(KERNEL, atol=float("nan")))


def test_a_key_is_sent_and_never_shown(monkeypatch: pytest.MonkeyPatch, ask: Asked) -> None:
    with listening(Told(Reply(200, job("queued")))) as told:
        monkeypatch.setenv("KERNEL_EVAL_URL", told.url)
        monkeypatch.setenv("KERNEL_EVAL_API_KEY", "kevk_secret")
        ask(None, QUICK, "job", "j1")
        ask("http://127.0.0.1:" + told.url.rpartition(":")[2], QUICK, "job", "j1")
        ask("http://localhost:" + told.url.rpartition(":")[2], QUICK, "job", "j1")
    sent = [request.headers.get("Authorization") for request in told.seen]
    assert sent == ["Bearer kevk_secret", "Bearer kevk_secret", None]


def test_an_address_that_is_none_is_refused(ask: Asked) -> None:
    with pytest.raises(errors.CallerError, match="http://"):
        ask("localhost:8000", QUICK, "job", "j1")


@pytest.mark.parametrize("job_id", ["../stats", "a/../../b", "a?wait=1#c"])
def test_a_job_id_stays_one_segment_of_the_path(ask: Asked, job_id: str) -> None:
    told = Told(Reply(200, job("queued")))
    with listening(told):
        ask(told.url, QUICK, "job", job_id)
    ((path, query),) = [(seen.path, seen.query) for seen in told.seen]
    assert path.startswith("/job/") and path.count("/") == 2 and not query


@pytest.mark.parametrize("job_id", ["", ".", ".."])
def test_what_can_be_no_job_id_is_not_sent(ask: Asked, job_id: str) -> None:
    told = Told(Reply(200, job("queued")))
    with listening(told), pytest.raises(errors.CallerError, match="no job's id"):
        ask(told.url, QUICK, "cancel", job_id)
    assert not told.seen
