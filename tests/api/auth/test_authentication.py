"""API keys: who gets in, who sees what, how much of it; and without keys, what stays shut."""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from apiflask import APIFlask
from flask.testing import FlaskClient
from redis import Redis
from werkzeug.test import TestResponse

from api.http.long_poll import MAX_WAIT_S
from domain.access import Scope
from domain.settings import settings
from tasks.fleet.heartbeat import Heartbeat
from tasks.jobs.job_store import JobStore
from tasks.node.device_info import Device
from tests.api.keyed import ELSEWHERE, Holder, app_with, file_of, holder
from tests.api.payloads import RELU, kernel
from tests.api.routes.test_jobs import RESULT
from tests.conftest import free_port
from tests.tasks.artifacts import listed
from tests.tasks.node.refusing_redis import full_memory

BODY = {"kernel": kernel(RELU, "torch")}
GUARDED = [
    ("POST", "/evaluate"), ("POST", "/compare"), ("POST", "/"), ("POST", "/batch"), ("GET", "/jobs"),
    ("GET", "/batch/x"),
    ("GET", "/job/x"), ("DELETE", "/job/x"), ("GET", "/stats"), ("POST", "/admin/cleanup-jobs"),
    ("POST", "/jobs/cancel"), ("GET", "/"), ("GET", "/job/x/report"), ("GET", "/job/x/events"), ("GET", "/metrics"),
    ("GET", "/job/x/artifacts"), ("GET", "/job/x/artifacts/candidate/a.ptx"),
]  # fmt: skip
ALL = tuple(Scope)


@pytest.fixture
def keyed(redis: Redis, tmp_path: Path) -> Iterator[APIFlask]:
    with app_with(REQUIRE_API_KEYS="on", API_KEYS_FILE=str(tmp_path / "keys.json")) as app:
        yield app


@pytest.fixture
def alice(keyed: APIFlask) -> Holder:
    return holder(keyed, "alice", Scope.SUBMIT, Scope.READ)


@pytest.fixture
def bob(keyed: APIFlask) -> Holder:
    return holder(keyed, "bob", Scope.SUBMIT, Scope.READ)


def problem(answer: TestResponse) -> tuple[int, str]:
    assert answer.content_type == "application/problem+json", answer.get_data(as_text=True)
    body = answer.get_json()
    assert body["status"] == answer.status_code
    return answer.status_code, body["type"].rpartition(":")[2]


@pytest.mark.parametrize(("method", "path"), GUARDED)
def test_a_stranger_gets_in_nowhere(keyed: APIFlask, alice: Holder, method: str, path: str) -> None:
    client = keyed.test_client()
    wrong = alice.secret[:-1] + ("0" if alice.secret[-1] != "0" else "1")
    for headers in ({}, {"Authorization": f"Bearer {wrong}"}, {"Authorization": f"Basic {alice.secret}"}):
        answer = client.open(path, method=method, headers=headers, data=b"not even JSON")
        assert problem(answer) == (401, "key-required")
        assert answer.headers["WWW-Authenticate"] == "Bearer"
    file_of(keyed).revoke("alice")
    assert problem(alice(method, path)) == (401, "key-required")


def test_every_route_is_guarded_but_those_that_are_listed(keyed: APIFlask) -> None:
    client = keyed.test_client()
    opened = set()
    for rule in keyed.url_map.iter_rules():
        path = (
            rule.rule.replace("<job_id>", "x").replace("<path:name>", "swagger-ui.css").replace("<path:filename>", "x")
        )
        for method in (rule.methods or set()) - {"HEAD", "OPTIONS"}:
            with client.open(path, method=method) as answer:
                if answer.status_code != 401:
                    opened.add((method, rule.rule))
    assert opened == {
        ("GET", "/docs"), ("GET", "/docs/assets/<path:name>"), ("GET", "/openapi.json"),
        ("GET", "/health"),
    }  # fmt: skip


def test_a_route_that_nobody_thought_of_is_for_admin(keyed: APIFlask, alice: Holder) -> None:
    @keyed.get("/forgotten")
    def forgotten() -> str:
        return "secret"

    assert problem(alice("GET", "/forgotten")) == (403, "scope-missing")
    assert holder(keyed, "root", Scope.ADMIN)("GET", "/forgotten").status_code == 200


