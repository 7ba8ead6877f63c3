"""The nodes of a simulation: the scheduler's sums, and the exact state of each node's kubelet."""

from __future__ import annotations

from mooring.fleet.cluster import NodeCluster, offers_of
from mooring.fleet.scheduler.asked import PodDemand
from mooring.fleet.scheduler.table import NodeTable
from mooring.fleet.states import SharedState, SharedStates
from mooring.planner.prediction import ADMITTED, Prediction


class Nodes:
    """All nodes; the only place that changes them."""

    def __init__(self, cluster: NodeCluster) -> None:
        """Start each kind of node once.

        Raises:
            InputError: a kubelet does not start.
        """
        self.states = SharedStates()
        kubelets = {group.name: group.started() for group in cluster.groups}
        begin = {name: self.states.of(name, kubelet) for name, kubelet in kubelets.items()}
        offers = {group.name: offers_of(group, kubelets[group.name]) for group in cluster.groups}
        members = list(cluster.members())
        self.table = NodeTable(members, [offers[one.group.name] for one in members])
        self.at: list[SharedState] = [begin[one.group.name] for one in members]
        for place, member in enumerate(members):
            if member.group.now is not None:
                self.table.open[place] = not member.group.now.closed
                for pod in member.group.now.pods:
                    self.table.add(place, pod.asked)

    def would(self, node: int, asked: PodDemand) -> Prediction:
        """Return what a node's managers would do with a pod."""
        return ADMITTED if asked.plain else self.states.admit(self.at[node], asked.shape).prediction

    def takes(self, node: int, asked: PodDemand, *, exactly: bool) -> bool:
        """Tell whether a node would take a pod.

        Args:
            node: its place.
            asked: the pod.
            exactly: whether its managers are asked, too, as the extender does.
        """
        if not (self.table.open[node] and self.table.allowed(asked.fields)[node]) or self.table.lacking(asked, node):
            return False
        return not exactly or self.would(node, asked).admitted

    def admit(self, node: int, asked: PodDemand) -> tuple[Prediction, str]:
        """Let a node decide about a pod; an admitted one is on it.

        Returns:
            The decision, and the pod's name in the node's state, by which it is removed.
        """
        if asked.plain:
            self.table.add(node, asked)
            return ADMITTED, ""
        answer = self.states.admit(self.at[node], asked.shape)
        if answer.prediction.admitted:
            self.at[node] = answer.after
            self.table.add(node, asked)
        return answer.prediction, answer.pod

    def remove(self, node: int, asked: PodDemand, pod: str) -> None:
        """Take a pod off a node.

        Args:
            node: its place.
            asked: the pod.
            pod: its name in the node's state.
        """
        self.table.remove(node, asked)
        if pod:
            self.at[node] = self.states.remove(self.at[node], pod)
