"""The accounts of ``deploy`` on a real API server: what they may do, and their programs' own requests."""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from hashlib import sha256
from pathlib import Path
from types import ModuleType
from typing import Any
from uuid import uuid4

from lightkube.config.kubeconfig import SingleConfig
from tests.e2e.kube.plane import define
from tests.e2e.kubelet.apiserver import PODS, APIServer
from tests.e2e.kubelet.patience import until
from tests.e2e.kubelet.rights import binding_of, give_rights, kubeconfig_of, token_of

from mooring.agent.effects import ClusterEvent, EventSubject
from mooring.agent.pods.eviction import EventWrite, evict_pod, set_condition, set_taint, write_event
from mooring.cluster.deployment import DAEMON_SET, leave, renew_secrets
from mooring.cluster.dra.objects import ClaimObjects
from mooring.cluster.extender.binding import ClusterPodAPI
from mooring.cluster.extender.wire import BindArguments
from mooring.monitoring.serve.access import ClusterGuard
from mooring.published.cluster_objects import COLLECTIONS, configz_of, listed
from mooring.published.naming import APINames
from mooring.published.objects import NODE_LABEL
from mooring.published.writing import apply, create_once, node_uid, prune, wake
from mooring.service.apiserver import Cluster, ClusterError, cluster_of, configuration_of
from mooring.service.following import Pages, pods_of, watch_lines
from mooring.service.lease import Election, lease_at

OWN, OTHER = "own-node", "other-node"
NAMESPACE = "mooring"
BARE = "without-rights"
"""An account that has what every account has."""
OURS = "apis/mooring.dev/v1alpha1"
TOPOLOGIES = "apis/topology.node.k8s.io/v1alpha2/noderesourcetopologies"
RBAC = "apis/rbac.authorization.k8s.io/v1"
REVIEWS = "apis/authorization.k8s.io/v1"
CLAIMS = "apis/resource.k8s.io/v1/namespaces/default/resourceclaims"
DRIVER = "cpu.mooring.dev"


