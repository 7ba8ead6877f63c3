"""From the facts of a decision to chapters: one for each container, and one for the pod as a whole in pod scope.

Reasons, stories, pictures and documents read the same chapters; the facts are walked once.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property

from mooring.engine.core.machineinfo import MachineInfo
from mooring.engine.core.pod import Pod, QoS, guaranteed_equivalent
from mooring.engine.cpumanager import facts as cpus
from mooring.engine.cpumanager.policy import exclusive_cpus, exclusive_cpus_of_pod
from mooring.engine.devicemanager.facts import DevicesTaken
from mooring.engine.devicemanager.state import Device, DeviceState
from mooring.engine.memorymanager.facts import MemoryAssigned, MemoryPinningFailed
from mooring.engine.memorymanager.state import MemoryState
from mooring.engine.node import Decision
from mooring.engine.node.facts import HintScored, HintsGiven
from mooring.engine.node.settings import Settings
from mooring.engine.topologymanager.facts import HintsMerged
from mooring.engine.topologymanager.merge import NONE
from mooring.explanations.opinions import last, opinions_of
from mooring.explanations.story import Chapter, Opinion, Pick, Refused, Run, Step, Taking, failed
from mooring.lazy import dataclass, field, lazily

with lazily():
    import mooring.engine.plugins.facts as plugin_facts

POD_LEVEL_MANAGERS = "PodLevelResourceManagers"
"""The gate with which the managers serve pods with pod-level resources; older releases do not have it."""
POD = ""
"""The key of the chapter about the pod as a whole."""


@dataclass(frozen=True)
class Circumstances:
    """What a decision is explained from, besides the decision itself. Its chapters are read once, on first use."""

    settings: Settings
    pod: Pod
    facts: Sequence[object]
    """Everything that the engine reported, in order."""
    memory: MemoryState
    """The memory manager's state after the decision."""
    devices: DeviceState = field(default_factory=DeviceState)
    """The device manager's state after the decision."""
    machine: MachineInfo | None = None
    """As the kubelet sees it; None where no device is near to anything."""

    @cached_property
    def chapters(self) -> tuple[Chapter, ...]:
        """The chapters, in the order in which things happened."""
        return _chapters_of(self.pod, self.facts, self.settings, self.memory)

    @property
    def refused_in(self) -> Chapter | None:
        """The chapter in which the pod was refused; None when it was not, or when no fact says so."""
        return next((chapter for chapter in reversed(self.chapters) if chapter.failed), None)

    def refusal(self, kind: type[Refused]) -> Refused | None:
        """Return the last step of a kind in which the pod was refused; None when there is none."""
        chapter = self.refused_in
        return chapter.refusal(kind) if chapter is not None else None


def _chapters_of(pod: Pod, facts: Sequence[object], settings: Settings, memory: MemoryState) -> tuple[Chapter, ...]:
    """Return the chapters in the order in which things happened; containers that were not reached have none."""
    mine = [fact for fact in facts if getattr(fact, "pod", pod.uid) == pod.uid]
    merges, start = dict[str, tuple[HintsMerged, tuple[Opinion, ...]]](), 0
    for position, fact in enumerate(mine):
        if isinstance(fact, HintsMerged):
            part, start = mine[start : position + 1], position + 1
            given = last(part, HintsGiven)
            container = given.container if given is not None else POD
            merges[container] = fact, opinions_of(part, settings, fact.policy, memory)
    steps: dict[str, list[Step]] = {}
    told = False
    for step in _steps(mine, plugins=settings.plugins is not None):
        # A refusal is reported once.
        if not (told and isinstance(step, cpus.CPUPinningFailed | MemoryPinningFailed)):
            steps.setdefault(step.container, []).append(step)
        told = failed(step)
    reached = {getattr(fact, "container", POD) for fact in mine} | set(merges)
    names = [POD] if POD in merges or POD in steps else []
    names += [container.name for container in pod.containers if container.name in reached]
    by_distance = settings.numa.distances is not None
    scores = {fact.container: fact.score for fact in mine if isinstance(fact, HintScored)}
    found = []
    for name in names:
        merge, opinions = merges.get(name, (None, ()))
        request, done = _request(pod, name, settings), tuple(steps.get(name, ()))
        found.append(Chapter(name, *request, opinions, merge, by_distance, scores.get(name), done))
    return tuple(found)


