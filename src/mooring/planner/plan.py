"""Planning: a list of pods on a node, in order, with every answer and its reason.

After the managers the kubelet's node resources check is applied, so that a plan never promises what the node does not
have.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from mooring.core.config import KubeletConfig, MooringConfig
from mooring.core.cpuset import CPUSet
from mooring.core.decision import StartRefusal
from mooring.core.errors import KubeletCrashError
from mooring.core.machine import Finding, Machine
from mooring.core.observer import Observer
from mooring.core.pod import Pod
from mooring.cpumanager.policy import available_cpus
from mooring.devicemanager.state import Device, DeviceState
from mooring.explain.remedies import refusal_code, remedy
from mooring.kubelet.kubelet import Kubelet, Start, StateTexts, start_kubelet
from mooring.node.hotplug_findings import hotplug_findings
from mooring.node.metrics import Metrics, fold
from mooring.planner.answering import Answer, answered
from mooring.planner.held import Held, adopted, held_by_others, held_findings
from mooring.planner.offline_cpus import corrected, with_left_out, without_cpus
from mooring.planner.plan_findings import (
    chance_findings,
    device_findings,
    plugin_findings,
    unasked_finding,
    wrap_findings,
)
from mooring.planner.pod_order import in_order

NO_CPUS = CPUSet()

BEFORE_MACHINE = frozenset({"decode", "featureGates", "validation"})
"""Stages of a start in which the kubelet has not looked at the machine yet."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What a node does with the pods."""

    machine: Machine
    refusal: StartRefusal | None
    """Set when the kubelet would not start; then nothing was asked."""
    answers: tuple[Answer, ...]
    kubelet: Kubelet | None
    """The kubelet afterwards, when it has given back what refused pods had been given."""
    files: StateTexts
    """The state files afterwards."""
    findings: tuple[Finding, ...]
    strangers: Mapping[str, Held]
    """State entries without a given pod: uid -> what it holds."""
    metrics: Metrics | None = None
    """The kubelet's metrics after all answers; None when it would not start."""
    unasked: tuple[Pod, ...] = ()
    """Pods that nobody was there to ask: all of them when the kubelet would not start, else those after the one from
    which it would not return."""
    left: frozenset[str] = frozenset()
    """Uids of pods that were admitted and then left, because the plan was asked with ``leaving``."""
    trace: tuple[Kubelet, ...] = ()
    """The kubelet before the first answer and after each one; empty when it would not start."""

    @property
    def remedy(self) -> str:
        """What to do when the kubelet would not start, where that is known."""
        return remedy(self.refusal) if self.refusal is not None else ""

    @property
    def refusal_code(self) -> str:
        """The code of the refusal to start, such as ``MOOR-203``; empty when the kubelet starts."""
        return refusal_code(self.refusal) if self.refusal is not None else ""

    @property
    def is_yes(self) -> bool:
        """Tell whether the kubelet starts and every pod is admitted."""
        return self.refusal is None and not self.unasked and all(answer.admitted for answer in self.answers)


