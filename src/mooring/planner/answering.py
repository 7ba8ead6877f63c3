"""One pod's answer: what the managers decide, what the node resources check says to it, and why."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from mooring.core.cpuset import CPUSet
from mooring.core.decision import Placement
from mooring.core.errors import KubeletCrashError
from mooring.core.pod import Pod
from mooring.explain.chapters import Circumstances
from mooring.explain.why import why, why_crash, why_out_of
from mooring.kubelet.kubelet import Kubelet, StateTexts
from mooring.node import Decision
from mooring.node.resources import check_fit


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer for one pod of the plan."""

    pod: Pod
    decision: Decision
    why: str
    """One sentence in plain words."""
    files: StateTexts
    """The state files after the answer."""
    before_start: StateTexts
    """The state files after the managers and before the containers started; the same for a pod that was refused."""
    circumstances: Circumstances = field(repr=False, compare=False)
    """What the answer is explained from."""
    running: bool = False
    """Whether the pod ran already and was admitted again."""
    crash: str = ""
    """Set when the kubelet would crash: why."""
    facts: tuple[object, ...] = ()
    """What the engine reported, in order."""
    code: str = ""
    """The stable code of the reason, such as ``MOOR-103``."""
    remedy: str = ""
    """What to do about a refusal, or for exclusive CPUs; empty where nothing is to be done."""

    @property
    def admitted(self) -> bool:
        """Tell whether the pod runs on the node."""
        return self.decision.admitted

    @property
    def ends_the_plan(self) -> bool:
        """Tell whether the kubelet would not return from this admission."""
        return bool(self.crash) or self.decision.endless is not None


def answered(kubelet: Kubelet, pod: Pod, *, running: bool) -> tuple[Kubelet, Answer]:
    """Ask a kubelet about one pod, and say why it answers what it does."""
    facts: list[object] = []
    try:
        if running:
            after, readmission = kubelet.readmit([pod], facts.append)
            decision = readmission.decisions[0]
        else:
            after, decision = kubelet.decide(pod, facts.append)
    except KubeletCrashError as error:
        return kubelet, _crashed(kubelet, pod, str(error), running=running)
    circumstances = Circumstances(kubelet.settings, pod, facts, after.node.memory, after.node.providers.devices)
    reason = why(decision, circumstances)
    before_start = after.files
    if decision.admitted:
        others = [other for uid, other in after.node.active.items() if uid != pod.uid]
        settings = after.settings
        refused = check_fit(pod, others, settings.reservation, settings.config.max_pods)
        if refused is not None:
            decision = replace(decision, admitted=False, rejection=refused)
            after = replace(after, node=after.node.withdraw(pod.uid, refused, facts.append))
            reason = why_out_of(refused)
        elif not running:
            after = after.start_containers(pod.uid, facts.append)
    return after, Answer(
        pod,
        decision,
        reason.sentence,
        after.files,
        before_start,
        circumstances,
        running,
        facts=tuple(facts),
        code=reason.code,
        remedy=reason.remedy,
    )


def _crashed(kubelet: Kubelet, pod: Pod, crash: str, *, running: bool) -> Answer:
    decision = Decision(
        uid=pod.uid,
        namespace=pod.namespace,
        name=pod.name,
        admitted=False,
        rejection=None,
        endless=None,
        containers={},
        pod=Placement(),
        affinity={},
        shared_pool=CPUSet(kubelet.node.cpu.default),
    )
    reason = why_crash(crash)
    return Answer(
        pod,
        decision,
        reason.sentence,
        kubelet.files,
        kubelet.files,
        Circumstances(kubelet.settings, pod, (), kubelet.node.memory, kubelet.node.providers.devices),
        running,
        crash,
        code=reason.code,
        remedy=reason.remedy,
    )
