"""Pods that claim a GPU beside the real scheduler: the extender lets them go where CPUs, memory and a device align.

The nodes are the engine with the extension device-alignment: they decide with the devices that the scheduler allocated,
as an agent does. The scheduler allocates after the filter and knows no CPU of a NUMA node, so that the filter's word is
about some device and the bind's about the one that was taken; both are shown.
"""

from __future__ import annotations

import contextlib
import os
import random
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from tests.e2e.kube.conftest import Parts, forget
from tests.e2e.kube.kinds import Kind, group_of
from tests.e2e.kube.nodes import Nodes, nodes_playing
from tests.e2e.kube.plane import OURS, Extender, extender, scheduler
from tests.e2e.kube.pods import pod
from tests.e2e.kubelet.apiserver import PODS, APIServer
from tests.e2e.kubelet.claiming import CLAIMS, GROUP
from tests.e2e.kubelet.devices.driver import NUMA_NODE, claim_for, class_of, request_of
from tests.e2e.kubelet.patience import until

from mooring.cluster.play.nodes import PlayedNode
from mooring.engine.core.config import DEVICE_ALIGNMENT, MooringConfig
from mooring.inputs.node_groups import NodeGroup

WHOLE = os.environ.get("MOORING_E2E_KUBE", "") == "full"
PODS_IN_ALL = 400 if WHOLE else 60
DRIVER, GPU_CLASS = "gpu.example.com", "gpu-example-com"
KIND = Kind("xeon-6230-2s-snc2", "0,40", "single-numa-node", memory=True)
GPUS = 2
"""On each of the four NUMA nodes, which have 20 CPUs each."""
MERGE = {"Content-Type": "application/merge-patch+json"}


def following(name: str) -> NodeGroup:
    """Return an empty node with GPUs whose CPUs and memory follow devices."""
    plain = group_of(name, KIND, mooring=MooringConfig(extensions=frozenset({DEVICE_ALIGNMENT})))
    listed = [
        {"name": f"gpu-{node.node_id}-{one}", "attributes": {NUMA_NODE: {"int": node.node_id}}}
        for node in plain.machine.info.topology
        for one in range(GPUS)
    ]
    return replace(plain, drivers={DRIVER: listed})


class ClaimingNode(PlayedNode):
    """A played node that tells where a pod is."""

    def numa_nodes(self, uid: str) -> set[int]:
        """Return the NUMA nodes of a pod's CPUs, memory and GPUs."""
        node = self.kubelet.node
        topology = self.kubelet.settings.topology
        assert topology is not None
        cpus = [topology.places[cpu].numa for mask in node.cpu.assignments[uid].values() for cpu in _ids(mask)]
        near = {one.id: one.numa[0] for one in node.providers.devices.devices[DRIVER] if one.numa}
        gpus = [near[one] for held in node.providers.devices.held[uid].values() for one in held[DRIVER]]
        memory = [
            id_ for blocks in node.memory.assignments[uid].values() for block in blocks for id_ in _ids(block.mask)
        ]
        return {*cpus, *gpus, *memory}


def _ids(mask: int) -> list[int]:
    return [bit for bit in range(mask.bit_length()) if mask >> bit & 1]


@dataclass(slots=True)
class Claiming:
    """A cluster of such nodes with scheduler and extender."""

    api: APIServer
    nodes: Nodes
    extender: Extender
    uids: dict[str, str] = field(default_factory=dict)
    """Name of each pod -> uid."""

    def create(self, name: str, cpus: int, *, gpus: int = 1, match: str = "", **more: Any) -> str:
        """Create a pod with a claim of its own, and return its uid."""
        content = pod(name, {"limits": {"cpu": str(cpus), "memory": "256Mi"}}, **more)
        if gpus:
            self.api.post(CLAIMS, claim_for(name, request_of("gpu", GPU_CLASS, gpus), match=match))
            content["spec"]["resourceClaims"] = [{"name": "gpu", "resourceClaimName": name}]
            content["spec"]["containers"][0]["resources"]["claims"] = [{"name": "gpu"}]
        self.uids[name] = str(self.api.create_pod(content)["metadata"]["uid"])
        return self.uids[name]

    def delete(self, name: str) -> None:
        """Delete a pod and, as the controllers of a cluster would, its claim."""
        self.api.delete(f"{PODS}/{name}")
        until(lambda: self.api.pod(name) is None, f"{name} is gone")
        self.api.cluster.http.patch(f"{CLAIMS}/{name}/status", json={"status": None}, headers=MERGE)
        self.api.cluster.http.patch(f"{CLAIMS}/{name}", json={"metadata": {"finalizers": None}}, headers=MERGE)
        self.api.delete(f"{CLAIMS}/{name}")

    def runs(self, name: str) -> bool:
        return self.uids[name] in self.nodes.admitted

    def says(self, name: str) -> str:
        """Return why the scheduler has no node for a pod; empty while it has not said."""
        found = self.api.pod(name) or {}
        conditions = found.get("status", {}).get("conditions", ())
        return next((str(one.get("message", "")) for one in conditions if one["type"] == "PodScheduled"), "")

    def devices(self, name: str) -> list[str]:
        """Return the devices that a pod's claim has been given; none where it has no claim."""
        found: dict[str, Any] = next(
            (one for one in self.api.get(CLAIMS)["items"] if one["metadata"]["name"] == name), {}
        )
        allocation = found.get("status", {}).get("allocation", {})
        return [one["device"] for one in allocation.get("devices", {}).get("results", ())]

    def nudge(self) -> None:
        """Let something happen for which the scheduler tries pods that wait."""
        for one in self.api.get("api/v1/nodes")["items"]:
            moment = {"metadata": {"annotations": {"e2e/moment": str(time.monotonic())}}}
            self.api.patch(f"api/v1/nodes/{one['metadata']['name']}", moment)


