"""What the node answers when it is asked to admit, remove or restart; scores of hints, and what plugins make of them.

A score is the share of what the nodes of a hint have that is given away, from 0, which says nothing, to 100. Kubelets
from 1.38 on hand scores out with their hints; nothing decides by them, and they are computed where hints are shown.
Source: kubelet v1.38.0-beta.0, topologymanager (mergePermutation) and the hints of the three managers; spec:
preview.md section 15.

Plugins may decide between equally good answers of the topology manager, or let CPUs come first. Both are held to this:
nothing that the managers would admit is refused because of a plugin, and no hint gets worse by a plugin's hints.
Source: CPU Manager Plugin Model (proposal), "extend the submanager" (a further hint provider), and the wish of the
overview article that with best-effort a preferred choice of CPUs wins over a merge that is not preferred; spec:
resize.md section 7.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from mooring.engine.core.bits import NO_CPUS, NUMAMask
from mooring.engine.core.config import PluginPlacement
from mooring.engine.core.cpuset import CPUSet
from mooring.engine.core.decision import Endless, Observer, Placement, Rejection
from mooring.engine.core.pod import Pod
from mooring.engine.cpumanager.pod_allocation import stale_cpus
from mooring.engine.cpumanager.policy import CPUsWanted, exclusive_cpus, exclusive_cpus_of_pod
from mooring.engine.cpumanager.static import check_whole_cores, wanted_cpus
from mooring.engine.devicemanager.state import Device
from mooring.engine.memorymanager.policy import is_memory
from mooring.engine.node.providers import Providers
from mooring.engine.node.settings import Settings
from mooring.engine.topologymanager.hints import Hint, Hints
from mooring.engine.topologymanager.merge import BEST_EFFORT, SINGLE_NUMA_NODE, is_admitted, merge
from mooring.engine.topologymanager.wide import Family, ResourceHints, merge_entries
from mooring.lazy import dataclass, field, lazily

with lazily():
    import mooring.engine.plugins.facts as plugin_facts

if TYPE_CHECKING:
    from mooring.engine.plugins.facts import PluginFailed
    from mooring.engine.plugins.host import PluginHost

WIDEST = 16
"""Hints of more NUMA nodes than these are described and not listed: what is merged of them has no score here."""


class ScoredHint(NamedTuple):
    """A hint as it takes part in a merge."""

    mask: NUMAMask | None
    preferred: bool
    score: int = 0


@dataclass(frozen=True, slots=True)
class HintsAsked:
    """What was asked about a container, or in scope pod about the pod."""

    settings: Settings
    providers: Providers
    """What had been given away at that moment."""
    given: tuple[ResourceHints | None, ...]
    """What each manager answered."""
    policy: str
    """Topology policy."""
    pod: Pod | None = None
    """In scope pod the pod: CPUs that are stored for it as a whole, and that it is not going to keep, count as free."""

    def score(self, resource: str, mask: NUMAMask) -> int:
        """Return the score of a hint."""
        if resource == "cpu" and self.settings.cpu is not None:
            policy, state = self.settings.cpu, self.providers.cpu
            cpus = policy.topology.cpus_in_numa(mask) & ~policy.reserved
            free = state.default | (NO_CPUS if self.pod is None else stale_cpus(policy, state, self.pod))
            return score(cpus.bit_count(), (cpus & ~free).bit_count())
        if is_memory(resource):
            nodes = self.providers.memory.nodes.items()
            tables = [state.memory[resource] for node, state in nodes if mask >> node & 1 and resource in state.memory]
            allocatable = sum(table.allocatable for table in tables)
            return score(allocatable, allocatable - sum(table.free for table in tables))
        devices = self.providers.devices
        near = {one.id for one in devices.devices[resource] if one.healthy and one.mask & mask}
        return score(len(near), len(near & devices.allocated(resource)))

    def merged(self, hint: Hint) -> int | None:
        """Return the score of what the hints were merged to; None where there are too many of them."""
        entries: list[list[ScoredHint]] = []
        for provider in self.given:
            for resource in sorted(provider or ("",)):
                of_one = {resource: provider[resource]} if provider else None
                [hints] = merge_entries([of_one])
                if isinstance(hints, Family):
                    if hints.universe.bit_count() > WIDEST:
                        return None
                    hints = hints.hints()
                scores = ((one, 0 if one.mask is None else self.score(resource, one.mask)) for one in hints)
                entries.append([ScoredHint(one.mask, one.preferred, found) for one, found in scores])
        return merged_score(self.policy, entries, hint, self.settings.numa.nodes)


def score(allocatable: int, assigned: int) -> int:
    """Return the score of a set of nodes.

    >>> score(8, 1), score(101, 1), score(0, 5), score(4, -1)
    (12, 1, 0, 1)
    """
    return max(1, 100 * assigned // allocatable) if allocatable > 0 else 0


def merged_score(policy: str, entries: Sequence[Sequence[ScoredHint]], hint: Hint, nodes: NUMAMask) -> int:
    """Return the score of a merged hint: the mean of those of the first permutation that makes it.

    Args:
        policy: single-numa-node looks at fewer hints.
        entries: the hints of each resource of each provider, in the kubelet's order.
        hint: the result.
        nodes: mask of the machine's.
    """
    if hint.mask is None:
        return 0
    if policy == SINGLE_NUMA_NODE:
        entries = [
            [one for one in hints if one.preferred and (one.mask is None or one.mask.bit_count() == 1)]
            for hints in entries
        ]
    scores = [one.score for one in _permutation(entries, hint, nodes, nodes, {}) or () if one.mask is not None]
    counted = [one for one in scores if one > 0]
    return sum(counted) // len(counted) if counted else 0


def _permutation(
    entries: Sequence[Sequence[ScoredHint]], hint: Hint, nodes: NUMAMask, room: int, known: dict[tuple[int, int], None]
) -> list[ScoredHint] | None:
    """Return the first choice of one hint of each entry whose masks leave just the merged one of ``room``.

    Args:
        entries: those that are left.
        hint: the merged one; when it is preferred, all hints are, and those with a mask have this one.
        nodes: mask of the machine's.
        room: what the hints that were chosen leave.
        known: entries that are left, and room, of what has no such choice.
    """
    if not entries:
        return [] if room == hint.mask else None
    if hint.mask is None or (len(entries), room) in known:
        return None
    for one in entries[0]:
        mask = nodes if one.mask is None else one.mask & nodes
        fits = one.preferred and (one.mask is None or mask == hint.mask) if hint.preferred else not hint.mask & ~mask
        rest = _permutation(entries[1:], hint, nodes, room & mask, known) if fits else None
        if rest is not None:
            return [one, *rest]
    known[len(entries), room] = None
    return None


NO_AFFINITY = Hint(None, preferred=False)
"""What the topology manager's store answers for a container that it does not know."""


