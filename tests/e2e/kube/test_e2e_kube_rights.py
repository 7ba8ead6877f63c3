"""The rights of ``deploy`` on a real API server: each is needed, none more is there, and policies confine them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from tests.e2e.folders import short_folder
from tests.e2e.kube.accounts import (
    ALL_RIGHTS,
    BARE,
    CALLS,
    CLAIMS,
    NAMESPACE,
    OTHER,
    OWN,
    RIGHTS,
    Deployed,
    allocation,
    an_event,
    deploy,
    forget_pods,
    node_facts,
    node_shadow,
    node_state,
    topology,
)
from tests.e2e.kube.plane import free_ports
from tests.e2e.kubelet.apiserver import PODS, api_server, as_kubelet, as_user
from tests.e2e.kubelet.patience import until
from tests.e2e.kubelet.rights import token_of

from mooring.agent.effects import EventSubject
from mooring.agent.pods.cluster import connector
from mooring.agent.pods.eviction import TAINT, evict_pod, set_taint, write_event
from mooring.published.writing import apply, create_once
from mooring.service.apiserver import Cluster, ClusterError, check_response, cluster_of, configuration_of

VERBS = ("get", "list", "watch", "create", "update", "patch", "delete", "deletecollection")
SENSITIVE = (
    ("", "secrets"),
    ("", "configmaps"),
    ("", "serviceaccounts/token"),
    ("", "nodes/status"),
    ("", "nodes/proxy"),
    ("", "pods/exec"),
    ("", "pods/status"),
    ("", "events"),
    ("apps", "daemonsets"),
    ("rbac.authorization.k8s.io", "clusterrolebindings"),
    ("admissionregistration.k8s.io", "validatingadmissionpolicies"),
)
MERGE = {"Content-Type": "application/merge-patch+json"}
DENIED = (403, 422)
"""A policy that denies answers 422 unless it gives another reason."""


@pytest.fixture(scope="module")
def deployed(parts: Any) -> Iterator[Deployed]:
    with short_folder("rights-") as folder, api_server(parts, folder, free_ports(), nodes=(OWN, OTHER)) as api:
        made = deploy(api, folder)
        wait_for_policies(made)
        yield made
        for way in made.ways.values():
            way.close()


@pytest.fixture(autouse=True)
def no_pods(deployed: Deployed) -> Iterator[None]:
    yield
    forget_pods(deployed.api)


def wait_for_policies(made: Deployed) -> None:
    """Wait until every policy denies what is another node's."""
    requests: dict[str, Callable[[Cluster], object]] = {
        "mooring-agent-taint": lambda way: set_taint(way.http, OTHER, present=True),
        "mooring-agent-evict": lambda way: evict_pod(way.http, made.pod(OTHER)),
        "mooring-agent-events": lambda way: write_event(way.http, an_event(1), OTHER, datetime.now(UTC)),
        "mooring-agent-publish": lambda way: apply(way.http, node_state(OTHER)),
        "mooring-publish": lambda way: apply(way.http, node_state(OTHER)),
        "mooring-shadow": lambda way: apply(way.http, node_shadow(OTHER)),
        "mooring-dra": lambda way: protect(way, made.claim(allocated=False, node=OTHER)),
    }
    for account, request in requests.items():
        until(partial(is_denied, partial(request, made.way(account))), f"the policy of {account} is in force")


def protect(way: Cluster, claim: dict[str, Any]) -> None:
    """Add the finalizer of allocated claims, as immediate allocation does first."""
    finalizers = {"metadata": {"finalizers": ["resource.kubernetes.io/delete-protection"]}}
    check_response(way.http.patch(f"{CLAIMS}/{claim['metadata']['name']}", json=finalizers, headers=MERGE))


def is_denied(request: Callable[[], object]) -> bool:
    try:
        request()
    except ClusterError as error:
        return error.code in DENIED
    return False


def test_every_right_has_a_request_that_needs_it() -> None:
    named = {(role, *what) for role, calls in CALLS.items() for what in calls}
    assert named == {(role.name, right.resource, right.verb) for role, right in ALL_RIGHTS}


@pytest.mark.parametrize(
    ("role", "right"), ALL_RIGHTS, ids=[f"{role.name}-{right.verb}-{right.resource}" for role, right in ALL_RIGHTS]
)
def test_each_right_is_needed(role: Any, right: Any, deployed: Deployed) -> None:
    request = CALLS[role.name][right.resource, right.verb]
    # The same account can have a right from two roles.
    others = [one for one in RIGHTS.roles() if one.account == role.account and one.name != role.name]
    assert not any(right in one.rights for one in others)
    deployed.give(role, [one for one in role.rights if one != right])
    try:
        with pytest.raises(ClusterError) as refused:
            request(deployed, role.account)
        # What a status may say is a matter of validation.
        by_validation = right.resource in ("resourceclaims/driver", "resourceclaims/binding")
        assert refused.value.code == (422 if by_validation else 403), refused.value
        assert not by_validation or right.resource in str(refused.value)
    finally:
        deployed.give(role, list(role.rights))
    request(deployed, role.account)