Starting = Callable[..., contextlib.AbstractContextManager[Claiming]]


@pytest.fixture
def starting(api: APIServer, parts: Parts, folder: Path) -> Iterator[Starting]:
    """Starts a number of nodes with scheduler and extender."""

    @contextlib.contextmanager
    def start(*names: str, claims: bool = True, delay: float = 0.0) -> Iterator[Claiming]:
        groups = [following(name) for name in names]
        chance = random.Random(3)  # noqa: S311 - no secret
        with (
            nodes_playing(api, groups, delay=lambda: chance.uniform(0, delay), kind=ClaimingNode) as nodes,
            extender(folder, api.kubeconfig, deviceClaims=claims) as asked,
            scheduler(parts.scheduler, folder, api.kubeconfig, asked.url),
        ):
            until(lambda: len(api.get(f"{GROUP}/resourceslices")["items"]) == len(names), "the devices are published")
            until(lambda: len(api.get(f"{OURS}/nodestates")["items"]) == len(names), "all are published")
            yield Claiming(api, nodes, asked)

    api.apply(f"{GROUP}/deviceclasses/{GPU_CLASS}", class_of(GPU_CLASS, DRIVER))
    yield start
    forget(api, PODS)
    for one in api.get(CLAIMS)["items"]:
        path = f"{CLAIMS}/{one['metadata']['name']}"
        api.cluster.http.patch(f"{path}/status", json={"status": None}, headers=MERGE)
        api.cluster.http.patch(path, json={"metadata": {"finalizers": None}}, headers=MERGE)
    for path in (CLAIMS, f"{GROUP}/resourceslices", f"{GROUP}/deviceclasses"):
        forget(api, path)


def test_pods_with_claims_go_only_where_their_nodes_admit_them(starting: Starting) -> None:
    draw = random.Random(11)  # noqa: S311 - no secret
    with starting("a", "b", "c", delay=10.0) as made:
        # States come up to ten seconds late: what was bound meanwhile counts beside its devices all the same.
        # Where they come and go faster than that, nothing may run at the end: each is looked at while it is there.
        there: list[str] = []
        placed, waited = set[str](), 0

        def look(running: set[str]) -> None:
            for one in running - placed:
                node = made.nodes.played[made.nodes.admitted[made.uids[one]]]
                assert isinstance(node, ClaimingNode)
                if made.devices(one):
                    assert len(node.numa_nodes(made.uids[one])) == 1, one
                    placed.add(one)

        for number in range(PODS_IN_ALL):
            name = f"pod-{number}"
            made.create(name, draw.choice((2, 4, 6, 8, 12, 16)), gpus=draw.choice((0, 1, 1, 1, 2)), match=NUMA_NODE)
            there.append(name)
            if number % 4 == 3:
                settled = [one for one in there if made.runs(one) or made.says(one)]
                until(partial(all_settled, made, there), "every pod runs or the scheduler says why not", seconds=60)
                waiting = [one for one in there if not made.runs(one)]
                waited += len(waiting)
                look({*there} - {*waiting})
                # Some leave, first of those that wait, so that the next ones find other nodes.
                leaving = {*waiting[2:], *draw.sample([one for one in settled if made.runs(one)] or there, 1)}
                for one in leaving if len(there) > 12 else ():
                    there.remove(one)
                    made.delete(one)
        # On a busy machine all with a claim may have left before they ran; where all have left, one has room.
        for one in there:
            made.delete(one)
        made.create("last", 2, match=NUMA_NODE)
        until(partial(runs_after_all, made, "last"), "a pod with a claim runs", seconds=60, pause=1.0)
        look({"last"})
        assert made.nodes.refusals == []
        assert placed
        assert not [name for name in made.extender.metrics() if name.startswith("mispredictions")]
        print(
            f"\n{len(made.uids)} pods, {len(made.nodes.admitted)} admitted, {waited} waits, "
            f"binds {[f'{name} {count:g}' for name, count in made.extender.metrics().items() if 'binds_total' in name]}"
        )