def rights_script() -> ModuleType:
    """Return ``scripts/rights.py``, which reads the manifests."""
    loaded = sys.modules.get("rights")
    if loaded is not None:
        return loaded
    path = Path(__file__).resolve().parents[3] / "scripts" / "rights.py"
    spec = importlib.util.spec_from_file_location("rights", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["rights"] = module
    spec.loader.exec_module(module)
    return module


RIGHTS = rights_script()


@dataclass(frozen=True, slots=True)
class Deployed:
    """Two nodes, and every account of the manifests with a token that is bound to the first of them."""

    api: APIServer
    folder: Path
    kubeconfigs: Mapping[str, Path]
    ways: dict[str, Cluster] = field(default_factory=dict)

    def configuration(self, account: str) -> SingleConfig:
        return configuration_of(str(self.kubeconfigs[account]))

    def connect(self, account: str) -> Cluster:
        return cluster_of(self.configuration(account))

    def way(self, account: str) -> Cluster:
        """Return a connection that stays open."""
        if account not in self.ways:
            self.ways[account] = self.connect(account)
        return self.ways[account]

    def may(self, account: str, right: Any) -> bool:
        """Ask the API server whether an account has a right."""
        resource, _, subresource = right.resource.partition("/")
        attributes = {
            "group": right.group,
            "resource": resource,
            "subresource": subresource,
            "verb": right.verb,
            "name": right.name,
            "namespace": NAMESPACE,
        }
        asked = {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SelfSubjectAccessReview",
            "spec": {"resourceAttributes": attributes},
        }
        response = self.way(account).http.post(f"{REVIEWS}/selfsubjectaccessreviews", json=asked)
        assert response.is_success, response.text
        return bool(response.json()["status"]["allowed"])

    def all_rights(self, account: str) -> set[Any]:
        """Ask the API server for all rights of an account in a namespace and beyond namespaces."""
        asked = {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SelfSubjectRulesReview",
            "spec": {"namespace": NAMESPACE},
        }
        status = self.way(account).http.post(f"{REVIEWS}/selfsubjectrulesreviews", json=asked).json()["status"]
        assert not status["incomplete"]
        return {
            RIGHTS.Right(group, resource, verb, name)
            for rule in status["resourceRules"]
            for group in rule["apiGroups"]
            for resource in rule["resources"]
            for verb in rule["verbs"]
            for name in rule.get("resourceNames", [""])
        }

    def give(self, role: Any, rights: list[Any]) -> None:
        """Let a role have these rights, and wait until the API server has heard of it."""
        rules = [
            {
                "apiGroups": [one.group],
                "resources": [one.resource],
                "verbs": [one.verb],
                **({"resourceNames": [one.name]} if one.name else {}),
            }
            for one in rights
        ]
        headers = {"Content-Type": "application/merge-patch+json"}
        path = f"{RBAC}/namespaces/{NAMESPACE}/roles" if role.is_local else f"{RBAC}/clusterroles"
        response = self.api.cluster.http.patch(f"{path}/{role.name}", json={"rules": rules}, headers=headers)
        assert response.is_success, response.text
        until(
            lambda: all(self.may(role.account, one) == (one in rights) for one in role.rights),
            f"{role.name} has its rights",
        )

    def pod(self, node: str = OWN, **spec: Any) -> EventSubject:
        """Create a pod that no kubelet runs."""
        name = f"pod-{uuid4().hex[:8]}"
        content = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name, "namespace": "default"},
            "spec": {
                **({"nodeName": node} if node else {}),
                "automountServiceAccountToken": False,
                "containers": [{"name": "app", "image": "none"}],
                **spec,
            },
        }
        return EventSubject("Pod", name, self.api.create_pod(content)["metadata"]["uid"], "default")

    def claim(self, *, allocated: bool, node: str = "") -> dict[str, Any]:
        """Create a claim, allocated to the own node's driver or not; with a node immediate allocation on it."""
        request = {"name": "cpus", "exactly": {"deviceClassName": "mooring-cpu"}}
        made = self.api.post(
            CLAIMS,
            {
                "apiVersion": "resource.k8s.io/v1",
                "kind": "ResourceClaim",
                "metadata": {
                    "name": f"claim-{uuid4().hex[:8]}",
                    "namespace": "default",
                    **({"annotations": {"mooring/allocate": "immediate", "mooring/node": node}} if node else {}),
                },
                "spec": {"devices": {"requests": [request]}},
            },
        )
        if allocated:
            path = f"{CLAIMS}/{made['metadata']['name']}/status"
            headers = {"Content-Type": "application/merge-patch+json"}
            response = self.api.cluster.http.patch(path, json={"status": {"allocation": allocation()}}, headers=headers)
            assert response.is_success, response.text
        return made


def allocation() -> dict[str, Any]:
    result = {"request": "cpus", "driver": DRIVER, "pool": OWN, "device": "numa0"}
    field_ = {"key": "metadata.name", "operator": "In", "values": [OWN]}
    return {"devices": {"results": [result]}, "nodeSelector": {"nodeSelectorTerms": [{"matchFields": [field_]}]}}


def deploy(api: APIServer, folder: Path) -> Deployed:
    """Bring definitions, nodes and everything about rights that ``deploy`` has, optional roles included."""
    define(api)
    define_topologies(api)
    for node in (OWN, OTHER):
        api.post("api/v1/nodes", {"apiVersion": "v1", "kind": "Node", "metadata": {"name": node}})
    api.apply("api/v1/namespaces/mooring", {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}})
    for manifest in sorted(set(RIGHTS.accounts().values())):
        give_rights(api, manifest)
    for role in RIGHTS.roles():
        if not role.is_bound:
            path = f"apis/rbac.authorization.k8s.io/v1/clusterrolebindings/{role.name}"
            api.apply(path, binding_of(role.name, role.account, NAMESPACE))
    for lease in RIGHTS.documents("Lease"):
        path = f"apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases/{lease['metadata']['name']}"
        api.apply(path, lease)
    for secret in RIGHTS.documents("Secret"):
        api.apply(f"api/v1/namespaces/{NAMESPACE}/secrets/{secret['metadata']['name']}", secret)
    [agent] = [one for one in RIGHTS.documents("DaemonSet") if one["metadata"]["name"] == DAEMON_SET]
    api.apply(f"apis/apps/v1/namespaces/{NAMESPACE}/daemonsets/{DAEMON_SET}", agent)
    [device_class] = RIGHTS.documents("DeviceClass")
    api.apply(f"apis/resource.k8s.io/v1/deviceclasses/{device_class['metadata']['name']}", device_class)
    bare = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": BARE, "namespace": NAMESPACE}}
    api.apply(f"api/v1/namespaces/{NAMESPACE}/serviceaccounts/{BARE}", bare)
    files = {account: kubeconfig_of(api, folder, account, NAMESPACE, OWN) for account in (*RIGHTS.accounts(), BARE)}
    made = Deployed(api, folder, files)
    for role in RIGHTS.roles():
        until(partial(_has_all, made, role), f"{role.name} is in force")
    return made


