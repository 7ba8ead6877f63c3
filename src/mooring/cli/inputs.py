"""Reading what the shared options name."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from mooring.core.config import KubeletConfig, MooringConfig
from mooring.core.errors import InputError
from mooring.core.machine import Finding
from mooring.core.pod import Pod
from mooring.planner.plan import Plan, make_plan
from mooring.planner.simulation import StateTexts


@dataclass(frozen=True, slots=True)
class NodeOptions:
    """The shared options as typed."""

    manifests: Sequence[str]
    machine: str
    config: Sequence[str]
    state: str
    active: Sequence[str]


def plan_of(options: NodeOptions) -> Plan:
    """Read everything and make the plan.

    Raises:
        InputError: something cannot be read or understood.
    """
    from mooring.discovery.loader import load_machine  # noqa: PLC0415 - each verb imports what it needs
    from mooring.manifest.gates import PodGates  # noqa: PLC0415 - as above
    from mooring.manifest.pod_files import load_pods  # noqa: PLC0415 - as above

    machine = load_machine(options.machine)
    kubelet, mooring, findings = read_config(options.config)
    noticed = list(findings)
    gates = PodGates.of(kubelet.feature_gates)
    active = load_pods(options.active, gates=gates, report=noticed.append)
    pods = load_pods(options.manifests, gates=gates, report=noticed.append)
    if options.manifests and not pods:
        raise InputError(
            "there is no pod in the manifests",
            source=", ".join(options.manifests),
            remedy="give pods or workloads with -f",
        )
    _check_distinct(active, pods)
    return make_plan(machine, kubelet, mooring, pods, files=read_state(options.state), active=active, findings=noticed)


def _check_distinct(active: Sequence[Pod], pods: Sequence[Pod]) -> None:
    running = {pod.uid for pod in active}
    for pod in pods:
        if pod.uid in running:
            raise InputError(
                f"the pod {pod.namespace}/{pod.name} (uid {pod.uid}) is also given with --active",
                source="-f",
                remedy="a pod either runs already or is to be admitted: leave it out of one of the two",
            )


def read_config(paths: Sequence[str]) -> tuple[KubeletConfig, MooringConfig, tuple[Finding, ...]]:
    """Read a configuration; without one the kubelet's defaults, and a word about what that means."""
    if not paths:
        finding = Finding(
            "warning",
            "configuration",
            "none given: the kubelet's defaults have CPU manager policy none, under which nobody gets exclusive CPUs "
            "(give a KubeletConfiguration with --config)",
        )
        return KubeletConfig(), MooringConfig(), (finding,)
    from mooring.manifest.configuration import load_config  # noqa: PLC0415 - only where it is asked for

    loaded = load_config(*paths)
    return loaded.kubelet, loaded.mooring, loaded.findings


def read_state(folder: str) -> StateTexts:
    """Read the state files of a kubelet root directory; they are never written."""
    if not folder:
        return StateTexts()
    from mooring.checkpoint.store import StateFolder  # noqa: PLC0415 - as above

    if not Path(folder).is_dir():
        raise InputError(
            "no such directory", source=folder, remedy="give a kubelet root directory, such as a copy of it"
        )
    files = StateFolder(Path(folder))
    return StateTexts(files.read_cpu(), files.read_memory())
