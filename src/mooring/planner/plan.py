"""Planning: a list of pods on a node, in order, with every answer and its reason.

After the managers the kubelet's node resources check is applied, so that a plan never promises what the node does not
have.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from mooring.core.config import KubeletConfig, MooringConfig
from mooring.core.cpuset import CPUSet
from mooring.core.decision import Placement, StartRefusal
from mooring.core.errors import KubeletCrashError
from mooring.core.machine import Finding, Machine
from mooring.core.observer import Observer
from mooring.core.pod import Pod
from mooring.cpumanager.policy import available_cpus
from mooring.devicemanager.state import Device, DeviceState
from mooring.memorymanager.facts import StartLeftToChance
from mooring.node import Decision
from mooring.node.hotplug_findings import hotplug_findings
from mooring.node.metrics import Metrics, fold
from mooring.node.resources import check_fit
from mooring.planner.held import Held, adopted, held_by_others, held_findings
from mooring.planner.offline_cpus import with_left_out, without_cpus
from mooring.planner.pod_order import in_order
from mooring.planner.remedies import refusal_code, remedy
from mooring.planner.simulation import Kubelet, Start, StateTexts, start_kubelet
from mooring.planner.why import Circumstances, why, why_crash, why_out_of

NO_CPUS = CPUSet()

BEFORE_MACHINE = frozenset({"decode", "featureGates", "validation"})
"""Stages of a start in which the kubelet has not looked at the machine yet."""


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
    noticed += _chance_findings(facts)
    if start.kubelet is None:
        return Plan(machine, start.refusal, (), None, start.files, tuple(noticed), {}, unasked=(*active, *pods))
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
        kubelet, metrics = _after_leaving(kubelet, metrics, ends.get(pod.uid, ()), left)
        kubelet, answer = answered(kubelet, pod, running=running)
        answer = with_left_out(kubelet, answer)
        answers.append(answer)
        trace.append(kubelet)
        metrics = fold(metrics, answer.facts)
        if answer.ends_the_plan:
            break
    else:
        kubelet, metrics, answers = without_cpus(kubelet, metrics, answers, offline)
        kubelet, metrics = _after_leaving(kubelet, metrics, ends.get("", ()), left)
        kubelet = _settled(kubelet, noticed)
        noticed += hotplug_findings(kubelet.node)
    noticed += _plugin_findings(answers)
    unasked = tuple(pod for pod, _ in queue[len(answers) :])
    if unasked:
        noticed.append(_unasked_finding(answers[-1], unasked))
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


def _after_leaving(kubelet: Kubelet, metrics: Metrics, uids: Iterable[str], left: set[str]) -> tuple[Kubelet, Metrics]:
    """End pods, and note in ``left`` those that ran."""
    for uid in uids:
        if uid in kubelet.node.active:
            facts: list[object] = []
            kubelet, _ = kubelet.remove(uid, facts.append)
            metrics = fold(metrics, facts)
            left.add(uid)
    return kubelet, metrics


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


def _chance_findings(facts: Iterable[object]) -> list[Finding]:
    """Say that the kubelet itself starts on these files only when it happens to take the right order."""
    return [
        Finding(
            "warning",
            "memory_manager_state",
            f"the kubelet starts on this file only by chance: it replays the assignments in random order, and NUMA "
            f"{'node' if len(fact.nodes) == 1 else 'nodes'} {', '.join(map(str, fact.nodes))} may end in another group "
            "than before; an order that starts was taken",
            "MOOR-509",
        )
        for fact in facts
        if isinstance(fact, StartLeftToChance)
    ]


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
    reason = why(decision, Circumstances(kubelet.settings, pod, facts, after.node.memory, after.node.providers.devices))
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
        running,
        crash,
        code=reason.code,
        remedy=reason.remedy,
    )


def _plugin_findings(answers: Iterable[Answer]) -> list[Finding]:
    """Say which plugins failed, each failure once: at whom first, and how often."""
    first: dict[tuple[str, str, str], str] = {}
    times: dict[tuple[str, str, str], int] = {}
    for answer in answers:
        for failed in answer.decision.plugin_failures:
            key = failed.plugin, failed.point, failed.why
            first.setdefault(key, f"{answer.pod.namespace}/{answer.pod.name}")
            times[key] = times.get(key, 0) + 1
    return [
        Finding(
            "warning",
            f"plugin {plugin}",
            f"failed at {point}, first for {first[plugin, point, why]}{f' ({often} times)' if often > 1 else ''}: "
            f"{why}; its answer was left out",
            "MOOR-531",
        )
        for (plugin, point, why), often in times.items()
    ]


def _unasked_finding(last: Answer, unasked: Sequence[Pod]) -> Finding:
    count = len(unasked)
    return Finding(
        "warning",
        f"{last.pod.namespace}/{last.pod.name}",
        f"the kubelet would not return from this admission, so that {count} pod{'' if count == 1 else 's'} after it "
        f"{'was' if count == 1 else 'were'} not asked",
        "MOOR-508",
    )


def device_findings(pods: Iterable[Pod], devices: Collection[str]) -> list[Finding]:
    """Say which resources of the pods a plan knows nothing of: whoever serves them may have a say in the placement."""
    unknown: dict[str, int] = {}
    for pod in pods:
        names = {name for container in pod.containers for name in container.limits if _is_extended(name)}
        names.difference_update(devices)
        for name in names:
            unknown[name] = unknown.get(name, 0) + 1
    return [
        Finding(
            "warning",
            name,
            f"{count} pod{' asks' if count == 1 else 's ask'} for this resource, and no devices are declared: it "
            "counts as available, and the NUMA nodes of its devices are not taken into account (declare them in a "
            "document of kind NodeDevices, given with --config)",
            "MOOR-507",
        )
        for name, count in sorted(unknown.items())
    ]


def _is_extended(resource: str) -> bool:
    domain, slash, _ = resource.partition("/")
    return bool(slash) and domain != "kubernetes.io" and not domain.endswith(".kubernetes.io")


def reserved_cpus(kubelet: Kubelet) -> CPUSet:
    """Return the CPUs kept for the system; with policy ``none`` only those that are named."""
    policy = kubelet.settings.cpu
    return CPUSet(policy.reserved) if policy is not None else kubelet.settings.reservation.cpus


def free_cpus(kubelet: Kubelet) -> CPUSet:
    """Return the CPUs that a container could still get exclusively."""
    policy = kubelet.settings.cpu
    return CPUSet(available_cpus(policy, kubelet.node.cpu)) if policy is not None else CPUSet()
