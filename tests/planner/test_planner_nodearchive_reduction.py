"""Reduced documents hold what decides, and decide the same; flags are read as the kubelet reads them."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mooring.engine.core.errors import InputError
from mooring.engine.releases.config_fields import CHECKED_FIELDS
from mooring.inputs.archive.reduction import anonymous_pods, pod_list, reduced_configuration, reduced_pods
from mooring.inputs.configuration.kubelet_config import KNOWN, READ, kubelet_config
from mooring.inputs.configuration.kubelet_flags import kubelet_flags, merged_configuration
from mooring.inputs.pods.pods import pod_from_object

AMOUNTS = {"requests": {"cpu": "1"}, "limits": {"cpu": "2", "memory": "1Gi"}}
POD: dict[str, Any] = {
    "kind": "Pod",
    "metadata": {"name": "a", "namespace": "n", "uid": "u", "annotations": {"x": "y"}, "labels": {"a": "b"}},
    "spec": {
        "initContainers": [{"name": "i", "restartPolicy": "Always", "resources": AMOUNTS, "image": "x"}],
        "containers": [{"name": "c", "resources": AMOUNTS, "env": []}, {"name": "d"}],
        "resources": {"requests": {"cpu": "4"}},
        "overhead": {"cpu": "100m"},
        "volumes": [],
    },
    "status": {"phase": "Running", "qosClass": "Burstable", "podIP": "1.2.3.4"},
}


def test_a_reduced_pod_is_the_same_pod() -> None:
    (reduced,) = reduced_pods([POD])
    whole = {**POD, "metadata": {**POD["metadata"], "annotations": {}}}
    assert pod_from_object(reduced, source="x") == pod_from_object(whole, source="x")
    assert set(reduced["spec"]["containers"][0]) == {"name", "resources"}
    assert set(reduced["status"]) == {"phase", "qosClass"}


def test_a_mirror_pod_keeps_the_uid_that_its_kubelet_knows() -> None:
    annotations = {"kubernetes.io/config.mirror": "0123", "other": "x"}
    pod = {**POD, "metadata": {**POD["metadata"], "annotations": annotations}}
    (reduced,) = reduced_pods([pod])
    assert pod_from_object(reduced, source="x").uid == "0123"
    assert "other" not in reduced["metadata"]["annotations"]


def test_annotations_that_decide_stay_and_others_go() -> None:
    deciding = {
        "mooring/mixed-cpus": "c",
        "mooring/irq-affinity": "follow",
        "mooring/core-kind": "performance",
        "mooring/hide-siblings": "true",
        "mooring/isolated-cpus": "true",
        "mooring/spread-group": "web",
        "mooring/scale-down-grace-period-seconds": "10",
    }
    pod = {**POD, "metadata": {**POD["metadata"], "annotations": {**deciding, "mooring/token": "s3cret", "x": "y"}}}
    (reduced,) = reduced_pods([pod])
    assert reduced["metadata"]["annotations"] == deciding


def test_the_groups_of_pods_that_are_spread_get_made_up_names() -> None:
    def pod(name: str, group: str) -> dict[str, Any]:
        annotations = {"mooring/spread-group": group, "mooring/core-kind": "any"} if group else {}
        return {"metadata": {"name": name, "annotations": annotations}}

    made = anonymous_pods([pod("a", "shop"), pod("b", "bank"), pod("c", "shop"), pod("d", "")])
    found = [one["metadata"]["annotations"] for one in made]
    assert len({one.get("mooring/spread-group") for one in found[:2]}) == 2
    assert found[0] == found[2]
    assert found[0].keys() == {"mooring/spread-group", "mooring/core-kind"}
    assert found[3] == {}
    assert not {"shop", "bank"} & {one.get("mooring/spread-group") for one in found}


def test_pods_stand_in_the_order_in_which_they_were_started_and_waiting_ones_last() -> None:
    def pod(name: str, start: str | None) -> dict[str, Any]:
        return {"kind": "Pod", "metadata": {"name": name}, "spec": {}, "status": {"startTime": start}}

    listed = {
        "kind": "List",
        "items": [pod("c", None), pod("b", "2026-01-02T00:00:00Z"), pod("a", "2026-01-03T00:00:00Z")],
    }
    assert [found["metadata"]["name"] for found in reduced_pods([listed])] == ["b", "a", "c"]


def test_workloads_are_no_pods_of_a_node() -> None:
    template: dict[str, Any] = {"template": {"spec": {"containers": []}}}
    workload = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "x"}, "spec": template}
    assert reduced_pods([workload]) == []


def test_something_else_than_a_container_is_refused() -> None:
    with pytest.raises(InputError, match="must be a mapping"):
        reduced_pods([{"kind": "Pod", "spec": {"containers": ["x"]}}])


def test_equal_names_stay_equal_when_they_are_made_up() -> None:
    names = [("web", "shop"), ("web", "bank"), ("db", "shop")]
    pods = [{"metadata": {"name": name, "namespace": space, "generateName": f"{name}-"}} for name, space in names]
    made = [(pod["metadata"]["name"], pod["metadata"]["namespace"]) for pod in anonymous_pods(pods)]
    assert made == [("pod-2", "namespace-2"), ("pod-2", "namespace-1"), ("pod-1", "namespace-2")]
    assert all("generateName" not in pod["metadata"] for pod in anonymous_pods(pods))
    assert pod_list(pods)["kind"] == "PodList"


@given(st.sets(st.sampled_from(sorted(KNOWN - {"kind", "apiVersion"}))), st.booleans())
def test_of_a_configuration_exactly_the_fields_that_decide_are_kept(names: set[str], as_configz: bool) -> None:
    content: dict[str, Any] = dict.fromkeys(names, "secret")
    reduced = reduced_configuration({"kubeletconfig": content} if as_configz else content)
    decide = READ.union(one.name.partition(".")[0] for one in CHECKED_FIELDS) - {"preloadedImagesVerificationAllowlist"}
    assert set(reduced) == {"apiVersion", "kind", *(names & decide)}


def test_a_reduced_configuration_is_the_same_configuration_and_reports_the_same() -> None:
    content = {
        "cpuManagerPolicy": "static",
        "maxPods": 9,
        "cpuManagerPolcy": "x",
        "address": "::",
        "featureGates": {"A": True},
    }
    told: list[Any] = []
    again: list[Any] = []
    whole = kubelet_config(content, source="x", report=told.append)
    assert kubelet_config(reduced_configuration(content), source="x", report=again.append) == whole
    assert told == again
    assert len(told) == 1


@pytest.mark.parametrize(
    ("arguments", "fields"),
    [
        (["--cpu-manager-policy=static"], {"cpuManagerPolicy": "static"}),
        (["--cpu_manager_policy", "static", "--v", "2"], {"cpuManagerPolicy": "static"}),
        (["--cpu-manager-policy-options=a=true,b=false"], {"cpuManagerPolicyOptions": {"a": "true", "b": "false"}}),
        (["--cpu-cfs-quota", "--max-pods=5"], {"cpuCFSQuota": True, "maxPods": 5}),
        (["--pods-per-core=2"], {"podsPerCore": 2}),
        (["--cpu-cfs-quota=false"], {"cpuCFSQuota": False}),
        (["--eviction-hard=memory.available<1Gi,nodefs.available<10%"],
         {"evictionHard": {"memory.available": "1Gi", "nodefs.available": "10%"}}),
        (["--reserved-memory=0:memory=1Gi,hugepages-2Mi=2Mi;1:memory=3Gi"],
         {"reservedMemory": [{"numaNode": 0, "limits": {"memory": "1Gi", "hugepages-2Mi": "2Mi"}},
                             {"numaNode": 1, "limits": {"memory": "3Gi"}}]}),
        (["--reserved-memory=0:memory=1Gi", "--reserved-memory=1:memory=3Gi"],
         {"reservedMemory": [{"numaNode": 0, "limits": {"memory": "1Gi"}},
                             {"numaNode": 1, "limits": {"memory": "3Gi"}}]}),
        (["--kube-reserved=cpu=1", "--kube-reserved=memory=2Gi"], {"kubeReserved": {"cpu": "1", "memory": "2Gi"}}),
        (["--bootstrap-kubeconfig=/secret", "--node-labels=a=b", "stray"], {}),
    ],
)  # fmt: skip
def test_flags_that_decide_become_fields(arguments: list[str], fields: dict[str, Any]) -> None:
    assert kubelet_flags(arguments).fields == fields
    kubelet_config(dict(fields) or {"maxPods": 1}, source="x")


def test_flags_tell_where_the_kubelet_looks() -> None:
    flags = kubelet_flags(["--config=/c", "--config-dir=/d", "--root-dir", "/r", "--hostname-override=n"])
    assert (flags.config, flags.config_dir, flags.root_dir, flags.node) == ("/c", "/d", "/r", "n")


@given(st.lists(st.text(max_size=20), max_size=8))
def test_no_command_line_is_too_strange(arguments: list[str]) -> None:
    kubelet_flags(arguments)


def test_a_drop_in_merges_maps_and_replaces_lists() -> None:
    base = {"featureGates": {"A": True}, "reservedMemory": [1], "maxPods": 1, "port": 2}
    patch = {"featureGates": {"B": True}, "reservedMemory": [2], "port": None}
    assert merged_configuration(base, patch) == {
        "featureGates": {"A": True, "B": True},
        "reservedMemory": [2],
        "maxPods": 1,
    }


def test_pods_that_are_bound_to_another_node_are_left_out() -> None:
    def pod(name: str, node: str) -> dict[str, Any]:
        return {"kind": "Pod", "metadata": {"name": name}, "spec": {"nodeName": node, "containers": [{"name": "c"}]}}

    pods = {"kind": "List", "items": [pod("here", "n1"), pod("elsewhere", "n2"), pod("unbound", "")]}
    assert [one["metadata"]["name"] for one in reduced_pods([pods], "n1")] == ["here", "unbound"]
    assert len(reduced_pods([pods])) == 3