def make_plan(  # noqa: PLR0913 - all that decides a plan; Question holds it as one value
    machine: Machine,
    config: KubeletConfig,
    mooring: MooringConfig,
    pods: Sequence[Pod],
    *,
    files: StateTexts | None = None,
    active: Sequence[Pod] = (),
    devices: Mapping[str, tuple[Device, ...]] | None = None,
    findings: Iterable[Finding] = (),
    leaving: Mapping[str, Sequence[str]] | None = None,
    offline: CPUSet = NO_CPUS,
) -> Plan:
    """Admit the pods in order on a node, fresh or continuing from state files.

    Args:
        machine: decisions use the kubelet's view of it.
        config: of the kubelet.
        mooring: which defects are fixed.
        pods: to be admitted, in order.
        files: texts of existing state files.
        active: pods that run already; they are admitted again at the start. What they hold of devices is in the
            device manager's own checkpoint, which is not read: devices are given to them anew.
        devices: resource -> devices of the node's device plugins.
        findings: what was noticed while reading the input.
        leaving: uid of one of ``pods`` -> uids of pods that end just before it is asked; under the empty text those
            that end when all were asked.
        offline: CPUs that go offline when the running pods are back and no other has been asked.

    Raises:
        InputError: CPUs go offline without the extension cpu-hotplug, or the machine does not have them.
    """
    noticed = [*findings, *machine.findings, *device_findings((*active, *pods), devices or {})]
    facts: list[object] = []
    start = started(machine, config, mooring, files or StateTexts(), facts.append)
    noticed += chance_findings(facts)
    if start.kubelet is None:
        return Plan(machine, start.refusal, (), None, start.files, tuple(noticed), {}, unasked=(*active, *pods))
    noticed += wrap_findings(start.kubelet.settings)
    kubelet = start.kubelet.with_devices(DeviceState(devices or {}))
    others = held_by_others(kubelet.node, {pod.uid for pod in active})
    given = {pod.uid: pod for pod in pods}
    noticed += held_findings(others, given)
    kubelet = replace(kubelet, node=kubelet.node.adopt(adopted(others, given)))
    metrics = Metrics.initial(kubelet.settings, kubelet.node.cpu)
    trace = [kubelet]
    answers: list[Answer] = []
    ordered, unordered = in_order(kubelet, pods)
    noticed += unordered
    queue = [(pod, True) for pod in active] + [(pod, False) for pod in ordered]
    ends = leaving or {}
    left: set[str] = set()
    for pod, running in queue:
        if not running:
            kubelet, metrics, answers = without_cpus(kubelet, metrics, answers, offline)
        kubelet, metrics, answers = _after_leaving(kubelet, metrics, answers, ends.get(pod.uid, ()), left)
        kubelet, answer = answered(kubelet, pod, running=running)
        answer = with_left_out(kubelet, answer)
        answers.append(answer)
        trace.append(kubelet)
        metrics = fold(metrics, answer.facts)
        if answer.ends_the_plan:
            break
    else:
        kubelet, metrics, answers = without_cpus(kubelet, metrics, answers, offline)
        kubelet, metrics, answers = _after_leaving(kubelet, metrics, answers, ends.get("", ()), left)
        kubelet = _settled(kubelet, noticed)
        noticed += hotplug_findings(kubelet.node)
    noticed += plugin_findings(answers)
    unasked = tuple(pod for pod, _ in queue[len(answers) :])
    if unasked:
        noticed.append(unasked_finding(answers[-1], unasked))
    strangers = {uid: held for uid, held in others.items() if uid not in given}
    return Plan(
        machine,
        None,
        tuple(answers),
        kubelet,
        kubelet.files,
        tuple(noticed),
        strangers,
        metrics,
        unasked,
        frozenset(left),
        tuple(trace),
    )


def _settled(kubelet: Kubelet, noticed: list[Finding]) -> Kubelet:
    """Return the kubelet after it gave back what nobody holds; where it crashes then, as it was, with a finding."""
    try:
        return kubelet.settled()
    except KubeletCrashError as error:
        crash = str(error).removesuffix(": the kubelet crashes here")
        message = f"the kubelet would crash when it gives back what no pod holds any more: {crash}"
        noticed.append(Finding("warning", "state files", message, "MOOR-510"))
        return kubelet


def _after_leaving(
    kubelet: Kubelet, metrics: Metrics, answers: list[Answer], uids: Iterable[str], left: set[str]
) -> tuple[Kubelet, Metrics, list[Answer]]:
    """End pods, and note in ``left`` those that ran. What they give back may stand in for CPUs that are offline."""
    for uid in uids:
        if uid in kubelet.node.active:
            facts: list[object] = []
            kubelet, _ = kubelet.remove(uid, facts.append)
            kubelet = kubelet.replanned(facts.append)
            metrics, answers = fold(metrics, facts), corrected(answers, kubelet, facts)
            left.add(uid)
    return kubelet, metrics, answers


def started(
    machine: Machine, config: KubeletConfig, mooring: MooringConfig, files: StateTexts, observer: Observer | None = None
) -> Start:
    """Start the kubelet; a machine that cAdvisor cannot describe, and a crash, are refusals too."""
    try:
        start = start_kubelet(machine.info, config, mooring, files, observer)
    except KubeletCrashError as error:
        return Start(None, StartRefusal("start", f"the kubelet crashes: {error}"), files)
    if not machine.info_error or (start.refusal is not None and start.refusal.stage in BEFORE_MACHINE):
        return start
    return Start(None, StartRefusal("machine", machine.info_error), files)


def reserved_cpus(kubelet: Kubelet) -> CPUSet:
    """Return the CPUs kept for the system; with policy ``none`` only those that are named."""
    policy = kubelet.settings.cpu
    return CPUSet(policy.reserved) if policy is not None else kubelet.settings.reservation.cpus


def free_cpus(kubelet: Kubelet) -> CPUSet:
    """Return the CPUs that a container could still get exclusively."""
    policy = kubelet.settings.cpu
    return CPUSet(available_cpus(policy, kubelet.node.cpu)) if policy is not None else CPUSet()