@pytest.mark.parametrize("scope", ALL)
def test_a_scope_opens_its_own_and_nothing_else(keyed: APIFlask, scope: Scope) -> None:
    one = holder(keyed, "one", scope)
    needs = {path: Scope.SUBMIT for path in ("/evaluate", "/compare", "/", "/batch", "/jobs/cancel")}
    needs |= {"/admin/cleanup-jobs": Scope.ADMIN}
    for method, path in GUARDED:
        needed = Scope.SUBMIT if method == "DELETE" else Scope.READ if method == "GET" else needs[path]
        answer = one(method, path)
        if needed is scope:
            assert answer.status_code not in (401, 403), (method, path)
        else:
            assert problem(answer) == (403, "scope-missing"), (method, path)


def test_artifacts_are_their_keys_alone(keyed: APIFlask, alice: Holder, bob: Holder, redis: Redis) -> None:
    records = JobStore(redis, 60)
    job_id = alice("POST", "/evaluate", json=BODY).get_json()["job_id"]
    claim = records.claim("w")
    assert claim is not None and records.complete(job_id, claim.attempt, listed().body(job_id), listed().texts)
    for place in ("artifacts", "artifacts/candidate/add.ptx"):
        assert alice("GET", f"/job/{job_id}/{place}").status_code == 200
        assert problem(bob("GET", f"/job/{job_id}/{place}")) == (404, "unknown-job")


def test_a_job_is_its_keys_alone(keyed: APIFlask, alice: Holder, bob: Holder, redis: Redis) -> None:
    records = JobStore(redis, 60)
    submitted = alice("POST", "/evaluate", json=BODY).get_json()
    job = f"/job/{submitted['job_id']}"
    root = holder(keyed, "root", *ALL)
    for other in (bob, root):
        answers = [(other(method, job), other(method, job.replace("-", "0"))) for method in ("GET", "DELETE")]
        for theirs, unknown in answers:
            assert problem(theirs) == (404, "unknown-job") == problem(unknown)
            told = [answer.get_json()["detail"] for answer in (theirs, unknown)]
            assert told[0].replace(submitted["job_id"], "") == told[1].replace(job.replace("-", "0")[5:], "")
    assert alice("GET", job).get_json()["state"] == "queued", "nobody else cancelled it"
    claim = records.claim("w")
    assert claim is not None
    records.complete(submitted["job_id"], claim.attempt, RESULT)
    assert alice("GET", job).get_json()["result"].items() >= RESULT.items()
    # A stranger's wait ends at once: it would be longer than the test may take.
    assert problem(bob("GET", f"{job}?wait={MAX_WAIT_S}")) == (404, "unknown-job")
    assert alice("DELETE", job).get_json()["state"] == "completed"


def test_a_job_from_before_the_keys_is_nobodys(client: FlaskClient, keyed: APIFlask, alice: Holder) -> None:
    job_id = client.post("/evaluate", json=BODY).get_json()["job_id"]
    assert problem(alice("GET", f"/job/{job_id}")) == (404, "unknown-job")
    assert alice("GET", "/jobs").get_json()["jobs"] == []


def test_cancelling_many_cancels_ones_own(keyed: APIFlask, alice: Holder, bob: Holder) -> None:
    mine = alice("POST", "/evaluate", json=BODY).get_json()["job_id"]
    theirs = bob("POST", "/batch", json={"jobs": [BODY] * 2}).get_json()
    batch_id = theirs["batch_id"]
    assert problem(alice("POST", "/jobs/cancel", json={"batch_id": batch_id})) == (404, "unknown-batch")
    assert problem(alice("GET", f"/batch/{batch_id}")) == problem(alice("GET", "/batch/none")) == (404, "unknown-batch")
    assert [job["index"] for job in bob("GET", f"/batch/{batch_id}").get_json()["jobs"]] == [0, 1]
    job_ids = [mine, *(entry["job_id"] for entry in theirs["jobs"])]
    answer = alice("POST", "/jobs/cancel", json={"job_ids": job_ids}).get_json()
    assert (answer["cancelled"], answer["not_found"]) == (1, job_ids[1:])
    assert {job["state"] for job in bob("GET", "/jobs").get_json()["jobs"]} == {"queued"}


