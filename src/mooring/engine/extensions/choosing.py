"""Choosing CPUs otherwise than a kubelet: with plugins, in whole cores where cores are uneven, and around kept ones.

How plugins take part in the CPU manager's choice is what stands behind its seam, the chooser. The kubelet counts cores
by the average of the machine, which no core of a hybrid processor has (kubernetes/kubernetes#140495). Where plugins
take part, cores are counted as they are.

Source: CPU Manager Plugin Model (proposal); KEP-5554; spec: resize.md sections 4 and 7.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import gcd
from typing import Protocol

from mooring.engine.core.bits import NO_CPUS, CPUMask, NUMAMask, list_text
from mooring.engine.core.decision import AllocationError, Endless, Observer
from mooring.engine.core.pod import Container, ContainerKind, Pod
from mooring.engine.core.topology import Topology
from mooring.engine.cpumanager.facts import CPUHintsAsked
from mooring.engine.cpumanager.policy import CPUsChosen, CPUsWanted, StaticPolicy
from mooring.engine.cpumanager.state import CPUState, Reusable
from mooring.engine.cpumanager.static import (
    check_whole_cores,
    near,
    taken_fact,
    taken_near,
    wanted_cpus,
    why_no_whole_cores,
)
from mooring.engine.cpumanager.take import take
from mooring.engine.extensions.owners import hidden_for, with_hidden
from mooring.lazy import replace


def whole_cores_in(topology: Topology, cpus: CPUMask) -> list[int]:
    """Return the masks of the cores that lie entirely within some CPUs, in the order of their ids."""
    return [core for core in topology.cores.values() if not core & ~cpus]


def common_size(cores: Iterable[int]) -> int:
    """Return the greatest number of which every sum of these cores is a multiple; 0 without any.

    >>> common_size([0b11, 0b1100]), common_size([0b11, 0b100]), common_size([])
    (2, 1, 0)
    """
    return gcd(*(core.bit_count() for core in cores))


def cores_of(cores: Sequence[int], need: int) -> int | None:
    """Return exactly ``need`` CPUs in whole cores, the earlier ones as far as possible; None when it cannot be.

    >>> bin(cores_of([0b11, 0b100, 0b1000], 3))
    '0b111'
    >>> cores_of([0b11, 0b1100], 3) is None
    True
    """
    # reached[i]: bit n is set when the cores from the i-th on can make n CPUs.
    reached = [1]
    for core in reversed(cores):
        reached.append(reached[-1] | reached[-1] << core.bit_count())
    reached.reverse()
    if need < 0 or not reached[0] >> need & 1:
        return None
    taken = 0
    for position, core in enumerate(cores):
        rest = need - core.bit_count()
        if rest >= 0 and reached[position + 1] >> rest & 1:
            taken |= core
            need = rest
    return taken


class Pipeline(Protocol):
    """The plugins of a node, as the CPU manager's choice needs them: what stands behind its seam, the chooser."""

    __slots__ = ()

    @property
    def counts_cores(self) -> bool:
        """Whether whole cores are counted as they are, and not by the kubelet's average of the machine."""

    @property
    def withholds(self) -> bool:
        """Whether a plugin may leave CPUs out of the pool."""

    def usable(self, state: CPUState, wanted: CPUsWanted, observer: Observer | None) -> CPUMask:
        """Return the mask of those CPUs of the pool that may be given; hints are made from it."""

    def chosen(
        self, state: CPUState, wanted: CPUsWanted, observer: Observer | None
    ) -> CPUsChosen | AllocationError | None:
        """Return the choice, a refusal, or None where the kubelet's rules choose from the whole pool."""

    def choose(
        self, policy: StaticPolicy, state: CPUState, wanted: CPUsWanted, observer: Observer | None
    ) -> CPUsChosen | AllocationError | Endless:
        """Choose exclusive CPUs for a container, or for a whole pod.

        With full-pcpus-only they are whole cores. The kubelet checks that before it takes; where the pipeline counts
        cores as they are, its answer is checked instead, and a refusal is in the kubelet's words.
        """
        refusal = None if self.counts_cores else check_whole_cores(policy, state, wanted, observer)
        if refusal is not None:
            return refusal
        hidden = hidden_for(state, wanted.uid, wanted.left)
        if hidden and wanted.pod is not None:
            # Hidden threads of ended init containers are as free for the pod as the CPUs that these leave.
            left = wanted.left | hidden
            wanted = wanted_cpus(policy, state, left, wanted.pod, wanted.container, wanted.need, wanted.affinity)
        found = self.chosen(state, wanted, observer)
        if isinstance(found, AllocationError) and policy.rules.whole_cores and self.counts_cores:
            usable = self.usable(state, wanted, None) & wanted.pool
            if usable.bit_count() >= wanted.need:
                # There are enough of them, and they do not come in whole cores.
                cores = whole_cores_in(policy.topology, usable)
                group = common_size(cores) or policy.group_size
                available = sum(core.bit_count() for core in cores)
                refusal = why_no_whole_cores(wanted.uid, wanted.container, wanted.need, group, available, observer)
                if refusal is not None:
                    return refusal
        if found is not None:
            if observer is not None:
                cpus, error = (found.cpus, "") if isinstance(found, CPUsChosen) else (NO_CPUS, found.message)
                observer(taken_fact(wanted, cpus & wanted.near, cpus, error))
            return found
        refusal = check_whole_cores(policy, state, wanted, observer) if self.counts_cores else None
        return refusal or taken_near(policy, wanted, observer)

    def stored(
        self, state: CPUState, reusable: Reusable, pod: str, container: Container, chosen: CPUsChosen
    ) -> tuple[CPUState, Reusable]:
        """Return state and record with the threads hidden that a choice hides: nothing else gets them."""
        if not chosen.hidden:
            return state, reusable
        if container.kind is not ContainerKind.INIT:
            reusable = replace(reusable, cpus=reusable.cpus & ~chosen.hidden)
        return with_hidden(state, pod, container.name, chosen.hidden), reusable

    def narrowed(
        self, policy: StaticPolicy, state: CPUState, pod: Pod, asked: CPUHintsAsked, observer: Observer | None
    ) -> tuple[CPUHintsAsked, CPUMask]:
        """Leave out CPUs that plugins withhold; what the pod has already cannot be withheld.

        Returns:
            What is asked now, and the mask of the CPUs that plugins would withhold on an empty machine, too: a set of
            nodes is not as small as it could be only because it is counted with CPUs that the pod can never get. What
            it has is always as good as can be, so that no restart takes a pod away that plugins once let in.
        """
        if not self.withholds:
            return asked, NO_CPUS
        held = 0
        for cpus in state.assignments.get(pod.uid, {}).values():
            held |= cpus
        everything = policy.topology.all_cpus
        pool = asked.available | asked.reusable
        if not pool & ~held:
            return asked, everything & ~held
        usable = usable_cpus(policy, state, pool & ~held, pod, asked.container, asked.need, observer) | pool & held
        within_reach = usable_cpus(policy, state, everything, pod, asked.container, asked.need)
        asked = replace(asked, available=asked.available & usable, reusable=asked.reusable & usable)
        return asked, everything & ~within_reach & ~usable


