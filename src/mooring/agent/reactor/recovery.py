"""Taking over what a running container has: its CPUs become its own without being moved.

When the state lost an entry, because a file was damaged or could not be written, the runtime and the kernel still have
the placement. Where that is one that the engine could have given, it is entered into the state, which the engine then
starts on with all of its checks.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from mooring.agent.reactor.resume import with_offline
from mooring.agent.reactor.values import AgentState, KnownContainer
from mooring.checkpoint.cpu_file import cpu_state_text
from mooring.core.cpuset import CPUSet, CPUSetSyntaxError
from mooring.core.pod import Pod
from mooring.cpumanager.requests import exclusive_cpus
from mooring.kubelet.kubelet import Kubelet, start_kubelet


def recoverable(state: AgentState, pod: Pod, taken: int) -> Mapping[str, int]:
    """Return the CPUs that a pod's containers have on record and may keep, as masks by container.

    All or nothing: every running container with CPUs of its own must have as many as it asks for, none reserved, none
    of another container.

    Args:
        state: with the pod's containers.
        pod: without entries.
        taken: CPUs that others keep, as a mask.
    """
    settings = state.kubelet.settings
    if settings.cpu is None or settings.pod_level.leaves_out(pod) or settings.pod_level.manages(pod):
        return {}
    free = state.kubelet.node.cpu.default & settings.allocatable_cpus.mask & ~taken
    live = {one.name: one for one in state.containers_of(pod.uid)}
    found: dict[str, int] = {}
    for container in pod.containers:
        count = exclusive_cpus(pod, container, settings.pod_level)
        if not count or container.name not in live:
            continue
        mask = _cpus_of(live[container.name])
        if mask.bit_count() != count or mask & ~free:
            return {}
        free &= ~mask
        found[container.name] = mask
    return found


def with_entries(kubelet: Kubelet, entries: Mapping[str, Mapping[str, int]]) -> Kubelet | None:
    """Return a kubelet that has started on its own state with further entries; None when it does not start on it.

    Args:
        kubelet: its active pods stay active.
        entries: masks by pod uid and container; of pods without entries.
    """
    node, before = kubelet.node, kubelet.node.cpu
    given = 0
    for containers in entries.values():
        for mask in containers.values():
            given |= mask
    cpu = replace(before, default=before.default & ~given, assignments={**before.assignments, **entries})
    gates = kubelet.settings.gates
    text = cpu_state_text(
        cpu,
        pod_level=gates["PodLevelResourceManagers"],
        baselines=gates["InPlacePodVerticalScalingExclusiveCPUs"],
    )
    start = start_kubelet(kubelet.info, kubelet.settings.config, kubelet.mooring, replace(kubelet.files, cpu=text))
    if start.kubelet is None:
        return None
    started = with_offline(start.kubelet, before.offline, before.displaced)
    providers = replace(node.providers, cpu=started.node.cpu)
    return replace(started, node=replace(node, providers=providers))


def cpus_of(masks: Iterable[int]) -> str:
    """Return several masks as one CPU list."""
    joined = 0
    for mask in masks:
        joined |= mask
    return str(CPUSet(joined))


def _cpus_of(container: KnownContainer) -> int:
    try:
        return CPUSet.parse(container.told.cpus).mask
    except CPUSetSyntaxError:
        return 0
