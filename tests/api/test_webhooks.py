"""Webhooks: told once the job has ended, signed, tried again, never to where the service must not send."""

from __future__ import annotations

import hashlib
import hmac
import json
import logging
import select
import socket
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Event, Thread
from typing import Any

import pytest
from flask.testing import FlaskClient
from redis import Redis

from api import webhook_dispatcher as module
from api.http.context import KEY, AppContext
from api.url_policy import Forbidden, connect, destination
from api.webhook_dispatcher import SENDERS, SIGNATURE, Dispatcher, headers, post
from domain.access import Key, Scope
from domain.settings import settings
from tasks.jobs.job_store import JobStore
from tasks.jobs.submit import submit
from tasks.jobs.webhook_outbox import PAUSES_S, Webhook, Webhooks
from tasks.node.redis_client import text
from tests.api import results
from tests.api.payloads import LEGACY, RELU, Json, kernel
from tests.tasks.example_jobs import EVALUATE, until

SECRET = "a secret of sixteen or more"
BODY: Json = {"kernel": kernel(RELU, "torch")}


class Receiver(ThreadingHTTPServer):
    """Notes what it is sent and answers as it is told."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.told: list[tuple[str, dict[str, str], bytes]] = []
        self.status = 200
        self.location: str | None = None
        self.hangs = Event()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/hook?a=b"


class Handler(BaseHTTPRequestHandler):
    server: Receiver

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.told.append((self.path, dict(self.headers), body))
        hung = False
        while self.server.hangs.is_set():  # Until then, or until the other side has had enough.
            hung = True
            if select.select([self.connection], [], [], 0.05)[0]:
                break
        if hung:
            return
        self.send_response(self.server.status)
        if self.server.location is not None:
            self.send_header("Location", self.server.location)
        self.end_headers()

    def log_message(self, *_: Any) -> None:
        """Nothing."""


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    server = Receiver()
    thread = Thread(target=server.serve_forever, args=(0.02,))
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture
def listed(redis_url: str, receiver: Receiver) -> Iterator[Receiver]:
    """The receiver, on the operator's list."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("WEBHOOK_HOSTS", f" 127.0.0.1:{receiver.server_port}, Hooks.Example ")
        settings.cache_clear()
        yield receiver
    settings.cache_clear()


@pytest.fixture
def dispatcher(client: FlaskClient) -> Dispatcher:
    context: AppContext = client.application.extensions[KEY]
    return context.dispatcher


def submitted(client: FlaskClient, url: str, secret: str | None = SECRET, path: str = "/evaluate") -> str:
    body = BODY if path == "/evaluate" else LEGACY
    answer = client.post(path, json={**body, "webhook": {"url": url, "secret": secret}})
    assert answer.status_code == 202, answer.get_data(as_text=True)
    assert answer.get_json()["webhook"] is None
    return str(answer.get_json()["job_id"])


def complete(records: JobStore, job_id: str) -> None:
    claim = records.claim("w")
    assert claim is not None and claim.job_id == job_id
    assert records.complete(job_id, claim.attempt, results.passed(2.0))


def state(client: FlaskClient, job_id: str) -> Json:
    found: Json = client.get(f"/job/{job_id}").get_json()["webhook"]
    return found


def test_the_end_is_told_once_and_signed(
    client: FlaskClient, records: JobStore, dispatcher: Dispatcher, listed: Receiver, redis: Redis
) -> None:
    job_id = submitted(client, listed.url)
    dispatcher.run_once()
    assert listed.told == [] and state(client, job_id) is None, "it has not ended"
    complete(records, job_id)
    assert state(client, job_id) == {"state": "pending", "attempts": 0, "last_error": None}
    dispatcher.run_once()
    dispatcher.run_once()
    ((path, sent, body),) = listed.told
    told = json.loads(body)
    assert path == "/hook?a=b" and sent["Content-Type"] == "application/json"
    assert (told["type"], told["job_id"], told["summary"]["ratio"]) == ("job.completed", job_id, 2.0)
    at, signature = (part.split("=", 1)[1] for part in sent[SIGNATURE].split(","))
    assert signature == hmac.new(SECRET.encode(), f"{at}.".encode() + body, hashlib.sha256).hexdigest()
    assert state(client, job_id) == {"state": "delivered", "attempts": 1, "last_error": None}
    assert redis.keys("*webhook*") == []


