"""The host: asks the plugins of a node for the CPU manager and the topology manager, and keeps what both promise.

Source: CPU Manager Plugin Model (proposal), both placements; spec: resize.md section 7.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields
from types import MappingProxyType
from typing import Any

from mooring.engine.core.bits import CPUMask, NUMAMask, mask_of, members
from mooring.engine.core.config import PluginChoice, PluginPlacement
from mooring.engine.core.cpuset import CPUSet
from mooring.engine.core.decision import Endless, Observer
from mooring.engine.core.machineinfo import CPUFacts
from mooring.engine.core.pod import Container, Pod
from mooring.engine.core.topology import Topology
from mooring.engine.cpumanager.facts import CPUHintsAsked
from mooring.engine.cpumanager.options import TakeError, TakeRules
from mooring.engine.cpumanager.policy import AllocationError, CPUsChosen, CPUsWanted, StaticPolicy
from mooring.engine.cpumanager.state import CPUState, Reusable
from mooring.engine.extensions import choosing
from mooring.engine.extensions.owners import hidden_of_pod
from mooring.engine.plugins import pipeline
from mooring.engine.plugins.asking import Asking, as_nodes, as_order
from mooring.engine.plugins.facts import PluginFailed
from mooring.engine.plugins.values import AffinityRequest, CPURequest, Holder, MachineView, NUMAChoice, PodView
from mooring.engine.topologymanager.hints import Hint
from mooring.lazy import dataclass, field, replace

_CHOOSING = frozenset({"filter_cpus", "post_filter", "pre_score", "select_cpus", "score_set"})
_TELLING_APART = frozenset({"filter_cpus", "pre_score"})


@dataclass(frozen=True, slots=True)
class PluginHost:
    """The plugins of one node, on its machine: the chooser of its CPU manager."""

    choice: PluginChoice
    machine: MachineView = field(repr=False)
    active: Mapping[str, Pod] = field(default_factory=dict, repr=False)
    keeps_hints: bool = False
    """Whether what the hint points to was promised (topology manager policies restricted and single-numa-node): CPUs of
    other NUMA nodes would break the promise, and the pod would be refused by the next restart."""

    @property
    def counts_cores(self) -> bool:
        """Whether a plugin tells single CPUs apart, so that the kubelet's average of the machine says nothing."""
        return any(
            plugin.placement == PluginPlacement.CPU_MANAGER and plugin.points.keys() & _TELLING_APART
            for plugin in self.choice.plugins
        )

    @property
    def withholds(self) -> bool:
        """Whether a plugin may withhold CPUs in the CPU manager."""
        return any(
            plugin.placement is PluginPlacement.CPU_MANAGER and "filter_cpus" in plugin.points
            for plugin in self.choice.plugins
        )

    def among(self, active: Mapping[str, Pod]) -> PluginHost:
        """Return the host that knows the active pods."""
        return replace(self, active=active)

    def reserving(self, reserved: CPUMask) -> PluginHost:
        """Return the host that knows the CPUs of the system."""
        return replace(self, machine=replace(self.machine, reserved=CPUSet(reserved)))

    def usable(self, state: CPUState, wanted: CPUsWanted, observer: Observer | None) -> CPUMask:
        """Return the mask of those CPUs of the pool that may be given."""
        asking = self._asking(PluginPlacement.CPU_MANAGER, wanted, observer)
        if not asking.of("filter_cpus"):
            return wanted.pool
        request = self._request(state, wanted)
        left = asking.within_budget(lambda: pipeline.usable(asking, request))
        return wanted.pool if left is None else left[0].available.mask

    def chosen(self, state: CPUState, wanted: CPUsWanted, observer: Observer | None) -> CPUsChosen | TakeError | None:
        """Run the pipeline inside the CPU manager."""
        short = self.keeps_hints and wanted.affinity is not None and wanted.near.bit_count() < wanted.need
        if short and hidden_of_pod(state, wanted.uid):
            # Threads that the pod's other containers hide were not counted when the nodes were promised.
            count = wanted.near.bit_count()
            text = f"not enough cpus available to satisfy request: requested={wanted.need}, available={count}"
            return TakeError(text)
        return self._piped(PluginPlacement.CPU_MANAGER, state, wanted, observer)

    def choose(
        self, policy: StaticPolicy, state: CPUState, wanted: CPUsWanted, observer: Observer | None
    ) -> CPUsChosen | AllocationError | Endless:
        """Choose exclusive CPUs for a container, or for a whole pod (:mod:`mooring.engine.extensions.choosing`)."""
        return choosing.choose(self, policy, state, wanted, observer)

    def stored(
        self, state: CPUState, reusable: Reusable, pod: str, container: Container, chosen: CPUsChosen
    ) -> tuple[CPUState, Reusable]:
        """Return state and record with the threads hidden that a choice hides."""
        return choosing.stored(state, reusable, pod, container, chosen)

    def narrowed(
        self, policy: StaticPolicy, state: CPUState, pod: Pod, asked: CPUHintsAsked, observer: Observer | None
    ) -> tuple[CPUHintsAsked, CPUMask]:
        """Return from what hints are made, without the CPUs that plugins withhold."""
        return choosing.narrowed(self, policy, state, pod, asked, observer)

    def hinted(self, state: CPUState, wanted: CPUsWanted, observer: Observer | None) -> NUMAMask | None:
        """Run the pipeline as a hint provider: return the mask of the NUMA nodes of its choice, None for no opinion."""
        found = self._piped(PluginPlacement.HINT_PROVIDER, state, wanted, observer)
        if not isinstance(found, CPUsChosen):
            return None
        return NUMAMask(
            mask_of(node for node, cpus in self.machine.numa.items() if node >= 0 and cpus.mask & found.cpus)
        )

    def takes_part(self, placement: PluginPlacement) -> bool:
        """Tell whether a plugin of a placement takes part in the choice."""
        return any(plugin.placement == placement and plugin.points.keys() & _CHOOSING for plugin in self.choice.plugins)

    def has_point(self, point: str) -> bool:
        """Tell whether any plugin implements an extension point."""
        return any(point in plugin.points for plugin in self.choice.plugins)

    def names(self, placement: PluginPlacement) -> tuple[str, ...]:
        """Return the names of the plugins of a placement that take part in the choice."""
        return tuple(
            plugin.name
            for plugin in self.choice.plugins
            if plugin.placement == placement and plugin.points.keys() & _CHOOSING
        )

    def affinity(
        self, pod: Pod, container: str, policy: str, merged: Hint, of_cpus: Hint, observer: Observer | None
    ) -> tuple[str, Hint] | None:
        """Let plugins put the CPU manager's own choice of NUMA nodes in the place of the merged one (best-effort only).

        Returns:
            The plugin that did, and the hint; None when none did.
        """
        asking = Asking(self.choice, pod.uid, container, observer)
        request = AffinityRequest(_pod_view(pod), container, policy, _numa_choice(merged), _numa_choice(of_cpus))

        def work() -> tuple[str, Hint] | None:
            for plugin in asking.of("choose_affinity"):
                nodes = asking.ask(plugin, "choose_affinity", as_nodes, request=request)
                if nodes is None:
                    continue
                if nodes != request.of_cpus.nodes:
                    why = f"it chose the NUMA nodes {sorted(nodes)}, which are not those of the CPU manager"
                    asking.fail(plugin.name, "choose_affinity", why)
                    continue
                return plugin.name, of_cpus
            return None

        return asking.within_budget(work)

    @property
    def orders_pods(self) -> bool:
        """Tell whether a plugin may order pods that wait together."""
        return any("sort_pods" in plugin.points for plugin in self.choice.plugins)

    def ordered(self, pods: Sequence[Pod], observer: Observer | None = None) -> list[Pod]:
        """Return pods that wait in the order in which they are to be admitted."""
        asking = Asking(self.choice, "", "", observer)
        by_uid = {pod.uid: pod for pod in pods}
        if len(by_uid) != len(pods):
            # Of two pods with one uid an answer could name only one.
            return list(pods)

        def work() -> list[str]:
            order = list(by_uid)
            for plugin in asking.of("sort_pods"):
                views = tuple(_pod_view(by_uid[uid]) for uid in order)
                answer = asking.ask(plugin, "sort_pods", as_order, pods=views)
                if answer is None:
                    continue
                if len(answer) != len(order) or set(answer) != by_uid.keys():
                    asking.fail(plugin.name, "sort_pods", "it left pods out, repeated some or added others")
                    continue
                order = list(answer)
            return order

        order = asking.within_budget(work) if asking.of("sort_pods") else None
        return list(pods) if order is None else [by_uid[uid] for uid in order]

    def _piped(
        self, placement: PluginPlacement, state: CPUState, wanted: CPUsWanted, observer: Observer | None
    ) -> CPUsChosen | TakeError | None:
        asking = self._asking(placement, wanted, observer)
        if not asking.choice.plugins:
            return None
        request = self._request(state, wanted)
        return asking.within_budget(lambda: pipeline.chosen(asking, request))

    def _asking(self, placement: PluginPlacement, wanted: CPUsWanted, observer: Observer | None) -> Asking:
        mine = tuple(plugin for plugin in self.choice.plugins if plugin.placement == placement)
        return Asking(replace(self.choice, plugins=mine), wanted.uid, wanted.container, observer)

    def _request(self, state: CPUState, wanted: CPUsWanted) -> CPURequest:
        bound = self.keeps_hints and wanted.near.bit_count() >= wanted.need

        def holders() -> tuple[Holder, ...]:
            pods = {uid: _pod_view(pod) for uid, pod in self.active.items() if uid in state.assignments}
            return tuple(
                Holder(uid, container, CPUSet(cpus), pods.get(uid))
                for uid, containers in state.assignments.items()
                for container, cpus in containers.items()
            )

        return CPURequest(
            purpose=wanted.purpose.value,
            pod=_pod_view(wanted.pod) if wanted.pod is not None else None,
            container=wanted.container,
            need=wanted.need,
            available=CPUSet(wanted.near if bound else wanted.pool),
            near=CPUSet(wanted.near & wanted.pool),
            shared=CPUSet(state.default),
            machine=self.machine,
            holders=holders,
        )