@dataclass(frozen=True, slots=True)
class Decision:
    """The answer for one pod."""

    uid: str
    namespace: str
    name: str
    admitted: bool
    rejection: Rejection | None
    """The kubelet's reason and message; None for an admitted pod and when the kubelet would not return."""
    endless: Endless | None
    """Set when the kubelet's admission would never end; then nothing was decided and nothing changed."""
    containers: Mapping[str, Placement]
    """What each container holds afterwards, in the order of the specification."""
    pod: Placement
    """What the pod holds as a whole (KEP-5526)."""
    affinity: Mapping[str, Hint]
    """What the topology manager has stored for each container."""
    shared_pool: CPUSet
    """The default set afterwards."""
    devices: Mapping[str, Mapping[str, tuple[Device, ...]]] = field(default_factory=dict)
    """Container -> resource -> devices, ascending by id; containers without devices are absent."""
    hints: Mapping[str, ResourceHints] | None = None
    """Container -> resource -> hints, as handed to the topology manager in container scope; containers not reached are
    absent."""
    pod_hints: ResourceHints | None = None
    """Resource -> hints in pod scope."""
    asked: Mapping[str, HintsAsked] | None = field(default=None, compare=False, repr=False)
    """Container, or an empty text for the pod -> what its hints were made of; None for kubelets without scores."""
    plugin_failures: tuple[PluginFailed, ...] = ()
    """Plugins whose answers were left out (extension plugins)."""
    hidden: Mapping[str, CPUSet] = field(default_factory=dict)
    """Container -> threads of its cores that are not assigned as long as it runs (extension plugins)."""

    @property
    def reason(self) -> str:
        """The kubelet's reason; empty for an admitted pod."""
        return self.rejection.reason if self.rejection else ""

    @property
    def message(self) -> str:
        """The kubelet's message; empty for an admitted pod."""
        return self.rejection.message if self.rejection else ""


@dataclass(frozen=True, slots=True)
class Removal:
    """What came back when a pod was removed."""

    uid: str
    released: CPUSet
    """CPUs that returned to the shared pool, also those of stale leftovers."""
    shared_pool: CPUSet


@dataclass(frozen=True, slots=True)
class Readmission:
    """What a restart of the kubelet did to the running pods, in the order in which they were admitted again."""

    decisions: tuple[Decision, ...] = field(default=())

    @property
    def refused(self) -> tuple[Decision, ...]:
        """Running pods that the kubelet did not admit again."""
        return tuple(decision for decision in self.decisions if not decision.admitted)


