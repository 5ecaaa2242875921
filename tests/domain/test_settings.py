"""Settings that have a form of their own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from environs import EnvError

from domain.settings import STRICT_LAYERS, misspelt_settings, settings


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    settings.cache_clear()
    yield
    settings.cache_clear()


@pytest.mark.parametrize(
    ("given", "required"),
    [
        (None, ()),
        ("available", ()),
        ("strict", STRICT_LAYERS),
        ("landlock", ("landlock",)),
        ("landlock, seccomp", ("landlock", "seccomp")),
    ],
)
def test_the_layers_that_a_worker_insists_on(
    monkeypatch: pytest.MonkeyPatch, given: str | None, required: tuple[str, ...]
) -> None:
    monkeypatch.delenv("SANDBOX", raising=False)
    if given is not None:
        monkeypatch.setenv("SANDBOX", given)
    assert settings().sandbox == required


@pytest.mark.parametrize("given", ["", "off", "landlock,selinux", "strict,landlock"])
def test_a_layer_that_there_is_not_is_refused(monkeypatch: pytest.MonkeyPatch, given: str) -> None:
    monkeypatch.setenv("SANDBOX", given)
    with pytest.raises(EnvError, match="SANDBOX"):
        settings()


def test_a_misspelt_setting_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    assert misspelt_settings() == []
    monkeypatch.setenv("MAX_WORKER", "3")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_LOGS_ENDPOINT", "http://127.0.0.1")
    assert misspelt_settings() == ["MAX_WORKER is no setting; did you mean MAX_WORKERS? (docs/settings.md)"]


@pytest.mark.parametrize(("given", "arch"), [("", None), ("sm_90", "sm_90"), ("sm_100a", "sm_100a")])
def test_an_empty_architecture_is_none(monkeypatch: pytest.MonkeyPatch, given: str, arch: str | None) -> None:
    monkeypatch.setenv("BUILD_FOR", given)
    assert settings().build_for == arch


def test_an_empty_broker_is_the_usual_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CELERY_BROKER_URL", "")
    assert settings().broker_url == "redis://127.0.0.1:6379/0"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("CELERY_BROKER_URL", "localhost:6379"),
        ("CELERY_BROKER_URL", "unix:///run/redis.sock"),
        ("CELERY_BROKER_URL", "amqp://localhost"),
        ("CELERY_BROKER_URL", "redis:6379"),
        ("CELERY_BROKER_URL", "REDIS://localhost/0"),  # redis-py takes only small letters.
        ("CELERY_BROKER_URL", "redis://localhost:port/0"),
        ("CELERY_BROKER_URL", "redis://localhost/zero"),
        ("BUILD_FOR", "h100"),
        ("BUILD_FOR", "90"),
        ("BUILD_FOR", "sm_90,sm_100"),
        ("BUILD_FOR", "sm_9"),
        ("BUILD_FOR", "sm_100f"),  # torch takes no family of GPUs: every extension would end in its ValueError.
        ("WEBHOOK_HOSTS", "hooks.example, https://other.example"),
        ("WEBHOOK_HOSTS", "hooks.example:http"),
        ("ALLOWED_HOSTS", "a.example b.example"),
        ("ALLOWED_HOSTS", "*.example"),
        ("JOB_TTL", "99999999999999999999"),
        ("OTEL_EXPORTER_OTLP_ENDPOINT", "collector:4318"),
        ("DRAIN_SECONDS", "nan"),
    ],
)
def test_what_a_setting_cannot_be_is_refused(monkeypatch: pytest.MonkeyPatch, name: str, value: str) -> None:
    monkeypatch.setenv(name, value)
    with pytest.raises(EnvError, match=name):
        settings()


@pytest.mark.parametrize(
    ("name", "value", "advice"),
    [
        ("JOB_TTL", "1d", "Write a whole number without a unit"),
        ("DRAIN_SECONDS", "30m", "Write a number without a unit"),
        ("KEEP_SOURCES", "ja", "Write on or off"),
    ],
)
def test_a_refusal_says_what_to_write(monkeypatch: pytest.MonkeyPatch, name: str, value: str, advice: str) -> None:
    monkeypatch.setenv(name, value)
    for read in (settings, misspelt_settings):
        with pytest.raises(EnvError, match=rf'"{name}" invalid: {advice}.*docs/settings\.md'):
            read()


@pytest.mark.parametrize("password", ["pass/word", "12?word", "12#word", "pass[word", "pass℀word"])
def test_a_password_that_breaks_the_address_is_in_no_message(monkeypatch: pytest.MonkeyPatch, password: str) -> None:
    monkeypatch.setenv("CELERY_BROKER_URL", f"redis://:{password}@localhost/0")
    with pytest.raises(EnvError, match="%2F") as refused:
        settings()
    assert password not in str(refused.value) and "word@" not in str(refused.value)


@pytest.mark.parametrize(
    "url",
    [
        *("redis://", "redis://h", "redis://:p@s:s%w%2Frd@h:6379/1", "redis://[::1]:6379/0", "redis://h:6379/0\n"),
        "rediss://u:p@h:6380/0?ssl_cert_reqs=none&ssl_ca_certs=/ca.pem",
    ],
)
def test_an_address_that_redis_py_and_celery_read_alike_is_taken(monkeypatch: pytest.MonkeyPatch, url: str) -> None:
    monkeypatch.setenv("CELERY_BROKER_URL", url)
    assert settings().broker_url == url


@pytest.mark.parametrize(
    ("name", "default"), [("HOST", "127.0.0.1"), ("LOG_DIR", Path("logs")), ("API_KEYS_FILE", Path("api_keys.json"))]
)
def test_what_is_empty_is_the_default(monkeypatch: pytest.MonkeyPatch, name: str, default: object) -> None:
    """An empty HOST would be every address, and an empty LOG_DIR the checkout."""
    monkeypatch.setenv(name, "")
    assert getattr(settings(), name.lower()) == default


@pytest.mark.parametrize("given", ["hooks.example:8443, *", "[::1]:80", "::1", "10.0.0.1:80"])
def test_hosts_have_ports(monkeypatch: pytest.MonkeyPatch, given: str) -> None:
    monkeypatch.setenv("WEBHOOK_HOSTS", given)
    assert settings().webhook_hosts == tuple(given.split(", "))


@pytest.mark.parametrize("name", ["JOB_TTL", "MAX_QUEUE", "RUNNER_MEMORY_MIB"])
def test_none_of_what_there_has_to_be_some_is_refused(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setenv(name, "0")
    with pytest.raises(EnvError, match=name):
        settings()