@pytest.mark.parametrize("how", ["cancelled", "failed"])
def test_every_end_is_told(
    client: FlaskClient, records: JobStore, dispatcher: Dispatcher, listed: Receiver, how: str
) -> None:
    job_id = submitted(client, listed.url, None, "/")
    if how == "cancelled":
        client.delete(f"/job/{job_id}")
    else:
        claim = records.claim("w")
        assert claim is not None and records.fail(job_id, claim.attempt, "the driver went away")
    dispatcher.run_once()
    ((_, sent, body),) = listed.told
    assert json.loads(body)["type"] == f"job.{how}" and SIGNATURE not in sent


def test_what_fails_is_tried_again_and_then_given_up(
    client: FlaskClient, records: JobStore, dispatcher: Dispatcher, listed: Receiver, redis: Redis
) -> None:
    listed.status = 503
    job_id = submitted(client, listed.url)
    complete(records, job_id)
    for attempt, pause in enumerate(PAUSES_S, start=1):
        dispatcher.run_once()
        assert state(client, job_id) == {"state": "pending", "attempts": attempt, "last_error": "answered 503"}
        (due,) = redis.zrange("webhooks:due", 0, -1, withscores=True)
        assert records.now() + pause - 30 < due[1] <= records.now() + pause
        dispatcher.run_once()
        assert len(listed.told) == attempt, "not before its time"
        redis.zadd("webhooks:due", {text(due[0]): 0})
    dispatcher.run_once()
    assert state(client, job_id) == {"state": "failed", "attempts": len(PAUSES_S) + 1, "last_error": "answered 503"}
    assert redis.keys("*webhook*") == []


@pytest.mark.parametrize(("status", "state_after"), [(302, "pending"), (410, "failed"), (404, "pending")])
def test_redirections_are_not_followed_and_gone_is_final(
    client: FlaskClient, records: JobStore, dispatcher: Dispatcher, listed: Receiver, status: int, state_after: str
) -> None:
    listed.status, listed.location = status, f"http://127.0.0.1:{listed.server_port}/elsewhere"
    job_id = submitted(client, listed.url)
    complete(records, job_id)
    dispatcher.run_once()
    assert [path for path, _, _ in listed.told] == ["/hook?a=b"]
    assert state(client, job_id)["state"] == state_after


def test_a_receiver_that_hangs_or_is_not_there(
    client: FlaskClient,
    records: JobStore,
    dispatcher: Dispatcher,
    listed: Receiver,
    redis: Redis,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "WHOLE_S", 0.2)
    listed.hangs.set()
    job_id = submitted(client, listed.url)
    complete(records, job_id)
    dispatcher.run_once()
    assert state(client, job_id)["state"] == "pending" and len(listed.told) == 1
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # Bound, and nobody listens.
        monkeypatch.setenv("WEBHOOK_HOSTS", "127.0.0.1")
        settings.cache_clear()
        job_id = submitted(client, f"http://127.0.0.1:{taken.getsockname()[1]}/")
        complete(records, job_id)
        dispatcher.run_once()
    assert "ConnectionRefusedError" in state(client, job_id)["last_error"]


def test_a_sender_that_dies_has_another_take_over(records: JobStore, redis: Redis) -> None:
    webhooks = Webhooks(redis)
    job_id = submit(records, EVALUATE, webhook=Webhook("https://hooks.example/", None)).job_id
    complete(records, job_id)
    first = webhooks.take()
    assert first is not None and webhooks.take() is None, "held by who took it"
    redis.zadd("webhooks:due", {first.group: 0})
    assert webhooks.take() == first


def told_of(records: JobStore, job_id: str, url: str, key: Key | None = None) -> None:
    """A job that has ended, and is to be told."""
    submit(records, EVALUATE, job_id=job_id, key=key, webhook=Webhook(url, None))
    complete(records, job_id)