def _has_all(made: Deployed, role: Any) -> bool:
    return all(made.may(role.account, right) for right in role.rights)


def define_topologies(api: APIServer) -> None:
    """Bring a definition of NodeResourceTopology that takes any content: its own package is not to be had."""
    names = {
        "kind": "NodeResourceTopology",
        "listKind": "NodeResourceTopologyList",
        "plural": "noderesourcetopologies",
        "singular": "noderesourcetopology",
    }
    schema = {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}
    version = {"name": "v1alpha2", "served": True, "storage": True, "schema": schema}
    name = "noderesourcetopologies.topology.node.k8s.io"
    content = {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        # Groups of k8s.io are refused without a word about their approval.
        "metadata": {"name": name, "annotations": {"api-approved.kubernetes.io": "unapproved, for a test"}},
        "spec": {"group": "topology.node.k8s.io", "scope": "Cluster", "names": names, "versions": [version]},
    }
    api.apply(f"apis/apiextensions.k8s.io/v1/customresourcedefinitions/{name}", content)
    until(lambda: api.cluster.http.get(TOPOLOGIES).is_success, "the definition is served")


# What the programs do with their rights: the functions that they call, so that a right that none of them needs fails.


def node_state(node: str, facts: str = "0" * 64) -> dict[str, Any]:
    return {
        "apiVersion": "mooring.dev/v1alpha1",
        "kind": "NodeState",
        "metadata": {"name": node},
        "spec": {"facts": facts, "sequence": int(time.monotonic())},
    }


def node_facts(node: str = OWN) -> dict[str, Any]:
    return {
        "apiVersion": "mooring.dev/v1alpha1",
        "kind": "NodeFacts",
        "metadata": {"name": sha256(uuid4().bytes).hexdigest(), "labels": {NODE_LABEL: node}},
        "spec": {"encoding": "zlib+base64", "content": "x"},
    }


def node_shadow(node: str) -> dict[str, Any]:
    status = {"since": "2026-01-01T00:00:00Z", "agreed": int(time.monotonic()), "differs": 0, "unknown": 0}
    metadata = {"name": node}
    return {"apiVersion": "mooring.dev/v1alpha1", "kind": "NodeShadow", "metadata": metadata, "status": status}


def topology(node: str) -> dict[str, Any]:
    return {
        "apiVersion": "topology.node.k8s.io/v1alpha2",
        "kind": "NodeResourceTopology",
        "metadata": {"name": node},
        "attributes": [{"name": "at", "value": str(time.monotonic())}],
        "zones": [],
    }


def toggle_taint(deployed: Deployed, account: str) -> None:
    cluster = deployed.way(account)
    assert set_taint(cluster.http, OWN, present=True)
    assert set_taint(cluster.http, OWN, present=False)


def toggle_condition(deployed: Deployed, account: str) -> None:
    cluster = deployed.way(account)
    changed = [set_condition(cluster.http, OWN, present=present) for present in (True, False)]
    assert changed[1] == "the node's condition mooring.dev/AgentReady is True"
    types = [one["type"] for one in deployed.api.get(f"api/v1/nodes/{OWN}")["status"]["conditions"]]
    assert types.count("mooring.dev/AgentReady") == 1


def an_event(number: int, count: int = 1) -> EventWrite:
    return EventWrite(ClusterEvent(EventSubject("Pod", "web-0", "u-1", "default"), "Held", "no room"), number, count)


def create_event(deployed: Deployed, account: str) -> None:
    write_event(deployed.way(account).http, an_event(uuid4().int >> 64), OWN, datetime.now(UTC))


