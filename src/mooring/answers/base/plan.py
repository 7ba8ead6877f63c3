"""Planning: a list of pods on a node, in order, with every answer and its reason.

After the managers the kubelet's node resources check is applied, so that a plan never promises what the node does not
have.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING

from mooring.answers.base.answering import Answer, answer_of, corrected, with_assumed
from mooring.answers.base.plan_findings import (
    chance_findings,
    crash_findings,
    device_findings,
    idle_findings,
    order_findings,
    plugin_findings,
    pool_findings,
    preference_findings,
    recorded_findings,
    release_finding,
    reserved_findings,
    twice_findings,
    unasked_finding,
    uncore_findings,
    wrap_findings,
)
from mooring.answers.base.question import Question, happening, opened_for, pods_in, queue_of
from mooring.engine.core.decision import StartRefusal
from mooring.engine.core.errors import KubeletCrashError
from mooring.engine.core.machine import Finding, Machine
from mooring.engine.core.pod import Pod
from mooring.engine.core.release import NEWEST, Release
from mooring.engine.kubelet.adoption import held_findings
from mooring.engine.kubelet.events import (
    Admit,
    Event,
    Happened,
    Readmit,
    Remove,
    check_known,
    ordered,
    run,
)
from mooring.engine.kubelet.kubelet import Kubelet, StateTexts
from mooring.engine.kubelet.start import NotStarted
from mooring.engine.node.hotplug import hotplug_findings
from mooring.explain.reason import POOL_EMPTY
from mooring.inputs.archive import OF_ARCHIVE
from mooring.inputs.configuration.part import RESERVATION_UNKNOWN
from mooring.lazy import lazily

with lazily():
    import mooring.engine.node.metrics.metrics as metering
    from mooring.answers.base.start import advice

if TYPE_CHECKING:
    from mooring.engine.node.metrics.metrics import Metrics


@dataclass(frozen=True, slots=True)
class Plan:
    """What a node does with the pods."""

    machine: Machine
    refusal: StartRefusal | None
    """Set when the kubelet would not start; then nothing was asked."""
    answers: tuple[Answer, ...]
    kubelet: Kubelet | None
    """The kubelet afterwards, when it has released what refused pods had been given."""
    findings: tuple[Finding, ...]
    unasked: tuple[Pod, ...] = ()
    """Pods that were not asked about: all of them when the kubelet would not start, else those after the one from which
    it would not return, and with ``stop_at_crash`` those after the first on which it crashes."""
    refused: Question | None = None
    """What was asked, where the kubelet would not start."""
    left: frozenset[str] = frozenset()
    """Uids of pods that were admitted and then left, because the plan was asked with ``leaving``."""
    began: Kubelet | None = None
    """The kubelet before the first answer; None when it would not start."""
    events: tuple[Event, ...] = ()
    """What happened, or would have happened after the last answer."""
    refused_files: StateTexts = StateTexts()  # noqa: RUF009 - frozen
    """The state files of a kubelet that would not start."""
    release: Release = NEWEST
    """Of the kubelet that decided."""
    facts: tuple[object, ...] = ()
    """What the kubelet's metrics count, in order, since its start."""

    @property
    def metrics(self) -> Metrics | None:
        """The kubelet's metrics after all answers; None when it would not start."""
        started = self.began
        if started is None:
            return None
        return metering.fold(metering.Metrics.initial(started.settings, started.node.cpu), self.facts)

    def kubelets(self) -> Iterator[Kubelet]:
        """Let it all happen again; yield the kubelet before the first answer and after each one.

        A plan does not keep them: each holds all pods before it.
        """
        if self.began is not None:
            yield self.began
            asked = (one.after for one in run(self.began, self.events) if one.result.admissions)
            yield from islice(asked, len(self.answers))

    @property
    def files(self) -> StateTexts:
        """The state files afterwards."""
        return self.kubelet.files if self.kubelet is not None else self.refused_files

    @property
    def archive(self) -> str:
        """Names the node archive that the plan is about, and when it was captured; empty for other nodes."""
        return next((finding.message for finding in self.findings if finding.code == OF_ARCHIVE), "")

    @property
    def decided_by(self) -> str:
        """Which release decided, such as ``kubelet v1.34.4``; empty for the newest."""
        return "" if self.release == NEWEST else f"kubelet {self.release}"

    @property
    def kubelet_name(self) -> str:
        """The kubelet as the subject of a sentence: with its release unless that is the newest."""
        return self.decided_by.capitalize() or "The kubelet"

    @property
    def remedy(self) -> str:
        """What to do when the kubelet would not start: changes that were run, or general advice marked as such."""
        return (
            advice.start_advice(self.refused, self.refusal)
            if self.refusal is not None and self.refused is not None
            else ""
        )

    @property
    def refusal_code(self) -> str:
        """The code of the refusal to start, such as ``MOOR-203``; empty when the kubelet starts."""
        return self.refusal.code if self.refusal is not None else ""

    @property
    def emptied_pool(self) -> Finding | None:
        """What is said about a shared pool without any CPU; None where it has one."""
        return next((finding for finding in self.findings if finding.code == POOL_EMPTY), None)

    @property
    def is_yes(self) -> bool:
        """Tell whether the kubelet starts, every pod is admitted, and it would start again."""
        admitted = not self.unasked and all(answer.admitted for answer in self.answers)
        return self.refusal is None and admitted and self.emptied_pool is None


