"""What would happen if a pod were resized in place on a node, after the given pods were admitted.

Nothing is guessed: the engine decides about the resize and about every size that is tried. A refusal has a stable code
and plain words; the kubelet's own message stands beside them letter for letter.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from mooring.answers.base.answering import Answer
from mooring.answers.base.plan import Plan, make_plan
from mooring.answers.base.pod_names import Named, find, pods_of
from mooring.answers.base.question import Question
from mooring.answers.resize.advice import resize_advice
from mooring.answers.resize.asked import CPU, Wanted, resizing_of
from mooring.answers.resize.largest import Largest, asking, largest_of
from mooring.engine.core.decision import Placement, Rejection
from mooring.engine.core.errors import InputError
from mooring.engine.core.pod import Pod
from mooring.engine.core.quantity import Quantity
from mooring.engine.extensions import cpu_resize, memory_resize
from mooring.engine.extensions import cpu_resize as cpu_change
from mooring.engine.kubelet.events import Resizing
from mooring.engine.kubelet.kubelet import Kubelet
from mooring.engine.node.admission import TOPOLOGY_AFFINITY_ERROR
from mooring.engine.node.resize.feasibility import BEYOND_NODE, BY_CPU_POLICY, BY_MEMORY_POLICY, Resize
from mooring.engine.node.resize.resizing import resize_state
from mooring.explain import reason as code
from mooring.explain.phrases import plural
from mooring.explain.reason import Reason
from mooring.explain.why import ACCEPTED, why_beyond_node, why_out_of
from mooring.inputs.pods.defaults import PodGates
from mooring.inputs.pods.steps import resized_pod


@dataclass(frozen=True, slots=True)
class ResizeAnswer:
    """The answer."""

    plan: Plan
    pod: Pod
    """With the resources that it has."""
    asked: Resizing
    before: Mapping[str, Placement] = field(default_factory=dict)
    """What each container has."""
    answer: Resize | None = None
    """None when the pod does not run."""
    after: Kubelet | None = None
    """The kubelet after the resize."""
    reason: Reason | None = None
    """Why it is refused."""
    largest: Mapping[str, Largest] = field(default_factory=dict)
    """Of the containers that are to be resized."""

    @property
    def is_yes(self) -> bool:
        """Tell whether the pod gets what it requests; it does as well when it has it already."""
        return self.answer is not None and not self.answer.reason

    @property
    def keeps_other_cpus(self) -> tuple[str, ...]:
        """Names of containers that get another number of CPUs on paper, and keep those that they have.

        So it is with the gate InPlacePodVerticalScalingExclusiveCPUs of kubelet v1.37.1 and without the extension.
        """
        if self.answer is None or not self.answer.accepted:
            return ()
        asked = {name: one.requests[CPU].milli for name, one in self.asked.containers.items() if CPU in one.requests}
        return tuple(
            name
            for name, milli in asked.items()
            if (held := self.answer.containers[name].cpus) and name not in self.answer.releases
            if 1000 * len(held) != milli
        )

    @property
    def standing(self) -> Answer | None:
        """The answer for the pod's admission; None when no kubelet runs."""
        return next((one for one in self.plan.answers if one.pod.uid == self.pod.uid), None)


def resize_of(question: Question, name: str, asked: Iterable[Wanted]) -> ResizeAnswer:
    """Admit the pods of a question, then resize one of them.

    Args:
        question: about the node.
        name: ``[NAMESPACE/]POD[/CONTAINER]``; empty for the only pod.
        asked: amounts.

    Raises:
        InputError: the name means nothing or too much, or the API server refuses such a resize.
    """
    plan = make_plan(question)
    named = _named(plan, name)
    pod = named.pod
    wanted = resizing_of(pod, named.container, asked)
    gates = PodGates.of_node(question.config, question.mooring)
    changed = resized_pod(pod, wanted, gates)
    if plan.kubelet is None or pod.uid not in plan.kubelet.node.active:
        return ResizeAnswer(plan, pod, wanted)
    kubelet = plan.kubelet
    before = resize_state(kubelet.node, pod.uid).containers
    after, answer = kubelet.resize(changed)
    reason = None
    if answer.rejection is not None:
        reason = _why_refused(answer.rejection)
        advice = resize_advice(reason, question, kubelet, changed, lambda: _other_sizes(kubelet, pod, wanted, gates))
        reason = replace(reason, remedy=advice)
    largest = {name: largest_of(kubelet, pod, name, amounts, gates) for name, amounts in wanted.containers.items()}
    return ResizeAnswer(plan, pod, wanted, before, answer, after, reason, largest)


