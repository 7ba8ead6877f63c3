"""Dynamic resource allocation on played nodes: slices of what is declared, and claims that are prepared.

A group says under ``dra`` what its nodes offer: devices of a driver, as a ResourceSlice lists them, or the grouping by
which ``mooring dra`` offers CPUs. A claim is prepared before its pod is admitted, as beside an agent: its CPUs are its
own, and the pod is near the devices that it has.

Source: kubelet v1.37.1, pkg/kubelet/cm/dra/manager.go (prepareResources, UnprepareResources).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Final, TypeAlias

from mooring.cluster.dra.cdi import allocation_of, shares_of
from mooring.cluster.dra.devices import Grouping, SlicePublisher, device_cpus, devices_of
from mooring.cluster.dra.objects import ClaimableCPUs, ClaimObjects
from mooring.cluster.play.nodes import PlayedNode
from mooring.engine.core.bits import CPUMask
from mooring.engine.core.errors import InputError
from mooring.engine.core.pod import Pod
from mooring.engine.cpumanager.policy import StaticPolicy
from mooring.engine.extensions.device_alignment import claimed_devices, dynamic_devices
from mooring.engine.extensions.owners import CPU_DRIVER, claims_of
from mooring.engine.kubelet.kubelet import Kubelet
from mooring.engine.node.claims import Claim, Share, claimable
from mooring.fleet.cluster import Member
from mooring.inputs.decoding.fields import choice_at, list_at, within
from mooring.inputs.pods.claims import claim_of, current_devices, slice_of
from mooring.service.logs import Log

ClaimKey: TypeAlias = tuple[str, str]
"""Namespace and name."""
_FIELD: Final = "dra"


@dataclass(slots=True)
class PlayedClaims:
    """The claims of a cluster, by namespace and name, as the API server has them."""

    known: dict[ClaimKey, Mapping[str, Any]] = field(default_factory=dict)
    refused: dict[str, str] = field(default_factory=dict)
    """Uid of a pod that waits -> why its claims were not prepared, as its last event says."""

    def put(self, document: dict[str, Any]) -> ClaimKey:
        """Take a claim that is new or changed."""
        metadata = document["metadata"]
        self.known[metadata["namespace"], metadata["name"]] = document
        return metadata["namespace"], metadata["name"]

    def drop(self, document: dict[str, Any]) -> None:
        """Forget a claim."""
        self.known.pop((document["metadata"]["namespace"], document["metadata"]["name"]), None)

    def prepare(self, node: PlayedNode, pod: Pod) -> bool:
        """Prepare what a pod claims; return whether that is done.

        A pod has its claims reserved before it is bound, and the two are heard of in any order.

        Raises:
            InputError: the node cannot give a claim what is allocated to it.
        """
        found = {name: self.known.get((pod.namespace, name)) for name in pod.claims}
        claims = {name: claim_of(one, source=name) for name, one in found.items() if one is not None}
        if pod.unmade_claims or any(name not in claims or pod.uid not in claims[name].pods for name in found):
            return False
        for name, document in found.items():
            if document is None or all(one.driver != CPU_DRIVER for one in claims[name].devices):
                continue
            topology = _policy(node.kubelet).topology
            allocated = allocation_of(document, CPU_DRIVER, node.name, partial(device_cpus, topology))
            shares = tuple(
                Share(request, device, count, CPUMask(device_cpus(topology, device)), numa_nodes=numa_nodes)
                for (request, device, numa_nodes), count in shares_of(allocated).items()
            )
            asked = Claim(allocated.uid, allocated.namespace, allocated.name, shares)
            node.kubelet, refused = node.kubelet.claim(asked)
            if refused is not None:
                raise InputError(f"{refused.reason}: {refused.message}", source=f"claim {allocated.name}")
        if held := claimed_devices(pod, claims):
            state = node.kubelet.node.providers.devices
            node.kubelet = node.kubelet.with_devices(replace(state, claimed={**state.claimed, pod.uid: held}))
        return True


def release(node: PlayedNode, pod: Pod) -> None:
    """Release the CPUs of claims that no pod of a node has any more, after one has ended."""
    if not pod.claims:
        return
    used = {(one.namespace, name) for one in node.kubelet.node.active.values() for name in one.claims}
    for one in claims_of(node.kubelet.node.cpu).values():
        if one.namespace == pod.namespace and one.name in pod.claims and (one.namespace, one.name) not in used:
            node.kubelet = node.kubelet.release(one.uid)


def _policy(kubelet: Kubelet) -> StaticPolicy:
    if kubelet.settings.cpu is None:
        raise InputError("needs exclusive CPUs", field=CPU_DRIVER, remedy="set cpuManagerPolicy: static")
    return kubelet.settings.cpu


def with_drivers(kubelet: Kubelet, member: Member) -> Kubelet:
    """Return the kubelet of a node with the devices of its drivers.

    Raises:
        InputError: they are none that a slice could list, or the node has no CPUs to claim.
    """
    found = dict(kubelet.node.providers.devices.devices)
    for driver in member.group.drivers:
        with within(f"groups.{member.group.name}.{_FIELD}", source=member.group.source):
            if driver == CPU_DRIVER:
                choice_at(member.group.drivers, driver, Grouping.NUMA)
                _policy(kubelet)
                continue
            devices = list_at(member.group.drivers, driver)
            spec = {"driver": driver, "nodeName": member.name, "pool": {"name": member.name}, "devices": devices}
            offered = current_devices([slice_of({"spec": spec}, source=driver)])
        found |= dynamic_devices(offered, member.group.machine.pci)
    return kubelet.with_devices(replace(kubelet.node.providers.devices, devices=found))


class PlayedSlices:
    """Publishes the slices of a node, in turn with those of others; used by one thread."""

    def __init__(self, node: PlayedNode, objects: ClaimObjects, log: Log) -> None:
        """Publish nothing yet.

        Args:
            node: whose drivers are played.
            objects: at the API server.
            log: of the play.
        """
        self._node = node
        self._publishers = {
            driver: SlicePublisher(
                driver, node.name, Grouping(listed) if isinstance(listed, str) else Grouping.MACHINE, objects, log
            )
            for driver, listed in node.member.group.drivers.items()
        }

    def publish(self, now: float) -> None:
        """Write what has changed.

        Args:
            now: seconds that only go forward.

        Raises:
            ClusterError: it is not done; the next call tries again.
        """
        for driver, listed in self._node.member.group.drivers.items():
            publisher = self._publishers[driver]
            if isinstance(listed, str):
                node, policy = self._node.kubelet.node, _policy(self._node.kubelet)
                free, held = claimable(node), tuple(claims_of(node.cpu).values())
                room = ClaimableCPUs(free, free == node.cpu.default, held, policy.group_size, policy.rules.whole_cores)
                made = devices_of(policy.topology, publisher.grouping, self._node.member.group.machine.hardware)
                publisher.publish([one for one in made if one.cpus & ~policy.reserved], room, now)
            else:
                publisher.write(list(listed), now)
