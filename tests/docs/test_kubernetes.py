"""deploy/kubernetes/ against Kubernetes' own schemas, and against the compose file and the program."""

from __future__ import annotations

import re
import tomllib
from typing import Any

import pytest
import yaml

from domain.paths import ROOT
from tests.docs.test_compose import SERVICES, SETTINGS

kubernetes_validate = pytest.importorskip("kubernetes_validate", reason="a development tool")

FOLDER = ROOT / "deploy" / "kubernetes"
VERSION = "1.33"
OBJECTS: dict[str, dict[str, Any]] = {
    f"{one['kind']} {one['metadata']['name']}": one
    for path in sorted(FOLDER.glob("[!k]*.yaml"))
    for one in yaml.safe_load_all(path.read_text(encoding="utf-8"))
}
CHOSEN: dict[str, Any] = yaml.safe_load((FOLDER / "kustomization.yaml").read_text(encoding="utf-8"))
PODS = {name: one["spec"]["template"]["spec"] for name, one in OBJECTS.items() if "template" in one["spec"]}


@pytest.mark.parametrize("name", OBJECTS)
def test_an_object_has_the_form_that_kubernetes_knows(name: str) -> None:
    kubernetes_validate.validate(OBJECTS[name], VERSION, strict=True)


def test_a_misspelt_field_would_be_found() -> None:
    wrong = {**OBJECTS["Deployment kernel-eval-worker"], "spek": {}}
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(wrong, VERSION, strict=True)


@pytest.mark.parametrize("name", PODS)
def test_a_pod_is_held_as_its_container_of_compose_is(name: str) -> None:
    (container,) = PODS[name]["containers"]
    service = SERVICES[container["name"]]
    held = container["securityContext"]
    assert held["readOnlyRootFilesystem"] is service["read_only"] is True
    assert held["allowPrivilegeEscalation"] is False
    assert held["capabilities"]["drop"] == service["cap_drop"]
    assert held["capabilities"].get("add", []) == service.get("cap_add", [])
    assert container["image"].split(":")[0] in str(service["image"])
    assert PODS[name]["automountServiceAccountToken"] is False
    if name != "StatefulSet kernel-eval-redis":
        assert {each["name"] for each in container["env"]} <= SETTINGS
    secret = re.compile("PASSWORD|BROKER_URL")
    assert all("value" not in each for each in container["env"] if secret.search(each["name"]))


def test_the_apis_probes_get_an_answer_from_a_thread() -> None:
    (container,) = PODS["Deployment kernel-eval-api"]["containers"]
    for probe in ("livenessProbe", "readinessProbe"):
        assert container[probe]["httpGet"] == {"path": "/openapi.json", "port": "http"}, "which needs no Redis"


def test_selectors_find_their_pods() -> None:
    labels = [one["spec"]["template"]["metadata"]["labels"] for one in OBJECTS.values() if "template" in one["spec"]]
    for one in OBJECTS.values():
        spec = one["spec"]
        selector = spec.get("podSelector", spec.get("selector"))
        if selector is not None:
            assert selector.get("matchLabels", selector) in labels


def test_workers_are_scaled_by_a_metric_that_is_handed_on() -> None:
    scaler = OBJECTS["HorizontalPodAutoscaler kernel-eval-worker"]["spec"]
    assert f"{scaler['scaleTargetRef']['kind']} {scaler['scaleTargetRef']['name']}" in OBJECTS
    assert "replicas" not in OBJECTS["Deployment kernel-eval-worker"]["spec"]
    (rule,) = yaml.safe_load((FOLDER / "prometheus-adapter" / "values.yaml").read_text(encoding="utf-8"))["rules"][
        "external"
    ]
    assert rule["name"]["as"] == scaler["metrics"][0]["external"]["metric"]["name"]
    guide = (ROOT / "docs" / "operations.md").read_text(encoding="utf-8")
    assert '__name__="kernel_eval_jobs"' in rule["seriesQuery"] and "`kernel_eval_jobs`" in guide


