"""What the API server adds to new pods: LimitRanges, injected containers, resources of networks."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.values import cases, refusal

from mooring.engine.core.machine import Finding
from mooring.engine.core.pod import Pod, QoS
from mooring.inputs.decoding.documents import documents_in
from mooring.inputs.pods.pod_files import load_pods, pods_of

API = {"name": "api", "resources": {"limits": {"cpu": "4", "memory": "2Gi"}}}
HELPER = {"name": "helper"}
SMALL = {"cpu": "500m", "memory": "256Mi"}
INJECTORS = yaml.safe_load((Path(__file__).parent / "injectors.yaml").read_text(encoding="utf-8"))


def pod(*containers: Any, name: Any = "api", spec: Any = None, **metadata: Any) -> dict[str, Any]:
    named = {"name": name, "namespace": "shop", **metadata}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": named, "spec": {"containers": containers, **(spec or {})}}


def limit_range(*limits: Any, name: str = "defaults", namespace: str = "shop") -> dict[str, Any]:
    metadata = {"name": name, "namespace": namespace}
    return {"apiVersion": "v1", "kind": "LimitRange", "metadata": metadata, "spec": {"limits": limits}}


def of_containers(**fields: Any) -> dict[str, Any]:
    return {"type": "Container", **fields}


def read(*contents: Any) -> tuple[list[Pod], list[Finding]]:
    found: list[Finding] = []
    documents = documents_in("\n".join(map(json.dumps, contents)).encode(), "all.json")
    return pods_of(documents, report=found.append), found


def one(*contents: Any) -> Pod:
    (found,), _ = read(*contents)
    return found


def amounts(found: Pod, container: str) -> tuple[dict[str, str], dict[str, str]]:
    chosen = found.container(container)
    assert chosen is not None
    requests, limits = chosen.requests, chosen.limits
    return {name: str(value) for name, value in requests.items()}, {name: str(value) for name, value in limits.items()}


def warnings(*contents: Any) -> list[str]:
    return [finding.message for finding in read(*contents)[1] if finding.severity == "warning"]


def test_a_limit_range_of_the_same_files_completes_the_containers_that_lack_amounts() -> None:
    default = limit_range(of_containers(default=SMALL, defaultRequest=SMALL))
    (found,), findings = read(default, pod(API, HELPER))
    assert found.qos is QoS.GUARANTEED
    assert amounts(found, "helper") == (SMALL, SMALL)
    assert amounts(found, "api") == ({"cpu": "4", "memory": "2Gi"}, {"cpu": "4", "memory": "2Gi"})
    said = "cpu, memory request for container helper; cpu, memory limit for container helper"
    (finding,) = findings
    assert (finding.code, finding.subject) == ("MOOR-541", "shop/api")
    assert finding.message == f"LimitRanger plugin set: {said} (LimitRange shop/defaults)"


def test_init_containers_and_sidecars_are_completed_too() -> None:
    inits = [{"name": "probe"}, {"name": "log", "restartPolicy": "Always"}]
    found = one(pod(API, spec={"initContainers": inits}), limit_range(of_containers(default=SMALL)))
    assert found.qos is QoS.GUARANTEED
    assert amounts(found, "probe") == amounts(found, "log") == (SMALL, SMALL)


@pytest.mark.parametrize(("limits", "given", "gets"), cases(__file__, "limit-defaults.yaml", "item", "given", "gets"))
def test_defaults_follow_the_limit_ranges_own_defaults_and_come_after_limits_became_requests(
    limits: Any, given: Any, gets: Any
) -> None:
    found = one(limit_range(of_containers(**limits)), pod({"name": "app", "resources": given}))
    assert amounts(found, "app") == (gets["requests"], gets["limits"])


def test_of_several_limit_ranges_the_first_that_names_a_resource_counts() -> None:
    first = limit_range(of_containers(default={"cpu": "1"}), name="a")
    second = limit_range(of_containers(default={"cpu": "2", "memory": "1Gi"}), name="b")
    amount = {"cpu": "1", "memory": "1Gi"}
    assert amounts(one(first, second, pod({"name": "app"})), "app") == (amount, amount)


def test_a_limit_range_concerns_new_pods_of_its_namespace_only() -> None:
    default = of_containers(default=SMALL)
    assert one(limit_range(default, namespace="other"), pod(HELPER)).qos is QoS.BEST_EFFORT
    assert one(limit_range(default), pod(HELPER, uid="1-2")).qos is QoS.BEST_EFFORT
    too_small = limit_range(of_containers(min={"cpu": "8"}))
    assert one(too_small, {**pod(API), "status": {"phase": "Running"}}).qos is QoS.GUARANTEED


def test_workloads_and_lists_are_completed(tmp_path: Path) -> None:
    template = {"spec": {"containers": [HELPER]}}
    metadata = {"name": "web", "namespace": "shop", "uid": "1-2"}
    deployment = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata, "spec": {"template": template}}
    items = [deployment, limit_range(of_containers(default=SMALL))]
    file = tmp_path / "list.json"
    file.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": items}))
    assert [found.qos for found in load_pods([file])] == [QoS.GUARANTEED]


@pytest.mark.parametrize(
    ("item", "containers", "message"), cases(__file__, "limit-violations.yaml", "item", "containers", "says")
)
def test_a_violation_is_refused_with_the_api_servers_words(item: Any, containers: Any, message: str) -> None:
    assert message in refusal(read, limit_range(item), pod(*containers))


def test_what_a_limit_range_allows_is_admitted() -> None:
    read(limit_range({"type": "PersistentVolumeClaim", "max": {"cpu": "1"}}), pod(API))
    uneven = pod({"name": "app", "resources": {"requests": {"cpu": "1"}, "limits": {"cpu": "4"}}})
    assert one(limit_range(of_containers(maxLimitRequestRatio={"cpu": "4"})), uneven).qos is QoS.BURSTABLE


@pytest.mark.parametrize("injector", INJECTORS, ids=lambda one: one["key"])
@pytest.mark.parametrize("where", ["labels", "annotations"])
def test_a_marked_pod_is_named_with_what_is_added(injector: dict[str, Any], where: str) -> None:
    key, adds = injector["key"], injector["adds"]
    (warning,) = warnings(pod(API, **{where: {key: "true"}}))
    assert warning.startswith(f"{injector['vendor']} will add container {adds[0]} ({key}: true): ")
    assert warnings(pod(API, **{where: {key: "false"}})) == []
    assert warnings(pod(API, {"name": adds[-1]}, **{where: {key: "true"}})) == []
    assert warnings({**pod(API, **{where: {key: "true"}}), "status": {"phase": "Running"}}) == []


@pytest.mark.parametrize("injector", INJECTORS, ids=lambda one: one["key"])
def test_a_namespace_marks_its_pods(injector: dict[str, Any]) -> None:
    key = injector["key"]
    marked = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop", "labels": {key: "enabled"}}}
    told = [f"({key}: enabled of namespace shop)" in warning for warning in warnings(marked, pod(API))]
    assert told == ([True] if "ofNamespace" in injector else [])
    assert warnings(marked, pod(API, namespace="other")) == []
    assert warnings(marked, pod(API, spec={"hostNetwork": True})) == []


def test_a_pods_own_word_wins_over_its_namespaces() -> None:
    metadata = {"name": "shop", "labels": {"istio-injection": "enabled"}, "annotations": {"linkerd.io/inject": "no"}}
    marked = {"apiVersion": "v1", "kind": "Namespace", "metadata": metadata}
    assert warnings(marked, pod(API, labels={"sidecar.istio.io/inject": "false"})) == []
    assert len(warnings(marked, pod(API, annotations={"linkerd.io/inject": "enabled"}))) == 2


def test_pods_alike_are_one_warning() -> None:
    labels = {"sidecar.istio.io/inject": "true"}
    _, findings = read(*(pod(API, name=name, labels=labels) for name in ("a", "b", "c")))
    assert [finding.subject for finding in findings] == ["shop/a and 2 more"]


NET = "k8s.v1.cni.cncf.io/networks"


def network(name: str, resource: str = "", namespace: str = "shop") -> dict[str, Any]:
    annotations = {"k8s.v1.cni.cncf.io/resourceName": resource} if resource else {}
    metadata = {"name": name, "namespace": namespace, "annotations": annotations}
    return {"apiVersion": "k8s.cni.cncf.io/v1", "kind": "NetworkAttachmentDefinition", "metadata": metadata}


@pytest.mark.parametrize(
    "text",
    ["a, shop/a@net2", json.dumps([{"name": "a"}, {"name": "a", "namespace": "shop"}])],
)
def test_networks_name_the_resource_that_is_added(text: str) -> None:
    known = network("a", "intel.com/sriov"), network("b")
    (warning,) = warnings(*known, pod(API, HELPER, annotations={NET: text}))
    assert warning.startswith("its networks need 2 of intel.com/sriov, ")
    assert "adds to container api" in warning
    assert warnings(*known, pod(API, annotations={NET: "b"})) == []
    asking = {"name": "app", "resources": {"limits": {"cpu": 1, "intel.com/sriov": 2}}}
    assert warnings(*known, pod(asking, annotations={NET: text})) == []


def test_a_network_that_is_not_given_is_named() -> None:
    (warning,) = warnings(pod(API, annotations={NET: "other/a"}))
    assert warning.startswith("network other/a: its NetworkAttachmentDefinition is not given")
