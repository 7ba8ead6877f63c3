"""Starting again: from what the agent's folder held to a state, whatever the files are worth."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from mooring.agent.effects import AgentReport, ReportKind
from mooring.agent.reactor.response import EventOutcome
from mooring.agent.state import AgentState, LastSeen, Options
from mooring.engine.core.bits import NO_CPUS
from mooring.engine.core.config import KubeletConfig, MooringConfig
from mooring.engine.core.decision import Fault, Observer, StartRefusal
from mooring.engine.core.errors import InputError, KubeletCrashError
from mooring.engine.core.machineinfo import MachineInfo
from mooring.engine.core.pod import Pod
from mooring.engine.cpumanager.state import CPUState
from mooring.engine.kubelet.kubelet import Kubelet, StateTexts
from mooring.engine.kubelet.start import NotStarted, start_kubelet
from mooring.engine.memorymanager.state import MemoryState
from mooring.engine.node.hotplug import remembered


@dataclass(frozen=True, slots=True)
class Stored:
    """What the agent's folder held."""

    texts: StateTexts = field(default_factory=StateTexts)
    """The engine's state, in the kubelet's formats."""
    pods: Mapping[str, Pod] = field(default_factory=dict)
    """Pods that were decided about, by uid, in that order."""
    reports: tuple[AgentReport, ...] = ()
    """What could not be read, and what did not fit together."""
    claim_users: Mapping[str, frozenset[str]] = field(default_factory=dict)
    """Uids of the pods of each claim."""
    offline: int = 0
    """Mask of the CPUs that were offline, with the extension cpu-hotplug."""
    displaced: Mapping[str, Mapping[int, int]] = field(default_factory=dict)
    """CPUs that stood in for lost ones, as :attr:`~mooring.engine.cpumanager.state.CPUState.displaced` was."""
    last_seen: LastSeen = field(default_factory=LastSeen)
    """What ran then; an older agent wrote no sandboxes."""
    sequence: int = 0
    """Number of the record among those in the journal's file, which are two; 0 in a file that has this one alone."""


def resume(
    info: MachineInfo,
    config: KubeletConfig,
    mooring: MooringConfig,
    stored: Stored | None = None,
    options: Options | None = None,
    observer: Observer | None = None,
    source: str = "",
) -> EventOutcome:
    """Return the state of an agent that starts.

    Pods are not active before the runtime has said which of them are there; until then they are remembered. Texts that
    the engine refuses are left out one after another, with a report each; the runtime's record then says what runs
    where.

    Raises:
        InputError: the configuration itself is refused, with or without state.
    """
    stored = stored or Stored()
    reports = list(stored.reports)
    smaller = (stored.texts, StateTexts(cpu=stored.texts.cpu), StateTexts(memory=stored.texts.memory), StateTexts())
    for texts in dict.fromkeys(smaller):
        try:
            start = start_kubelet(info, config, mooring, texts, observer)
        except KubeletCrashError as error:
            problem = str(error)
        else:
            if isinstance(start, Kubelet):
                kubelet = with_offline(start, stored.offline, stored.displaced)
                state = AgentState(
                    kubelet,
                    options or Options(),
                    remembered=stored.pods,
                    last_seen=stored.last_seen,
                    claim_users=stored.claim_users,
                )
                return EventOutcome(state, effects=tuple(reports))
            problem = start.refusal.message
        if texts == StateTexts():
            problem = f"the engine does not start: {problem}"
            raise InputError(problem, source=source, remedy="check the agent's configuration")
        files = (("cpu_manager_state", texts.cpu), ("memory_manager_state", texts.memory))
        names = " and ".join(name for name, text in files if text is not None)
        reports.append(AgentReport(ReportKind.STATE_REFUSED, f"{names}: {problem}"))
    raise AssertionError("the last try has no texts")


def reconfigured(state: AgentState, config: KubeletConfig, mooring: MooringConfig) -> EventOutcome | StartRefusal:
    """Return the state under another configuration, with all pods where they are; a refusal leaves the old one.

    Pods that wait continue to wait. Only the agent asks again for one that runs, so it must not be forgotten.
    """
    kubelet = state.kubelet
    try:
        start = start_kubelet(kubelet.info, config, mooring, kubelet.files)
    except KubeletCrashError as error:
        return StartRefusal.of("start", Fault(str(error)))
    if isinstance(start, NotStarted):
        return start.refusal
    cpu = kubelet.node.cpu
    fresh = with_offline(start, cpu.offline, cpu.displaced)
    node = replace(
        fresh.node,
        active=kubelet.node.active,
        started=kubelet.node.started,
        stored_hints=kubelet.node.stored_hints,
        providers=replace(fresh.node.providers, devices=kubelet.node.providers.devices),
    )
    # What they were judged by is gone, so that every waiting pod is asked for again.
    held = {
        uid: replace(one, cpu=CPUState("", NO_CPUS, {}), memory=MemoryState("", {}, {}))
        for uid, one in state.held.items()
    }
    return EventOutcome(replace(state, kubelet=replace(fresh, node=node), held=held))


def with_offline(kubelet: Kubelet, offline: int, displaced: Mapping[str, Mapping[int, int]]) -> Kubelet:
    """Return a kubelet that was just started, with what its files do not tell of CPUs that are offline.

    Without the extension cpu-hotplug nothing is known of them.
    """
    if not kubelet.settings.replace_offline or not (offline or displaced):
        return kubelet
    return replace(kubelet, node=remembered(kubelet.node, offline, displaced))