PROVIDER = "plugins"


def with_plugins(
    plugins: PluginHost, asked: HintsAsked, merged: Hint, pod: Pod, container: str, observer: Observer | None
) -> Hint:
    """Return the answer that plugins make of what the hints come to without them.

    Args:
        plugins: of the node.
        asked: the hints of all providers, and what they were made of.
        merged: what they come to.
        pod: that is asked about.
        container: its name; empty in pod scope.
        observer: receives the plugin, the NUMA nodes that it chose, and those that they replace.
    """
    if plugins.takes_part(PluginPlacement.HINT_PROVIDER):
        again = _with_hints(plugins, asked, merged, _wanted(plugins, asked, pod, container), observer)
        if again is not merged and observer is not None:
            names = ", ".join(plugins.names(PluginPlacement.HINT_PROVIDER))
            observer(plugin_facts.PluginChoseAffinity(pod.uid, container, names, merged.mask, again.mask))
        merged = again
    if asked.policy == BEST_EFFORT and plugins.has_point("choose_affinity"):
        alone = _cpus_alone(asked, merged)
        found = None if alone is None else plugins.affinity(pod, container, asked.policy, merged, alone, observer)
        if found is not None:
            name, hint = found
            if observer is not None:
                observer(plugin_facts.PluginChoseAffinity(pod.uid, container, name, merged.mask, hint.mask))
            # The nodes are the CPU manager's, and it does not learn that others prefer them too.
            merged = Hint(hint.mask, preferred=False)
    return merged


def _with_hints(
    plugins: PluginHost, asked: HintsAsked, merged: Hint, wanted: CPUsWanted | None, observer: Observer | None
) -> Hint:
    """Merge once more, with the hints of plugins; what comes out counts when it is as good as before."""
    if wanted is None or merged.mask is None:
        return merged
    nodes = plugins.hinted(asked.providers.cpu, wanted, observer)
    if not nodes or nodes == merged.mask:
        return merged
    own: ResourceHints = {PROVIDER: Hints(preferred=(nodes,))}
    again = merge(asked.policy, merge_entries((*asked.given, own)), asked.settings.numa)
    after = again.mask
    if not is_admitted(asked.policy, again) or again.preferred != merged.preferred or after is None:
        return merged
    return again if after.bit_count() == merged.mask.bit_count() else merged


def _wanted(plugins: PluginHost, asked: HintsAsked, pod: Pod, container: str) -> CPUsWanted | None:
    """Return the request about which plugins give hints; None for one that needs no CPUs or has them."""
    policy, providers = asked.settings.cpu, asked.providers
    if policy is None or pod.uid in providers.cpu.pods or policy.gates.leaves_out(pod):
        return None
    held = providers.cpu.assignments.get(pod.uid, {})
    if container in held or (not container and held):
        return None
    one = pod.container(container)
    need = exclusive_cpus_of_pod(pod, policy.gates) if one is None else exclusive_cpus(pod, one, policy.gates)
    if not need:
        return None
    wanted = wanted_cpus(policy, providers.cpu, providers.reusable_cpus.of(pod.uid), pod, container, need, None)
    # What full-pcpus-only refuses whatever plugins say they are not asked about: no answer of theirs were right.
    if not plugins.counts_cores and check_whole_cores(policy, providers.cpu, wanted, None) is not None:
        return None
    return wanted


def _cpus_alone(asked: HintsAsked, merged: Hint) -> Hint | None:
    """Return the CPU manager's own preferred hint where the merge of all is not preferred and could be that."""
    _, cpus, memory = asked.given
    if merged.preferred or not cpus:
        return None
    alone = merge(BEST_EFFORT, merge_entries((cpus,)), asked.settings.numa)
    if not alone.preferred or alone.mask is None or alone.mask == merged.mask:
        return None
    return alone if _memory_can_follow(memory, alone.mask) else None


def _memory_can_follow(hints: ResourceHints | None, nodes: int) -> bool:
    """Tell whether the memory manager would serve the pod with other NUMA nodes than the merged ones.

    It takes just these, or a wider set around a single one; with others it would refuse what is admitted without.
    """
    for found in (hints or {}).values():
        single = nodes.bit_count() == 1
        if found is None:
            continue
        if isinstance(found, Hints):
            masks = (*found.preferred, *found.others)
            fits = True in found.nil or nodes in masks or (single and any(mask & nodes for mask in masks))
        else:
            fits = found.holds(nodes) or (single and found.best_around(nodes) is not None)
        if not fits:
            return False
    return True
