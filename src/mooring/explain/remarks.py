"""What else a person should know about a pod that was admitted: each remark with its code.

Every remark is a clause that can end a sentence about the pod. Nothing here speaks against the decision.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import takewhile

from mooring.core.bits import list_text, members
from mooring.core.cpuset import CPUSet
from mooring.core.pod import ContainerKind
from mooring.core.topology import Topology
from mooring.cpumanager.facts import DistributionChosen, SharePicked, TakeBegun
from mooring.cpumanager.offline_facts import CPUsBroken, CPUsReplaced, OfflineCPUsLeftOut
from mooring.explain import reason as code
from mooring.explain.chapters import Circumstances
from mooring.explain.phrases import count, fewest_elements, fewest_nodes, nodes, nodes_of
from mooring.explain.reason import Reason
from mooring.node import Decision
from mooring.topologymanager.merge import BEST_EFFORT, NONE


def spoken_remarks(decision: Decision, circumstances: Circumstances, topology: Topology) -> list[Reason]:
    """Return the remarks that belong into one sentence about the pod: at most one of each kind."""
    spread = next(_spread(decision, circumstances, topology), None)
    found = [spread, _stranded(decision, circumstances), _sharing(decision)]
    return [remark for remark in found if remark is not None]


def all_remarks(decision: Decision, circumstances: Circumstances) -> list[Reason]:
    """Return everything that is to be said of an admitted pod; nothing of one that was refused."""
    topology = circumstances.settings.topology
    if not decision.admitted or topology is None or circumstances.settings.cpu is None:
        return []
    found = list(_spread(decision, circumstances, topology))
    found += _split_caches(decision, circumstances, topology)
    found += _uneven(circumstances)
    found += _shared_cores(decision, topology)
    found += _memory(decision, topology)
    single = (_stranded(decision, circumstances), _sharing(decision), _empty_pool(decision))
    return [*found, *(remark for remark in single if remark is not None)]


def _spread(decision: Decision, circumstances: Circumstances, topology: Topology) -> Iterator[Reason]:
    """Say which container is spread over more NUMA nodes than its number of CPUs asks for, and why."""
    reserved = circumstances.settings.cpu.reserved if circumstances.settings.cpu is not None else 0
    for name, placement in decision.containers.items():
        used = len(nodes_of(topology, placement.cpus.mask))
        fewest = fewest_nodes(topology, len(placement.cpus), reserved)
        if placement.cpus and 0 < fewest < used:
            yield Reason(
                code.SPREAD,
                f"{name} is spread over {used} NUMA nodes although {fewest} could hold it on an empty machine"
                f"{_why_spread(circumstances)}",
                "Where it must not be: topologyManagerPolicy restricted or single-numa-node refuses it instead.",
            )


def _why_spread(circumstances: Circumstances) -> str:
    policy = circumstances.settings.topology_policy
    cpu = circumstances.settings.cpu
    if cpu is not None and cpu.rules.distribute:
        return ", as distribute-cpus-across-numa may do"
    if policy == NONE:
        return ": topology manager policy none does not look at NUMA nodes"
    return ": best-effort takes what there is" if policy == BEST_EFFORT else ""


def _split_caches(decision: Decision, circumstances: Circumstances, topology: Topology) -> Iterator[Reason]:
    """Say which container has CPUs under more last-level caches than its number of CPUs asks for."""
    cpu = circumstances.settings.cpu
    if cpu is None or not cpu.rules.uncore or len(topology.uncores) < 2:
        return
    for name, placement in decision.containers.items():
        used = sum(1 for mask in topology.uncores.values() if mask & placement.cpus.mask)
        fewest = fewest_elements(topology.uncores.values(), len(placement.cpus), cpu.reserved)
        if placement.cpus and 0 < fewest < used:
            yield Reason(
                code.CACHES_SPLIT,
                f"{name} has CPUs of {used} uncore caches although {fewest} could hold it on an empty machine: "
                "prefer-align-cpus-by-uncorecache prefers, it does not refuse",
                "Ask for a number of CPUs that fills whole caches, or let such pods come first.",
            )


def _uneven(circumstances: Circumstances) -> Iterator[Reason]:
    """Say which distribution over NUMA nodes had a rest that some nodes gave alone."""
    place = ""
    for position, fact in enumerate(circumstances.facts):
        if isinstance(fact, TakeBegun):
            place = fact.container
        if not isinstance(fact, DistributionChosen) or not fact.rest:
            continue
        shares = takewhile(lambda one: isinstance(one, SharePicked), circumstances.facts[position + 1 :])
        givers = {share.node for share in shares if isinstance(share, SharePicked) and share.is_rest}
        if givers:
            yield Reason(
                code.UNEVEN_SHARES,
                f"{place or 'the pod as a whole'} has {fact.share} CPUs of each of {nodes(fact.nodes)}, and "
                f"{nodes(givers)} gave the {fact.rest} more that {'does' if fact.rest == 1 else 'do'} not divide "
                "evenly",
                "Equal shares need a number of CPUs that divides evenly among the NUMA nodes.",
            )


def _shared_cores(decision: Decision, topology: Topology) -> Iterator[Reason]:
    """Say which container has one thread of a core whose other thread is not its own."""
    own = CPUSet(decision.pod.cpus.mask)
    for placement in decision.containers.values():
        own |= placement.cpus
    # Threads that are hidden for it are nobody's.
    for cpus in decision.hidden.values():
        own |= cpus
    for name, placement in decision.containers.items():
        others = topology.core_siblings(placement.cpus.mask) & ~own.mask
        if others:
            several = others.bit_count() > 1
            them = f"CPUs {CPUSet(others)} are other threads" if several else f"CPU {CPUSet(others)} is another thread"
            yield Reason(
                code.CORE_SHARED,
                f"{name} shares cores with others: {them} of its cores and not its own",
                "full-pcpus-only gives whole cores only.",
            )


def _memory(decision: Decision, topology: Topology) -> Iterator[Reason]:
    for name, placement in decision.containers.items():
        if len(placement.mems) > 1:
            yield Reason(
                code.MEMORY_GROUP,
                f"the memory of {name} lies on {nodes(placement.mems)} as one group, which serves nothing else than "
                "such groups until it is given back",
                "Ask for no more memory than one NUMA node has free, where that is possible.",
            )
        near = nodes_of(topology, placement.cpus.mask)
        if placement.cpus and placement.mems and not set(near) & set(placement.mems):
            yield Reason(
                code.MEMORY_ELSEWHERE,
                f"{name} has its CPUs on {nodes(near)} and its memory on {nodes(placement.mems)}",
                "topologyManagerPolicy restricted or single-numa-node keeps them together or refuses the pod.",
            )


def _stranded(decision: Decision, circumstances: Circumstances) -> Reason | None:
    """Say how many CPUs were for ended init containers alone and stay bound (kubernetes/kubernetes#112228)."""
    of_init = of_others = CPUSet()
    for container in circumstances.pod.containers:
        cpus = decision.containers[container.name].cpus
        if container.kind is ContainerKind.INIT:
            of_init |= cpus
        else:
            of_others |= cpus
    idle = len(of_init - of_others)
    if not idle or decision.pod.cpus:
        return None
    verb, stay = ("is", "stays") if idle == 1 else ("are", "stay")
    return Reason(
        code.STRANDED_CPUS,
        f"{idle} of them {verb} for init containers only and {stay} bound to the pod",
        "Give init containers no more CPUs than the apps, or a fraction of a CPU so that they share.",
    )


def _sharing(decision: Decision) -> Reason | None:
    sharing = sum(1 for placement in decision.containers.values() if not placement.cpus)
    if not sharing or sharing == len(decision.containers):
        return None
    return Reason(
        code.NEIGHBOURS_SHARE,
        f"{count(sharing, 'other container')} {'runs' if sharing == 1 else 'run'} in the shared pool",
    )


def _empty_pool(decision: Decision) -> Reason | None:
    if decision.shared_pool:
        return None
    return Reason(
        code.POOL_EMPTY,
        "the shared pool is empty now: containers without CPUs of their own have nowhere to run but on those of others",
        "Reserve CPUs without strict-cpu-reservation, so that some always stay in the shared pool.",
    )


def left_out_words(fact: OfflineCPUsLeftOut) -> str:
    """Say which CPUs a pod could not be given.

    >>> left_out_words(OfflineCPUsLeftOut("uid", 0b1000, 0b110))
    'CPU 3 is offline; CPUs 1-2 are not to be had until others are back'
    """
    parts = [f"{_cpus(fact.offline)} {_are(fact.offline)} offline"] if fact.offline else []
    parts += [f"{_cpus(fact.kept)} {_are(fact.kept)} not to be had until others are back"] if fact.kept else []
    return "; ".join(parts)


def _are(mask: int) -> str:
    return "is" if mask.bit_count() == 1 else "are"


def loss_words(fact: CPUsBroken | CPUsReplaced) -> str:
    """Say what a set lost and what stands in, as a clause that begins a sentence.

    >>> loss_words(CPUsBroken("uid", "main", 0b110, 0b10, "1 needed, 0 free"))
    'main lost CPU 1, which is offline, and nothing stands in for it: 1 needed, 0 free'
    """
    who = fact.container or "The pod"
    if isinstance(fact, CPUsReplaced):
        lost, taken = fact.before & ~fact.after, fact.after & ~fact.before
        where = nodes(members(fact.nodes)) if fact.nodes else "any NUMA node"
        return f"{who} lost {_cpus(lost)} and has {list_text(taken)} instead for now; it was given {where}"
    are, them = ("is", "it") if fact.lost.bit_count() == 1 else ("are", "them")
    return f"{who} lost {_cpus(fact.lost)}, which {are} offline, and nothing stands in for {them}: {fact.why}"


def _cpus(mask: int) -> str:
    return f"CPU{'s' if mask.bit_count() > 1 else ''} {list_text(mask)}"
