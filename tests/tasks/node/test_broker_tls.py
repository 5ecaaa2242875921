"""A Redis with a password behind TLS: the records' client and Celery's connect alike, and trust alike."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from domain.paths import ROOT
from tests.conftest import free_port, start_redis
from tests.tls import Front, tls_front

PASSWORD = "corr3ct-h0rse"
CONNECT = """
from tasks.app import app
from tasks.node.redis_client import connect
from api.http.context import _pooled
for name, ask in {
    "records": lambda: connect().ping(),
    "api": lambda: _pooled(connect()).ping(),
    "celery": lambda: app.connection_for_write().ensure_connection(max_retries=1, timeout=3).default_channel.client.ping(),
}.items():
    try:
        print(name, ask())
    except Exception as error:
        print(name, "CERTIFICATE_VERIFY_FAILED" if "CERTIFICATE_VERIFY_FAILED" in str(error) else error)
"""  # noqa: E501


@pytest.fixture(scope="module")
def plain_port(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    port = free_port()
    server = start_redis(tmp_path_factory.mktemp("redis"), port)
    subprocess.run([sys.executable, "-c", SET_PASSWORD, str(port), PASSWORD], check=True)
    yield port
    server.kill()
    server.wait()


@pytest.fixture(scope="module")
def front(plain_port: int, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Front]:
    with tls_front(tmp_path_factory.mktemp("tls"), plain_port) as found:
        yield found


SET_PASSWORD = (
    "import sys; from redis import Redis; Redis(port=int(sys.argv[1])).config_set('requirepass', sys.argv[2])"
)


def connected(url: str, **environment: str) -> dict[str, str]:
    done = subprocess.run(
        [sys.executable, "-c", CONNECT],
        cwd=ROOT,
        env={**os.environ, "CELERY_BROKER_URL": url, **environment},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    return dict(line.split(maxsplit=1) for line in done.stdout.splitlines())


def everybody(answer: str) -> dict[str, str]:
    return dict.fromkeys(("records", "api", "celery"), answer)


def test_an_authority_named_in_the_address(front: Front) -> None:
    url = f"rediss://:{PASSWORD}@127.0.0.1:{front.port}/0"
    assert connected(f"{url}?ssl_ca_certs={front.certificate}") == everybody("True")


def test_an_authority_that_the_system_trusts(front: Front, tmp_path: Path) -> None:
    url = f"rediss://:{PASSWORD}@127.0.0.1:{front.port}/0"
    assert connected(url, SSL_CERT_FILE=str(front.certificate)) == everybody("True")


def test_a_certificate_that_nobody_vouches_for_is_refused_by_all(front: Front) -> None:
    url = f"rediss://:{PASSWORD}@127.0.0.1:{front.port}/0"
    assert connected(url) == everybody("CERTIFICATE_VERIFY_FAILED")
    assert connected(f"{url}?ssl_cert_reqs=none") == everybody("True"), "unless that is asked for"


def test_a_wrong_password_is_refused(front: Front) -> None:
    url = f"rediss://:wrong@127.0.0.1:{front.port}/0?ssl_ca_certs={front.certificate}"
    answers = connected(url)
    assert len(answers) == 3
    for answer in answers.values():
        assert "invalid username-password" in answer
        assert "wrong@" not in answer


def test_a_server_that_wants_a_certificate_of_its_clients(plain_port: int, tmp_path: Path) -> None:
    with tls_front(tmp_path, plain_port, known_clients=True) as front:
        url = f"rediss://:{PASSWORD}@127.0.0.1:{front.port}/0?ssl_ca_certs={front.certificate}"
        own = f"&ssl_certfile={front.certificate}&ssl_keyfile={front.key}"
        assert connected(url + own) == everybody("True")
        strangers = connected(url)
        assert len(strangers) == 3 and "True" not in strangers.values()