def _request(pod: Pod, container: str, settings: Settings) -> tuple[int, str]:
    """Return how many exclusive CPUs a container requests, or the whole pod for an empty name, and why."""
    if not container:
        need = exclusive_cpus_of_pod(pod, settings.pod_level) if settings.cpu is not None else 0
        if need and not settings.pod_level.leaves_out(pod):
            if settings.pod_level.manages(pod):
                return need, "the pod's own resources request them"
            return need, "the most that its containers need at once"
        if settings.cpu is not None and settings.pod_level.manages(pod) and pod.qos is QoS.GUARANTEED:
            return 0, "the pod's own cpu request is not a whole number"
        return 0, _why_none_requests(pod, settings) or "no container requests a whole number of CPUs"
    one = next(found for found in pod.containers if found.name == container)
    need = exclusive_cpus(pod, one, settings.pod_level) if settings.cpu is not None else 0
    managed, asked = settings.pod_level.manages(pod), settings.pod_level.requests_of(one)
    if need and not settings.pod_level.leaves_out(pod):
        why = "the pod is Guaranteed and the request is a whole number"
        if managed and settings.pod_scope and settings.topology_policy != NONE:  # KEP-5526
            why = "its requests equal its limits and the number is whole; they come from the CPUs of the pod"
        return need, why
    if not (why := _why_none_requests(pod, settings)):
        if "cpu" not in asked:
            why = "it requests no CPU" if asked is one.requests else "its status allocates no CPU"
        elif managed and not guaranteed_equivalent(one):
            why = "its cpu and memory requests are not both set and equal to its limits"
        else:
            why = f"{asked['cpu']} is not a whole number of CPUs"
    return 0, why


def _why_none_requests(pod: Pod, settings: Settings) -> str:
    """Return what keeps every container of the pod from exclusive CPUs, or an empty text."""
    if settings.cpu is None:
        return "the CPU manager policy is none"
    if pod.qos is not QoS.GUARANTEED:
        return f"the QoS class of the pod is {pod.qos.value}"
    if settings.pod_level.leaves_out(pod):
        return f"the pod has pod-level resources, and {why_left_out(settings)}"
    return ""


def devices_of(decision: Decision) -> dict[str, dict[str, Device]]:
    """Return what the containers of a pod hold of each resource, by id."""
    found: dict[str, dict[str, Device]] = {}
    for resources in decision.devices.values():
        for resource, devices in resources.items():
            found.setdefault(resource, {}).update((device.id, device) for device in devices)
    return found


def why_left_out(settings: Settings) -> str:
    """Return why the managers leave out pods with pod-level resources; a clause."""
    if POD_LEVEL_MANAGERS in settings.gates.values:
        return f"the gate {POD_LEVEL_MANAGERS} is off"
    return f"the managers of kubelet {settings.release.name} leave such pods out"


def _steps(facts: Iterable[object], *, plugins: bool) -> Iterator[Step]:
    """Yield what was done, in order; the facts of one taking become one step."""
    open_run: list[object] = []
    told: list[object] = []
    for fact in facts:
        match fact:
            case cpus.TakeBegun() | cpus.CPUsPicked() | cpus.DistributionChosen() | cpus.SharePicked():
                open_run.append(fact)
            case cpus.CPUsTaken():
                runs = tuple(_runs(open_run))
                yield Taking(
                    fact.container, fact.need, fact.reusable, fact.pool, fact.affinity, runs, fact.taken, fact.error
                )
                open_run = []
            case cpus.PodShareCut():
                yield from _cut(open_run, fact.cpus, "")
                yield fact
                open_run = []
            case cpus.CPUPinningFailed():
                yield from _cut(open_run, 0, fact.error)
                yield fact
                open_run = []
            case _ if plugins and isinstance(fact, plugin_facts.PluginStep):
                # A plugin that is asked for hints and for the choice says the same twice.
                if fact not in told:
                    yield fact
                told.append(fact)
            case (
                cpus.WholeCoresChecked()
                | cpus.ExistingCPUsKept()
                | MemoryAssigned()
                | MemoryPinningFailed()
                | DevicesTaken()
            ):
                yield fact


def _cut(facts: list[object], taken: int, error: str) -> Iterator[Taking]:
    """Yield the taking from the CPUs of the pod, whose end is not a fact."""
    begun = next((fact for fact in facts if isinstance(fact, cpus.TakeBegun)), None)
    if begun is not None:
        yield Taking(begun.container, begun.need, 0, begun.candidates, None, tuple(_runs(facts)), taken, error)


def _runs(facts: list[object]) -> Iterator[Run]:
    starts = [position for position, fact in enumerate(facts) if isinstance(fact, cpus.TakeBegun)]
    # Plugins choose without a run of the kubelet's rules.
    for start, end in zip(starts, [*starts[1:], len(facts)] if starts else [], strict=True):
        begun, *rest = facts[start:end]
        if not isinstance(begun, cpus.TakeBegun):
            continue
        chosen = next((fact for fact in rest if isinstance(fact, cpus.DistributionChosen)), None)
        picks = tuple(
            Pick(one.rule, one.cpus)
            if isinstance(one, cpus.CPUsPicked)
            else Pick("rest" if one.is_rest else "share", one.cpus, one.node)
            for one in rest
            if isinstance(one, cpus.CPUsPicked | cpus.SharePicked)
        )
        yield Run(begun.place, begun.need, begun.candidates, chosen, picks)