def count_event(deployed: Deployed, account: str) -> None:
    """Count an event up that another connection has created."""
    number = uuid4().int >> 64
    path = "apis/events.k8s.io/v1/namespaces/default/events"
    deployed.api.post(
        path,
        {
            "apiVersion": "events.k8s.io/v1",
            "kind": "Event",
            "metadata": {"name": an_event(number).name, "namespace": "default"},
            "eventTime": "2026-01-01T00:00:00.000000Z",
            "action": "Placing",
            "reason": "Held",
            "type": "Warning",
            "regarding": {"kind": "Pod", "name": "web-0", "namespace": "default"},
            "reportingController": "mooring/agent",
            "reportingInstance": f"mooring-agent-{OWN}",
        },
    )
    write_event(deployed.way(account).http, an_event(number, 2), OWN, datetime.now(UTC))


def evict(deployed: Deployed, account: str) -> None:
    assert evict_pod(deployed.way(account).http, deployed.pod())


def list_of(path: str, query: Mapping[str, str] | None = None) -> Callable[[Deployed, str], object]:
    return lambda deployed, account: list(Pages(deployed.way(account).http, path, query or {}))


def watch_of(path: str, make: Callable[[Deployed], object]) -> Callable[[Deployed, str], None]:
    def watch(deployed: Deployed, account: str) -> None:
        make(deployed)
        lines = watch_lines(deployed.way(account).http, path, {}, "0", lambda _response: None)
        assert next(lines)
        lines.close()

    return watch


def publish_facts(deployed: Deployed, account: str) -> None:
    create_once(deployed.way(account).http, node_facts())


def publish_new_state(deployed: Deployed, account: str) -> None:
    deployed.api.delete(f"{OURS}/nodestates/{OWN}")
    apply(deployed.way(account).http, node_state(OWN))


def publish_state_again(deployed: Deployed, account: str) -> None:
    deployed.api.apply(f"{OURS}/nodestates/{OWN}", node_state(OWN))
    apply(deployed.way(account).http, node_state(OWN))


def publish_new_shadow(deployed: Deployed, account: str) -> None:
    deployed.api.delete(f"{OURS}/nodeshadows/{OWN}")
    apply(deployed.way(account).http, node_shadow(OWN))


def publish_shadow_again(deployed: Deployed, account: str) -> None:
    deployed.api.apply(f"{OURS}/nodeshadows/{OWN}", node_shadow(OWN))
    apply(deployed.way(account).http, node_shadow(OWN))


def admit_viewer(deployed: Deployed, account: str) -> None:
    """Let the page ask who has a token, and what they may list."""
    token = token_of(deployed.api, BARE, NAMESPACE, None)
    guard = ClusterGuard(partial(deployed.connect, account))
    with closing(guard):
        viewer = asyncio.run(guard.viewer(token, [NAMESPACE]))
    assert viewer is not None
    assert not viewer.may_list(NAMESPACE)


def publish_new_topology(deployed: Deployed, account: str) -> None:
    deployed.api.delete(f"{TOPOLOGIES}/{OWN}")
    apply(deployed.way(account).http, topology(OWN))


def publish_topology_again(deployed: Deployed, account: str) -> None:
    deployed.api.apply(f"{TOPOLOGIES}/{OWN}", topology(OWN))
    apply(deployed.way(account).http, topology(OWN))


def find_node(deployed: Deployed, account: str) -> None:
    """A publisher that may not read the Node publishes objects that outlive it."""
    if not node_uid(deployed.way(account).http, OWN):
        raise ClusterError("the node is not found", code=403)


def name_pods(deployed: Deployed, account: str) -> None:
    """A publisher that may not list pods does not know their uids."""
    deployed.pod()
    names = APINames(partial(deployed.connect, account), OWN)
    found = names()
    names.close()
    if not found:
        raise ClusterError("no names", code=403)


def prune_facts(deployed: Deployed, account: str) -> None:
    facts = node_facts()
    create_once(deployed.api.cluster.http, facts)
    assert facts["metadata"]["name"] in prune(deployed.way(account).http, time.time() + 7200)


def read_waiting_pod(deployed: Deployed, account: str) -> None:
    about = deployed.pod("")
    with closing(ClusterPodAPI(partial(deployed.connect, account))) as server:
        assert server.read_pod(about.namespace, about.name)


