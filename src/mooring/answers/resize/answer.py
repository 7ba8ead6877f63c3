"""What would happen if a pod were resized in place on a node, after the given pods were admitted: ``mooring resize``.

Nothing is guessed: the engine decides about the resize and about every size that is tried. A refusal has a stable code
and plain words; the kubelet's own message stands beside them letter for letter.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import Annotated, Literal, TypeAlias

from msgspec import field, structs

from mooring.answers.base.plan import AnyPlan, Plan, Question, RefusedPlan, make_plan, start_error
from mooring.answers.base.pods import Named, find, pods_of
from mooring.answers.base.start import GENERAL
from mooring.documents import plan as parts
from mooring.engine.core.config import EXCLUSIVE_RESIZE
from mooring.engine.core.cpuset import CPUSet
from mooring.engine.core.decision import Placement
from mooring.engine.core.errors import InputError, KubeletCrashError
from mooring.engine.core.pod import ContainerKind, Pod, QoS, ResourceList
from mooring.engine.core.quantity import Quantity
from mooring.engine.cpumanager.options import EXCLUSIVE_RESIZE_GATE
from mooring.engine.kubelet.events import Amounts, Resizing
from mooring.engine.kubelet.kubelet import Kubelet, shared_cpus
from mooring.engine.node.policies import MEMORY_RESIZE_GATE
from mooring.engine.node.resizing import resize, resize_state
from mooring.engine.node.resources import delay_left
from mooring.explanations import codes as code
from mooring.explanations.phrases import plural
from mooring.explanations.probes import largest_halved
from mooring.explanations.why import why_not_resized
from mooring.inputs.pods.defaults import PodGates
from mooring.inputs.pods.pods import resized_pod

CPU = "cpu"
MEMORY = "memory"
MIB = 2**20
_MOST_NAMED = 3


class LargestAmountsPart(parts.DocumentPart):
    """The largest amounts that a container can have now; null for what was not asked about."""

    cpus: int | None = None
    memory_bytes: int | None = None
    milli_cpus: Annotated[
        int | None,
        parts.told("Thousandths of a CPU in place of cpus: of a container with a fraction in a Guaranteed pod."),
    ] = field(default=None, name="milliCPUs")


class ResizedPlacePart(parts.DocumentPart):
    """Exclusive CPUs and NUMA nodes of the memory."""

    cpus: parts.CPUList
    mems: parts.NodeList


class PendingReleasePart(parts.DocumentPart):
    """A release that waits for its delay."""

    cpus: Annotated[parts.CPUList, parts.told("What it has when the delay is over.")]
    delay_milliseconds: parts.Count


class ResizedContainerPart(parts.DocumentPart):
    """A container of the pod."""

    name: str
    has: Annotated[dict[str, str], parts.told("Requests of cpu and memory before.")]
    asks: Annotated[dict[str, str], parts.told("The request; empty for a container that is not resized.")]
    before: Annotated[
        ResizedPlacePart | None,
        parts.told("Exclusive CPUs and NUMA nodes of the memory before; null when the pod does not run."),
    ] = None
    after: Annotated[
        ResizedPlacePart | None, parts.told("The same afterwards; CPUs that are released later are still included.")
    ] = None
    baseline: Annotated[parts.CPUList, parts.told("The baseline: what it got at admission; it never has less.")] = ""
    pending: Annotated[PendingReleasePart | None, parts.told("A release that waits for its delay.")] = None
    largest: Annotated[
        LargestAmountsPart | None,
        parts.told("The largest amounts that it can have now; null for what was not asked about."),
    ] = None


class ResizeDocument(parts.DocumentPart, kw_only=True):
    """What mooring resize -o json prints: what would happen if a pod were resized in place."""

    api_version: parts.APIVersion = parts.API_VERSION
    kind: Literal["Resize"] = "Resize"
    kubelet: parts.KubeletRelease
    machine: str
    start_error: Annotated[str, parts.told("The kubelet's message when it would not start.")]
    uid: str
    namespace: str
    name: str
    qos: parts.QoSName
    runs: Annotated[bool, parts.told("Whether the pod runs on the node.")] = False
    not_running: Annotated[str, parts.told("Why it does not.")]
    accepted: Annotated[bool, parts.told("Whether it gets what is requested, or has it already.")] = False
    condition: Annotated[str, parts.one_of("", "PodResizePending", "PodResizeInProgress")] = ""
    reason: Annotated[str, parts.one_of("", "Deferred", "Infeasible")] = ""
    message: Annotated[str, parts.told("The kubelet's words.")] = ""
    refused_by: Annotated[str, parts.told("The reason of the check that refused it, such as OutOfcpu.")] = ""
    code: parts.Code = ""
    why: Annotated[str, parts.told("One sentence in plain words.")] = ""
    remedy: Annotated[str, parts.told("What can be done.")] = ""
    events: Annotated[list[str], parts.told("Names of the kubelet's events.")] = field(default_factory=list)
    containers: list[ResizedContainerPart]
    shared_pool: Annotated[parts.CPUList, parts.told("The shared pool afterwards.")] = ""
    findings: list[parts.FindingPart]


Wanted: TypeAlias = tuple[str, str, Quantity]
"""A resource, a container, empty for the one that is meant anyway, and an amount."""


def resize_of(question: Question, name: str, asked: Iterable[Wanted]) -> tuple[AnyPlan, ResizeDocument]:
    """Admit the pods of a question, then resize one of them; return the node before it, and the answer.

    Args:
        question: about the node.
        name: ``[NAMESPACE/]POD[/CONTAINER]``; empty for the only pod.
        asked: amounts.

    Raises:
        InputError: the name means nothing or too much, or the API server refuses such a resize.
    """
    plan = make_plan(question)
    pods = pods_of(plan)
    if not (name or pods):
        raise InputError("there is no pod to resize", source="POD", remedy="give pods with -f or --active")
    if not name and len(pods) > 1:
        remedy = f"name one of them, such as {Named(pods[0]).full}"
        raise InputError(f"is missing, and there are {len(pods)} pods", source="POD", remedy=remedy)
    named = find(pods, name) if name else Named(pods[0])
    pod = named.pod
    wanted = resizing_of(pod, named.container, asked)
    asked_of, gates = wanted.containers, PodGates.of_node(question.config, question.mooring)
    changed = resized_pod(pod, wanted, gates)
    standing = next((one for one in plan.answers if one.pod.uid == pod.uid), None)
    document = ResizeDocument(
        kubelet=plan.release.tag,
        machine=plan.machine.name,
        start_error=start_error(plan),
        uid=pod.uid,
        namespace=pod.namespace,
        name=pod.name,
        qos=pod.qos.value,
        not_running=standing.why if standing is not None else "",
        containers=[
            ResizedContainerPart(
                one.name, _amounts(one.requests), _amounts(asked_of[one.name].requests) if one.name in asked_of else {}
            )
            for one in pod.containers
        ],
        findings=parts.finding_parts(plan.findings),
    )
    if isinstance(plan, RefusedPlan) or pod.uid not in plan.kubelet.node.active:
        return plan, document
    kubelet = plan.kubelet
    before = resize_state(kubelet.node, pod.uid).containers
    after, answer = kubelet.resize(changed)
    document = structs.replace(
        document,
        runs=True,
        not_running="",
        accepted=not answer.reason,
        condition=answer.condition,
        reason=answer.reason,
        message=answer.message,
        events=list(answer.events),
        containers=[
            structs.replace(
                part,
                before=_place(before[name]),
                after=_place(answer.containers[name]),
                baseline=str(answer.baseline.get(name, "")),
                pending=None
                if (release := answer.releases.get(name)) is None
                else PendingReleasePart(str(CPUSet(release.cpus)), delay_left(release, after.node.moment) // 10**6),
                largest=largest_of(kubelet, pod, name, asked_of[name], gates) if name in asked_of else None,
            )
            for part in document.containers
            for name in (part.name,)
        ],
        shared_pool=str(shared_cpus(after)),
    )
    if answer.rejection is None:
        return plan, document
    why = why_not_resized(answer.rejection, kubelet.settings, changed)
    tried = [*_other_sizes(kubelet, pod, wanted, gates), *_without_a_pod(kubelet, changed)]
    if why.code == code.RESIZE_BY_POLICY:
        tried += _with_the_extension(question, changed)
    # Alternatives that were run; else the general advice, marked as such
    remedy = f"{GENERAL}{why.remedy}" if why.remedy else ""
    if tried:
        text = ", or ".join(tried)
        remedy = f"{text[0].upper()}{text[1:]}: the resize is then accepted (run here)."
    refused_by = answer.rejection.reason
    return plan, structs.replace(document, refused_by=refused_by, code=why.code, why=why.sentence, remedy=remedy)


def _place(placement: Placement) -> ResizedPlacePart:
    return ResizedPlacePart(str(placement.cpus), ",".join(map(str, placement.mems)))


def _amounts(requests: ResourceList) -> dict[str, str]:
    return {name: str(amount) for name, amount in requests.items() if name in ("cpu", "memory")}


def _other_sizes(kubelet: Kubelet, pod: Pod, wanted: Resizing, gates: PodGates) -> Iterator[str]:
    """Yield the number of CPUs nearest to the wanted one that is accepted, where only that is to change."""
    if len(wanted.containers) != 1:
        return
    ((name, amounts),) = wanted.containers.items()
    if list(amounts.requests) != [CPU]:
        return
    fits = asking(kubelet, pod, name, amounts, gates)
    now = next(one for one in pod.containers if one.name == name).requests.get(CPU, Quantity.of_milli(0)).milli // 1000
    asked = -(-amounts.requests[CPU].milli // 1000)
    most = kubelet.settings.reservation.allocatable(CPU) // 1000
    sizes = (count for count in range(1, most + 1) if count not in (now, asked) and (count > now) == (asked > now))
    for count in sorted(sizes, key=lambda one: (abs(one - asked), -one)):
        if fits(CPU, Quantity.of_milli(1000 * count)):
            yield f"request {plural(count, 'CPU')} for {name}"
            return


def resizing_of(pod: Pod, container: str, asked: Iterable[Wanted]) -> Resizing:
    """Return the resize of a pod that is requested.

    Where a container's limit is its request, as in a Guaranteed pod, the limit follows.

    Args:
        pod: as it is.
        container: the one that was named with the pod; empty for none.
        asked: the amounts.

    Raises:
        InputError: it is not clear which container is meant, one that is named with the pod is not meant, or an amount
            is given twice.
    """
    # Regular init containers have ended when a running pod is resized.
    running = [one.name for one in pod.containers if one.kind is not ContainerKind.INIT]
    amounts: dict[str, dict[str, Quantity]] = {}
    for resource, named, amount in asked:
        if container and named not in ("", container):
            problem = f"names container {named:.60}, but POD names {container}"
            raise InputError(problem, field=f"--{resource}", remedy=f"write POD without /{container}")
        name = named or container or (running[0] if len(running) == 1 else "")
        if not name:
            likely = next((one.name for one in pod.containers if one.kind is ContainerKind.APP), running[0])
            remedy = f"write --{resource} {likely}=AMOUNT"
            raise InputError(f"the pod has {len(running)} containers", field=f"--{resource}", remedy=remedy)
        mine = amounts.setdefault(name, {})
        if resource in mine:
            raise InputError(f"is given twice for container {name}", field=f"--{resource}", remedy="give it once")
        mine[resource] = amount
    known = {one.name: one for one in pod.containers}
    found = {}
    for name, mine in amounts.items():
        if name not in known:
            raise InputError(f"has no container {name!r:.60}", source=pod.name, remedy=f"they are {', '.join(known)}")
        requests, limits = known[name].requests, known[name].limits
        equal = [one for one in mine if one in limits and limits[one] == requests.get(one)]
        follows = {one: mine[one] for one in equal}
        found[name] = Amounts(mine, follows)
    return Resizing(pod.uid, found)


def asking(
    kubelet: Kubelet, pod: Pod, container: str, amounts: Amounts, gates: PodGates
) -> Callable[[str, Quantity], bool]:
    """Return what asks the engine whether one container can have an amount when all else of node and pod stays."""

    def fits(resource: str, amount: Quantity) -> bool:
        part = {resource: amount}
        limits = part if resource in amounts.limits else {}
        try:
            grown = resized_pod(pod, Resizing(pod.uid, {container: Amounts(part, limits)}), gates)
        except InputError:  # above a limit that stays
            return False
        return not resize(kubelet.node, grown)[1].reason

    return fits


def largest_of(kubelet: Kubelet, pod: Pod, container: str, amounts: Amounts, gates: PodGates) -> LargestAmountsPart:
    """Ask the engine how far one container can grow when everything else of the node and the pod stays."""
    now = next(one for one in pod.containers if one.name == container).requests
    fits = asking(kubelet, pod, container, amounts, gates)

    def has_milli(milli: int) -> bool:
        return fits(CPU, Quantity.of_milli(milli))

    reservation = kubelet.settings.reservation
    cpus = memory = milli = None
    has, most = now.get(CPU, Quantity.of_milli(0)).milli, reservation.allocatable(CPU)
    if CPU in amounts.requests and has % 1000 and pod.qos is QoS.GUARANTEED:
        # The largest number of thousandths that fits, where policy static takes no whole number of CPUs
        # Only fractions are counted: halving would take a whole number that does not fit for the end.
        found = _fraction(
            largest_halved(lambda number: has_milli(_fraction(number)), has - has // 1000, most - most // 1000)
        )
        milli = found + 1 if found < most and has_milli(found + 1) else found
    elif CPU in amounts.requests:
        # Downwards one by one: nothing is assumed about which ones fit.
        cpus = next((one for one in range(most // 1000, has // 1000, -1) if has_milli(1000 * one)), has // 1000)
    if MEMORY in amounts.requests:
        least = now[MEMORY].units // MIB if MEMORY in now else 0
        most = reservation.allocatable(MEMORY) // MIB
        memory = MIB * largest_halved(lambda mib: fits(MEMORY, Quantity.of_bytes(mib * MIB)), least, most)
    return LargestAmountsPart(cpus, memory, milli)


def _fraction(number: int) -> int:
    """Return a number of thousandths, counted without whole numbers.

    >>> [_fraction(number) for number in (1, 999, 1000, 1998, 1999)]
    [1, 999, 1001, 1999, 2001]
    """
    return number + (number - 1) // 999


def _accepts(kubelet: Kubelet, changed: Pod) -> bool:
    return not kubelet.resize(changed)[1].reason


def _without_a_pod(kubelet: Kubelet, changed: Pod) -> Iterator[str]:
    """Yield the removal of a pod that is enough alone, the pods with the fewest exclusive CPUs first."""
    node = kubelet.node
    found: list[tuple[int, str]] = []
    for uid, pod in node.active.items():
        try:
            enough = uid != changed.uid and _accepts(kubelet.without({uid}), changed)
        except KubeletCrashError:  # on releasing what another pod shared
            continue
        if enough:
            held = sum(cpus.bit_count() for cpus in node.cpu.assignments.get(uid, {}).values())
            found.append((held, f"{pod.namespace}/{pod.name}"))
    names = [name for _, name in sorted(found)]
    if names:
        more = f" (or one of {plural(len(names) - _MOST_NAMED, 'other')})" if len(names) > _MOST_NAMED else ""
        yield f"remove {' or '.join(names[:_MOST_NAMED])}{more}"


def _with_the_extension(question: Question, changed: Pod) -> Iterator[str]:
    """Yield the fewest gates with which the extension exclusive-resize accepts it."""
    mooring = replace(question.mooring, extensions=question.mooring.extensions | {EXCLUSIVE_RESIZE})
    for gates in ((EXCLUSIVE_RESIZE_GATE,), (MEMORY_RESIZE_GATE,), (EXCLUSIVE_RESIZE_GATE, MEMORY_RESIZE_GATE)):
        config = replace(question.config, feature_gates={**question.config.feature_gates, **dict.fromkeys(gates, True)})
        plan = make_plan(replace(question, config=config, mooring=mooring))
        runs = isinstance(plan, Plan) and changed.uid in plan.kubelet.node.active
        if isinstance(plan, Plan) and runs and _accepts(plan.kubelet, changed):
            yield f"let mooring agent pin, with {' and '.join(gates)} and the extension {EXCLUSIVE_RESIZE}"
            return
