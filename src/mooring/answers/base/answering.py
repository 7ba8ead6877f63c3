"""One pod's answer: what the kubelet decides about it, and why; corrected where CPUs go offline later.

And what is said of pods beyond their own answers: what a start does to those that run, and which CPUs they name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from operator import or_

from mooring.engine.core.bits import CPUMask
from mooring.engine.core.config import CPU_HOTPLUG, KubeletConfig, MooringConfig
from mooring.engine.core.cpuset import CPUSet
from mooring.engine.core.decision import Placement
from mooring.engine.core.errors import KubeletCrashError
from mooring.engine.core.machine import Finding, Machine
from mooring.engine.core.pod import Pod
from mooring.engine.cpumanager.facts import WholeCoresChecked
from mooring.engine.cpumanager.policy import exclusive_cpus, withheld
from mooring.engine.devicemanager.facts import DevicesTaken
from mooring.engine.kubelet.admit import AdmitMode, AdmitResult, admit
from mooring.engine.kubelet.events import Readmit, run
from mooring.engine.kubelet.kubelet import Kubelet, StateFile
from mooring.engine.kubelet.start import NotStarted, Start, crash_at_start, refusal_of, restart_kubelet
from mooring.engine.memorymanager.facts import MemoryAssigned
from mooring.engine.node import Decision
from mooring.engine.node.node import placements_of
from mooring.engine.node.providers import Providers
from mooring.explanations import codes as code
from mooring.explanations.chapters import Circumstances
from mooring.explanations.phrases import joined, size
from mooring.explanations.remarks import left_out_words, loss_words, other_cores
from mooring.explanations.story import PodVerdict, Taking
from mooring.explanations.why import why, why_crash, why_out_of
from mooring.inputs.machines.formats.description import ASSUMED_CORES, ASSUMED_ONE_NODE, OF_PART
from mooring.inputs.machines.loader import UNTOLD
from mooring.lazy import lazily

with lazily():
    import mooring.engine.extensions.facts as extension_facts


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer for one pod of the plan: what is shown of it, and no kubelet, which would keep all pods before it."""

    pod: Pod
    decision: Decision
    why: str
    """One sentence in plain words."""
    decided: Providers = field(compare=False, repr=False)
    """What the managers had given away when they had decided, before the containers of an admitted pod started."""
    circumstances: Circumstances = field(repr=False, compare=False)
    """What the answer is explained from."""
    cpu_file: StateFile = field(default=None, repr=False, compare=False)
    """The CPU manager's state file after the answer."""
    memory_file: StateFile = field(default=None, repr=False, compare=False)
    """The memory manager's."""
    memory_file_decided: StateFile = field(default=None, repr=False, compare=False)
    """The memory manager's before the containers started; the same for a pod that was refused."""
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
    assumed: tuple[str, ...] = ()
    """On which the verdict rests although no source tells it: memory, huge pages, the reservation, cores, sockets,
    NUMA nodes."""

    @property
    def admitted(self) -> bool:
        """Tell whether the pod runs on the node."""
        return self.decision.admitted

    @property
    def verdict(self) -> PodVerdict:
        """What becomes of the pod; the kubelet crashes on it or never returns rather than that it rejects it."""
        if self.crash:
            return PodVerdict.CRASH
        if self.decision.endless is not None:
            return PodVerdict.ENDLESS
        return PodVerdict.ADMITTED if self.admitted else PodVerdict.REJECTED

    @property
    def decided_for(self) -> tuple[str, str]:
        """Container and resource for which a pod is rejected; empty where no fact of the decision names them."""
        chapter, rejection = self.circumstances.refused_in, self.decision.rejection
        if rejection is not None and rejection.shortage is not None:
            return "", rejection.shortage.resource
        if chapter is None:
            return "", ""
        if chapter.refusal(WholeCoresChecked) or chapter.refusal(Taking):
            return chapter.container, "cpu"
        if (taken := chapter.refusal(DevicesTaken)) is not None:
            return chapter.container, taken.resource
        if chapter.refusal(MemoryAssigned) is not None:
            return chapter.container, "memory"
        return chapter.container, next((one.resource for one in chapter.opinions if not one.suffices), "")

    @property
    def files(self) -> tuple[StateFile, ...]:
        """All state files of the answer."""
        return self.cpu_file, self.memory_file, self.memory_file_decided

    @property
    def never_returns(self) -> bool:
        """Tell whether the kubelet would crash on this admission or never return from it."""
        return bool(self.crash) or self.decision.endless is not None