@pytest.mark.parametrize("account", RIGHTS.accounts())
def test_an_account_has_the_rights_of_its_manifest_and_no_others(account: str, deployed: Deployed) -> None:
    found = deployed.all_rights(account) - deployed.all_rights(BARE)
    assert found == {right for role, right in ALL_RIGHTS if role.account == account}


@pytest.mark.parametrize("account", RIGHTS.accounts())
def test_the_api_server_allows_an_account_what_its_table_says(account: str, deployed: Deployed) -> None:
    own = {right for role, right in ALL_RIGHTS if role.account == account}
    resources = sorted({(right.group, right.resource) for _, right in ALL_RIGHTS} | set(SENSITIVE))
    asked = own | {RIGHTS.Right(group, resource, verb) for group, resource in resources for verb in VERBS}
    assert {right for right in asked if deployed.may(account, right)} == own


# What policies deny.


def refused_patch(way: Cluster, node: str, content: dict[str, Any]) -> str:
    response = way.http.patch(f"api/v1/nodes/{node}", json=content, headers=MERGE)
    assert response.status_code in DENIED, response.text
    return response.text


def test_the_taint_account_taints_its_own_node_only(deployed: Deployed) -> None:
    with pytest.raises(ClusterError, match="the agent taints its own node only"):
        set_taint(deployed.way("mooring-agent-taint").http, OTHER, present=True)


@pytest.mark.parametrize(
    ("content", "why"),
    [
        ({"metadata": {"labels": {"a": "b"}}}, "writes no metadata of a node"),
        ({"metadata": {"annotations": {"a": "b"}}}, "writes no metadata of a node"),
        ({"metadata": {"finalizers": ["some/body"]}}, "writes no metadata of a node"),
        (
            {"metadata": {"ownerReferences": [{"apiVersion": "v1", "kind": "Node", "name": OTHER, "uid": "u"}]}},
            "writes no metadata of a node",
        ),
        ({"spec": {"unschedulable": True}}, "nothing else of its specification"),
        ({"spec": {"providerID": "cloud://x"}}, "nothing else of its specification"),
        ({"spec": {"podCIDR": "10.1.0.0/24", "podCIDRs": ["10.1.0.0/24"]}}, "nothing else of its specification"),
        ({"spec": {"taints": [{"key": "foreign", "effect": "NoSchedule"}]}}, "and no other"),
        ({"spec": {"taints": [{"key": TAINT, "effect": "NoExecute"}]}}, "and no other"),
        ({"spec": {"taints": None}}, "and no other"),
    ],
    ids=lambda value: json.dumps(value) if isinstance(value, dict) else "",
)
def test_the_taint_account_writes_nothing_else_of_its_node(
    content: dict[str, Any], why: str, deployed: Deployed
) -> None:
    path = f"api/v1/nodes/{OWN}"
    before = deployed.api.patch(path, {"spec": {"taints": [{"key": "theirs", "effect": "NoSchedule"}]}})
    assert why in refused_patch(deployed.way("mooring-agent-taint"), OWN, content)
    assert deployed.api.get(path)["spec"] == before["spec"]


@pytest.mark.parametrize(
    ("node", "status", "why"),
    [
        (OTHER, {"conditions": [{"type": "mooring.dev/AgentReady", "status": "True"}]}, "taints its own node only"),
        (OWN, {"conditions": [{"type": "Ready", "status": "Unknown"}]}, "and nothing else of the status"),
        (OWN, {"allocatable": {"cpu": "1"}}, "and nothing else of the status"),
        (OWN, {"addresses": [{"type": "Hostname", "address": "x"}]}, "and nothing else of the status"),
    ],
    ids=["another node", "another condition", "amounts", "addresses"],
)
def test_the_taint_account_writes_its_condition_and_no_other_status(
    node: str, status: dict[str, Any], why: str, deployed: Deployed
) -> None:
    headers = {"Content-Type": "application/strategic-merge-patch+json"}
    response = deployed.way("mooring-agent-taint").http.patch(
        f"api/v1/nodes/{node}/status", content=json.dumps({"status": status}), headers=headers
    )
    assert response.status_code in DENIED, response.text
    assert why in response.text