def runs_after_all(made: Claiming, name: str) -> bool:
    """Let the scheduler try pods that wait, and tell whether one runs."""
    made.nudge()
    return made.runs(name)


def all_settled(made: Claiming, names: list[str]) -> bool:
    refused = {one.pod for one in made.nodes.refusals}
    return all(made.runs(one) or one in refused or made.says(one) for one in names)


def test_a_node_where_no_free_device_is_beside_free_cpus_is_left_out(starting: Starting) -> None:
    with starting("far", "near") as made:
        # Of both a GPU of NUMA node 3 is left: on far the CPUs beside it are taken, on near all others.
        for name, full in (("far", (3,)), ("near", (0, 1, 2))):
            for node in range(4):
                hold(made, name, f"gpu-{node}-0", 16 if node in full else 1)
                if node < 3:
                    hold(made, name, f"gpu-{node}-1")
        until(lambda: knows(made), "the extender knows both")
        uid = made.create("asked", 12)
        until(lambda: made.runs("asked"), "the pod runs")
        assert made.nodes.admitted[uid] == "near"
        assert made.nodes.refusals == []


def test_what_the_filter_cannot_promise_the_bind_refuses_until_there_is_room(starting: Starting) -> None:
    with starting("only") as made:
        # The scheduler takes devices in order: that of NUMA node 0, whose CPUs are taken; the filter counts node 1.
        full = hold(made, "only", "gpu-0-0", 16)
        until(lambda: knows(made), "the extender knows the node")
        made.create("asked", 12)
        until(lambda: "MOOR-136" in made.says("asked"), "the bind is refused, and the next filter says why")
        assert made.devices("asked") == ["gpu-0-1"]
        assert not made.runs("asked")
        made.delete(full)
        what = "the pod runs beside its device when there is room"
        until(partial(runs_after_all, made, "asked"), what, seconds=60, pause=1.0)
        assert made.nodes.refusals == []


def test_without_counting_claims_the_node_refuses_what_the_extender_let_through(starting: Starting) -> None:
    with starting("alone", claims=False) as made:
        hold(made, "alone", "gpu-0-0", 16)
        until(lambda: knows(made), "the extender knows the node")
        made.create("asked", 12)
        until(lambda: made.nodes.refusals, "the node refuses the pod")
        assert [one.pod for one in made.nodes.refusals] == ["asked"]


def hold(made: Claiming, node: str, device: str, cpus: int = 1) -> str:
    """Give a device, and CPUs beside it, to a pod that is bound past the scheduler; return its name."""
    name = f"holds-{node}-{device}"
    made.api.post(CLAIMS, claim_for(name, request_of("gpu", GPU_CLASS)))
    content = pod(name, {"limits": {"cpu": str(cpus), "memory": "64Mi"}}, node=node)
    content["spec"]["resourceClaims"] = [{"name": "gpu", "resourceClaimName": name}]
    content["spec"]["containers"][0]["resources"]["claims"] = [{"name": "gpu"}]
    made.uids[name] = str(made.api.create_pod(content)["metadata"]["uid"])
    result = {"request": "gpu", "driver": DRIVER, "pool": node, "device": device}
    users = [{"resource": "pods", "name": name, "uid": made.uids[name]}]
    status = {"allocation": {"devices": {"results": [result]}}, "reservedFor": users}
    response = made.api.cluster.http.patch(f"{CLAIMS}/{name}/status", json={"status": status}, headers=MERGE)
    assert response.is_success, response.text
    until(lambda: made.runs(name), f"{name} runs")
    return name


def knows(made: Claiming) -> bool:
    """Tell whether the extender has heard of all pods, and every one is named by a state."""
    found = made.extender.metrics()
    return found["assumed"] == 0 and found["pods"] == len(made.uids)