def test_an_idempotency_key_is_its_api_keys_own(keyed: APIFlask, alice: Holder, bob: Holder) -> None:
    def submitted(who: Holder) -> str:
        headers = {"Authorization": f"Bearer {who.secret}", "Idempotency-Key": "the-same"}
        answer = who.client.post("/evaluate", json=BODY, headers=headers).get_json()
        assert "job_id" in answer, answer
        return str(answer["job_id"])

    assert submitted(alice) == submitted(alice) != submitted(bob)


def test_the_list_is_ones_own(keyed: APIFlask, alice: Holder, bob: Holder, redis: Redis) -> None:
    mine = [alice("POST", "/evaluate", json=BODY).get_json()["job_id"] for _ in range(5)]
    theirs = bob("POST", "/batch", json={"jobs": [BODY] * 3}).get_json()
    assert alice("DELETE", f"/job/{mine[1]}").status_code == 200

    def listed(who: Holder, query: str = "") -> list[str]:
        return [job["job_id"] for job in who("GET", f"/jobs?{query}").get_json()["jobs"]]

    assert listed(alice) == mine[::-1]
    assert len(listed(bob)) == 3
    assert listed(alice, "state=cancelled") == [mine[1]]
    assert listed(bob, f"batch_id={theirs['batch_id']}&state=queued") == listed(bob)
    assert problem(alice("GET", f"/jobs?batch_id={theirs['batch_id']}&limit=1")) == (404, "unknown-batch")
    pages, cursor = [], ""
    while cursor is not None:
        page = alice("GET", f"/jobs?limit=2{cursor and f'&cursor={cursor}'}").get_json()
        pages.append([job["job_id"] for job in page["jobs"]])
        cursor = page["next_cursor"]
    assert pages == [mine[:2:-1], mine[2:0:-1], mine[:1]]
    records = JobStore(redis, 60)
    records.cleanup(records.now() + 1)
    assert len(listed(alice)) == 4
    assert redis.zcard(f"jobs:key:{alice.key_id}") == 4, "forgotten in its key's list too"


def test_requests_beyond_the_rate_are_told_when_to_come_back(keyed: APIFlask, alice: Holder, redis: Redis) -> None:
    slow = holder(keyed, "slow", *ALL, requests_per_minute=2)
    first, second, third = (slow("GET", "/stats") for _ in range(3))
    assert (first.status_code, second.status_code) == (200, 200)
    assert problem(third) == (429, "too-many-requests")
    assert 1 <= int(third.headers["Retry-After"]) <= 30
    assert slow("GET", "/health").status_code == 503, "open, and not counted"
    assert alice("GET", "/jobs").status_code == 200, "others' keys have buckets of their own"
    # As half a minute later: the bucket is kept as the time at which it is full again, in microseconds.
    redis.decrby(f"rate:{slow.key_id}", 30_000_000)
    assert [slow("GET", "/stats").status_code for _ in range(3)] == [200, 429, 429]
    # As after Redis' clock was set back by an hour.
    redis.incrby(f"rate:{slow.key_id}", 3600_000_000)
    assert 1 <= int(slow("GET", "/stats").headers["Retry-After"]) <= 30


def test_a_key_reads_on_while_redis_takes_no_writes(keyed: APIFlask, alice: Holder, redis: Redis) -> None:
    job = f"/job/{alice('POST', '/evaluate', json=BODY).get_json()['job_id']}"
    with full_memory(redis):
        assert [alice("GET", path).status_code for path in (job, "/jobs", "/stats", "/")] == [200] * 4
        assert "kernel_eval_broker_up 0.0" in alice("GET", "/metrics").get_data(as_text=True)
        assert problem(alice("POST", "/evaluate", json=BODY)) == (503, "broker-unreachable")
        assert holder(keyed, "root", *ALL)("POST", "/admin/cleanup-jobs").status_code == 200, "it frees memory"


def test_metrics_tell_a_key_that_redis_is_away(tmp_path: Path) -> None:
    url = f"redis://127.0.0.1:{free_port()}/0"
    with app_with(REQUIRE_API_KEYS="on", API_KEYS_FILE=str(tmp_path / "keys.json"), CELERY_BROKER_URL=url) as app:
        alice = holder(app, "alice", Scope.READ)
        assert "kernel_eval_broker_up 0.0" in alice("GET", "/metrics").get_data(as_text=True)
        read = alice("GET", "/jobs")
        assert problem(read) == (503, "broker-unreachable")
        assert read.get_json()["detail"] == "the broker does not answer; try again in a few seconds"


