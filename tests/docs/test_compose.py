"""docker-compose.yml and the Dockerfiles against the program: what they name is there, and no secret is in them."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

from domain.paths import ROOT
from domain.settings import settings
from sandbox.isolation.uid import CAPABILITIES

TEXT = (ROOT / "docker-compose.yml").read_text(encoding="utf-8")
DEPLOYMENT = (ROOT / "docs" / "deployment.md").read_text(encoding="utf-8")
DOCKERFILES = ("api.Dockerfile", "worker.Dockerfile")
SERVICES: dict[str, dict[str, Any]] = yaml.safe_load(TEXT)["services"]
BUILT = {name: service for name, service in SERVICES.items() if "build" in service}
SETTINGS = set(re.findall(r'env\.\w+\("(\w+)"', (ROOT / "domain" / "settings.py").read_text(encoding="utf-8")))
NOT_OURS = {"REDIS_PASSWORD", "FLOWER_BASIC_AUTH", *(name for name in SERVICES["grafana"]["environment"])}
"""Variables in a container that another program reads."""

VARIABLE = re.compile(r"(?<!\$)\$\{(\w+)(?::?[-?]([^}]*))?\}")


def text_of(dockerfile: str) -> str:
    return (ROOT / dockerfile).read_text(encoding="utf-8")


@pytest.mark.parametrize("name", SERVICES)
def test_a_service_is_held(name: str) -> None:
    service = SERVICES[name]
    assert service["cap_drop"] == ["ALL"]
    assert service["read_only"] is True
    assert service["init"] is True
    assert "no-new-privileges:true" in service["security_opt"]
    assert not service.get("privileged")


@pytest.mark.parametrize("name", SERVICES)
def test_its_environment_is_read_by_somebody(name: str) -> None:
    assert set(SERVICES[name].get("environment", {})) <= SETTINGS | NOT_OURS


def test_only_workers_have_capabilities_and_those_that_a_user_for_each_submission_needs() -> None:
    given = {name: set(service["cap_add"]) for name, service in SERVICES.items() if "cap_add" in service}
    needed = set(CAPABILITIES)
    assert given == {"worker": needed, "worker-cpu": needed, "builder": needed}
    assert all(f"`{name}`" in DEPLOYMENT for name in needed)


def test_both_workers_differ_by_their_device_alone() -> None:
    apart = {"image", "profiles", "build", "environment", "deploy"}
    assert {key for key in SERVICES["worker"] if SERVICES["worker"][key] != SERVICES["worker-cpu"].get(key)} == apart
    assert SERVICES["worker-cpu"]["environment"]["GPU_DEVICE"] == "cpu"
    # On another node nothing else may be started with it.
    assert "depends_on" not in SERVICES["worker"]


def test_a_builder_is_a_worker_without_a_gpu() -> None:
    apart = {"profiles", "environment", "deploy", "command", "healthcheck", "stop_grace_period"}
    worker, builder = SERVICES["worker"], SERVICES["builder"]
    assert {key for key in worker.keys() | builder.keys() if worker.get(key) != builder.get(key)} == apart
    assert "deploy" not in builder
    # What decides how a submission is held while it is built, and where what is built goes.
    for name in ("SANDBOX", "RUNNER_MEMORY_MIB", "SHARED_BUILDS_MIB", "CELERY_BROKER_URL"):
        assert builder["environment"][name] == worker["environment"][name]
    assert SERVICES["api"]["environment"]["SHARED_BUILDS_MIB"] == worker["environment"]["SHARED_BUILDS_MIB"]
    app = "--app=tasks.worker.build_worker"
    assert app in builder["command"] and app in builder["healthcheck"]["test"][1]
    assert importlib.util.find_spec(app.partition("=")[2]) is not None


def test_redis_keeps_what_it_has_answered() -> None:
    script = SERVICES["redis"]["command"][-1]
    for option in ("--appendonly yes", "--appendfsync always", "--maxmemory-policy noeviction"):
        assert option in script


def test_nothing_is_reached_from_outside_unless_asked_for() -> None:
    published = [port for service in SERVICES.values() for port in service.get("ports", [])]
    assert len(published) == 5
    assert all(re.match(r"\$\{\w+_BIND:-127\.0\.0\.1\}:", port) for port in published)
    assert SERVICES["api"]["environment"]["REQUIRE_API_KEYS"] == "on"


def test_the_published_ports_are_those_that_are_listened_on() -> None:
    inside = {name: service["ports"][0].rpartition(":")[2] for name, service in SERVICES.items() if "ports" in service}
    assert inside["api"] == str(SERVICES["api"]["environment"]["PORT"])
    assert f"--port={inside['flower']}" in SERVICES["flower"]["command"][-1]
    # The one whose imports tests/stack/test_workers.py keeps within the image.
    assert "celery flower" in SERVICES["flower"]["command"][-1]
    assert inside["redis"] == "6379"


def test_no_secret_has_a_value_here() -> None:
    defaults = dict(VARIABLE.findall(TEXT))
    secret = {name for name in defaults if re.search(r"PASSWORD|AUTH|BROKER_URL", name)}
    assert secret == {"REDIS_PASSWORD", "FLOWER_BASIC_AUTH", "GRAFANA_PASSWORD", "CELERY_BROKER_URL"}
    assert defaults["REDIS_PASSWORD"] == defaults["FLOWER_BASIC_AUTH"] == defaults["GRAFANA_PASSWORD"] == ""
    assert "://" not in defaults["CELERY_BROKER_URL"]
    for name in ("REDIS_PASSWORD", "FLOWER_BASIC_AUTH", "GF_SECURITY_ADMIN_PASSWORD"):
        assert f'test -n "$${name}" ||' in TEXT, "an empty one has to stop its container"


def test_every_variable_is_documented() -> None:
    assert {name for name, _ in VARIABLE.findall(TEXT) if f"`{name}`" not in DEPLOYMENT} == set()


def test_what_the_guide_says_is_handed_on_reaches_a_container() -> None:
    (listed,) = re.findall(r"^Handed on as they are:(.+?)\n\n", DEPLOYMENT, re.MULTILINE | re.DOTALL)
    reached = {name for service in SERVICES.values() for name in service.get("environment", {})}
    assert set(re.findall(r"`([A-Z_]+)`", listed)) <= reached
    assert SERVICES["worker-cpu"]["environment"]["BUILD_FOR"] and "BUILD_FOR" not in SERVICES["worker"]["environment"]


@pytest.mark.parametrize("name", BUILT)
def test_what_it_is_built_from_is_there(name: str) -> None:
    build = BUILT[name]["build"]
    dockerfile = text_of(build["dockerfile"])
    assert set(re.findall(r"^ARG (\w+)", dockerfile, re.MULTILINE)) == set(build["args"])
    if "target" in build:
        assert f" AS {build['target']}\n" in dockerfile


@pytest.mark.parametrize("name", [name for name in BUILT if name != "worker-cpu"])
def test_its_base_is_the_dockerfiles_own(name: str) -> None:
    build = BUILT[name]["build"]
    default = re.search(r"^ARG BASE=(.+)$", text_of(build["dockerfile"]), re.MULTILINE)
    assert default and build["args"]["BASE"].endswith(f":-{default[1]}}}")


@pytest.mark.parametrize("dockerfile", DOCKERFILES)
def test_what_a_dockerfile_names_is_there(dockerfile: str) -> None:
    text = text_of(dockerfile)
    copied = [name for line in re.findall(r"^COPY (?!--)(.+) \S+$", text, re.MULTILINE) for name in line.split()]
    assert "pip install" not in text, "packages come by deploy/install-packages, with their hashes"
    assert copied and all((ROOT / name).exists() for name in copied)
    allowed = set(re.findall(r"^!(.+)$", (ROOT / ".dockerignore").read_text(encoding="utf-8"), re.MULTILINE))
    assert set(copied) <= allowed
    groups = [name for line in re.findall(r"sh install-packages ([\w ]+)", text) for name in line.split()]
    known = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["dependency-groups"]
    assert groups and set(groups) <= set(known)
    assert all(importlib.util.find_spec(module) for module in re.findall(r'"-m", "([\w.]+)"', text))
    own = set(re.findall(r"^    ([A-Z_]+)=|^ENV ([A-Z_]+)=", text, re.MULTILINE))
    assert "USER service\n" in text and "HEALTHCHECK" in text and own


@pytest.mark.parametrize(
    "imports", ["import api; api.create_app()", "import api.gunicorn_config", "import stack.__main__"]
)
def test_the_api_finds_all_that_it_imports_in_its_image(imports: str, tmp_path: Path) -> None:
    copied = set(re.findall(r"^COPY (\w+(?:\.py)?) \S+$", text_of("api.Dockerfile"), re.MULTILINE))
    for name in copied:
        (tmp_path / name).symlink_to(ROOT / name)
    done = subprocess.run([sys.executable, "-c", imports], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert "api" in copied and done.returncode == 0, done.stderr


def test_the_images_are_pinned() -> None:
    known = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["dependency-groups"]
    pinned = {line.partition("==")[0].lower() for line in (ROOT / "constraints.txt").read_text().splitlines()}
    for group in ("api", "worker", "flower"):
        assert {re.split(r"[<>=!~;\[]", needed)[0].lower() for needed in known[group]} <= pinned


def test_the_guide_finds_each_image_without_a_digest() -> None:
    (command,) = re.findall(r"`docker compose config \| (grep .+?)` prints", DEPLOYMENT)
    # As `docker compose config` has it: every variable with its value.
    given = VARIABLE.sub(lambda found: found[2] or "", TEXT)
    tagged = re.compile(r"(?<=BASE: )\S+|(?<=image: )(?!kernel-eval-)\S+")
    pinned = tagged.sub(lambda found: f"{found[0]}@sha256:{'0' * 64}", given)

    def printed(text: str) -> list[str]:
        return subprocess.run(command, shell=True, input=text, capture_output=True, text=True).stdout.splitlines()

    assert len(printed(given)) == len(tagged.findall(given)) > 5
    assert printed(pinned) == []


def test_a_worker_has_time_to_drain_in_compose_as_by_itself() -> None:
    defaults = dict(VARIABLE.findall(TEXT))
    drain = float(defaults["DRAIN_SECONDS"])
    assert float(defaults["STOP_GRACE_PERIOD"].removesuffix("s")) > drain
    assert drain == settings().drain_seconds
