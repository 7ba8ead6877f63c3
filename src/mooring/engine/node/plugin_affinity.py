"""What plugins may do to the topology manager's answer: decide between equally good ones, or let CPUs come first.

Both are held to this: nothing that the managers would admit is refused because of a plugin, and no hint gets worse by a
plugin's hints. Source: CPU Manager Plugin Model (proposal), "extend the submanager" (a further hint provider), and the
wish of the overview article that with best-effort a preferred choice of CPUs wins over a merge that is not preferred;
spec: resize.md section 7.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from mooring.engine.core.bits import NUMAMask
from mooring.engine.core.decision import Observer
from mooring.engine.core.plugins import PluginPlacement
from mooring.engine.core.pod import Pod
from mooring.engine.cpumanager.policy import CPUsWanted, StaticPolicy, exclusive_cpus, exclusive_cpus_of_pod
from mooring.engine.cpumanager.static import check_whole_cores, wanted_cpus
from mooring.engine.node.providers import Providers
from mooring.engine.node.settings import Settings
from mooring.engine.topologymanager.hints import Hint, Hints
from mooring.engine.topologymanager.merge import BEST_EFFORT, Merged, merge
from mooring.engine.topologymanager.wide import ResourceHints, merge_entries
from mooring.lazy import dataclass, lazily, replace

with lazily():
    import mooring.engine.plugins.facts as plugin_facts

if TYPE_CHECKING:
    from mooring.engine.plugins.host import PluginHost

PROVIDER = "plugins"


@dataclass(frozen=True, slots=True)
class AffinityAsked:
    """A merge that plugins may have a say in."""

    settings: Settings
    """Of the node."""
    plugins: PluginHost
    """Its plugins."""
    providers: Providers
    """What the managers have given away."""
    pod: Pod
    container: str
    """Name; empty in pod scope."""
    given: Sequence[ResourceHints | None]
    """Hints of all providers: devices, CPUs, memory."""
    observer: Observer | None
    """Receives what was found."""

    def chosen(self, plugins: str, before: NUMAMask | None, after: NUMAMask | None) -> None:
        """Report the plugin, the NUMA nodes that it chose, and those that they replace."""
        if self.observer is not None:
            self.observer(plugin_facts.PluginChoseAffinity(self.pod.uid, self.container, plugins, before, after))


def with_plugins(asked: AffinityAsked, merged: Merged) -> Merged:
    """Return the answer that plugins make of what the hints come to without them."""
    if asked.plugins.takes_part(PluginPlacement.HINT_PROVIDER):
        merged = _with_hints(asked, merged)
    if asked.settings.topology_policy == BEST_EFFORT and asked.plugins.has_point("choose_affinity"):
        merged = _cpus_first(asked, merged)
    return merged


def _with_hints(asked: AffinityAsked, merged: Merged) -> Merged:
    """Merge once more, with the hints of plugins; what comes out counts when it is as good as before."""
    settings, plugins, providers = asked.settings, asked.plugins, asked.providers
    wanted = _wanted(plugins, settings.cpu, providers, asked.pod, asked.container)
    if wanted is None or merged.hint.mask is None:
        return merged
    nodes = plugins.hinted(providers.cpu, wanted, asked.observer)
    if not nodes or nodes == merged.hint.mask:
        return merged
    own: ResourceHints = {PROVIDER: Hints(preferred=(nodes,))}
    again = merge(settings.topology_policy, merge_entries((*asked.given, own)), settings.numa)
    if not _is_as_good(again, merged):
        return merged
    asked.chosen(", ".join(plugins.names(PluginPlacement.HINT_PROVIDER)), merged.hint.mask, again.hint.mask)
    return again


def _wanted(
    plugins: PluginHost, policy: StaticPolicy | None, providers: Providers, pod: Pod, container: str
) -> CPUsWanted | None:
    """Return the request about which plugins give hints; None for one that needs no CPUs or has them."""
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


def _is_as_good(again: Merged, before: Merged) -> bool:
    if not again.admitted or again.hint.preferred != before.hint.preferred:
        return False
    if again.hint.mask is None or before.hint.mask is None:
        return False
    return again.hint.mask.bit_count() == before.hint.mask.bit_count()


def _cpus_first(asked: AffinityAsked, merged: Merged) -> Merged:
    """Offer the CPU manager's own preferred nodes where the merge of all is not preferred."""
    _, cpus, memory = asked.given
    if merged.hint.preferred or not cpus:
        return merged
    settings = asked.settings
    alone = merge(BEST_EFFORT, merge_entries((cpus,)), settings.numa).hint
    if not alone.preferred or alone.mask is None or alone.mask == merged.hint.mask:
        return merged
    if not _memory_can_follow(memory, alone.mask):
        return merged
    found = asked.plugins.affinity(
        asked.pod, asked.container, settings.topology_policy, merged.hint, alone, asked.observer
    )
    if found is None:
        return merged
    name, hint = found
    asked.chosen(name, merged.hint.mask, hint.mask)
    # The nodes are the CPU manager's, and it does not learn that others prefer them too.
    return replace(merged, hint=Hint(hint.mask, preferred=False))


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
