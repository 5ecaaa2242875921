"""The table of rights against docker-compose.yml, deploy/kubernetes/, the image, and the documents."""

from __future__ import annotations

import re
from typing import Any

import pytest
import yaml

from domain.paths import ROOT
from domain.settings import SANDBOX_LAYERS
from sandbox.isolation import namespaces
from sandbox.isolation.uid import CAP_SYS_ADMIN, CAPABILITIES
from tests.rights.rights_sets import (
    COMPOSE,
    EVERY_SET,
    KUBERNETES,
    PUBLIC,
    PUBLIC_AND_STICKY,
    SERVICE_USER,
    WORKER_USER,
    Rights,
)

SERVICES: dict[str, dict[str, Any]] = yaml.safe_load((ROOT / "docker-compose.yml").read_text())["services"]
WORKERS = {name: each for name, each in SERVICES.items() if "cap_add" in each}
PODS = {
    name: next(
        one["spec"]["template"]["spec"]
        for one in yaml.safe_load_all((ROOT / "deploy" / "kubernetes" / f"{name}.yaml").read_text())
        if one["kind"] == "Deployment"
    )
    for name in ("worker", "builder")
}


def numbers(names: list[str]) -> frozenset[int]:
    return frozenset(CAPABILITIES[name] for name in names)


def test_all_that_judge_or_build_are_held_alike() -> None:
    assert set(WORKERS) == {"worker", "worker-cpu", "builder"}


@pytest.mark.parametrize("name", WORKERS)
def test_compose_gives_the_rights_of_the_table(name: str) -> None:
    service = WORKERS[name]
    assert service["user"] == f"${{WORKER_USER:-{COMPOSE.user}:{COMPOSE.user}}}"
    assert service["cap_drop"] == ["ALL"]
    assert numbers(service["cap_add"]) == COMPOSE.capabilities
    assert service["security_opt"] == ["no-new-privileges:true"] and COMPOSE.no_new_privileges
    assert service["read_only"] is COMPOSE.read_only
    (tmpfs,) = service["tmpfs"]
    place, _, options = tmpfs.partition(":")
    assert (place, int(re.findall(r"mode=(\d+)", options)[0], 8)) == ("/tmp", COMPOSE.temporary)
    assert COMPOSE.shared_memory == PUBLIC_AND_STICKY  # The engine's own, of the size `shm_size`.
    assert service["shm_size"]
    assert service["volumes"] == ["state:/var/lib/kernel-eval"]


def test_compose_without_privileges_differs_by_user_and_capabilities_alone() -> None:
    text = (ROOT / "docker-compose.yml").read_text()
    assert f"{SERVICE_USER}:{SERVICE_USER} does without" in text
    dockerfile = (ROOT / "worker.Dockerfile").read_text()
    assert f"useradd --uid {SERVICE_USER} --gid {SERVICE_USER}" in dockerfile
    # A new volume is made as the image has the folder.
    assert f"install -d -o service -g service -m {COMPOSE.mode:04o} /var/lib/kernel-eval" in dockerfile
    assert COMPOSE.owner == SERVICE_USER
    same = ("no_new_privileges", "new_namespaces", "read_only", "temporary", "shared_memory", "owner", "mode")
    assert all(getattr(WORKER_USER, name) == getattr(COMPOSE, name) for name in same)
    assert (WORKER_USER.user, WORKER_USER.capabilities) == (SERVICE_USER, frozenset())


@pytest.mark.parametrize("name", PODS)
def test_kubernetes_gives_the_rights_of_the_table(name: str) -> None:
    pod = PODS[name]
    (container,) = pod["containers"]
    held, given = pod["securityContext"], container["securityContext"]
    assert (held["runAsUser"], held["runAsGroup"]) == (KUBERNETES.user, KUBERNETES.user)
    assert "fsGroup" not in held  # It would change whose the volumes are.
    assert held["seccompProfile"] == {"type": "RuntimeDefault"} and not KUBERNETES.new_namespaces
    assert given["allowPrivilegeEscalation"] is not KUBERNETES.no_new_privileges
    assert given["readOnlyRootFilesystem"] is KUBERNETES.read_only
    assert given["capabilities"]["drop"] == ["ALL"]
    assert numbers(given["capabilities"]["add"]) == KUBERNETES.capabilities
    volumes = {each["name"]: each for each in pod["volumes"]}
    places = {each["mountPath"]: volumes[each["name"]] for each in container["volumeMounts"]}
    assert (KUBERNETES.owner, KUBERNETES.mode) == (0, PUBLIC) and "emptyDir" in places["/var/lib/kernel-eval"]
    assert set(places) == {"/var/lib/kernel-eval", "/tmp", "/dev/shm"}
    for place, mode in (("/tmp", KUBERNETES.temporary), ("/dev/shm", KUBERNETES.shared_memory)):
        # What the kubelet makes an emptyDir, as which it makes that of the state, too.
        assert places[place]["emptyDir"]["medium"] == "Memory" and mode == PUBLIC


@pytest.mark.parametrize("rights", EVERY_SET, ids=lambda rights: rights.name)
def test_a_set_is_consistent_and_documented(rights: Rights) -> None:
    assert not set(rights.holds) & set(rights.lacks)
    assert {*rights.holds, *rights.lacks} <= set(SANDBOX_LAYERS)
    everything = rights.user == 0 and rights.capabilities is None
    assert ("namespaces" in rights.holds) is everything
    assert ("own_user" in rights.holds) is (everything or rights.capabilities == numbers(list(CAPABILITIES)))
    assert CAP_SYS_ADMIN not in (rights.capabilities or ()), namespaces.__doc__
    assert f"| `{rights.name}` |" in (ROOT / "docs" / "deployment.md").read_text()
    assert len({each.name for each in EVERY_SET}) == len(EVERY_SET)
