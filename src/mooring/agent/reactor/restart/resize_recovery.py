"""Recovering containers that were resized after the journal was last written.

While the folder cannot be written, a resize is decided in memory alone. After a restart the ledger has such a container
as it was before, and the runtime's record has its new sizes and its CPUs. These are entered into the ledger before
anything else gets them. The engine, asked about the resize afterwards, then finds nothing to move, and a release that
was pending gets its delay.

A resize that the agent missed is none of these: the runtime carried out the sizes alone, and the CPUs on record are
those of the ledger.

Of a pod that no journal has the record knows the sizes better than a pod source, which can be behind: the kubelet
grants them before it calls the runtime, and reports them later.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from mooring.agent.nri.types import RuntimeContainer
from mooring.agent.pods.resized import resized
from mooring.agent.reactor.desired import DesiredSettings
from mooring.agent.reactor.effects import AgentReport, ReportKind
from mooring.agent.reactor.placing import resizes
from mooring.agent.reactor.restart.resume import Resumed
from mooring.agent.reactor.values import AgentState, by_name
from mooring.engine.core.bits import CPUMask, list_text
from mooring.engine.core.pod import Pod
from mooring.engine.cpumanager.policy import StaticPolicy, available_cpus
from mooring.engine.extensions.cpu_resize import assigned, change_of


@dataclass(frozen=True, slots=True)
class _Recorded:
    """A resized container with other CPUs on record than the ledger has."""

    pod: Pod
    container: str
    id: str
    current: CPUMask
    cpus: CPUMask
    """Those on record."""


def with_resizes_on_record(state: AgentState, containers: Sequence[RuntimeContainer]) -> Resumed:
    """Return the state with the CPUs that resized containers have on record, where the engine could have chosen them.

    Args:
        state: in which the pods that have entries are active.
        containers: as the runtime lists them.
    """
    policy = state.kubelet.settings.cpu
    if policy is None or not policy.resizes:
        return Resumed(state)
    cpu = state.kubelet.node.cpu
    reports = []
    # What some released, others may have got.
    for one in sorted(_recorded(state, policy, containers), key=lambda one: bool(one.cpus & ~one.current)):
        if one.cpus & ~one.current & ~available_cpus(policy, cpu):
            continue
        cpu = assigned(cpu, one.pod.uid, one.container, one.cpus)
        name = f"{one.pod.namespace}/{one.pod.name}"
        text = f"{name}: {one.container} was resized and keeps CPUs {list_text(one.cpus)}, which it runs on"
        reports.append(AgentReport(ReportKind.TAKEN_OVER, text, one.pod.uid, one.id))
    if not reports:
        return Resumed(state)
    return Resumed(replace(state, kubelet=state.kubelet.with_cpu_state(cpu)), tuple(reports))


def with_sizes_on_record(state: AgentState, pod: Pod, containers: Sequence[RuntimeContainer]) -> Pod:
    """Return a pod without entries with the sizes that its containers have on record.

    Args:
        state: with the pod's containers.
        pod: as a pod source knows it.
        containers: as the runtime lists them.
    """
    if not resizes(state.kubelet) or pod.uid in state.kubelet.node.cpu.assignments:
        return pod
    listed = {one.id: one.resources for one in containers}
    for name, known in by_name(state.containers_of(pod.uid)).items():
        if known.id in listed:
            pod = resized(pod, name, listed[known.id]) or pod
    return pod


def _recorded(state: AgentState, policy: StaticPolicy, containers: Sequence[RuntimeContainer]) -> Iterator[_Recorded]:
    """Yield resized containers whose record has their first CPUs and at least as many as they request now.

    Where the journal has the sizes, its delay was over later: the record has lost CPUs and got none.
    """
    listed = {one.id: one.resources for one in containers}
    settings = DesiredSettings.now(state)
    for uid, pod in state.kubelet.node.active.items():
        for name, known in by_name(state.containers_of(uid)).items():
            if known.id not in listed or settings.is_mixed(uid, name):
                # The record of a mixed container does not show which CPUs are its own.
                continue
            wanted = resized(pod, name, listed[known.id])
            own = (wanted or pod).container(name)
            change = None if own is None else change_of(policy, state.kubelet.node.cpu, wanted or pod, own)
            if change is None:
                continue
            # No record has an offline CPU.
            cpus = known.record.cpus.mask & ~settings.claimed.get((uid, name), 0)
            cpus = CPUMask(cpus | (change.current & state.kubelet.node.cpu.offline))
            if not change.baseline or change.baseline & ~cpus:
                continue
            if wanted is None and not (change.is_shrink and not cpus & ~change.current):
                continue
            if cpus != change.current and cpus.bit_count() >= change.need:
                yield _Recorded(pod, name, known.id, change.current, cpus)