def read_claim_at_bind(deployed: Deployed, account: str) -> None:
    name = deployed.claim(allocated=True)["metadata"]["name"]
    with closing(ClusterPodAPI(partial(deployed.connect, account))) as server:
        assert server.read_claim("default", name)


def bind_pod(deployed: Deployed, account: str) -> None:
    about = deployed.pod("")
    asked = BindArguments(PodName=about.name, PodNamespace=about.namespace, PodUID=about.uid, Node=OWN)
    with closing(ClusterPodAPI(partial(deployed.connect, account))) as server:
        server.bind(asked)


def read_lease(deployed: Deployed, account: str) -> None:
    read, _ = lease_at(partial(deployed.connect, account), NAMESPACE, account)
    assert read()


def take_lease(deployed: Deployed, account: str) -> None:
    lease = lease_at(partial(deployed.connect, account), NAMESPACE, account)
    election = Election(*lease, "10.0.0.7:8888", time.monotonic)
    election.step()
    assert election.leads
    election.release()


@contextlib.contextmanager
def objects_of(deployed: Deployed, account: str) -> Iterator[ClaimObjects]:
    objects = ClaimObjects(partial(deployed.connect, account))
    with contextlib.closing(objects):
        yield objects


def with_objects(ask: Callable[[ClaimObjects], object]) -> Callable[[Deployed, str], None]:
    def asked(deployed: Deployed, account: str) -> None:
        with objects_of(deployed, account) as objects:
            ask(objects)

    return asked


def a_slice(name: str) -> dict[str, Any]:
    pool = {"name": name, "generation": 1, "resourceSliceCount": 1}
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceSlice",
        "metadata": {"name": name},
        "spec": {"driver": DRIVER, "nodeName": OWN, "pool": pool, "devices": [{"name": "numa0"}]},
    }


def publish_new_slice(deployed: Deployed, account: str) -> None:
    with objects_of(deployed, account) as objects:
        objects.apply_slice(a_slice(f"slice-{uuid4().hex[:8]}"))


def publish_slice_again(deployed: Deployed, account: str) -> None:
    content = a_slice(f"slice-{uuid4().hex[:8]}")
    deployed.api.apply(f"apis/resource.k8s.io/v1/resourceslices/{content['metadata']['name']}", content)
    with objects_of(deployed, account) as objects:
        objects.apply_slice(content)


def delete_slice(deployed: Deployed, account: str) -> None:
    name = f"slice-{uuid4().hex[:8]}"
    deployed.api.apply(f"apis/resource.k8s.io/v1/resourceslices/{name}", a_slice(name))
    with objects_of(deployed, account) as objects:
        objects.delete_slice(name)


def read_claim(deployed: Deployed, account: str) -> None:
    name = deployed.claim(allocated=True)["metadata"]["name"]
    with objects_of(deployed, account) as objects:
        assert objects.claim("default", name)


def describe_claim(deployed: Deployed, account: str) -> None:
    name = deployed.claim(allocated=True)["metadata"]["name"]
    device = {"driver": DRIVER, "pool": OWN, "device": "numa0", "data": {"cpus": "0-3"}}
    with objects_of(deployed, account) as objects:
        objects.apply_claim_devices("default", name, [device])


def allocate_claim(deployed: Deployed, account: str) -> None:
    with objects_of(deployed, account) as objects:
        objects.allocate(deployed.claim(allocated=False, node=OWN), allocation())


def put_class(deployed: Deployed) -> object:
    name = f"class-{uuid4().hex[:8]}"
    content = {"apiVersion": "resource.k8s.io/v1", "kind": "DeviceClass", "metadata": {"name": name}, "spec": {}}
    return deployed.api.apply(f"{CLASSES}/{name}", content)


def make_certificates(deployed: Deployed, account: str) -> None:
    """Make all of them again: as the Secrets are when the chart was installed."""
    for secret in RIGHTS.documents("Secret"):
        path = f"api/v1/namespaces/{NAMESPACE}/secrets/{secret['metadata']['name']}"
        deployed.api.delete(path)
        deployed.api.apply(path, secret)
    with deployed.connect(account) as cluster:
        assert len(renew_secrets(cluster, NAMESPACE, datetime.now(UTC))) == len(RIGHTS.documents("Secret"))