def usable_cpus(
    policy: StaticPolicy,
    state: CPUState,
    pool: CPUMask,
    pod: Pod,
    container: str,
    need: int,
    observer: Observer | None = None,
) -> CPUMask:
    """Return the mask of those CPUs of a pool that a container, or a whole pod, may get: hints count these."""
    if policy.chooser is None:
        return pool
    return policy.chooser.usable(state, CPUsWanted(need, pool, NO_CPUS, pod, container), observer) & pool


def taken_around(
    policy: StaticPolicy, pool: CPUMask, kept: CPUMask, need: int, affinity: NUMAMask | None
) -> CPUMask | AllocationError:
    """Take what is missing beside the kept CPUs: from the nodes of the hint first, then from anywhere.

    Args:
        policy: the policy.
        pool: mask of what may be taken, without the kept CPUs.
        kept: mask.
        need: how many CPUs there are to be in the end, the kept ones included.
        affinity: mask of the hint's NUMA nodes; None for no opinion.
    """
    close = near(policy, pool, affinity)
    width = 0 if affinity is None else affinity.bit_count()
    result = _filled(policy, close, kept, min(need, kept.bit_count() + close.bit_count()), width)
    if not isinstance(result, AllocationError):
        result = _filled(policy, pool & ~result, result, need)
    if isinstance(result, int) and kept & ~result:
        return AllocationError(
            f"requested CPUs to be retained {list_text(kept)} are not a subset of resulted CPUs {list_text(result)}"
        )
    return result


def _filled(policy: StaticPolicy, pool: CPUMask, kept: CPUMask, need: int, width: int = 0) -> CPUMask | AllocationError:
    """Return the kept CPUs and as many of the pool that there are ``need``."""
    taken = take(policy.topology, pool, need - kept.bit_count(), policy.rules.mended(), kept=kept, width=width)
    if isinstance(taken, Endless):
        return AllocationError(f"the kubelet would not return ({taken.defect})")
    return kept | taken if isinstance(taken, int) else taken
