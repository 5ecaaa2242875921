"""Pages of other sites in the browser of somebody who runs the service without keys: they get in nowhere."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import httpx
import pytest
from redis import Redis

from tasks.jobs.job_store import JobStore
from tests.api.keyed import ELSEWHERE, app_with
from tests.api.payloads import RELU, kernel
from tests.api.test_server import Server, serving

BODY = {"kernel": kernel(RELU, "torch")}
CLIENT = httpx.Client(verify=False, timeout=30)
EVIL = "https://evil.example"
ASKED = [
    ("GET", "/"), ("GET", "/jobs"), ("GET", "/job/x"), ("GET", "/job/x/report"), ("GET", "/stats"), ("GET", "/metrics"),
    ("GET", "/health"), ("GET", "/docs"), ("GET", "/openapi.json"), ("GET", "/nowhere"), ("HEAD", "/jobs"),
    ("OPTIONS", "/evaluate"), ("DELETE", "/job/x"), ("POST", "/evaluate"), ("POST", "/compare"), ("POST", "/"),
    ("POST", "/batch"), ("POST", "/jobs/cancel"), ("POST", "/admin/cleanup-jobs"),
]  # fmt: skip


@pytest.fixture(scope="module")
def server(redis_url: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with serving(redis_url, tmp_path_factory.mktemp("sites"), {"ALLOWED_HOSTS": "tools.example, box"}) as started:
        yield started


def refused(answer: httpx.Response) -> bool:
    if answer.status_code != 403 or not answer.content:
        return answer.status_code == 403
    assert answer.json()["type"] == "urn:kernel-eval:problem:local-only"
    return True


@pytest.mark.parametrize(("method", "path"), ASKED)
def test_a_name_that_was_pointed_here_is_none_of_ours(server: Server, redis: Redis, method: str, path: str) -> None:
    port = server.url.rpartition(":")[2]
    json = BODY if method == "POST" else None
    for host in (
        "evil.example",
        f"evil.example:{port}",
        "127.0.0.1.evil.example",
        f"localhost.evil.example:{port}",
        "x",
    ):
        answer = CLIENT.request(method, server.url + path, headers={"Host": host}, json=json)
        assert refused(answer), (host, answer.status_code)
    listed = () if path.startswith("/admin") else ("Tools.example:80", "box", socket.gethostname())
    for host in ("localhost", f"LOCALHOST.:{port}", f"[::1]:{port}", f"127.0.0.1:{port}", "127.8.8.8", *listed):
        assert not refused(CLIENT.request(method, server.url + path, headers={"Host": host}, json=json)), host


OTHERS = [
    {"Sec-Fetch-Site": "cross-site", "Origin": EVIL},
    {"Sec-Fetch-Site": "cross-site", "Origin": EVIL, "Sec-Fetch-Mode": "navigate"},
    {"Sec-Fetch-Site": "same-site", "Origin": "http://localhost:1"},
    {"Sec-Fetch-Site": "cross-site"},
    {"Origin": EVIL},
    {"Origin": "http://127.0.0.1.evil.example"},
    {"Origin": "http://localhost:1"},
    {"Origin": "null"},
    {"Origin": "http://[bad"},
]


@pytest.mark.parametrize("headers", OTHERS, ids=str)
def test_a_page_of_another_site_changes_nothing(server: Server, redis: Redis, headers: dict[str, str]) -> None:
    for method, path in ASKED:
        if method in ("POST", "DELETE"):
            answer = CLIENT.request(method, server.url + path, headers=headers, json=BODY if method == "POST" else None)
            assert refused(answer), (method, path)
    simple = {**headers, "Content-Type": "text/plain"}
    assert refused(CLIENT.post(f"{server.url}/evaluate", content=b'{"kernel": {}}', headers=simple))
    assert JobStore(redis, 60).queue_length() == 0


def test_a_page_of_another_site_holds_no_place_and_a_link_leads_here(server: Server, redis: Redis) -> None:
    fetched = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "no-cors"}
    assert refused(CLIENT.get(f"{server.url}/jobs", headers=fetched))
    assert not refused(CLIENT.get(f"{server.url}/jobs", headers={**fetched, "Sec-Fetch-Mode": "navigate"}))


def test_our_own_pages_and_listed_ones_may(server: Server, redis: Redis) -> None:
    port = server.url.rpartition(":")[2]
    for headers in (
        {},
        {"Sec-Fetch-Site": "same-origin", "Origin": server.url},
        {"Sec-Fetch-Site": "none"},
        {"Origin": server.url},
        {"Origin": f"http://localhost:{port}", "Host": f"localhost:{port}"},
        {"Origin": "https://tools.example"},
    ):
        assert CLIENT.post(f"{server.url}/evaluate", json=BODY, headers=headers).status_code == 202, headers


@pytest.mark.parametrize("media_type", ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data", None])
def test_a_body_that_any_page_may_send_is_refused(server: Server, redis: Redis, media_type: str | None) -> None:
    headers = {"Content-Type": media_type} if media_type else {}
    answer = CLIENT.post(f"{server.url}/evaluate", content=b'{"kernel": {}}', headers=headers)
    assert (answer.status_code, answer.json()["type"]) == (415, "urn:kernel-eval:problem:unsupported-media-type")
    assert "Content-Type: application/json" in answer.json()["detail"]
    chunked = CLIENT.post(f"{server.url}/evaluate", content=iter([b'{"kernel": {}}']), headers=headers)
    assert chunked.status_code == 415
    assert CLIENT.post(f"{server.url}/admin/cleanup-jobs").status_code == 200, "it has no body"


def test_without_keys_on_every_address_other_machines_names_are_listed(redis: Redis) -> None:
    with app_with(HOST="0.0.0.0", REQUIRE_API_KEYS="off") as app:
        client = app.test_client()
        for host, status in (("10.1.2.3:8000", 200), ("[fd00::1]:8000", 200), ("evil.example", 403), ("kernels", 403)):
            answer = client.get("/jobs", headers={"Host": host}, environ_overrides=ELSEWHERE)
            assert answer.status_code == status, host
    with app_with(HOST="127.0.0.1") as app:
        assert app.test_client().get("/jobs", headers={"Host": "10.1.2.3"}).status_code == 403
    for listed in ("kernels", "*"):
        with app_with(HOST="0.0.0.0", REQUIRE_API_KEYS="off", ALLOWED_HOSTS=listed) as app:
            assert app.test_client().get("/jobs", headers={"Host": "kernels:8000"}).status_code == 200


def test_with_keys_any_name_and_any_page_that_has_one_will_do(redis: Redis) -> None:
    with app_with(REQUIRE_API_KEYS="on") as app:
        headers = {"Host": "kernels.example", "Origin": EVIL, "Sec-Fetch-Site": "cross-site"}
        assert app.test_client().post("/evaluate", json=BODY, headers=headers).status_code == 401