def _named(plan: Plan, name: str) -> Named:
    pods = pods_of(plan)
    if name:
        return find(pods, name)
    if len(pods) == 1:
        return Named(pods[0])
    if not pods:
        raise InputError("there is no pod to resize", source="POD", remedy="give pods with -f or --active")
    remedy = f"name one of them, such as {Named(pods[0]).full}"
    raise InputError(f"is missing, and there are {len(pods)} pods", source="POD", remedy=remedy)


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


_REASONS: dict[str, Reason] = {
    BY_CPU_POLICY: Reason(
        code.RESIZE_BY_POLICY,
        "Under CPU manager policy static the CPU of a Guaranteed pod cannot be resized.",
        "Recreate the pod, or enable InPlacePodVerticalScalingExclusiveCPUs and the extension exclusive-resize.",
    ),
    BY_MEMORY_POLICY: Reason(
        code.RESIZE_BY_POLICY,
        "Under memory manager policy Static the memory of a Guaranteed pod cannot be resized.",
        "Recreate the pod, or enable InPlacePodVerticalScalingExclusiveMemory and the extension exclusive-resize.",
    ),
    "plr_feature_gate_off": Reason(
        code.NO_POD_LEVEL_RESIZE,
        "Resources of the pod as a whole cannot be resized on this node.",
        "Enable InPlacePodLevelResourcesVerticalScaling, or resize the containers.",
    ),
    cpu_change.PROHIBITED: Reason(
        code.BELOW_BASELINE,
        "The container would have fewer CPUs than it got when it was admitted, and these it keeps.",
        "Request at least as many, or recreate the pod.",
    ),
    cpu_change.HIDDEN_SIBLINGS: Reason(
        code.HIDDEN_SIBLINGS,
        "The other threads of the container's cores are hidden, and they are chosen with the CPUs, once.",
        "Recreate the pod with the number of CPUs that it needs.",
    ),
    cpu_change.INCONSISTENT: Reason(
        code.BETWEEN_POOLS,
        "A running container cannot move between the shared pool and CPUs of its own.",
        "Request a whole number of CPUs where it has its own, and for a fraction where it has none.",
    ),
    cpu_change.NO_BASELINE: Reason(
        code.WITHOUT_BASELINE,
        "The state does not record the container's baseline.",
        "Restart the kubelet with InPlacePodVerticalScalingExclusiveCPUs, or recreate the pod.",
    ),
    cpu_resize.NOT_RESIZED: Reason(
        code.NO_ROOM_BESIDE,
        "The CPUs that are missing cannot be taken beside those that the container has.",
        "Request less, or remove a pod.",
    ),
    TOPOLOGY_AFFINITY_ERROR: Reason(
        code.NO_ROOM_BESIDE,
        "The pod keeps what it has, and the topology manager finds no place around that which its policy accepts.",
        "Request less, or remove a pod from the same NUMA nodes.",
    ),
    memory_resize.PROHIBITED: Reason(
        code.LESS_MEMORY,
        "The container has memory of NUMA nodes to itself, which cannot shrink while it runs.",
        "Leave the memory as it is, or recreate the pod.",
    ),
}
"""By the detail that the engine gives, or by the kubelet's reason."""


def _why_refused(rejection: Rejection) -> Reason:
    """Return why a resize was refused."""
    known = _REASONS.get(rejection.reason)
    if rejection.message.endswith(" static policy"):  # rule static-policies-refuse-every-resize
        sentence = "Up to v1.33 the static policies refuse every resize of a Guaranteed pod, whatever changes."
        return replace(_REASONS[BY_CPU_POLICY], sentence=sentence)
    if known is not None:
        return known
    if rejection.shortage is not None and rejection.reason == BEYOND_NODE:
        return why_beyond_node(rejection.shortage)
    if rejection.reason.startswith("OutOf"):
        found = why_out_of(rejection)
        sentence = found.sentence.replace(ACCEPTED, "No resource manager objects, but")
        return Reason(found.code, sentence, found.remedy)
    if rejection.reason == "SMTAlignmentError":
        if "not multiple" in rejection.message:
            return Reason(
                code.NO_WHOLE_CORES, "With full-pcpus-only CPUs come as whole cores.", "Request the next multiple."
            )
        return Reason(code.TOO_FEW_WHOLE_CORES, "Too few CPUs on whole cores are free.", "Request less.")
    return Reason(code.RESIZE_NOT_SERVED, "A resource manager cannot give the pod what it requests.")