def test_a_key_whose_receivers_hang_delays_nobody_elses(records: JobStore, listed: Receiver, redis: Redis) -> None:
    """Its jobs have waited for longer, and there are more of them than anybody sends at once."""
    dispatcher = Dispatcher(redis, records)
    listed.hangs.set()
    mallory, bob = (Key(name, name, frozenset(Scope), "", 0.0, 1000, 1000) for name in ("mallory", "bob"))
    for number in range(3 * SENDERS):
        told_of(records, f"tarpit-{number}", listed.url, mallory)
    other = Receiver()
    answering = Thread(target=other.serve_forever, args=(0.02,))
    answering.start()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("WEBHOOK_HOSTS", "127.0.0.1")
        for name in ("TIMEOUT_S", "WHOLE_S"):  # Longer than the test may take.
            patch.setattr(module, name, 600.0)
        settings.cache_clear()
        try:
            dispatcher.start()  # As in a server process.
            until(lambda: listed.told)
            for number in range(20):
                told_of(records, f"bobs-{number}", other.url, bob)
            until(lambda: len(other.told) == 20)
            assert len(listed.told) <= 2, "the others still hang"
        finally:
            listed.hangs.clear()
            redis.flushdb()
            dispatcher.stop()
            other.shutdown()
            answering.join()
            other.server_close()
            settings.cache_clear()


def test_groups_are_of_a_key_or_of_a_host(records: JobStore, redis: Redis) -> None:
    webhooks, alice = Webhooks(redis), Key("alice", "alice", frozenset(Scope), "", 0.0, 1000, 1000)
    told_of(records, "a", "https://one.example:444/x?y", alice)
    told_of(records, "b", "https://two.example/", alice)
    told_of(records, "c", "https://one.example:444/")
    told_of(records, "d", "https://two.example#")
    first = webhooks.take()
    assert first is not None and (first.job_id, first.group) == ("a", "key:alice")
    second = webhooks.take(["key:alice"])
    assert second is not None and (second.job_id, second.group) == ("c", "host:one.example:444")
    third = webhooks.take(["key:alice", "host:one.example:444", "host:none"])
    assert third is not None and (third.job_id, third.group) == ("d", "host:two.example")
    assert webhooks.take(["key:alice"]) is None, "all of the others' are being told"
    last = webhooks.take()
    assert last is not None and last.job_id == "b"
    assert webhooks.take() is None
    for due in (first, second, third):
        webhooks.delivered(due)
    webhooks.failed(last, "answered 500")
    assert redis.zrange("webhooks:due", 0, -1) == [b"key:alice"] and redis.hgetall("webhooks:group_of") == {
        b"b": b"key:alice"
    }
    webhooks.failed(last, "gone", final=True)
    assert redis.keys("*webhook*") == []


def test_a_job_that_is_forgotten_is_not_told(records: JobStore, redis: Redis) -> None:
    job_id = submit(records, EVALUATE, webhook=Webhook("https://hooks.example/", None)).job_id
    complete(records, job_id)
    records.cleanup(records.now() + 1)
    assert Webhooks(redis).take() is None and redis.keys("*webhook*") == []


def test_the_secret_is_shown_nowhere(
    client: FlaskClient,
    records: JobStore,
    dispatcher: Dispatcher,
    listed: Receiver,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.DEBUG)
    listed.status = 500
    job_id = submitted(client, listed.url)
    complete(records, job_id)
    dispatcher.run_once()
    pages = [
        client.get(path).get_data(as_text=True) for path in (f"/job/{job_id}", "/jobs", f"/job/{job_id}/report", "/")
    ]
    assert SECRET not in "".join(pages) + caplog.text + repr(Webhook("https://a/", SECRET))
    assert SECRET not in json.dumps(dict(headers(b"", SECRET, 0.0)))


def test_in_a_batch(client: FlaskClient, records: JobStore, dispatcher: Dispatcher, listed: Receiver) -> None:
    wanted = {**BODY, "webhook": {"url": listed.url}}
    refused = {**BODY, "webhook": {"url": "https://elsewhere.example/"}}
    entries = client.post("/batch", json={"jobs": [BODY, wanted, refused]}).get_json()["jobs"]
    assert "WEBHOOK_HOSTS" in entries[2]["problem"]["detail"]
    for entry in entries[:2]:
        complete(records, entry["job_id"])
    dispatcher.run_once()
    assert [json.loads(body)["job_id"] for _, _, body in listed.told] == [entries[1]["job_id"]]