@pytest.mark.parametrize("node", [OTHER, ""], ids=["another node", "no node"])
def test_the_evict_account_evicts_pods_of_its_own_node_only(node: str, deployed: Deployed) -> None:
    victim = deployed.pod(node)
    with pytest.raises(ClusterError, match="the agent evicts pods of its own node only"):
        evict_pod(deployed.way("mooring-agent-evict").http, victim)
    assert "deletionTimestamp" not in deployed.api.get(f"{PODS}/{victim.name}")["metadata"]


def test_the_events_account_writes_events_of_its_own_node_only(deployed: Deployed) -> None:
    way = deployed.way("mooring-agent-events")
    with pytest.raises(ClusterError, match="in the name of its own node only"):
        write_event(way.http, an_event(5), OTHER, datetime.now(UTC))
    write_event(deployed.api.cluster.http, an_event(6), OTHER, datetime.now(UTC))
    with pytest.raises(ClusterError, match="in the name of its own node only"):
        write_event(way.http, an_event(6, 2), OWN, datetime.now(UTC))


@pytest.mark.parametrize("account", ["mooring-agent-publish", "mooring-publish"])
def test_publishing_accounts_publish_their_own_node_only(account: str, deployed: Deployed) -> None:
    for content in (node_state(OTHER), topology(OTHER)):
        with pytest.raises(ClusterError, match="publishes its own node only"):
            apply(deployed.way(account).http, content)
    for label in (OTHER, ""):
        with pytest.raises(ClusterError, match="labels facts with the name of its own node only"):
            create_once(deployed.way(account).http, node_facts(label))


def test_the_shadow_publishes_its_own_node_only(deployed: Deployed) -> None:
    with pytest.raises(ClusterError, match="the shadow publishes its own node only"):
        apply(deployed.way("mooring-shadow").http, node_shadow(OTHER))


@pytest.mark.parametrize("node", [OTHER, ""], ids=["another node", "no node"])
def test_the_driver_allocates_claims_of_its_own_node_only(node: str, deployed: Deployed) -> None:
    claim = deployed.claim(allocated=False, node=node)
    path, way = f"{CLAIMS}/{claim['metadata']['name']}", deployed.way("mooring-dra")
    finalizer = {"metadata": {"finalizers": ["resource.kubernetes.io/delete-protection"]}}
    for where, content, why in (
        (path, finalizer, "adds its finalizer to claims of its own node"),
        (f"{path}/status", {"status": {"allocation": allocation()}}, "allocates claims of its own node only"),
    ):
        response = way.http.patch(where, json=content, headers=MERGE)
        assert response.status_code in DENIED
        assert why in response.text
    assert "allocation" not in deployed.api.get(path).get("status", {})


@pytest.mark.parametrize(
    "content",
    [
        {"metadata": {"labels": {"a": "b"}}},
        {"metadata": {"annotations": {"a": "b"}}},
        {"metadata": {"finalizers": ["some/body"]}},
    ],
    ids=str,
)
def test_the_driver_writes_no_other_part_of_a_claim(content: dict[str, Any], deployed: Deployed) -> None:
    claim = deployed.claim(allocated=False, node=OWN)
    path = f"{CLAIMS}/{claim['metadata']['name']}"
    response = deployed.way("mooring-dra").http.patch(path, json=content, headers=MERGE)
    assert response.status_code in DENIED
    assert "the driver" in response.text


@pytest.mark.parametrize("account", [one for one in RIGHTS.accounts() if "agent" in one and "pods" not in one])
def test_a_token_that_is_bound_to_no_node_writes_nothing(account: str, deployed: Deployed, tmp_path: Path) -> None:
    token = token_of(deployed.api, account, NAMESPACE, None)
    kubeconfig = as_user(deployed.api, tmp_path / "unbound", {"token": token})
    requests: dict[str, Callable[[Cluster], object]] = {
        "mooring-agent-taint": lambda way: set_taint(way.http, OWN, present=True),
        "mooring-agent-evict": lambda way: evict_pod(way.http, deployed.pod()),
        "mooring-agent-events": lambda way: write_event(way.http, an_event(9), OWN, datetime.now(UTC)),
        "mooring-agent-publish": lambda way: apply(way.http, node_state(OWN)),
    }
    with cluster_of(configuration_of(str(kubeconfig))) as way, pytest.raises(ClusterError) as refused:
        requests[account](way)
    assert refused.value.code in DENIED
    assert "own node only" in str(refused.value)


# The kubelet's credentials, which an agent uses for what it has no account for.


@pytest.fixture(scope="module")
def kubelet(deployed: Deployed) -> Iterator[Cluster]:
    with cluster_of(configuration_of(str(as_kubelet(deployed.api, deployed.folder, OWN)))) as way:
        yield way