def make_plan(question: Question) -> Plan:
    """Admit the pods of a question in order on its node, fresh or continuing from state files.

    Raises:
        InputError: CPUs go offline without the extension cpu-hotplug, or the machine does not have them.
    """
    noticed = [*question.findings, *question.machine.findings]
    noticed += device_findings((*question.active, *question.pods), question.devices)
    noticed += preference_findings(question.pods, question.preferences)
    facts: list[object] = []
    begun = opened_for(question, facts.append)
    start = begun.start
    noticed += chance_findings(facts)
    if isinstance(start, NotStarted):
        return Plan(
            machine=question.machine,
            refusal=start.refusal,
            answers=(),
            kubelet=None,
            findings=tuple(noticed),
            unasked=(*question.active, *question.pods),
            refused_files=start.files,
            refused=question,
            release=question.mooring.release,
        )
    noticed += [*wrap_findings(start.settings), *uncore_findings(start.settings), *idle_findings(start.settings)]
    given = {pod.uid: pod for pod in question.pods}
    noticed += held_findings(begun.others, given)
    check_known(start.node, question.offline, "--offline")
    failures: list[object] = []
    # Pods that are asked about alone do not wait together: no plugin orders them.
    pods = question.pods if question.alone else ordered(start, question.pods, failures.append)
    queue = queue_of(question, pods)
    events = tuple(happening(queue, question.leaving, alone=question.alone))
    made = _Run(start)
    made.take_all(events, stop_at_crash=question.stop_at_crash)
    noticed += [*order_findings(failures), *made.findings, *plugin_findings(made.answers)]
    noticed += pool_findings(start, made.answers, made.kubelet)
    noticed += reserved_findings(made.answers, made.kubelet)
    noticed += twice_findings(made.kubelet)
    noticed += recorded_findings(made.answers, question.recorded)
    if not question.stop_at_crash:
        noticed += crash_findings(made.answers, question.machine.info)
    is_assumed = any(finding.code == RESERVATION_UNKNOWN for finding in question.findings)
    unasked = pods_in(queue)[len(made.answers) :]
    if unasked and made.answers:
        noticed.append(unasked_finding(made.answers[-1], unasked))
    return Plan(
        machine=question.machine,
        refusal=None,
        answers=tuple(with_assumed(made.answers, question.machine, reservation=is_assumed)),
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
        self.answers: list[Answer] = []
        self.left: set[str] = set()
        """Uids of pods that were admitted and then ended."""
        self.findings: list[Finding] = []

    def take_all(self, events: Iterable[Event], *, stop_at_crash: bool) -> None:
        """Let everything happen; then the kubelet releases what refused pods had been given."""
        facts: list[object] = []
        for one in run(self.kubelet, events, observer=facts.append):
            self._take(one, facts)
            if one.result.is_last or (one.result.crashed and stop_at_crash):
                return
            facts.clear()
        try:
            self.kubelet = self.kubelet.settled()
        except KubeletCrashError as error:
            self.findings.append(release_finding(str(error)))
        self.findings += hotplug_findings(self.kubelet.node)

    def _take(self, one: Happened, facts: Sequence[object]) -> None:
        self.kubelet, event, result = one.after, one.event, one.result
        if isinstance(event, Admit | Readmit):
            answer = answer_of(result.admissions[0], one.after, facts, running=isinstance(event, Readmit))
            self.answers.append(answer)
            self.facts += answer.facts
        elif result.crash:
            self.findings.append(release_finding(result.crash))
        else:
            if isinstance(event, Remove) and event.uid in one.before.node.active:
                self.left.add(event.uid)
            self.facts += facts
            # CPUs went offline, or released ones replace those that are.
            self.answers = corrected(self.answers, one.after, facts)