def machine_view(topology: Topology, rules: TakeRules, facts: CPUFacts) -> MachineView:
    """Return what plugins know of a machine: values of their own, so that nothing they do reaches the engine's."""
    members_of = ((one.name, getattr(topology, one.name)) for one in fields(topology))
    maps: dict[str, Any] = {
        name: MappingProxyType(dict(value)) for name, value in members_of if isinstance(value, Mapping)
    }
    return MachineView(
        cpus=CPUSet(topology.all_cpus),
        numa=_sets(topology.numa),
        sockets=_sets(topology.sockets),
        caches=_sets(topology.uncores),
        cores=_sets(topology.cores),
        kinds=MappingProxyType({kind.efficiency: kind.cpus for kind in facts.kinds}),
        isolated=facts.isolated,
        reserved=CPUSet(),
        topology=replace(topology, **maps),
        rules=rules,
    )


def _sets(masks: Mapping[int, CPUMask]) -> Mapping[int, CPUSet]:
    return MappingProxyType({element: CPUSet(mask) for element, mask in masks.items()})


def _pod_view(pod: Pod) -> PodView:
    annotations = MappingProxyType(dict(pod.annotations))
    return PodView(
        pod.uid, pod.namespace, pod.name, pod.qos.value, annotations, pod.priority, is_pod_level=pod.is_pod_level
    )


def _numa_choice(hint: Hint) -> NUMAChoice:
    if hint.mask is None:
        return NUMAChoice(None, hint.preferred)
    return NUMAChoice(frozenset(members(hint.mask)), hint.preferred)


def failures(facts: Iterable[object]) -> tuple[PluginFailed, ...]:
    """Return which plugins failed, among other facts."""
    return tuple(fact for fact in facts if isinstance(fact, PluginFailed))