def leave_nodes(deployed: Deployed, account: str) -> None:
    """Let the agents leave: no controller counts nodes here, so that it does here what one would report."""
    path = f"apis/apps/v1/namespaces/{NAMESPACE}/daemonsets/{DAEMON_SET}"
    [agent] = [one for one in RIGHTS.documents("DaemonSet") if one["metadata"]["name"] == DAEMON_SET]
    deployed.api.delete(path)
    deployed.api.apply(path, agent)

    def report(_seconds: float) -> None:
        generation = deployed.api.get(path)["metadata"]["generation"]
        status = {"observedGeneration": generation, "currentNumberScheduled": 0, "numberMisscheduled": 0}
        counts = {"desiredNumberScheduled": 0, "numberReady": 0, "updatedNumberScheduled": 0}
        deployed.api.patch(f"{path}/status", {"status": {**status, **counts}})

    with deployed.connect(account) as cluster:
        assert leave(cluster, NAMESPACE, 10.0, wait=report) == 0


FACTS, STATES, SHADOWS = f"{OURS}/nodefacts", f"{OURS}/nodestates", f"{OURS}/nodeshadows"
EVERY_POD, EVERY_NODE = "api/v1/pods", "api/v1/nodes"
SLICES = "apis/resource.k8s.io/v1/resourceslices"
EVERY_CLAIM, CLASSES = "apis/resource.k8s.io/v1/resourceclaims", "apis/resource.k8s.io/v1/deviceclasses"


def put_slice(deployed: Deployed) -> object:
    name = f"slice-{uuid4().hex[:8]}"
    return deployed.api.apply(f"{SLICES}/{name}", a_slice(name))


def put_node(deployed: Deployed) -> object:
    name = f"node-{uuid4().hex[:8]}"
    return deployed.api.post(EVERY_NODE, {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}})


def list_kind(kind: str, deployed: Deployed, account: str) -> object:
    return listed(deployed.way(account), kind)


def ask_configz(deployed: Deployed, account: str) -> None:
    """Ask a kubelet that does not run: only that the API server may not ask it is a failure."""
    try:
        configz_of(deployed.way(account), OWN)
    except ClusterError as error:
        if error.code == 403:
            raise