def answered(
    kubelet: Kubelet, pod: Pod, mode: AdmitMode = AdmitMode.ADMISSION, *, running: bool = False
) -> tuple[Kubelet, Answer]:
    """Ask a kubelet about one pod, and say why it answers what it does."""
    facts: list[object] = []
    after, result = admit(kubelet, pod, mode, running=running, observer=facts.append)
    return after, answer_of(result, after, facts, running=running)


def answer_of(result: AdmitResult, after: Kubelet, facts: Sequence[object], *, running: bool = False) -> Answer:
    """Say why a kubelet answers what it does.

    Args:
        result: the kubelet's answer.
        after: the kubelet after it.
        facts: what the engine reported meanwhile.
        running: whether the pod ran already.
    """
    decided, known = result.decided, () if result.crash else tuple(facts)
    circumstances = Circumstances(
        decided.settings, result.pod, known, decided.node.memory, decided.node.providers.devices, decided.info
    )
    reason = why_crash(result.crash) if result.crash else None
    reason = why_out_of(result.out_of) if result.out_of is not None and reason is None else reason
    reason = reason or why(result.decision, circumstances)
    answer = Answer(
        result.pod,
        result.decision,
        reason.sentence,
        decided.node.providers,
        replace(circumstances),  # without the chapters that the reason was read from
        after.cpu_file,
        after.memory_file,
        decided.memory_file,
        running,
        result.crash,
        known,
        reason.code,
        reason.remedy,
    )
    # The answer for a pod without room also says which CPUs could not be had.
    policy, state = after.settings.cpu, after.node.cpu
    if policy is None or answer.admitted or not state.offline:
        return answer
    if not any(exclusive_cpus(answer.pod, one, policy.gates) for one in answer.pod.containers):
        return answer
    pool = state.default & ~policy.reserved
    fact = extension_facts.OfflineCPUsLeftOut(
        answer.pod.uid, pool & state.offline, pool & withheld(policy, state) & ~state.offline
    )
    if not fact.offline and not fact.kept:
        return answer
    return replace(answer, why=f"{answer.why} {left_out_words(fact)}.", facts=(*answer.facts, fact))


_OF_MEMORY = frozenset(
    {
        code.NOT_ENOUGH_MEMORY,
        code.NO_SINGLE_NODE_FOR_MEMORY,
        code.TOO_MANY_NODES_FOR_MEMORY,
        code.TOO_LITTLE_WHERE_CHOSEN,
        code.OUT_OF_MEMORY,
    }
)
_OF_HUGE_PAGES = _OF_MEMORY | {code.OUT_OF_ANOTHER_RESOURCE, code.CRASHES}
_OF_DEVICES = frozenset(
    {code.NOT_ENOUGH_DEVICES, code.DEVICES_APART, code.MORE_DEVICES_THAN_A_NODE, code.DEVICES_FAR_APART}
)
_OF_CORES = frozenset({code.NO_WHOLE_CORES, code.TOO_FEW_WHOLE_CORES})
_OF_NODES = frozenset(
    {
        code.LARGER_THAN_A_NODE,
        code.NO_SINGLE_NODE,
        code.TOO_MANY_NODES,
        code.PULLED_APART,
        code.NO_SINGLE_NODE_FOR_MEMORY,
        code.TOO_MANY_NODES_FOR_MEMORY,
    }
)


