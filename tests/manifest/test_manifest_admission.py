"""What the API server adds to new pods: LimitRanges, injected containers, resources of networks."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.values import cases, refusal

from mooring.engine.core.machine import Finding
from mooring.engine.core.pod import ContainerKind, Pod, QoS
from mooring.inputs.decoding.documents import documents_in
from mooring.inputs.decoding.fields import Document
from mooring.inputs.pods.admission import (
    INJECTED,
    INJECTORS,
    LIMITED,
    NOTHING_INJECTED,
    APIServerAdmission,
    Fragment,
    fragment_of,
)
from mooring.inputs.pods.pod_files import load_pods, pods_of

API = {"name": "api", "resources": {"limits": {"cpu": "4", "memory": "2Gi"}}}
HELPER = {"name": "helper"}
SMALL = {"cpu": "500m", "memory": "256Mi"}
PROXY = {"name": "istio-proxy", "resources": {"requests": {"cpu": "100m"}, "limits": {"cpu": "2", "memory": "1Gi"}}}


def pod(*containers: Any, name: Any = "api", spec: Any = None, **metadata: Any) -> dict[str, Any]:
    named = {"name": name, "namespace": "shop", **metadata}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": named, "spec": {"containers": containers, **(spec or {})}}


def limit_range(*limits: Any, name: str = "defaults", namespace: str = "shop") -> dict[str, Any]:
    metadata = {"name": name, "namespace": namespace}
    return {"apiVersion": "v1", "kind": "LimitRange", "metadata": metadata, "spec": {"limits": limits}}


def of_containers(**fields: Any) -> dict[str, Any]:
    return {"type": "Container", **fields}


def documents(*contents: Any) -> list[Document]:
    return documents_in("\n".join(map(json.dumps, contents)).encode(), "all.json")


def read(*contents: Any, inject: Fragment = NOTHING_INJECTED) -> tuple[list[Pod], list[Finding]]:
    found: list[Finding] = []
    given = documents(*contents)
    return pods_of(given, report=found.append, admission=APIServerAdmission.of(given, inject)), found


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
    assert (finding.code, finding.subject) == (LIMITED, "shop/api")
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


@pytest.mark.parametrize("injector", INJECTORS, ids=lambda one: one.key)
@pytest.mark.parametrize("where", ["labels", "annotations"])
def test_a_marked_pod_is_named_with_what_is_added(injector: Any, where: str) -> None:
    key = injector.key.replace("*", "java")
    (warning,) = warnings(pod(API, **{where: {key: "true"}}))
    assert warning.startswith(f"{injector.vendor} will add container {injector.adds[0]} ({key}: true): ")
    assert warnings(pod(API, **{where: {key: "false"}})) == []
    assert warnings(pod(API, {"name": injector.adds[-1]}, **{where: {key: "true"}})) == []
    assert warnings({**pod(API, **{where: {key: "true"}}), "status": {"phase": "Running"}}) == []


@pytest.mark.parametrize("injector", [one for one in INJECTORS if one.of_namespace], ids=lambda one: one.key)
def test_a_namespace_marks_its_pods(injector: Any) -> None:
    key = injector.key.replace("*", "java")
    marked = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop", "labels": {key: "enabled"}}}
    (warning,) = warnings(marked, pod(API))
    assert f"({key}: enabled of namespace shop)" in warning
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


@pytest.mark.parametrize(
    "content",
    [
        PROXY,
        [PROXY],
        {"containers": [PROXY]},
        {"spec": {"containers": [PROXY]}},
        {"template": {"spec": {"containers": [PROXY]}}},
        pod(PROXY),
    ],
)
def test_injected_containers_are_added_to_marked_pods(content: Any) -> None:
    inject = fragment_of(documents(content))
    marked, plain = pod(API, name="a", labels={"istio.io/rev": "canary"}), pod(API, name="b")
    pods, findings = read(marked, plain, inject=inject)
    assert [[container.name for container in found.containers] for found in pods] == [["api", "istio-proxy"], ["api"]]
    assert [found.qos for found in pods] == [QoS.BURSTABLE, QoS.GUARANTEED]
    (finding,) = findings
    assert (finding.severity, finding.code, finding.subject) == ("info", INJECTED, "shop/a")


def test_an_injected_sidecar_starts_first_and_a_limit_range_completes_it() -> None:
    inject = fragment_of(documents({"name": "istio-proxy", "restartPolicy": "Always"}))
    marked = pod(API, labels={"istio.io/rev": "x"}, spec={"initContainers": [{"name": "probe"}]})
    (found,), _ = read(limit_range(of_containers(default=SMALL)), marked, inject=inject)
    kinds = [(container.name, container.kind) for container in found.containers]
    assert kinds[:2] == [("istio-proxy", ContainerKind.SIDECAR), ("probe", ContainerKind.INIT)]
    assert found.qos is QoS.GUARANTEED


def test_what_cannot_be_injected_is_said() -> None:
    _, findings = read(pod(API), inject=fragment_of(documents(PROXY)))
    assert [finding.message for finding in findings] == ["has no effect: no new pod is marked for an injector"]
    assert "all.json: --inject: has no container" in refusal(fragment_of, documents({"resources": {}}))


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