@pytest.mark.parametrize(
    ("webhook", "path"),
    [
        ({}, "webhook -> url"),
        ("https://hooks.example", "webhook"),
        ({"url": "https://hooks.example/", "secret": "short"}, "webhook -> secret"),
        ({"url": "https://hooks.example/", "more": 1}, "webhook -> more"),
        ({"url": "http://elsewhere.example/"}, "webhook -> url"),
    ],
)
@pytest.mark.parametrize("body", [BODY, LEGACY])
def test_what_is_refused_at_the_door(
    client: FlaskClient, listed: Receiver, webhook: Any, path: str, body: Json
) -> None:
    answer = client.post("/evaluate" if body is BODY else "/", json={**body, "webhook": webhook})
    assert answer.status_code == 400
    assert path in [error["field"] for error in answer.get_json()["validation_errors"]]


def test_without_a_list_there_are_none(client: FlaskClient) -> None:
    answer = client.post("/evaluate", json={**BODY, "webhook": {"url": "https://hooks.example/"}})
    assert answer.status_code == 400 and "WEBHOOK_HOSTS" in answer.get_json()["detail"]
    assert client.post("/evaluate", json={**BODY, "webhook": None}).status_code == 202


@pytest.mark.parametrize(
    "url",
    [
        "http://hooks.example/", "ftp://hooks.example/", "https://", "https://user:password@hooks.example/", "//a/b",
        "https://hooks.example/ x", "https://hooks.example/\r\nX: y", "https://hooks.example:99999/", "https://ö.example/",
        "https://127.0.0.1/", "https://10.1.2.3/", "https://[::1]/", "https://[::ffff:10.0.0.1]/", "https://169.254.1.1/",
        "https://[64:ff9b::a00:1]/", "https://[2002:a00:1::]/", "https://[fe80::1]/", "https://0.0.0.0/", "https://224.0.0.1/",
        "https://100.64.0.1/", "https://hooks.example/#x",
    ],
)  # fmt: skip
def test_where_anybody_may_be_asked_some_are_not(url: str) -> None:
    with pytest.raises(Forbidden):
        destination(url, ["*"])


PRIVATE = [
    # IPv4: unspecified, private, shared, loopback, link-local, protocols, documentation, relays, benchmarks, a cloud's
    # host, multicast, reserved, broadcast.
    *("0.0.0.0", "0.1.2.3", "10.0.0.1", "100.64.0.1", "100.100.100.200", "127.0.0.1", "127.255.0.1"),
    *("169.254.169.254", "172.16.0.1", "172.31.255.255", "192.0.0.1", "192.0.0.9", "192.0.0.192", "192.0.2.1"),
    *("192.88.99.1", "192.168.1.1", "198.18.0.1", "198.19.255.255", "198.51.100.1", "203.0.113.1", "168.63.129.16"),
    *("224.0.0.1", "239.255.255.255", "240.0.0.1", "255.255.255.255"),
    # IPv6 that stands for an address of IPv4: compatible, mapped, translated, NAT64 of both kinds, 6to4, Teredo.
    *("::7f00:1", "::8.8.8.8", "::ffff:127.0.0.1", "::ffff:8.8.8.8", "::ffff:0:7f00:1", "64:ff9b::7f00:1"),
    *("64:ff9b::808:808", "64:ff9b:1::7f00:1", "64:ff9b:1:fffe::808:808", "2002:7f00:1::", "2002:808:808::1"),
    *("2001::1", "2001:0:808:808::1"),
    # Unspecified, loopback, discarded, protocols, benchmarks, ORCHID, DET, documentation, segments, unique local,
    # link-local, site-local, multicast, not allocated.
    *("::", "::1", "100::1", "2001:1::1", "2001:2::1", "2001:10::1", "2001:20::1", "2001:30::1", "2001:db8::1"),
    *("3fff::1", "3fff:fff::1", "5f00::1", "fc00::1", "fd00:ec2::254", "fe80::1", "fe80::1%lo", "fec0::1"),
    *("ff02::1", "4000::1", "1fff::1", "8000::1"),
]
PUBLIC = [
    *("1.1.1.1", "8.8.8.8", "168.63.129.15", "191.255.255.1", "192.0.1.1", "192.88.98.1", "192.88.100.1"),
    "223.255.255.1",
    *("2001:200::1", "2001:4860:4860::8888", "2003::1", "2400:cb00::1", "2606:4700:4700::1111", "2a00:1450::1"),
    "3ffe::1",
]


