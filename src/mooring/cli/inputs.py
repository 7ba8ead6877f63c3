"""Reading what the shared options name."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from mooring.core.config import KubeletConfig, MooringConfig
from mooring.core.errors import InputError
from mooring.core.machine import Finding
from mooring.planner.plan import Plan, make_plan
from mooring.planner.simulation import StateTexts


@dataclass(frozen=True, slots=True)
class NodeOptions:
    """The shared options as typed."""

    manifests: Sequence[str]
    machine: str
    config: str
    state: str
    active: Sequence[str]


def plan_of(options: NodeOptions) -> Plan:
    """Read everything and make the plan.

    Raises:
        InputError: something cannot be read or understood.
    """
    from mooring.discovery.loader import load_machine  # noqa: PLC0415 - each verb imports what it needs
    from mooring.manifest.pods import load_pods  # noqa: PLC0415 - as above

    machine = load_machine(options.machine)
    kubelet, mooring, findings = read_config(options.config)
    gates = kubelet.feature_gates
    active = load_pods(options.active, gates) if options.active else None
    pods = load_pods(options.manifests, gates, taken=active.pods if active else ())
    noticed = [*findings, *(active.findings if active else ()), *pods.findings]
    if not pods.pods:
        raise InputError(
            "there is no pod in the manifests",
            source=", ".join(options.manifests),
            remedy="give pods or workloads with -f",
        )
    return make_plan(
        machine,
        kubelet,
        mooring,
        pods.pods,
        files=read_state(options.state),
        active=active.pods if active else (),
        findings=noticed,
    )


def read_config(path: str) -> tuple[KubeletConfig, MooringConfig, tuple[Finding, ...]]:
    """Read a configuration; without one the kubelet's defaults, and a word about what that means."""
    if not path:
        finding = Finding(
            "info",
            "configuration",
            "none given: the kubelet's defaults have CPU manager policy none, under which nobody gets exclusive CPUs "
            "(give a KubeletConfiguration with --config)",
        )
        return KubeletConfig(), MooringConfig(), (finding,)
    from mooring.manifest.kubelet_config import load_config  # noqa: PLC0415 - only where it is asked for

    loaded = load_config(path)
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