def with_assumed(
    answers: Iterable[Answer], machine: Machine, config: KubeletConfig, *, reservation: bool
) -> list[Answer]:
    """Return the answers; a verdict that rests on what is assumed says so.

    Args:
        answers: of a plan.
        machine: whose source leaves something open.
        config: of the kubelet.
        reservation: whether what a vendor reserves is assumed.
    """
    assumed = {OF_PART[text]: text for text in machine.origin.assumed if text in OF_PART}
    options = {name for name, value in config.cpu_manager_policy_options.items() if value == "true"}
    is_strict = config.topology_manager_policy in ("restricted", "single-numa-node")
    memory, unknown = size(machine.info.memory_capacity), machine.origin.unknown
    pages = [f"{pool.num_pages} x {size(pool.page_size * 1024)}" for pool in machine.info.hugepages if pool.num_pages]
    offered = machine.published.devices if machine.published else {}
    texts = {
        "memory": f"The machine's {memory} of memory (assumed) are in no given file: add --machine memory=AMOUNT.",
        "huge pages": f"The machine's huge pages, {', '.join(pages) or 'none'} (assumed), are in no given file: add "
        "--machine hugepages-1Gi=COUNT.",
        "devices": "The machine's devices (assumed) are in no given file: add --machine RESOURCE=COUNT.",
        "reservation": "What the vendor reserves (assumed) is in no given file.",
    } | {
        part: f"The machine's {part} are in no given file: {assumed[part]} (assumed); add its lscpu with --machine."
        for part in assumed.keys() & {"cores", "sockets", "NUMA nodes"}
    }

    def marked(answer: Answer) -> Answer:
        asked = {name for one in answer.pod.containers for name in one.requests}
        huge = any(name.startswith("hugepages-") for name in asked)
        is_memory = answer.code in _OF_MEMORY and not answer.admitted
        exclusive = [len(one.cpus) for one in answer.decision.containers.values()] if answer.admitted else []
        # One NUMA node, and cores of one CPU, are what admits everything.
        by_cores = any(number % 2 for number in exclusive) and assumed.get("cores") == ASSUMED_CORES
        by_nodes = any(exclusive) and assumed.get("NUMA nodes") == ASSUMED_ONE_NODE and is_strict
        is_apart = answer.code in _OF_NODES and not answer.admitted
        rests = {
            "memory": is_memory and "memory" in unknown,
            "huge pages": huge and answer.code in _OF_HUGE_PAGES and "huge pages" in unknown,
            "devices": answer.code in _OF_DEVICES and "devices" in unknown and not asked.isdisjoint(offered),
            "reservation": is_memory and reservation,
            "cores": "cores" in assumed and "full-pcpus-only" in options and (by_cores or answer.code in _OF_CORES),
            "sockets": "sockets" in assumed and "align-by-socket" in options and is_apart,
            "NUMA nodes": "NUMA nodes" in assumed and (by_nodes or is_apart),
        }
        names = [name for name, is_assumed in rests.items() if is_assumed]
        if not names:
            return answer
        return replace(answer, why=" ".join((answer.why, *(texts[name] for name in names))), assumed=tuple(names))

    return [marked(answer) for answer in answers]


def corrected(answers: Iterable[Answer], kubelet: Kubelet, facts: Sequence[object]) -> list[Answer]:
    """Return the answers with the CPUs that pods have now, where they lost some or got stand-ins for lost ones."""
    if CPU_HOTPLUG not in kubelet.mooring.extensions:
        return list(answers)
    lost: dict[str, list[extension_facts.CPUsBroken | extension_facts.CPUsReplaced]] = {}
    for fact in facts:
        if isinstance(fact, extension_facts.CPUsBroken | extension_facts.CPUsReplaced):
            lost.setdefault(fact.pod, []).append(fact)

    def now(answer: Answer) -> Answer:
        uid, decision, cpu = answer.pod.uid, answer.decision, kubelet.node.cpu
        if uid not in lost:
            return answer
        held, whole = cpu.assignments.get(uid, {}), cpu.pods.get(uid, decision.pod.cpus.mask)
        containers = {
            name: replace(placement, cpus=CPUSet(held.get(name, placement.cpus.mask)))
            for name, placement in decision.containers.items()
        }
        return replace(
            answer,
            decision=replace(decision, containers=containers, pod=replace(decision.pod, cpus=CPUSet(whole))),
            why=" ".join([answer.why, *(f"{loss_words(fact)}." for fact in lost[uid])]),
            facts=(*answer.facts, *lost[uid]),
        )

    return [now(answer) for answer in answers]


RESTART = "MOOR-547"
OTHER_CORES = "MOOR-548"
STATE_FILES = "state files"
_DEFECTS = ("pod-restart", "socket-restart", "memory-nil-hints")
"""Defects by which a start rejects or moves pods that run (spec: README.md section 5)."""