@pytest.mark.parametrize("address", PRIVATE)
def test_an_address_that_is_not_public_is_refused_where_anybody_may_be_asked(address: str) -> None:
    host = f"[{address}]" if ":" in address else address
    with pytest.raises(Forbidden, match="public address"):
        destination(f"https://{host}/", ["*"])


@pytest.mark.parametrize("address", PUBLIC)
def test_an_address_that_is_public_may_be_asked(address: str) -> None:
    host = f"[{address}]" if ":" in address else address
    assert not destination(f"https://{host}/", ["*"]).listed


def test_where_names_lead(receiver: Receiver) -> None:
    assert destination("https://hooks.example/a?b", ["*"]).path == "/a?b"
    assert destination("http://hooks.example:81", ["hooks.example:81"]).listed
    assert not destination("https://hooks.example:444/", ["hooks.example:443", "*"]).listed
    name = destination(f"https://localhost:{receiver.server_port}/", ["*"])
    with pytest.raises(Forbidden, match="not public"):
        connect(name, 1.0)
    assert receiver.told == []


def test_what_is_no_longer_listed_is_not_asked(listed: Receiver, monkeypatch: pytest.MonkeyPatch) -> None:
    webhook = Webhook(listed.url, SECRET)
    assert post(webhook, b"{}") == 200
    monkeypatch.setenv("WEBHOOK_HOSTS", "")
    settings.cache_clear()
    with pytest.raises(Forbidden):
        post(webhook, b"{}")
    assert len(listed.told) == 1


def test_what_is_not_recorded_has_no_webhook(
    client: FlaskClient, listed: Receiver, redis: Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    named = {"Idempotency-Key": "one"}
    assert client.post("/evaluate", json=BODY, headers=named).status_code == 202
    other = {**BODY, "num_trials": 7, "webhook": {"url": listed.url}}
    assert client.post("/evaluate", json=other, headers=named).status_code == 422
    assert redis.keys("*webhook*") == [], "nor has the job that the key belongs to"
    monkeypatch.setenv("MAX_QUEUE", "2")
    settings.cache_clear()
    entries = client.post("/batch", json={"jobs": [other, other]}).get_json()["jobs"]
    assert [entry.get("state") for entry in entries] == ["queued", None]
    assert redis.keys("*:webhook") == [f"job:{entries[0]['job_id']}:webhook".encode()]
    assert client.post("/evaluate", json=other).status_code == 503
    assert len(redis.keys("*:webhook")) == 1


@pytest.mark.parametrize("path", ["/evaluate", "/batch"])
def test_who_sends_a_request_again_changes_no_webhook(
    client: FlaskClient, records: JobStore, dispatcher: Dispatcher, listed: Receiver, redis: Redis, path: str
) -> None:
    def post(body: Json, name: str) -> str:
        whole = body if path == "/evaluate" else {"jobs": [body]}
        answer = client.post(path, json=whole, headers={"Idempotency-Key": name}).get_json()
        return str(answer["job_id"] if path == "/evaluate" else answer["jobs"][0]["job_id"])

    hooked = {**BODY, "webhook": {"url": listed.url, "secret": SECRET}}
    job_id = post(BODY, "without")
    assert post(hooked, "without") == job_id and redis.keys("*webhook*") == []
    complete(records, job_id)
    job_id = post(hooked, "with")
    complete(records, job_id)
    dispatcher.run_once()
    post(hooked, "with")
    assert records.counters()["submitted"] == 2
    assert redis.keys("*webhook*") == [], "it has been told, and the secret is forgotten"
    assert [json.loads(body)["job_id"] for _, _, body in listed.told] == [job_id]