PUBLISHING: Mapping[tuple[str, str], Callable[[Deployed, str], object]] = {
    ("nodefacts", "create"): publish_facts,
    ("nodestates", "create"): publish_new_state,
    ("nodestates", "patch"): publish_state_again,
    ("noderesourcetopologies", "create"): publish_new_topology,
    ("noderesourcetopologies", "patch"): publish_topology_again,
    ("nodes", "get"): find_node,
}
CALLS: Mapping[str, Mapping[tuple[str, str], Callable[[Deployed, str], object]]] = {
    "mooring-agent-pods": {
        ("pods", "list"): list_of(EVERY_POD, pods_of(OWN)),
        ("pods", "watch"): watch_of(EVERY_POD, Deployed.pod),
    },
    "mooring-agent-pods-devices": {
        ("resourceslices", "list"): list_of(SLICES),
        ("resourceslices", "watch"): watch_of(SLICES, put_slice),
    },
    "mooring-agent-events": {("events", "create"): create_event, ("events", "patch"): count_event},
    "mooring-agent-evict": {("pods", "get"): evict, ("pods/eviction", "create"): evict},
    "mooring-agent-taint": {
        ("nodes", "get"): toggle_taint,
        ("nodes", "patch"): toggle_taint,
        ("nodes/status", "patch"): toggle_condition,
    },
    "mooring-agent-publish": PUBLISHING,
    "mooring-publish": {**PUBLISHING, ("pods", "list"): name_pods},
    "mooring-publish-devices": {("resourceslices", "list"): list_of(SLICES)},
    "mooring-publish-wake": {
        ("nodes", "patch"): lambda deployed, account: wake(deployed.way(account).http, OWN, int(time.monotonic()))
    },
    "mooring-shadow": {
        ("nodeshadows", "create"): publish_new_shadow,
        ("nodeshadows", "patch"): publish_shadow_again,
        ("nodes", "get"): find_node,
        ("pods", "list"): list_of(EVERY_POD, pods_of(OWN)),
        ("pods", "watch"): watch_of(EVERY_POD, Deployed.pod),
    },
    "mooring-shadow-devices": {("resourceslices", "list"): list_of(SLICES)},
    "mooring-serve": {
        ("nodefacts", "list"): list_of(FACTS),
        ("nodefacts", "watch"): watch_of(FACTS, lambda made: create_once(made.api.cluster.http, node_facts())),
        ("nodestates", "list"): list_of(STATES),
        ("nodestates", "watch"): watch_of(STATES, lambda made: apply(made.api.cluster.http, node_state(OTHER))),
        ("nodeshadows", "list"): list_of(SHADOWS),
        ("nodeshadows", "watch"): watch_of(SHADOWS, lambda made: apply(made.api.cluster.http, node_shadow(OTHER))),
        ("nodes", "list"): list_of(EVERY_NODE),
        ("nodes", "watch"): watch_of(EVERY_NODE, put_node),
        ("pods", "list"): list_of(EVERY_POD),
        ("pods", "watch"): watch_of(EVERY_POD, Deployed.pod),
        ("tokenreviews", "create"): admit_viewer,
        ("subjectaccessreviews", "create"): admit_viewer,
    },
    "mooring-reader": {(plural, "list"): partial(list_kind, kind) for kind, (_, plural) in COLLECTIONS.items()},
    "mooring-reader-configz": {("nodes/proxy", "get"): ask_configz},
    "mooring-prune": {
        ("nodefacts", "list"): prune_facts,
        ("nodefacts", "delete"): prune_facts,
        ("nodestates", "list"): prune_facts,
    },
    "mooring-certificates": {("secrets", "get"): make_certificates, ("secrets", "patch"): make_certificates},
    "mooring-leave": {("daemonsets", "get"): leave_nodes, ("daemonsets", "patch"): leave_nodes},
    "mooring-extender": {
        ("nodefacts", "list"): list_of(FACTS),
        ("nodefacts", "watch"): watch_of(FACTS, lambda made: create_once(made.api.cluster.http, node_facts())),
        ("nodestates", "list"): list_of(STATES),
        ("nodestates", "watch"): watch_of(STATES, lambda made: apply(made.api.cluster.http, node_state(OTHER))),
        ("pods", "list"): list_of(EVERY_POD),
        ("pods", "watch"): watch_of(EVERY_POD, Deployed.pod),
        ("pods", "get"): read_waiting_pod,
        ("pods/binding", "create"): bind_pod,
        ("leases", "get"): read_lease,
        ("leases", "update"): take_lease,
    },
    "mooring-extender-claims": {
        ("resourceclaims", "get"): read_claim_at_bind,
        ("resourceclaims", "list"): list_of(EVERY_CLAIM),
        ("resourceclaims", "watch"): watch_of(EVERY_CLAIM, lambda made: made.claim(allocated=False)),
        ("deviceclasses", "list"): list_of(CLASSES),
        ("deviceclasses", "watch"): watch_of(CLASSES, put_class),
    },
    "mooring-dra": {
        ("resourceslices", "list"): with_objects(lambda objects: objects.slices(DRIVER, OWN)),
        ("resourceslices", "create"): publish_new_slice,
        ("resourceslices", "patch"): publish_slice_again,
        ("resourceslices", "delete"): delete_slice,
        ("resourceclaims", "get"): read_claim,
        ("resourceclaims/status", "patch"): describe_claim,
        ("resourceclaims/driver", "associated-node:patch"): describe_claim,
        ("nodes", "get"): with_objects(lambda objects: objects.node_uid(OWN)),
    },
    "mooring-dra-immediate": {
        ("deviceclasses", "list"): with_objects(lambda objects: objects.classes()),
        ("resourceclaims", "list"): with_objects(lambda objects: objects.claims()),
        ("resourceclaims", "patch"): allocate_claim,
        ("resourceclaims/binding", "patch"): allocate_claim,
    },
}
"""What each role's program asks for with each right, by role, then resource and verb."""

ALL_RIGHTS = [(role, right) for role in RIGHTS.roles() for right in role.rights]


def forget_pods(api: APIServer) -> None:
    """Delete all pods at once."""
    api.cluster.http.delete(PODS, params={"gracePeriodSeconds": "0"})
