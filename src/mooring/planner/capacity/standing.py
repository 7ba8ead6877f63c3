"""A node that can be asked about many pods one after another, the node resources check included."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace

from mooring.core.decision import StartRefusal
from mooring.core.errors import KubeletCrashError
from mooring.core.pod import Pod
from mooring.devicemanager.state import Device, DeviceState
from mooring.node import Decision, Node
from mooring.node.hotplug import replanned, went_offline
from mooring.node.resources import check_amounts, pod_requests, total_requests
from mooring.node.settings import Settings
from mooring.planner.capacity.place import Place, place_of


@dataclass(frozen=True, slots=True)
class Standing:
    """A node and what its pods request together."""

    node: Node
    used: Mapping[str, int]
    """Resource -> requests of all active pods: cpu in thousandths, everything else in whole units."""

    @staticmethod
    def of(node: Node) -> Standing:
        """Return a node as it stands."""
        return Standing(node, total_requests(node.active.values()))

    @staticmethod
    def empty(settings: Settings, devices: Mapping[str, tuple[Device, ...]], offline: int = 0) -> Standing | None:
        """Return the same node without pods and without state files; None when the kubelet would not start so.

        Args:
            settings: of the node.
            devices: of its device plugins.
            offline: mask of the CPUs that are offline (extension cpu-hotplug).
        """
        node = Node.start(settings)
        if isinstance(node, StartRefusal):
            return None
        if offline:
            node, _ = went_offline(node, offline)
        return Standing(replace(node, providers=replace(node.providers, devices=DeviceState(devices))), {})

    def ask(self, pod: Pod) -> tuple[Standing, Decision]:
        """Ask for a pod. An admitted one has started on the node returned; a refused one leaves no trace.

        Raises:
            KubeletCrashError: the kubelet itself would crash.
        """
        node, decision = self.node.decide(pod)
        if not decision.admitted:
            return self, decision
        wanted, settings = pod_requests(pod), node.settings
        refused = check_amounts(
            wanted, self.used, len(self.node.active), settings.reservation, settings.config.max_pods
        )
        if refused is not None:
            return self, replace(decision, admitted=False, rejection=refused)
        used = {name: self.used.get(name, 0) + wanted.get(name, 0) for name in {**self.used, **wanted}}
        return Standing(node.start_containers(pod.uid), used), decision

    def place(self, pod: Pod) -> Place | None:
        """Return where a pod would be put; None when it would not be admitted, for whatever reason."""
        try:
            _, decision = self.ask(pod)
        except KubeletCrashError:
            return None
        return place_of(decision, self.node.settings.topology) if decision.admitted else None

    def without(self, uids: Collection[str]) -> Standing:
        """Return the node after some pods have gone and what they had was given back."""
        used = dict(self.used)
        for uid in uids:
            for resource, amount in pod_requests(self.node.active[uid]).items():
                used[resource] -= amount
        active = {uid: pod for uid, pod in self.node.active.items() if uid not in uids}
        node = replace(self.node, active=active, started=self.node.started.difference(uids))
        node = node.settled()
        # What they gave back may stand in for what others have lost.
        return Standing(replanned(node)[0] if node.cpu.offline else node, used)

    def with_device(self, resource: str, device: Device) -> Standing:
        """Return the node with one more device, of a resource that nobody else offers."""
        node = self.node.with_devices({**self.node.providers.devices.devices, resource: (device,)})
        return replace(self, node=node)
