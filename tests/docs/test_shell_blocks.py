"""The shell blocks of the guides, run by bash: docker and kubectl are stood in for, all else is the real thing.

What is asked of `docker compose` is held against docker-compose.yml; what a container would run is run here.
"""

from __future__ import annotations

import os
import re
import shlex
import stat
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest
import yaml
from redis import Redis

from domain.access import Scope
from domain.paths import ROOT
from tests.api.keyed import ELSEWHERE, app_with, file_of
from tests.conftest import free_port, start_redis
from tests.docs.blocks import BLOCKS, named
from tests.docs.test_compose import SERVICES, TEXT, VARIABLE

START = named("deployment", "cat > .env")
NODE = named("deployment", "redis://:PASSWORD@node1")
SHIPPED = named("deployment", "SHARED_BUILDS_MIB=")
BUILDER = named("deployment", "up -d builder")
AUTHORITY = named("deployment", "ca.pem:ro")
OWN_REDIS = named("deployment", "--no-deps api flower")
CLUSTER = named("deployment", "kubectl apply")
AGAIN = named("deployment", "docker compose build && docker compose up -d")
MONITORED = named("operations", "metrics.key")
DRAINED = named("operations", "cancel_consumer")
FOLLOWED = named("operations", "grep JOB_ID")
BACKUP = named("operations", "> redis.tar")
RESTORED = named("operations", "< redis.tar")
KEYS = named("settings", "keys revoke")
SHOWN = named("api", "Bearer kevk_")
RUN = {
    *(block.name for block in (START, NODE, SHIPPED, BUILDER, AUTHORITY, OWN_REDIS, CLUSTER, AGAIN)),
    *(block.name for block in (MONITORED, FOLLOWED, DRAINED, BACKUP, RESTORED, KEYS, SHOWN)),
}

STAND_IN = r"""#!/bin/bash
printf '%q ' "CELERY_BROKER_URL=$CELERY_BROKER_URL" "$@" >> "$CALLS"; echo >> "$CALLS"
within() { local here=("${@//\/data/$REDIS_DATA}"); exec "${here[@]/#\/var\/lib\/kernel-eval\/keys/$KEYS}"; }
case "$*" in
    "compose run --rm -T keys "*) shift 5; exec python -m stack keys "$@";;
    "compose run --rm --no-deps -T --entrypoint "*) entrypoint=$7; shift 8; within "$entrypoint" "$@";;
    "compose exec -T "*) shift 4; within "$@";;
    "compose logs "*) printf '{"job_id": "%s"}\n' OTHER JOB_ID;;
esac
"""
"""Notes how it was called. What `keys`, `redis` and `api` would do in their containers, it does here."""

LARGE = 64 << 20
"""Of a value in Redis: its file is still read when more is written to it."""

REDIS_CLI = f"""#!{sys.executable}
import os, sys
from redis import Redis
answer = Redis(port=int(os.environ["REDIS_PORT"]), decode_responses=True).execute_command(*sys.argv[1:])
print("\\n".join(f"{{name}}:{{value}}" for name, value in answer.items()) if isinstance(answer, dict) else answer)
"""


class Shell:
    """bash in a folder that looks like the repository's, with programs of its own first on the PATH."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.programs = folder / "programs"
        self.programs.mkdir()
        (folder / ".venv" / "bin").mkdir(parents=True)
        for name in ("docker", "kubectl"):
            self.program(name, STAND_IN)
        for path in (self.programs / "python", folder / ".venv" / "bin" / "python"):
            self.program(str(path), f'#!/bin/bash\nexec {shlex.quote(sys.executable)} "$@"\n')
        (folder / "deploy").symlink_to(ROOT / "deploy")
        self.environment = {
            **{name: value for name, value in os.environ.items() if name != "CELERY_BROKER_URL"},
            "PATH": f"{self.programs}:{os.environ['PATH']}",
            "PYTHONPATH": str(ROOT),
            "API_KEYS_FILE": str(folder / "api_keys.json"),
            "CALLS": str(folder / "calls"),
            "KEYS": str(folder / "keys"),
        }

    def program(self, name: str, text: str) -> None:
        path = self.programs / name
        path.write_text(text)
        path.chmod(0o755)

    def run(self, text: str, **more: str) -> str:
        """What it prints; raises where a command of it fails."""
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", text],
            cwd=self.folder,
            env={**self.environment, **more},
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    @property
    def calls(self) -> list[list[str]]:
        """Each call of a program that was stood in for, the broker's address first."""
        return [shlex.split(line) for line in Path(self.environment["CALLS"]).read_text().splitlines()]


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    return Shell(tmp_path)


FLAGS = ("-d", "-T", "--rm", "--no-deps", "--no-log-prefix")


