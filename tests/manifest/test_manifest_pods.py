"""v1 Pods to values: reading, the API server's defaults and refusals, the QoS class."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mooring.engine.core.errors import InputError
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


def refusal(content: Mapping[str, Any]) -> str:
    with pytest.raises(InputError) as error:
        read(content)
    return str(error.value)


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
    ("given", "own", "before", "after"),
    [
        # Nothing given: nothing filled in.
        (({}, {}), [({"cpu": "1"}, {"cpu": "1"})], ({}, {}), ({}, {})),
        # Limits given: requests are what the containers request, else the limit.
        (
            ({}, {"cpu": "4", "memory": "2Gi"}),
            [({"cpu": "1"}, {}), ({"cpu": "1"}, {})],
            ({"cpu": "2", "memory": "2Gi"}, {"cpu": "4", "memory": "2Gi"}),
            ({"cpu": "2", "memory": "2Gi"}, {"cpu": "4", "memory": "2Gi"}),
        ),
        # Only requests given: the older rule leaves them alone, the newer one fills requests and limits.
        (
            ({"cpu": "4"}, {}),
            [({"cpu": "1", "memory": "1Gi"}, {"cpu": "2", "memory": "1Gi"})],
            ({"cpu": "4"}, {}),
            ({"cpu": "4", "memory": "1Gi"}, {"cpu": "4", "memory": "1Gi"}),
        ),
        # A container without a limit: none for the pod. Container limits above the request: they are the limit.
        (
            ({"cpu": "1", "memory": "1Gi"}, {}),
            [({"memory": "1Gi"}, {"cpu": "2", "memory": "1Gi"}), ({}, {"cpu": "3"})],
            ({"cpu": "1", "memory": "1Gi"}, {}),
            ({"cpu": "1", "memory": "1Gi"}, {"cpu": "5"}),
        ),
        # Huge pages: the containers' limit becomes the pod's, and the pod's limit its request.
        (
            ({"cpu": "1"}, {}),
            [({}, {"hugepages-2Mi": "4Mi"})],
            ({"cpu": "1", "hugepages-2Mi": "4Mi"}, {"hugepages-2Mi": "4Mi"}),
            ({"cpu": "1", "hugepages-2Mi": "4Mi"}, {"hugepages-2Mi": "4Mi"}),
        ),
        (
            ({}, {"cpu": "1", "hugepages-2Mi": "8Mi"}),
            [({"hugepages-2Mi": "4Mi"}, {"hugepages-2Mi": "4Mi"})],
            ({"cpu": "1", "hugepages-2Mi": "8Mi"}, {"cpu": "1", "hugepages-2Mi": "8Mi"}),
            ({"cpu": "1", "hugepages-2Mi": "8Mi"}, {"cpu": "1", "hugepages-2Mi": "8Mi"}),
        ),
    ],
)
def test_pod_level_defaults(
    given: tuple[dict[str, str], dict[str, str]],
    own: list[tuple[dict[str, str], dict[str, str]]],
    before: tuple[dict[str, str], dict[str, str]],
    after: tuple[dict[str, str], dict[str, str]],
) -> None:
    resources = PodResources(quantities(given[0]), quantities(given[1]))
    containers = [Container(f"c{n}", requests=quantities(r), limits=quantities(x)) for n, (r, x) in enumerate(own)]
    for gates, (requests, limits) in ((BEFORE_FIX, before), (PodGates(), after)):
        found = with_pod_defaults(resources, containers, gates)
        assert (texts(found.requests), texts(found.limits)) == (requests, limits)
        assert with_pod_defaults(found, containers, gates) == found
    assert with_pod_defaults(resources, containers, PodGates(pod_level_resources=False)) == resources


def test_pod_from_the_api_server_keeps_its_pod_level_resources() -> None:
    content = pod(container("c", {}, {"cpu": 1, "memory": 1}), resources={"requests": {"cpu": 1}})
    assert texts(read({**content, "status": {"qosClass": "Burstable"}}).resources.limits) == {}  # type: ignore[union-attr]
    assert texts(read(content).resources.limits) == {"cpu": "1", "memory": "1"}  # type: ignore[union-attr]


CONTAINER = "spec.containers[0]"
POLICY = "spec.initContainers[0].restartPolicy"
REQUESTS, LIMITS = (f"{CONTAINER}.resources.{part}" for part in ("requests", "limits"))


def asks(requests: Resources | None = None, limits: Resources | None = None) -> Resources:
    return pod(container("c", requests, limits))


def whole(*more: Resources, **spec: Any) -> Resources:
    return pod(container("c"), *more, **spec)


def restarted(policy: object) -> list[Resources]:
    return [container("i", restartPolicy=policy)]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({}, "spec: must be a mapping, not nothing"),
        ({"metadata": [], "spec": {}}, "metadata: must be a mapping, not a list"),
        ({**whole(), "metadata": {}}, "metadata.name: must not be empty"),
        ({**whole(), "metadata": {"name": False}}, "(YAML reads on, off, yes, no, y and n"),
        ({**whole(), "metadata": {"name": 5}}, "must be a string, not a number; put it in q"),
        (pod(), "spec.containers: must not be empty; a pod has at least one container"),
        ({"spec": {"containers": {}}}, "spec.containers: must be a list, not a mapping"),
        ({"spec": {"containers": [1]}}, f"{CONTAINER}: must be a mapping, not a number"),
        ({"spec": {"containers": [{}]}}, f"{CONTAINER}.name: must not be empty"),
        (
            {"spec": {"containers": [{"name": 1}]}},
            f"{CONTAINER}.name: must be a string, not a number; put it in quotes",
        ),
        (pod({"name": "c", "resources": []}), f"{CONTAINER}.resources: must be a mapping, not a list"),
        (
            pod({"name": "c", "resources": {"limits": "2"}}),
            f"{CONTAINER}.resources.limits: must be a mapping, not a string",
        ),
        (whole(container("c")), "spec: two containers are called 'c'; rename one of them"),
        (whole(initContainers=[container("c")]), "two containers are called 'c'"),
        (whole(initContainers=5), "spec.initContainers: must be a list, not a number"),
        (whole(initContainers=restarted(True)), f"{POLICY}: must be a string, not true or false"),
        (whole(initContainers=restarted("always")), f"{POLICY}: 'always' is not a restart policy; write Always for a"),
        (asks({"cpu": "2 cores"}), f"{REQUESTS}.cpu: '2 cores' is not a quantity; write one such as 2"),
        (asks({"memory": "1K"}), "'1K' is not a quantity: unable to parse quantity's suffix; write one"),
        (asks({"memory": "9" * 9000}), "is not a quantity: a quantity of 9000 characters is too long"),
        (asks({"cpu": True}), f"{REQUESTS}.cpu: must be a quantity, not true or false"),
        (asks({"cpu": [1]}), f"{REQUESTS}.cpu: must be a quantity, not a list"),
        (asks({"cpu": -1}), f"{REQUESTS}.cpu: must not be negative, but is -1"),
        (asks(limits={"cpu": "-1m"}), f"{LIMITS}.cpu: must not be negative, but is -1m"),
        (asks({"cpu": 2}, {"cpu": 1}), f"{REQUESTS}.cpu: the request of 2 is above the limit of 1"),
        (asks({"cpus": 1}), f"{REQUESTS}.cpus: is not a container resource; did you"),
        (asks(limits={"hugepage-2Mi": 1}), "is not a container resource; did you mean hugepages-2Mi?"),
        (asks(limits={"gpu": 1}), "resources need a domain, such as nvidia.com/gpu"),
        (asks(limits={"Memori": 1}), "is not a container resource; did you mean memory?"),
        (asks(limits={"xyz": 1}), "resources need a domain, such as nvidia.com/gpu"),
        (asks({"vendor.com/nic": 1}), "resources.requests.vendor.com/nic: needs a limit; set limits to the"),
        (
            asks({"vendor.com/nic": 1}, {"vendor.com/nic": 2}),
            f"{REQUESTS}.vendor.com/nic: must equal the limit of 2, but is 1",
        ),
        (asks(limits={"vendor.com/nic": "1500m"}), "vendor.com/nic: must be a whole number, but is 1500m"),
        (asks({"cpu": 1}, {"hugepages-2Mi": "3Mi"}), f"{LIMITS}.hugepages-2Mi: 3Mi is not a whole number of 2Mi pages"),
        (asks(limits={"hugepages-2Mi": "4Mi"}), "limits: huge pages need cpu or memory beside them"),
        (asks({"cpu": 1, "hugepages-2Mi": "4Mi"}), "requests.hugepages-2Mi: needs a limit"),
        (
            asks({"cpu": 1, "hugepages-2Mi": "2Mi"}, {"hugepages-2Mi": "4Mi"}),
            "requests.hugepages-2Mi: must equal the limit of 4Mi, but is 2Mi",
        ),
        (asks(limits={"cpu": 1, "hugepages-2X": 0}), "hugepages-2X does not name a page size; write hugep"),
        (asks(limits={"cpu": 1, "hugepages-0": 0}), "hugepages-0 does not name a page size"),
        (whole(resources=[]), "spec.resources: must be a mapping, not a list"),
        (
            whole(resources={"limits": {"vendor.com/nic": 1}}),
            "spec.resources.limits.vendor.com/nic: is not supported at pod level; only cpu, memory and hugep",
        ),
        (
            whole(resources={"requests": {"cpu": 2}, "limits": {"cpu": 1}}),
            "spec.resources.requests.cpu: the request of 2 is above the limit of 1",
        ),
        (whole(overhead={"cpu": "-1"}), "spec.overhead.cpu: must not be negative, but is -1"),
        (whole(overhead={"cpu": "x"}), "spec.overhead.cpu: 'x' is not a quantity"),
        ({**whole(), "status": {"qosClass": "Gold"}}, "status.qosClass: 'Gold' is not a QoS class"),
        ({**whole(), "status": {"qosClass": ["Gold"]}}, "status.qosClass: must be a string"),
    ],
)
def test_what_the_api_server_refuses_is_refused_here(content: Mapping[str, Any], message: str) -> None:
    if "metadata" not in content and content:
        content = {"metadata": {"name": "p"}, **content}
    said = refusal(content)
    assert said.startswith("f.yaml: ")
    assert message in said


def test_reading_does_not_change_the_object() -> None:
    content = pod(container("c", {}, {"cpu": 1}), resources={"limits": {"cpu": 1}})
    kept = copy.deepcopy(content)
    read(content)
    assert content == kept


TYPICAL = pod(
    container("a", {"cpu": "2"}, {"cpu": "2", "memory": "1Gi"}),
    initContainers=[container("i", restartPolicy="Always")],
    resources={"limits": {"cpu": "4"}},
    overhead={"cpu": "1m"},
)
TYPICAL["status"] = {"qosClass": "Burstable"}
