"""Planning: a question, which is a list of pods on a node in order, and the plan: every answer and its reason.

A question is everything that decides its answer, as one value. To ask "and if it were otherwise?", take a question,
change one thing, and ask again. After the managers the kubelet's node resources check is applied, so that a plan never
promises what the node does not have.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias

from mooring.answers.base import answering
from mooring.answers.base import plan_findings as notes
from mooring.engine.core.bits import NO_CPUS
from mooring.engine.core.config import KubeletConfig, MooringConfig
from mooring.engine.core.cpuset import CPUSet
from mooring.engine.core.decision import Observer, Rejection, StartRefusal
from mooring.engine.core.errors import KubeletCrashError
from mooring.engine.core.machine import Finding, Machine
from mooring.engine.core.pod import Pod
from mooring.engine.core.release import NEWEST, Release
from mooring.engine.devicemanager.state import Device, DeviceState, Holdings, Preference
from mooring.engine.kubelet.events import Admit, Event, Offline, Readmit, Remove, ordered, run
from mooring.engine.kubelet.kubelet import Kubelet, StateTexts
from mooring.engine.kubelet.start import Held, NotStarted, Start, held_findings, opened
from mooring.engine.node.hotplug import check_known, hotplug_findings, remembered
from mooring.explanations.codes import POOL_EMPTY
from mooring.inputs.archive import OF_ARCHIVE
from mooring.inputs.configuration.node_configuration import RESERVATION_UNKNOWN
from mooring.lazy import lazily

with lazily():
    import mooring.engine.node.metrics as metering
    from mooring.answers.base import picture, rows
    from mooring.answers.base import start as advice
    from mooring.views.svg import picture as drawing

if TYPE_CHECKING:
    from mooring.documents.plan import FindingPart
    from mooring.engine.node.metrics import Metrics


Entry: TypeAlias = Readmit | Offline | Admit
"""One entry of the queue: a pod, or CPUs that go offline."""
Queue: TypeAlias = tuple[Entry, ...]


@dataclass(frozen=True, slots=True)
class Question:
    """What would this node do with these pods?"""

    machine: Machine
    config: KubeletConfig
    mooring: MooringConfig = field(default_factory=MooringConfig)
    pods: tuple[Pod, ...] = ()
    """To be admitted, in order."""
    active: tuple[Pod, ...] = ()
    """Pods that run already; they are admitted again at the start."""
    files: StateTexts = field(default_factory=StateTexts)
    """Texts of existing state files."""
    devices: Mapping[str, tuple[Device, ...]] = field(default_factory=dict)
    """Resource -> devices of the node's device plugins; driver -> devices of its slices."""
    held: Holdings = field(default_factory=dict)
    """What the device manager gave to pods that run already."""
    findings: tuple[Finding, ...] = ()
    """What was noticed while the question was read."""
    leaving: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Uid of one of ``pods`` -> uids of pods that end just before it is asked; under the empty text those that end when
    all were asked."""
    offline: CPUSet = CPUSet()  # noqa: RUF009 - frozen
    """CPUs that go offline when the running pods are back and no other has been asked (extension cpu-hotplug)."""
    displaced: Mapping[str, Mapping[int, int]] = field(default_factory=dict)
    """CPUs that are kept for pods that lost them, which no state file tells, as
    :attr:`~mooring.engine.cpumanager.state.CPUState.displaced`."""
    stop_at_crash: bool = False
    """Whether pods after one on which the kubelet crashes are not asked; else the plan goes on without that pod."""
    claimed: Holdings = field(default_factory=dict)
    """Uid of a pod -> container -> resource or driver -> ids of devices that it has elsewhere, such as by claims."""
    preferences: Mapping[str, Preference] = field(default_factory=dict)
    """Resource -> which of its devices its plugin prefers."""
    scaled_down: tuple[Pod, ...] = ()
    """Pods of workloads that are scaled to 0, under the workload's name: none of them is admitted, but they can be
    counted."""
    alone: bool = False
    """Whether each of ``pods`` ends before the next is asked about."""
    recorded: Mapping[str, Rejection] = field(default_factory=dict)
    """Uid of a pod that has failed -> reason and message that its status records."""


def opened_for(question: Question, observer: Observer | None = None) -> tuple[Start, Mapping[str, Held]]:
    """Start the kubelet of a question, ready to be asked about its pods."""
    start, others = opened(
        question.machine,
        question.config,
        question.mooring,
        question.files,
        DeviceState(question.devices, question.held, question.claimed, question.preferences),
        active=question.active,
        pods=question.pods,
        observer=observer,
    )
    if question.displaced and not isinstance(start, NotStarted):
        start = replace(start, node=remembered(start.node, NO_CPUS, question.displaced))
    return start, others


def queue_of(question: Question, pods: Sequence[Pod]) -> Queue:
    """Return what happens, but for pods that end: running pods are readmitted, CPUs go offline, new pods are admitted.

    Args:
        question: the question.
        pods: its new pods in the order in which they are asked about.
    """
    offline = (Offline(question.offline),) if question.offline else ()
    return (*(Readmit(pod) for pod in question.active), *offline, *(Admit(pod) for pod in pods))


def pods_in(queue: Iterable[Entry]) -> tuple[Pod, ...]:
    """Return the pods of a queue, in order."""
    return tuple(entry.pod for entry in queue if not isinstance(entry, Offline))


def happening(queue: Iterable[Entry], leaving: Mapping[str, Sequence[str]], *, alone: bool = False) -> Iterator[Event]:
    """Yield all that happens, in order.

    Args:
        queue: pods, and CPUs that go offline.
        leaving: which pods end before which other, as in a question.
        alone: whether each new pod ends before the next, as in a question.
    """
    for entry in queue:
        if not isinstance(entry, Offline):
            yield from (Remove(uid) for uid in leaving.get(entry.pod.uid, ()))
        yield entry
        if alone and isinstance(entry, Admit):
            yield Remove(entry.pod.uid)
    yield from (Remove(uid) for uid in leaving.get("", ()))


def _drawn(plan: AnyPlan) -> str:
    """Return the picture that notebooks show of a plan."""
    return drawing.svg_text(picture.plan_view(plan))


@dataclass(frozen=True, slots=True)
class Plan:
    """What a node does with the pods."""

    machine: Machine
    answers: tuple[answering.Answer, ...]
    began: Kubelet
    """The kubelet before the first answer."""
    kubelet: Kubelet
    """The kubelet afterwards, when it has released what refused pods had been given."""
    findings: tuple[Finding, ...]
    release: Release = NEWEST
    """Of the kubelet that decided."""
    unasked: tuple[Pod, ...] = ()
    """Pods that were not asked about: those after the one from which the kubelet would not return, and with
    ``stop_at_crash`` those after the first on which it crashes."""
    left: frozenset[str] = frozenset()
    """Uids of pods that were admitted and then left, because the plan was asked with ``leaving``."""
    events: tuple[Event, ...] = ()
    """What happened, or would have happened after the last answer."""
    facts: tuple[object, ...] = ()
    """What the kubelet's metrics count, in order, since its start."""

    def __repr__(self) -> str:
        admitted = sum(answer.admitted for answer in self.answers)
        return f"<Plan of {self.machine.name}: {admitted} of {len(self.answers)} pods admitted>"

    _repr_svg_ = _drawn

    def to_dataframe(self) -> Any:
        """Return the rows of :func:`mooring.answers.base.rows.dataframe`."""
        return rows.dataframe(self)

    @property
    def metrics(self) -> Metrics:
        """The kubelet's metrics after all answers."""
        counted = metering.fold(metering.Metrics.initial(self.began.settings, self.began.node.cpu), self.facts)
        return metering.with_devices(counted, self.kubelet.node.providers.devices.devices)

    def kubelets(self) -> Iterator[Kubelet]:
        """Let it all happen again; yield the kubelet before the first answer and after each one.

        A plan does not keep them: each holds all pods before it.
        """
        yield self.began
        asked = (one.after for one in run(self.began, self.events) if one.result.admissions)
        yield from islice(asked, len(self.answers))

    @property
    def files(self) -> StateTexts:
        """The state files afterwards."""
        return self.kubelet.files

    @property
    def emptied_pool(self) -> Finding | None:
        """What is said about a shared pool without any CPU; None where it has one."""
        return next((finding for finding in self.findings if finding.code == POOL_EMPTY), None)

    @property
    def is_yes(self) -> bool:
        """Tell whether every pod is admitted, and the kubelet would start again."""
        return not self.unasked and all(answer.admitted for answer in self.answers) and self.emptied_pool is None


