"""The pod whose replicas are counted, and which pods would have to go so that one more fits, or fits aligned.

Replicas are admitted one after another until the kubelet refuses one. Evictions: one pod, two, or the shortest sequence
found.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from heapq import nlargest, nsmallest
from itertools import combinations, islice

from msgspec import field

from mooring.answers.base.plan import Question
from mooring.answers.base.pods import Named, called, enumerated, several, unknown
from mooring.documents.plan import Count, DocumentPart, Numbers
from mooring.engine.core.errors import InputError
from mooring.engine.core.pod import Pod
from mooring.engine.cpumanager.policy import available_cpus, exclusive_cpus
from mooring.engine.kubelet.kubelet import Kubelet
from mooring.engine.node import Node
from mooring.engine.node.node import numa_of_blocks
from mooring.engine.node.resources import pod_requests
from mooring.explanations.phrases import nodes_of
from mooring.inputs.pods.defaults import PodGates
from mooring.inputs.pods.pods import pod_from_object

SHAPE = "--shape"
"""The option that a message about a described pod names."""

DESCRIBED = "mooring.shape"
"""Uid of a described pod, which no API server gives."""

_LITTLE_MEMORY = "1Mi"
_REMEDY = "write amounts such as cpu=4,memory=8Gi,hugepages-2Mi=1Gi,vendor.com/gpu=1"


@dataclass(frozen=True, slots=True)
class Subject:
    """A pod to be counted, and the question about the node without it."""

    pod: Pod
    question: Question
    itself: bool = False
    """Whether the pod is one of those that are given with others, and is counted."""


def named_subject(question: Question, name: str) -> Subject:
    """Find the pod of a name, which then is not on the node but the first to be counted.

    The name of a Deployment or its like stands for the shape of its pods (``NAME-0`` and so on), which stay; so does a
    pod that runs already. A Deployment that is scaled to 0 has none.

    Args:
        question: what is given.
        name: ``[NAMESPACE/]NAME``; empty when exactly one pod, or the pods of one workload, are to be admitted.

    Raises:
        InputError: no pod has the name, or several have.
    """
    if not name:
        # The pods of one workload differ in nothing but uid and the number at the end of their names.
        stems = [replace(pod, name=pod.name.rpartition("-")[0], uid="") for pod in question.pods]
        are_numbered = all(pod.name.rpartition("-")[2].isdecimal() for pod in question.pods)
        if len(stems) > 1 and are_numbered and all(pod == stems[0] for pod in stems):
            return _workload(question, f"{stems[0].namespace}/{stems[0].name}")
        if not question.pods and len(question.scaled_down) == 1:
            return Subject(question.scaled_down[0], question)
        if len(question.pods) != 1:
            names = enumerated([Named(pod).full for pod in question.pods or question.scaled_down])
            remedy = f"name one of {names}" if names else "give a pod with -f, or use --shape"
            raise InputError("several pods are given" if names else "no pod is given", source="POD", remedy=remedy)
        return Subject(question.pods[0], replace(question, pods=()))
    given, running = called(question.pods, name), called(question.active, name)
    found = [*given, *running] or called(question.scaled_down, name)
    if not found:
        return _workload(question, name)
    if len(found) > 1:
        raise several([Named(pod) for pod in found], name)
    if not given:
        return Subject(found[0], question)
    others = tuple(pod for pod in question.pods if pod is not given[0])
    return Subject(given[0], replace(question, pods=others), itself=bool(others))


def _workload(question: Question, name: str) -> Subject:
    everyone = (*question.pods, *question.active)
    namespace, slash, short = name.rpartition("/")
    pods = [
        pod
        for pod in everyone
        if pod.name.startswith(f"{short}-")
        and pod.name.removeprefix(f"{short}-").isdecimal()
        and (not slash or pod.namespace == namespace)
    ]
    if not pods:
        raise unknown((*everyone, *question.scaled_down), name)
    if len({pod.namespace for pod in pods}) > 1:
        raise several([Named(pod) for pod in pods], name)
    return Subject(replace(pods[0], name=short, uid=f"{pods[0].namespace}_{short}"), question)


def described_pod(text: str, gates: PodGates) -> Pod:
    """Return a Guaranteed pod of one container with the amounts of a text; without memory it has as little as counts.

    Raises:
        InputError: a part is no amount, cpu is missing, or the API server would refuse the pod.

    >>> pod = described_pod("cpu=4,memory=8Gi", PodGates())
    >>> pod.qos.value, str(pod.containers[0].limits["memory"])
    ('Guaranteed', '8Gi')
    """
    amounts: dict[str, str] = {}
    for part in text.split(","):
        resource, equals, amount = (word.strip() for word in part.partition("="))
        if not (resource and equals and amount):
            raise InputError(f"{part.strip()!r:.60} is not an amount of a resource", field=SHAPE, remedy=_REMEDY)
        if resource in amounts:
            raise InputError(f"{resource} is given twice", field=SHAPE, remedy=_REMEDY)
        amounts[resource] = amount
    if "cpu" not in amounts:
        raise InputError("cpu must be given, or the pod would not be Guaranteed", field=SHAPE, remedy=_REMEDY)
    amounts.setdefault("memory", _LITTLE_MEMORY)
    spec = {"containers": [{"name": "app", "resources": {"limits": amounts}}]}
    try:
        pod = pod_from_object({"metadata": {"name": "shape", "uid": DESCRIBED}, "spec": spec}, source="", gates=gates)
    except InputError as error:
        field = f"{SHAPE}: {error.field.rpartition('limits.')[2] or error.field}"
        raise InputError(error.problem, field=field, remedy=error.remedy or _REMEDY) from None
    zero = [resource for resource in ("cpu", "memory") if pod.containers[0].limits[resource].is_zero]
    if zero:
        raise InputError(f"{' and '.join(zero)} must be more than 0", field=SHAPE, remedy=_REMEDY)
    return pod


def replica(pod: Pod, number: int, known: Collection[str]) -> Pod:
    """Return the replica of a number, with a name that no real pod can have and a uid outside ``known``.

    >>> replica(Pod("default_web", "web"), 3, ()).name
    'web+3'
    """
    uid = f"{pod.uid}+{number}"
    while uid in known:
        uid += "+"
    return replace(pod, uid=uid, name=f"{pod.name}+{number}")


MOST = 1000
"""Replicas that are counted when neither a limit nor maxPods nor the number of CPUs says more or less."""


def default_limit(kubelet: Kubelet) -> int:
    """Return how many replicas are counted at most unless told otherwise: one more than maxPods, but not without end.

    So the answer ends with a refusal. A node with more CPUs than :data:`MOST` can have a pod for each.
    """
    settings = kubelet.settings
    cpus = settings.topology.num_cpus if settings.topology is not None else 0
    return min(max(settings.max_pods, 0) + 1, max(MOST, cpus))


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
    found = []
    if _can_suffice(_most_cpus(known, 2), missing):
        topology = kubelet.settings.topology
        cpus = topology.num_cpus if topology is not None else 1
        holders = [
            (pod.milli_cpu, pod.bytes, f"{pod.namespace}/{pod.name}", pod) for pod in known if pod.holds_something
        ]
        # The cost of tens of thousands of pairs, without a value for each.
        cheapest = nsmallest(
            min(MOST_PAIRS, WORK // max(cpus, 1)),
            combinations(holders, 2),
            key=lambda pair: (pair[0][0] + pair[1][0], pair[0][1] + pair[1][1], pair[0][2], pair[1][2]),
        )
        pairs = (EvictionPart([one[3], other[3]]) for one, other in cheapest)
        found = list(islice((pair for pair in pairs if works(pair)), MOST_SHOWN))
    if found or not _can_suffice(_most_cpus(known, MOST_EVICTED), missing):
        return found
    # The shortest of the sequences found: those of one NUMA node, else those of all pods
    nodes = sorted({node for pod in known for node in pod.numa_nodes})
    of_nodes = [[pod for pod in known if node in pod.numa_nodes] for node in nodes]
    for groups in (of_nodes, [known]):
        enough = [group for group in groups if works(EvictionPart(list(group)))]
        sequences = [_sequence(order, works) for group in enough for order in (group, group[::-1])]
        short = [one for one in sequences if one is not None]
        if short:
            return [min(short, key=lambda one: (len(one.pods), one.cost))]
    return []


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
    nodes, devices = set(numa_of_blocks(blocks)), node.providers.devices
    for resource, offered in devices.devices.items():
        own = devices.held_by_pod(pod.uid, resource)
        nodes.update(numa for device in offered if device.id in own for numa in device.numa or ())
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