def asked_of_compose(shell: Shell) -> Iterator[tuple[str, str, list[str]]]:
    """(command, service, the rest) of each call; whatever it is given is in the compose file."""
    for _, compose, *words in shell.calls:
        assert compose == "compose"
        while words[0] == "-f":
            assert (ROOT / words[1]).is_file()
            words = words[2:]
        command, rest = words[0], [word for word in words[1:] if word not in FLAGS]
        if rest[:1] == ["--entrypoint"]:
            rest = rest[2:]
        assert command in ("build", "up", "run", "exec", "logs"), "a command of docker compose"
        service = rest[0].partition(":")[0] if rest else ""
        assert not service or service in SERVICES
        yield command, service, rest[1:]


def needed() -> set[str]:
    """Variables of docker-compose.yml that have no value unless .env gives one."""
    return {name for name, default in VARIABLE.findall(TEXT) if not default} | set(re.findall(r"\$\{(\w+):\?", TEXT))


def test_the_start_makes_a_private_env_and_a_key(shell: Shell) -> None:
    printed = shell.run(START.text)
    env = shell.folder / ".env"
    assert stat.S_IMODE(env.stat().st_mode) == 0o600
    given = dict(line.split("=", 1) for line in env.read_text().splitlines())
    assert {"REDIS_PASSWORD", "CELERY_BROKER_URL", "FLOWER_BASIC_AUTH"} <= needed() & set(given)
    assert given["COMPOSE_PROFILES"] in {profile for one in SERVICES.values() for profile in one.get("profiles", [])}
    assert given["CELERY_BROKER_URL"] == f"redis://:{given['REDIS_PASSWORD']}@redis:6379/0" and "redis" in SERVICES
    assert len(given["REDIS_PASSWORD"]) == 48
    assert [call[:2] for call in asked_of_compose(shell)] == [("build", ""), ("up", ""), ("run", "keys")]
    assert printed.strip().startswith("kevk_")


def test_another_node_starts_workers_alone(shell: Shell) -> None:
    shell.run(NODE.text)
    assert list(asked_of_compose(shell)) == [("up", "worker", [])]
    assert shell.calls[0][0] == "CELERY_BROKER_URL=redis://:PASSWORD@node1:6379/0"


def test_a_redis_of_ones_own_leaves_ours_out(shell: Shell) -> None:
    shell.run(OWN_REDIS.text)
    ((command, first, others),) = asked_of_compose(shell)
    started = {first, *others}
    assert command == "up" and started <= set(SERVICES) and "redis" not in started
    over = yaml.safe_load(AUTHORITY.text)["services"]
    assert set(over) == started
    places = {volume.split(":")[1] for service in over.values() for volume in service["volumes"]}
    assert places == set(re.findall(r"ssl_ca_certs=(\S+?)`", (ROOT / "docs" / "deployment.md").read_text()))


def test_a_job_is_followed_through_the_logs(shell: Shell) -> None:
    assert shell.run(FOLLOWED.text) == '{"job_id": "JOB_ID"}\n'
    ((_, first, others),) = asked_of_compose(shell)
    assert {first, *others} <= set(SERVICES)


def test_builders_are_built_and_started_where_there_is_room_for_builds(shell: Shell) -> None:
    shell.run(SHIPPED.text + BUILDER.text)
    name, _, value = (shell.folder / ".env").read_text().strip().partition("=")
    assert int(value) > 0 and name in {variable for variable, _ in VARIABLE.findall(TEXT)}
    assert list(asked_of_compose(shell)) == [("build", "builder", []), ("up", "builder", [])]
    assert "COMPOSE_PROFILES=build" in BUILDER.text and SERVICES["builder"]["profiles"] == ["build"]


def test_an_upgrade_builds_and_starts(shell: Shell) -> None:
    shell.run(AGAIN.text)
    assert [call[0] for call in asked_of_compose(shell)] == ["build", "up"]


def test_monitoring_has_a_key_that_prometheus_reads(shell: Shell) -> None:
    (shell.folder / ".env").write_text("COMPOSE_PROFILES=gpu\n")
    shell.run(MONITORED.text)
    key = shell.folder / "metrics.key"
    assert key.read_text().startswith("kevk_") and stat.S_IMODE(key.stat().st_mode) == 0o644
    assert yaml.safe_load(TEXT)["secrets"]["metrics_key"]["file"].endswith("metrics.key}")
    assert re.search(r"^GRAFANA_PASSWORD=\w{24}$", (shell.folder / ".env").read_text(), re.MULTILINE)
    assert "GRAFANA_PASSWORD" in needed()
    assert list(asked_of_compose(shell))[-1][:2] == ("up", "")


