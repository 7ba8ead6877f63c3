"""v1 Pods to values: reading, the API server's defaults and refusals, the QoS class."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.values import cases, refusal

from mooring.engine.core.pod import Container, ContainerKind, Pod, PodResources, QoS, ResourceList
from mooring.engine.core.quantity import Quantity
from mooring.inputs.pods.defaults import PodGates, qos_of, total_requests, with_pod_defaults
from mooring.inputs.pods.pods import pod_from_object

Resources = dict[str, Any]
BEFORE_FIX = PodGates(defaulting_fix=False)


def quantities(given: Mapping[str, str]) -> dict[str, Quantity]:
    return {name: Quantity.parse(text) for name, text in given.items()}


def texts(given: ResourceList) -> dict[str, str]:
    return {name: str(quantity) for name, quantity in given.items()}


def container(name: str, requests: Resources | None = None, limits: Resources | None = None, **more: Any) -> Resources:
    resources = {"requests": requests or {}, "limits": limits or {}}
    return {"name": name, "resources": resources, **more}


def pod(*containers: Resources, **more: Any) -> Resources:
    return {"metadata": {"name": "p"}, "spec": {"containers": list(containers), **more}}


def read(content: Mapping[str, Any], gates: PodGates | None = None) -> Pod:
    return pod_from_object(content, source="f.yaml", gates=gates or PodGates())


def test_identity_is_read_or_made() -> None:
    named = {"name": "web", "namespace": "shop", "uid": "u-1", "annotations": {"a": "b"}}
    spec = {"containers": [{"name": "c"}]}
    found = read({"metadata": named, "spec": spec})
    assert (found.name, found.namespace, found.uid, found.annotations) == ("web", "shop", "u-1", {"a": "b"})
    found = read({"metadata": {"generateName": "web-"}, "spec": spec})
    assert (found.name, found.namespace, found.uid) == ("web-0", "default", "default_web-0")


def test_uid_of_a_static_pod_is_the_one_the_kubelet_uses() -> None:
    annotations = {"kubernetes.io/config.mirror": "0123abcd"}
    metadata = {"name": "etcd", "uid": "u-1", "annotations": annotations}
    assert read({"metadata": metadata, "spec": {"containers": [{"name": "c"}]}}).uid == "0123abcd"


def test_containers_keep_their_order_and_kind() -> None:
    init = [container("i"), container("s", restartPolicy="Always"), container("n", restartPolicy="Never")]
    found = read(pod(container("a"), container("b", restartPolicy="Always"), initContainers=init))
    assert [(entry.name, entry.kind) for entry in found.containers] == [
        ("i", ContainerKind.INIT),
        ("s", ContainerKind.SIDECAR),
        ("n", ContainerKind.INIT),
        ("a", ContainerKind.APP),
        ("b", ContainerKind.APP),
    ]


def test_missing_requests_come_from_limits() -> None:
    (found,) = read(pod(container("c", {"cpu": "1"}, {"cpu": "2", "memory": "1Gi", "vendor.com/nic": 1}))).containers
    assert texts(found.requests) == {"cpu": "1", "memory": "1Gi", "vendor.com/nic": "1"}
    assert texts(found.limits) == {"cpu": "2", "memory": "1Gi", "vendor.com/nic": "1"}


@pytest.mark.parametrize(
    ("written", "stored", "exact"),
    [
        (2, "2", 2),
        (0.5, "500m", None),
        (1e6, "1M", 10**6),
        (" 2 ", "2", 2),
        ("1e3", "1e3", 1000),
        ("0.0001", "1m", None),
        ("1u", "1m", None),
        ("100n", "1m", None),
        ("1.0000001Ki", "1024001m", None),
        ("0.5Gi", "512Mi", None),
        (None, "0", 0),
        (1e-7, "1e-3", None),
        (9007199254740993, "9007199254740993", 9007199254740993),
    ],
)
def test_quantities_are_stored_as_the_api_server_does(written: object, stored: str, exact: int | None) -> None:
    (found,) = read(pod(container("c", {"memory": written}))).containers
    assert (str(found.requests["memory"]), found.requests["memory"].as_int64()) == (stored, exact)


def test_overhead_is_read() -> None:
    assert texts(read(pod(container("c"), overhead={"cpu": "250m"})).overhead) == {"cpu": "250m"}


def test_qos_class_of_the_status_wins() -> None:
    limits = {"cpu": 1, "memory": 1}
    content = pod(container("c", {}, limits))
    assert read(content).qos is QoS.GUARANTEED
    assert read({**content, "status": {"qosClass": "Burstable"}}).qos is QoS.BURSTABLE
    assert read({**content, "status": {"phase": "Pending"}}).qos is QoS.GUARANTEED


@pytest.mark.parametrize(
    ("gates", "qos"),
    [
        (PodGates(), QoS.GUARANTEED),
        (PodGates(qos_fix=False), QoS.BEST_EFFORT),
        (PodGates(pod_level_resources=False, qos_fix=False), QoS.GUARANTEED),
        (PodGates(pod_level_resources=False), QoS.GUARANTEED),
    ],
)
def test_empty_pod_level_resources_decide_only_without_the_fix(gates: PodGates, qos: QoS) -> None:
    found = read(pod(container("c", {}, {"cpu": 1, "memory": 1}), resources={}), gates)
    assert found.resources == PodResources()
    assert found.qos is qos


def test_the_switch_of_all_beta_gates_takes_the_fix_of_the_qos_class_back() -> None:
    """AllBeta reaches every beta gate that is not set by its own name (component-base/featuregate)."""
    found = PodGates.of({"AllBeta": False, "PodLevelResources": True})
    assert (found.pod_level_resources, found.qos_fix, found.defaulting_fix) == (True, False, False)
    found = PodGates.of({"AllBeta": False, "PodLevelResources": True, "PodLevelResourcesFixKubeletQOSClass": True})
    assert found.qos_fix


def test_pod_level_resources_decide_alone() -> None:
    whole = {"limits": {"cpu": "4", "memory": "4Gi"}}
    content = pod(container("a", {"cpu": "1"}), container("b"), resources=whole)
    assert read(content).qos is QoS.BURSTABLE  # the request of cpu is what the containers request
    assert read(content, PodGates(pod_level_resources=False)).qos is QoS.BURSTABLE
    assert read(pod(container("a"), container("b"), resources=whole)).qos is QoS.GUARANTEED


amounts = st.dictionaries(st.sampled_from(["cpu", "memory", "ephemeral-storage"]), st.sampled_from(["0", "1", "2"]))
sets = st.tuples(amounts, amounts)


def model_of_one(requests: Mapping[str, str], limits: Mapping[str, str]) -> QoS:
    pairs = {(requests.get(name, "0"), limits.get(name, "0")) for name in ("cpu", "memory")}
    if pairs == {("0", "0")}:
        return QoS.BEST_EFFORT
    return QoS.GUARANTEED if all(a == b != "0" for a, b in pairs) else QoS.BURSTABLE


@given(st.lists(sets, min_size=1, max_size=4), st.none() | sets, st.builds(PodGates))
def test_qos_class_is_that_of_the_model(
    own: list[tuple[dict[str, str], dict[str, str]]],
    whole: tuple[dict[str, str], dict[str, str]] | None,
    gates: PodGates,
) -> None:
    containers = [
        Container(f"c{n}", requests=quantities(requests), limits=quantities(limits))
        for n, (requests, limits) in enumerate(own)
    ]
    resources = PodResources(quantities(whole[0]), quantities(whole[1])) if whole else None
    names = {name for part in whole or () for name in part}
    if whole and gates.pod_level_resources and (not gates.qos_fix or names & {"cpu", "memory"}):
        expected = model_of_one(*whole)
    else:
        classes = {model_of_one(*each) for each in own}
        expected = classes.pop() if len(classes) == 1 else QoS.BURSTABLE
    assert qos_of(containers, resources, gates) is expected


def test_total_counts_regular_init_containers_with_the_sidecars_before_them() -> None:
    def one(name: str, kind: ContainerKind, cpu: str) -> Container:
        return Container(name, kind, quantities({"cpu": cpu}))

    init, sidecar, app = ContainerKind.INIT, ContainerKind.SIDECAR, ContainerKind.APP
    apps = [one("a", app, "1"), one("b", app, "2")]
    assert texts(total_requests(apps)) == {"cpu": "3"}
    assert texts(total_requests([one("i", init, "9"), *apps])) == {"cpu": "9"}
    assert texts(total_requests([one("i", init, "9"), one("s", sidecar, "4"), *apps])) == {"cpu": "9"}
    assert texts(total_requests([one("s", sidecar, "4"), one("i", init, "9"), *apps])) == {"cpu": "13"}
    assert texts(total_requests([one("s", sidecar, "4"), one("i", init, "1"), *apps])) == {"cpu": "7"}


@pytest.mark.parametrize(
    ("given", "own", "before", "after", "rule"),
    cases(__file__, "pod-level-defaults.yaml", "pod", "containers", "before", "after", "rule"),
)
def test_pod_level_defaults(
    given: Resources, own: list[Resources], before: Resources, after: Resources, rule: str
) -> None:
    resources = PodResources(quantities(given["requests"]), quantities(given["limits"]))
    containers = [
        Container(f"c{number}", requests=quantities(one["requests"]), limits=quantities(one["limits"]))
        for number, one in enumerate(own)
    ]
    for gates, expected in ((BEFORE_FIX, before), (PodGates(), after)):
        found = with_pod_defaults(resources, containers, gates)
        assert {"requests": texts(found.requests), "limits": texts(found.limits)} == expected, rule
        assert with_pod_defaults(found, containers, gates) == found
    assert with_pod_defaults(resources, containers, PodGates(pod_level_resources=False)) == resources


def test_pod_from_the_api_server_keeps_its_pod_level_resources() -> None:
    content = pod(container("c", {}, {"cpu": 1, "memory": 1}), resources={"requests": {"cpu": 1}})
    assert texts(read({**content, "status": {"qosClass": "Burstable"}}).resources.limits) == {}  # type: ignore[union-attr]
    assert texts(read(content).resources.limits) == {"cpu": "1", "memory": "1"}  # type: ignore[union-attr]


@pytest.mark.parametrize(("content", "message"), cases(__file__, "refused-pods.yaml", "pod", "says"))
def test_what_the_api_server_refuses_is_refused_here(content: Resources, message: str) -> None:
    said = refusal(read, content)
    assert said.startswith("f.yaml: ")
    assert message in said


def test_a_quantity_has_an_end() -> None:
    words = "is not a quantity: a quantity of 9000 characters is too long"
    assert words in refusal(read, pod(container("c", {"memory": "9" * 9000})))


def test_reading_does_not_change_the_object() -> None:
    content = pod(container("c", {}, {"cpu": 1}), resources={"limits": {"cpu": 1}})
    kept = copy.deepcopy(content)
    read(content)
    assert content == kept