def test_the_kubelets_credentials_are_enough_for_pods_events_and_evictions_of_its_node(
    deployed: Deployed, kubelet: Cluster
) -> None:
    victim = deployed.pod()
    until(lambda: kubelet.http.get("api/v1/pods", params=on(OWN)).is_success, "the node is known to the authorizer")
    write_event(kubelet.http, an_event(20), OWN, datetime.now(UTC))
    write_event(kubelet.http, an_event(20, 2), OWN, datetime.now(UTC))
    until(lambda: evicted(kubelet, victim), "the authorizer has heard of the pod")


def test_the_kubelets_credentials_do_not_reach_other_nodes(deployed: Deployed, kubelet: Cluster) -> None:
    victim = deployed.pod(OTHER)
    assert kubelet.http.get("api/v1/pods", params=on(OTHER)).status_code == 403
    eviction = {"metadata": {"name": victim.name, "namespace": "default"}}
    response = kubelet.http.post(f"{PODS}/{victim.name}/eviction", json=eviction)
    assert response.status_code == 403, response.text


def test_the_kubelets_credentials_change_no_taints(deployed: Deployed, kubelet: Cluster) -> None:
    path = f"api/v1/nodes/{OWN}"
    until(lambda: kubelet.http.get(path).is_success, "the node is known to the authorizer")
    before = deployed.api.get(path)["spec"]
    with pytest.raises(ClusterError, match="is not allowed to modify taints"):
        set_taint(kubelet.http, OWN, present=True)
    assert deployed.api.get(path)["spec"] == before


def on(node: str) -> dict[str, str]:
    return {"fieldSelector": f"spec.nodeName={node}"}


def evicted(way: Cluster, victim: EventSubject) -> bool:
    try:
        return evict_pod(way.http, victim)
    except ClusterError as error:
        if error.code == 403:
            return False
        raise


# Tokens and manifests.


def test_a_connection_goes_on_with_the_token_that_replaces_an_ended_one(deployed: Deployed, tmp_path: Path) -> None:
    """Tokens of the DaemonSet end with its pod; the file has another one soon after."""
    token = tmp_path / "token"
    kubeconfig = as_user(deployed.api, tmp_path / "kubeconfig", {"tokenFile": "token"})
    carriers = [carrier(deployed, number) for number in range(2)]
    tokens = [token_of(deployed.api, "mooring-agent-taint", NAMESPACE, bound) for bound in carriers]
    token.write_text(tokens[0], encoding="utf-8")
    fixed = as_user(deployed.api, tmp_path / "fixed", {"token": tokens[0]})
    with connector(str(kubeconfig))() as way, cluster_of(configuration_of(str(fixed))) as old:
        assert set_taint(way.http, OWN, present=True)
        deployed.api.delete(f"api/v1/namespaces/{NAMESPACE}/pods/{carriers[0]['name']}", now=True)
        until(lambda: old.http.get(f"api/v1/nodes/{OWN}").status_code == 401, "the first token has ended")
        token.write_text(tokens[1], encoding="utf-8")
        assert set_taint(way.http, OWN, present=False)


def carrier(deployed: Deployed, number: int) -> dict[str, str]:
    """Create a pod as the DaemonSet has it on the own node; return what its tokens are bound to."""
    [daemon] = [one for one in RIGHTS.documents("DaemonSet") if one["metadata"]["name"] == "mooring-agent-taint"]
    spec = {**daemon["spec"]["template"]["spec"], "nodeName": OWN}
    content = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": f"carrier-{number}", "namespace": NAMESPACE},
        "spec": spec,
    }
    made = deployed.api.post(f"api/v1/namespaces/{NAMESPACE}/pods", content)
    return {"apiVersion": "v1", "kind": "Pod", "name": f"carrier-{number}", "uid": made["metadata"]["uid"]}


@pytest.mark.parametrize("manifest", RIGHTS.manifests())
def test_the_api_server_knows_every_field_of_a_manifest(manifest: str, deployed: Deployed) -> None:
    found = deployed.api.get("apis")["groups"]
    versions = {one["groupVersion"] for group in found for one in group["versions"]} | {"v1"}
    for content in RIGHTS.manifests()[manifest]:
        version = content["apiVersion"]
        assert version in versions
        base = f"api/{version}" if version == "v1" else f"apis/{version}"
        [resource] = [
            one
            for one in deployed.api.get(base)["resources"]
            if one["kind"] == content["kind"] and "/" not in one["name"]
        ]
        within = f"namespaces/{content['metadata']['namespace']}/" if resource["namespaced"] else ""
        path = f"{base}/{within}{resource['name']}/{content['metadata']['name']}"
        query = {"fieldManager": "test", "force": "true", "dryRun": "All", "fieldValidation": "Strict"}
        headers = {"Content-Type": "application/apply-patch+yaml"}
        response = deployed.api.cluster.http.patch(path, params=query, json=content, headers=headers)
        assert response.is_success, response.text
        assert "Warning" not in response.headers, response.headers["Warning"]