@dataclass(frozen=True, slots=True)
class RefusedPlan:
    """A plan on a node whose kubelet would not start: no pod was asked about."""

    question: Question
    refusal: StartRefusal
    files: StateTexts
    """The state files afterwards; a refused file is as it was."""
    findings: tuple[Finding, ...]

    def __repr__(self) -> str:
        return f"<RefusedPlan of {self.machine.name}: {self.sentence}>"

    _repr_svg_ = _drawn

    answers: ClassVar[tuple[answering.Answer, ...]] = ()
    left: ClassVar[frozenset[str]] = frozenset()
    is_yes: ClassVar[bool] = False

    @property
    def machine(self) -> Machine:
        """The node's machine."""
        return self.question.machine

    @property
    def release(self) -> Release:
        """Of the kubelet that would not start."""
        return self.question.mooring.release

    @property
    def unasked(self) -> tuple[Pod, ...]:
        """All pods, those that run first."""
        return (*self.question.active, *self.question.pods)

    @property
    def sentence(self) -> str:
        """That the kubelet would not start, and its text."""
        return f"{not_started(self.release.tag)} {self.refusal.message}"

    @property
    def remedy(self) -> str:
        """What to do: changes that were run, or general advice marked as such."""
        return advice.start_advice(self.question, self.refusal)


AnyPlan: TypeAlias = Plan | RefusedPlan


def archive_of(findings: Iterable[Finding | FindingPart]) -> str:
    """Return the node archive that a plan is about, and when it was captured; empty for other nodes."""
    return next((finding.message for finding in findings if finding.code == OF_ARCHIVE), "")