def test_the_rate_holds_for_clients_at_once(keyed: APIFlask) -> None:
    # One every 2.4 s beyond the first 25.
    secret = holder(keyed, "many", Scope.READ, requests_per_minute=25).secret
    with ThreadPoolExecutor(8) as pool:
        began = time.monotonic()
        statuses = list(pool.map(lambda _: Holder(keyed.test_client(), secret)("GET", "/stats").status_code, range(60)))
        took = time.monotonic() - began
    assert set(statuses) == {200, 429}
    assert 25 <= statuses.count(200) <= 25 + took / 2.4


def test_the_quota_of_jobs(keyed: APIFlask, redis: Redis) -> None:
    records = JobStore(redis, 60)
    few = holder(keyed, "few", *ALL, max_jobs=3)
    first = few("POST", "/evaluate", json=BODY).get_json()["job_id"]
    batch = few("POST", "/batch", json={"jobs": [BODY, {"bad": 1}, BODY, BODY, BODY]})
    body = batch.get_json()
    assert (batch.status_code, body["accepted"], body["refused"]) == (202, 2, 3)
    assert [entry.get("problem", {}).get("status") for entry in body["jobs"]] == [None, 400, None, 429, 429]
    assert batch.headers["Retry-After"] == "5"
    for path, sent in (("/evaluate", BODY), ("/batch", {"jobs": [BODY]})):
        refused = few("POST", path, json=sent)
        assert problem(refused) == (429, "too-many-jobs")
        assert refused.headers["Retry-After"] == "5"
    assert records.queue_length() == 3, "nothing was recorded of what was refused"
    assert few("DELETE", f"/job/{first}").get_json()["state"] == "cancelled"
    assert few("POST", "/evaluate", json=BODY).status_code == 202
    assert problem(few("POST", "/evaluate", json=BODY)) == (429, "too-many-jobs")


def test_no_key_may_be_more_urgent_than_the_settings_say(keyed: APIFlask, alice: Holder) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("KEY_MAX_PRIORITY", "5")
        settings.cache_clear()
        refused = alice("POST", "/evaluate", json={**BODY, "priority": 6})
        assert (refused.status_code, refused.get_json()["detail"]) == (400, "priority: must be at most 5 here")
        assert alice("POST", "/evaluate", json={**BODY, "priority": 5}).status_code == 202
        batch = alice("POST", "/batch", json={"jobs": [BODY, {**BODY, "priority": 9}]}).get_json()
        assert ["problem" in entry for entry in batch["jobs"]] == [False, True]
    settings.cache_clear()
    assert alice("POST", "/evaluate", json={**BODY, "priority": 9}).status_code == 202


def test_the_quota_is_exact_when_all_come_at_once(keyed: APIFlask, redis: Redis) -> None:
    secret = holder(keyed, "few", *ALL, max_jobs=7).secret

    def submit(_: int) -> int:
        return Holder(keyed.test_client(), secret)("POST", "/evaluate", json=BODY).status_code

    with ThreadPoolExecutor(12) as pool:
        statuses = list(pool.map(submit, range(48)))
    assert (statuses.count(202), statuses.count(429)) == (7, 41)
    assert JobStore(redis, 60).queue_length() == 7


def test_health_tells_strangers_up_or_down(keyed: APIFlask, alice: Holder, redis: Redis) -> None:
    stranger = keyed.test_client()
    answer = stranger.get("/health")
    assert (answer.status_code, answer.get_json()) == (503, {"status": "unhealthy"})
    assert "no worker" in alice("GET", "/health").get_json()["error"]
    Heartbeat(redis, "gpu0@node", Device("GPU-1", 0, "NVIDIA H200", "h200"), 4, {}).beat()
    answer = stranger.get("/health", headers={"Authorization": "Bearer kevk_wrong"})
    assert (answer.status_code, answer.get_json()) == (200, {"status": "healthy"})
    assert alice("GET", "/health").get_json()["gpu_count"] == 1


def test_without_a_broker_nobody_gets_in(redis_url: str, tmp_path: Path) -> None:
    # An empty bucket cannot be told from a full one without Redis: refused, and a stranger learns that it is down.
    with app_with(
        REQUIRE_API_KEYS="on",
        API_KEYS_FILE=str(tmp_path / "keys.json"),
        CELERY_BROKER_URL=f"redis://127.0.0.1:{free_port()}/0",
    ) as app:
        one = holder(app, "one", *ALL)
        assert problem(one("GET", "/stats")) == (503, "broker-unreachable")
        assert app.test_client().get("/health").get_json() == {"status": "unhealthy"}
        assert app.test_client().get("/openapi.json").status_code == 200, "what Kubernetes looks at whether it lives"
        assert problem(app.test_client().get("/stats")) == (401, "key-required")