def test_builders_have_what_their_builds_need_to_be_of_use_and_no_gpu() -> None:
    (builder,), (worker,) = (PODS[f"Deployment kernel-eval-{name}"]["containers"] for name in ("builder", "worker"))
    assert builder["image"] == worker["image"]
    assert builder["command"] == SERVICES["builder"]["command"]
    (api,) = PODS["Deployment kernel-eval-api"]["containers"]
    containers = (api, builder, worker)
    shared = [each["value"] for one in containers for each in one["env"] if each["name"] == "SHARED_BUILDS_MIB"]
    assert len(shared) == 3 and len(set(shared)) == 1 and int(shared[0]) > 0
    check = SERVICES["builder"]["healthcheck"]["test"][1].replace("$$", "$")
    assert builder["readinessProbe"]["exec"]["command"] == ["sh", "-c", check]
    assert "nvidia.com/gpu" not in builder["resources"]["limits"]
    grace = PODS["Deployment kernel-eval-builder"]["terminationGracePeriodSeconds"]
    assert f"{grace}s" == SERVICES["builder"]["stop_grace_period"]


def policy(component: str) -> dict[str, Any]:
    """What its pods may reach and be reached by; without an entry nothing."""
    found: dict[str, Any] = OBJECTS[f"NetworkPolicy kernel-eval-{component}"]["spec"]
    assert found["policyTypes"] == ["Ingress", "Egress"] and component_of(found["podSelector"]) == component
    return found


def component_of(selector: dict[str, Any]) -> str:
    labels: dict[str, str] = selector["matchLabels"]
    assert labels["app.kubernetes.io/name"] == "kernel-eval"
    return labels["app.kubernetes.io/component"]


def test_every_pod_has_a_network_policy() -> None:
    components = {pod["containers"][0]["name"] for pod in PODS.values()}
    assert all(policy(component) for component in components)


@pytest.mark.parametrize("component", ["api", "worker", "builder"])
def test_a_pod_reaches_redis_and_the_clusters_dns_alone(component: str) -> None:
    redis, names = policy(component)["egress"]
    assert [component_of(each["podSelector"]) for each in redis["to"]] == ["redis"]
    assert redis["ports"] == [{"port": 6379, "protocol": "TCP"}]
    (server,) = names["to"]
    assert server["namespaceSelector"]["matchLabels"] == {"kubernetes.io/metadata.name": "kube-system"}
    assert server["podSelector"]["matchLabels"] == {"k8s-app": "kube-dns"}
    assert names["ports"] == [{"port": 53, "protocol": protocol} for protocol in ("UDP", "TCP")]


def test_who_runs_submissions_is_reached_by_nobody() -> None:
    assert all("ingress" not in policy(component) for component in ("worker", "builder"))


def test_redis_is_reached_by_the_service_alone_and_reaches_nobody() -> None:
    assert "egress" not in policy("redis")
    (rule,) = policy("redis")["ingress"]
    assert [component_of(each["podSelector"]) for each in rule["from"]] == ["api", "worker", "builder"]
    assert all(set(each) == {"podSelector"} for each in rule["from"]), "of this namespace"
    assert rule["ports"] == [{"port": 6379, "protocol": "TCP"}]


def test_the_api_is_reached_at_its_port() -> None:
    assert policy("api")["ingress"] == [{"ports": [{"port": "http", "protocol": "TCP"}]}]


def test_images_are_of_a_version() -> None:
    named = {pod["containers"][0]["image"] for pod in PODS.values()}
    assert all(re.fullmatch(r"[\w./-]+:\d[\w.-]*", each) for each in named), "a tag that says which, and not the latest"
    own = f":{tomllib.loads((ROOT / 'pyproject.toml').read_text(encoding='utf-8'))['project']['version']}"
    assert {each for each in named if each.startswith("kernel-eval-")} == {
        f"kernel-eval-api{own}",
        f"kernel-eval-worker{own}",
    }
    assert {f"{each['name']}:{each['newTag']}" for each in CHOSEN["images"]} == named
    assert set(CHOSEN["resources"]) == {path.name for path in FOLDER.glob("[!k]*.yaml")}


def test_a_worker_has_time_to_drain_and_one_gpu() -> None:
    pod = PODS["Deployment kernel-eval-worker"]
    (container,) = pod["containers"]
    (drain,) = [int(each["value"]) for each in container["env"] if each["name"] == "DRAIN_SECONDS"]
    assert pod["terminationGracePeriodSeconds"] > drain
    assert container["resources"]["limits"]["nvidia.com/gpu"] == 1