def decided_by(tag: str) -> str:
    """Return which release decided, such as ``kubelet v1.34.4``; empty for the newest."""
    return "" if tag == NEWEST.tag else f"kubelet {Release('', tag)}"


def not_started(tag: str) -> str:
    """Return the beginning of a sentence: a kubelet, with its release unless that is the newest, would not start."""
    return f"{decided_by(tag).capitalize() or 'The kubelet'} would not start:"


def start_error(plan: AnyPlan) -> str:
    """Return the kubelet's message if it would not start; else nothing."""
    return plan.refusal.message if isinstance(plan, RefusedPlan) else ""


def make_plan(question: Question) -> AnyPlan:
    """Admit the pods of a question in order on its node, fresh or continuing from state files.

    Raises:
        InputError: CPUs go offline without the extension cpu-hotplug, or the machine does not have them.
    """
    noticed = [*question.findings, *notes.machine_findings(question.machine, question.config)]
    noticed += notes.device_findings((*question.active, *question.pods), question.devices)
    noticed += notes.preference_findings(question.pods, question.preferences)
    facts: list[object] = []
    start, others = opened_for(question, facts.append)
    noticed += notes.chance_findings(facts)
    if isinstance(start, NotStarted):
        return RefusedPlan(question, start.refusal, start.files, tuple(noticed))
    noticed += [
        *notes.wrap_findings(start.settings),
        *notes.uncore_findings(start.settings),
        *notes.idle_findings(start.settings),
    ]
    given = {pod.uid: pod for pod in question.pods}
    noticed += held_findings(others, given)
    check_known(start.node, question.offline, "--offline")
    failures: list[object] = []
    # Pods that are asked about alone do not wait together: no plugin orders them.
    pods = question.pods if question.alone else ordered(start, question.pods, failures.append)
    queue = queue_of(question, pods)
    events = tuple(happening(queue, question.leaving, alone=question.alone))
    made = _Run(start)
    made.take_all(events, stop_at_crash=question.stop_at_crash)
    noticed += [*notes.order_findings(failures), *made.findings, *notes.plugin_findings(made.answers)]
    noticed += notes.pool_findings(start, made.answers, made.kubelet)
    noticed += notes.reserved_findings(made.answers, made.kubelet)
    noticed += [*notes.twice_findings(made.kubelet), *answering.core_list_findings(made.answers)]
    noticed += answering.restart_findings(
        start, made.answers, made.kubelet, lambda other: opened_for(replace(question, pods=(), mooring=other))[0]
    )
    noticed += notes.recorded_findings(made.answers, question.recorded)
    noticed += notes.claim_findings((one.pod for one in made.answers if one.admitted), made.kubelet, question.claimed)
    if not question.stop_at_crash:
        noticed += notes.crash_findings(made.answers, question.machine.info)
    reserved = any(finding.code == RESERVATION_UNKNOWN for finding in question.findings)
    answers = tuple(answering.with_assumed(made.answers, question.machine, question.config, reservation=reserved))
    noticed += answering.assumed_findings(answers)
    unasked = pods_in(queue)[len(made.answers) :]
    if unasked and made.answers:
        noticed.append(notes.unasked_finding(made.answers[-1], unasked))
    return Plan(
        machine=question.machine,
        answers=answers,
        kubelet=made.kubelet,
        findings=tuple(noticed),
        unasked=unasked,
        left=frozenset(made.left),
        began=start,
        events=events,
        release=question.mooring.release,
        facts=tuple(made.facts),
    )


class _Run:
    """A plan while it is made."""

    def __init__(self, kubelet: Kubelet) -> None:
        self.kubelet = kubelet
        self.facts: list[object] = []
        self.answers: list[answering.Answer] = []
        self.left: set[str] = set()
        """Uids of pods that were admitted and then ended."""
        self.findings: list[Finding] = []

    def take_all(self, events: Iterable[Event], *, stop_at_crash: bool) -> None:
        """Let everything happen; then the kubelet releases what refused pods had been given."""
        facts: list[object] = []
        for one in run(self.kubelet, events, observer=facts.append):
            self.kubelet, event, result = one.after, one.event, one.result
            if isinstance(event, Admit | Readmit):
                answer = answering.answer_of(result.admissions[0], one.after, facts, running=isinstance(event, Readmit))
                self.answers.append(answer)
                self.facts += answer.facts
            elif result.crash:
                self.findings.append(notes.release_finding(result.crash))
            else:
                if isinstance(event, Remove) and event.uid in one.before.node.active:
                    self.left.add(event.uid)
                self.facts += facts
                # CPUs went offline, or released ones replace those that are.
                self.answers = answering.corrected(self.answers, one.after, facts)
            if one.result.is_last or (one.result.crashed and stop_at_crash):
                return
            facts.clear()
        try:
            self.kubelet = self.kubelet.settled()
        except KubeletCrashError as error:
            self.findings.append(notes.release_finding(str(error)))
        self.findings += hotplug_findings(self.kubelet.node)