def restart_findings(
    begun: Kubelet, answers: Iterable[Answer], kubelet: Kubelet, started: Callable[[MooringConfig], Start]
) -> list[Finding]:
    """Name the running pods that a defect of a restart moves or rejects, CPUs that it loses, and a later start.

    Args:
        begun: the kubelet that has started again, before the first answer.
        answers: in order.
        kubelet: the kubelet after all.
        started: starts the same kubelet with other defects fixed.
    """
    found, running, cpu = [], [answer for answer in answers if answer.running], kubelet.node.cpu
    owned = reduce(or_, cpu.pods.values(), cpu.default | cpu.held | cpu.withheld)
    changed = []
    for answer in running:
        held, whole = placements_of(begun.node.providers, answer.pod)
        has_own = any(one.cpus or one.mems for one in (whole, *held.values()))
        if has_own and not _is_kept(begun, answer.pod, answer.decision):
            changed.append((answer, _cpus_of(held, whole)))
    # The running pods that keep what they have at this start if a defect is fixed, by its name.
    fixed: dict[str, set[str]] = {}
    for defect in _DEFECTS if changed else ():
        start = started(replace(kubelet.mooring, fixed_defects=kubelet.mooring.fixed_defects | {defect}))
        if not isinstance(start, NotStarted):
            again = [one.result.admissions[0] for one in run(start, [Readmit(answer.pod) for answer in running])]
            fixed[defect] = {one.pod.uid for one in again if _is_kept(start, one.pod, one.decision)}
    for answer, before in changed:
        defects = [f"defect {name}" for name, uids in fixed.items() if answer.pod.uid in uids]
        after, lost = _cpus_of(answer.decision.containers, answer.decision.pod), CPUSet(CPUMask(before.mask & ~owned))
        moves = f"moves it: CPUs {before} become {after or 'shared ones'}" if before != after else "moves its memory"
        message = f"a start of the kubelet on its state {moves if answer.admitted else 'rejects it, although it runs'}"
        message += f"; CPUs {lost} are lost, in no pool and of no container" if lost else ""
        message += f" ({joined(defects)})" if defects else ""
        if defects or lost:
            found.append(Finding("warning", f"{answer.pod.namespace}/{answer.pod.name}", message, RESTART))
    as_wholes = begun.node.cpu.pods.keys() | begun.node.memory.pods.keys()
    if changed or any(answer.pod.uid in as_wholes for answer in running):
        error = next_start_error(kubelet)
        message = f"after a start of the kubelet on them, its next start fails: {error}"
        return [*found, Finding("warning", STATE_FILES, message, RESTART)] if error else found
    return found


def _is_kept(begun: Kubelet, pod: Pod, decision: Decision) -> bool:
    kept = dict(decision.containers), decision.pod
    return decision.admitted and placements_of(begun.node.providers, pod) == kept


def _cpus_of(containers: Mapping[str, Placement], pod: Placement) -> CPUSet:
    """Return the exclusive CPUs of a pod, those of the pod as a whole included."""
    return reduce(or_, (one.cpus for one in containers.values()), pod.cpus)


def next_start_error(kubelet: Kubelet) -> str:
    """Return why a kubelet does not start again on its own state files; empty when it does."""
    try:
        refusal = refusal_of(restart_kubelet(kubelet))
    except KubeletCrashError as error:
        refusal = crash_at_start(error)
    return "" if refusal is None else refusal.message


def core_list_findings(answers: Iterable[Answer]) -> list[Finding]:
    """Name the containers that name CPUs which they do not get."""
    named = ((one.pod, text) for one in answers if one.admitted for text in other_cores(one.pod, one.decision))
    return [Finding("info", f"{pod.namespace}/{pod.name}", text, OTHER_CORES) for pod, text in named]


def assumed_findings(answers: Iterable[Answer]) -> list[Finding]:
    """Return what is said of pods whose admission rests on what is only assumed of the machine."""
    return [
        Finding(
            "warning",
            f"{one.pod.namespace}/{one.pod.name}",
            f"its admission rests on the machine's {joined(one.assumed)} (assumed): add its lscpu with --machine",
            UNTOLD,
        )
        for one in answers
        if one.admitted and one.assumed
    ]
