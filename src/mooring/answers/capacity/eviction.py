"""Which pods would have to go so that one more fits, or fits aligned: one, two, or the shortest sequence found.

Every proposal was tried by the engine: the pods removed, then the new one asked. The search is bounded, as
docs/reference/capacity.md says.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from heapq import nlargest, nsmallest
from itertools import combinations, islice

from msgspec import field

from mooring.documents.parts import Count, DocumentPart, Numbers
from mooring.engine.core.pod import Pod
from mooring.engine.cpumanager.policy import available_cpus, exclusive_cpus
from mooring.engine.kubelet.kubelet import Kubelet
from mooring.engine.node import Node
from mooring.engine.node.node import numa_of_blocks
from mooring.engine.node.resources import pod_requests
from mooring.explain.phrases import nodes_of

MOST_SHOWN = 3
"""Proposals that are returned."""

MOST_EVICTED = 8
"""Pods of the longest sequence that is proposed: half a node is not drained for one pod."""

MOST_PRUNED = 64
"""Pods of the longest sequence that is looked through for those that need not go."""

MOST_PAIRS = 2000
"""Pairs that are tried at most, the cheapest first."""

WORK = 512_000
"""Pairs times CPUs of the machine: on more than 256 CPUs fewer pairs are tried."""

Goal = Callable[[Kubelet], bool]
"""Whether the new pod gets from a node what it should."""

Works = Callable[["EvictionPart"], bool]
"""Whether the goal is reached once these pods have gone."""


class EvictedPodPart(DocumentPart):
    """A pod that would have to go, and what it holds."""

    uid: str
    namespace: str
    name: str
    milli_cpu: int = field(name="milliCPU")
    bytes: int
    exclusive_cpus: Count = field(name="exclusiveCPUs")
    numa_nodes: Numbers

    @property
    def holds_something(self) -> bool:
        """Tell whether it holds anything."""
        return bool(self.milli_cpu or self.bytes or self.numa_nodes)


class EvictionPart(DocumentPart):
    """Pods whose removal reaches the goal together."""

    pods: list[EvictedPodPart]

    @property
    def cost(self) -> tuple[int, int, tuple[str, ...]]:
        """CPUs and bytes that go, then the names: what proposals of equally many pods are ordered by."""
        names = tuple(f"{pod.namespace}/{pod.name}" for pod in self.pods)
        return sum(pod.milli_cpu for pod in self.pods), sum(pod.bytes for pod in self.pods), names


def evictions(kubelet: Kubelet, candidates: Sequence[Pod], wanted: Pod, goal: Goal) -> list[EvictionPart]:
    """Return what makes room, the best first; empty when nothing was found.

    One pod if that suffices, the cheapest first. Else two that hold something. Else a sequence from which no pod can be
    left out.

    Args:
        kubelet: on which the goal is missed.
        candidates: pods of the node that may go.
        wanted: the new pod.
        goal: asked of the node without them; not reached unless the new pod is admitted.
    """
    missing = missing_cpus(kubelet, wanted)
    known = sorted((evicted(kubelet.node, pod) for pod in candidates), key=lambda pod: _alone(pod).cost)

    def works(proposal: EvictionPart) -> bool:
        return _can_suffice(proposal.pods, missing) and goal(kubelet.without([pod.uid for pod in proposal.pods]))

    singles = list(islice((one for one in map(_alone, known) if works(one)), MOST_SHOWN))
    if singles or not known or not works(EvictionPart(known)):
        return singles
    pairs = _pairs(kubelet, known) if _can_suffice(_most_cpus(known, 2), missing) else []
    found = list(islice((pair for pair in pairs if works(pair)), MOST_SHOWN))
    if found or not _can_suffice(_most_cpus(known, MOST_EVICTED), missing):
        return found
    return _shortest(known, works)


def missing_cpus(kubelet: Kubelet, wanted: Pod) -> int:
    """Return how many CPUs others must release at least before a pod can be admitted.

    Where an extension takes part it is 0, because with a pod more than the CPUs of its containers may become free.
    """
    policy, node = kubelet.settings.cpu, kubelet.settled().node
    state = node.cpu
    is_plain = (
        not (state.offline or state.displaced or state.pre_assignments)
        and state.assignments.keys() <= node.active.keys()
    )
    if policy is None or policy.chooser is not None or not is_plain:
        return 0
    need = max((exclusive_cpus(wanted, container, policy.gates) for container in wanted.containers), default=0)
    return need - available_cpus(policy, state).bit_count()


def _can_suffice(pods: Sequence[EvictedPodPart], missing: int) -> bool:
    """Tell whether pods release as many CPUs as are missing; without them nothing else has to be asked."""
    return sum(pod.exclusive_cpus for pod in pods) >= missing


def _most_cpus(known: Sequence[EvictedPodPart], count: int) -> list[EvictedPodPart]:
    return nlargest(count, known, key=lambda pod: pod.exclusive_cpus)


def _pairs(kubelet: Kubelet, known: Sequence[EvictedPodPart]) -> list[EvictionPart]:
    """Return pairs of pods that hold something, the cheapest first."""
    topology = kubelet.settings.topology
    cpus = topology.num_cpus if topology is not None else 1
    holders = [(pod.milli_cpu, pod.bytes, f"{pod.namespace}/{pod.name}", pod) for pod in known if pod.holds_something]
    # The cost of tens of thousands of pairs, without a value for each.
    cheapest = nsmallest(
        min(MOST_PAIRS, WORK // max(cpus, 1)),
        combinations(holders, 2),
        key=lambda pair: (pair[0][0] + pair[1][0], pair[0][1] + pair[1][1], pair[0][2], pair[1][2]),
    )
    return [EvictionPart([one[3], other[3]]) for one, other in cheapest]


def _shortest(known: Sequence[EvictedPodPart], works: Works) -> list[EvictionPart]:
    """Return the shortest of the sequences found: those of one NUMA node, else those of all pods."""
    nodes = sorted({node for pod in known for node in pod.numa_nodes})
    of_nodes = [[pod for pod in known if node in pod.numa_nodes] for node in nodes]
    for groups in (of_nodes, [known]):
        enough = [group for group in groups if works(EvictionPart(list(group)))]
        found = [_sequence(order, works) for group in enough for order in (group, group[::-1])]
        short = [one for one in found if one is not None]
        if short:
            return [min(short, key=lambda one: (len(one.pods), one.cost))]
    return []


def _sequence(order: Sequence[EvictedPodPart], works: Works) -> EvictionPart | None:
    """Return pods from the beginning of an order that works as a whole, without those that need not go.

    None when they are too many to be proposed.

    Args:
        order: the cheapest first, or the dearest first.
        works: tells whether enough have gone.
    """
    # Some length between one that is too short and one that works is tried: what is found works in any case.
    short, enough = 0, len(order)
    while enough - short > 1:
        middle = (short + enough) // 2
        if works(EvictionPart(list(order[:middle]))):
            enough = middle
        else:
            short = middle
    gone = list(order[:enough])
    if len(gone) > MOST_PRUNED:
        return None
    needed = 0
    for pod in sorted(gone, key=lambda pod: _alone(pod).cost, reverse=True):
        rest = [other for other in gone if other is not pod]
        if rest and works(EvictionPart(rest)):
            gone = rest
        else:
            needed += 1
        if needed > MOST_EVICTED:
            return None
    return EvictionPart(gone)


def _alone(pod: EvictedPodPart) -> EvictionPart:
    return EvictionPart([pod])


def evicted(node: Node, pod: Pod) -> EvictedPodPart:
    """Return what goes with a pod of a node."""
    requests = pod_requests(pod)
    cpu, memory = node.cpu, node.memory
    mask = cpu.pods.get(pod.uid, 0)
    for held in cpu.assignments.get(pod.uid, {}).values():
        mask |= held
    blocks = [block for held in memory.assignments.get(pod.uid, {}).values() for block in held]
    blocks = list(memory.pods.get(pod.uid, ())) or blocks
    topology = node.settings.topology
    nodes = {*numa_of_blocks(blocks), *_device_nodes(node, pod.uid)}
    nodes.update(nodes_of(topology, mask) if topology is not None else ())
    asked = sum(amount for name, amount in requests.items() if name == "memory" or name.startswith("hugepages-"))
    return EvictedPodPart(
        uid=pod.uid,
        namespace=pod.namespace,
        name=pod.name,
        milli_cpu=max(requests.get("cpu", 0), 1000 * mask.bit_count()),
        bytes=max(asked, sum(block.size for block in blocks)),
        exclusive_cpus=mask.bit_count(),
        numa_nodes=sorted(nodes),
    )


def _device_nodes(node: Node, uid: str) -> set[int]:
    state = node.providers.devices
    found: set[int] = set()
    for resource, devices in state.devices.items():
        held = state.held_by_pod(uid, resource)
        for device in devices:
            if device.id in held:
                found.update(device.numa or ())
    return found