def test_keys_that_cannot_be_read_let_nobody_in(keyed: APIFlask, alice: Holder, tmp_path: Path) -> None:
    (tmp_path / "keys.json").write_text("{")
    answer = alice("POST", "/evaluate", json=BODY)
    assert problem(answer) == (503, "keys-unreadable")
    assert str(tmp_path) not in answer.get_data(as_text=True)
    assert alice("GET", "/health").get_json() == {"status": "unhealthy"}


@pytest.mark.parametrize(
    ("variables", "from_here", "from_elsewhere"),
    [
        ({"HOST": "127.0.0.1"}, 200, 401),  # From elsewhere: bound to another address than we were told.
        ({"HOST": "::1"}, 200, 401),
        ({"HOST": "localhost"}, 200, 401),
        ({"HOST": "0.0.0.0"}, 401, 401),
        ({"HOST": "::"}, 401, 401),
        ({"HOST": ""}, 200, 401),  # The default.
        ({"HOST": "node7.example"}, 401, 401),
        ({"HOST": "0.0.0.0", "REQUIRE_API_KEYS": "off"}, 200, 200),
        ({"HOST": "127.0.0.1", "REQUIRE_API_KEYS": "on"}, 401, 401),
    ],
)
def test_when_a_key_is_wanted(
    redis: Redis, tmp_path: Path, variables: dict[str, str], from_here: int, from_elsewhere: int
) -> None:
    with app_with(API_KEYS_FILE=str(tmp_path / "keys.json"), **variables) as app:
        client = app.test_client()
        assert client.get("/jobs").status_code == from_here
        assert client.get("/jobs", environ_overrides=ELSEWHERE).status_code == from_elsewhere
        assert client.get("/jobs", environ_overrides={"REMOTE_ADDR": ""}).status_code == from_elsewhere
        assert client.get("/jobs", environ_overrides={"REMOTE_ADDR": "::ffff:127.0.0.1"}).status_code == from_here


@pytest.mark.parametrize(
    "how",
    [
        {"environ_overrides": ELSEWHERE},
        {"headers": {"X-Forwarded-For": "192.0.2.7"}},
        {"headers": {"X-Real-IP": "192.0.2.7"}},
        {"headers": {"Forwarded": "for=192.0.2.7"}},
        {"headers": {"Sec-Fetch-Site": "cross-site"}},
        {"headers": {"Host": "rebound.example:8000"}},
        {"headers": {"Host": "127.0.0.1.example"}},
    ],
)
def test_without_keys_admin_is_for_this_machine(redis: Redis, how: dict[str, Any]) -> None:
    with app_with(HOST="0.0.0.0", REQUIRE_API_KEYS="off") as app:
        client = app.test_client()
        assert problem(client.post("/admin/cleanup-jobs", **how)) == (403, "local-only")
        for host in ("localhost", "127.0.0.1:8000", "[::1]:8000"):
            assert client.post("/admin/cleanup-jobs", headers={"Host": host}).status_code == 200
        assert client.post("/admin/cleanup-jobs", headers={"Sec-Fetch-Site": "same-origin"}).status_code == 200


def test_with_keys_admin_is_for_that_scope_alone(keyed: APIFlask, alice: Holder) -> None:
    assert problem(keyed.test_client().post("/admin/cleanup-jobs")) == (401, "key-required")
    assert problem(alice("POST", "/admin/cleanup-jobs")) == (403, "scope-missing")
    root = holder(keyed, "root", Scope.ADMIN)
    assert root("POST", "/admin/cleanup-jobs", environ_overrides=ELSEWHERE).status_code == 200


def test_the_document_says_so(client: FlaskClient) -> None:
    spec = client.get("/openapi.json").get_json()
    assert spec["components"]["securitySchemes"]["api_key"]["scheme"] == "bearer"
    for path, item in spec["paths"].items():
        for operation in item.values():
            if "responses" in operation:
                assert {"api_key": []} in operation["security"]
                assert ({"401", "403", "429"} <= set(operation["responses"])) == (path != "/health")