def test_a_cluster_gets_the_secrets_that_its_pods_ask_for(shell: Shell) -> None:
    printed = shell.run(CLUSTER.text)
    assert printed.strip().startswith("kevk_") and (shell.folder / "api_keys.json").is_file()
    first, second, applied = (words[1:] for words in shell.calls)
    literals = dict(word.removeprefix("--from-literal=").split("=", 1) for word in first if "literal" in word)
    asked: set[tuple[str, str]] = set()
    mounted: set[str] = set()
    for path in (ROOT / "deploy" / "kubernetes").glob("*.yaml"):
        text = path.read_text(encoding="utf-8")
        asked |= set(re.findall(r"secretKeyRef: \{name: ([\w-]+), key: ([\w-]+)\}", text))
        mounted |= set(re.findall(r"secretName: ([\w-]+)", text))
    assert first[:4] == ["create", "secret", "generic", "kernel-eval"]
    assert asked == {("kernel-eval", name) for name in literals}
    assert literals["broker-url"] == f"redis://:{literals['redis-password']}@kernel-eval-redis:6379/0"
    assert mounted == {second[3]} and second[4] == "--from-file=api_keys.json"
    assert applied == ["apply", "-k", "deploy/kubernetes/"]


def test_a_drain_names_the_workers_queues_and_a_command_of_celery(shell: Shell) -> None:
    from celery.worker.control import Panel

    from tasks.jobs.job_queue import COMMON, queue_of_gpu, queue_of_worker

    shell.run(DRAINED.text)
    commands = [call for call in asked_of_compose(shell)]
    assert {call[:2] for call in commands} == {("exec", "worker")}
    asked = [words for _, _, words in commands]
    assert all(words[:4] == ["celery", "--app", "tasks.app", "control"] for words in asked)
    assert all(words[4:7] == ["--destination", "gpu0@HOST", "cancel_consumer"] for words in asked)
    assert {"cancel_consumer", "add_consumer"} <= set(Panel.data)
    queues = [words[7] for words in asked]
    assert queues[0] == COMMON and queues[2] == queue_of_worker("gpu0@HOST")
    assert queues[1] == queue_of_gpu("MODEL")


@contextmanager
def written_to(port: int) -> Iterator[None]:
    """Something is written to that Redis all the while: to the file that a copy is made of."""
    over = threading.Event()

    def write() -> None:
        with Redis(port=port) as redis:
            while not over.is_set():
                redis.incr("written")

    with ThreadPoolExecutor(1) as pool:
        writing = pool.submit(write)
        try:
            yield
        finally:
            over.set()
            writing.result()


def test_what_is_restored_is_what_was_there(shell: Shell, tmp_path_factory: pytest.TempPathFactory) -> None:
    data, other = tmp_path_factory.mktemp("data"), tmp_path_factory.mktemp("other")
    keys, second_keys = tmp_path_factory.mktemp("keys"), tmp_path_factory.mktemp("second-keys")
    (keys / "api_keys.json").write_text("[]")
    port, second = free_port(), free_port()
    shell.program("redis-cli", REDIS_CLI)
    server = start_redis(data, port)
    try:
        with Redis(port=port, decode_responses=True) as redis:
            before = redis.config_get("auto-aof-rewrite-percentage")
            redis.set("kept", "yes")
            redis.set("large", "x" * LARGE)
            there = {"REDIS_PORT": str(port), "REDIS_DATA": str(data), "REDIS_PASSWORD": "", "KEYS": str(keys)}
            with written_to(port):
                shell.run(BACKUP.text, **there)
            assert redis.config_get("auto-aof-rewrite-percentage") == before
            redis.delete("kept")
    finally:
        server.kill()
        server.wait()
    shell.run(RESTORED.text, REDIS_DATA=str(other), KEYS=str(second_keys))
    asked = {call[:2] for call in asked_of_compose(shell)}
    assert asked == {("exec", "redis"), ("exec", "api"), ("run", "redis"), ("run", "keys"), ("up", "")}
    assert (second_keys / "api_keys.json").read_text() == "[]"
    restored = start_redis(other, second)
    try:
        with Redis(port=second, decode_responses=True) as redis:
            assert redis.get("kept") == "yes" and redis.strlen("large") == LARGE
    finally:
        restored.kill()
        restored.wait()


def test_keys_are_made_listed_and_revoked(shell: Shell) -> None:
    made, *listed = shell.run(KEYS.text).splitlines()
    assert made.startswith("kevk_") and any("alice" in line for line in listed)
    assert "alice" not in Path(shell.environment["API_KEYS_FILE"]).read_text()


def test_a_shown_key_is_taken(redis: Redis, tmp_path: Path) -> None:
    words: list[str] = shlex.split(SHOWN.text)
    assert words[0] == "curl" and words[2] == "-H"
    name, _, value = words[3].partition(": ")
    with app_with(REQUIRE_API_KEYS="on", API_KEYS_FILE=str(tmp_path / "api_keys.json")) as app:
        shown = f"{value.partition(' ')[0]} {file_of(app).add('carol', [Scope.READ], {})}"
        path = "/" + words[1].split("/", 3)[3]
        assert app.test_client().get(path, headers={name: shown}, environ_base=ELSEWHERE).status_code == 200
        assert app.test_client().get(path, environ_base=ELSEWHERE).status_code == 401


def test_what_is_run_here_is_what_the_guides_print() -> None:
    guides = [block for block in BLOCKS.values() if block.document in ("deployment", "operations")]
    assert {block.name for block in guides if block.language == "bash"} - RUN == set()
