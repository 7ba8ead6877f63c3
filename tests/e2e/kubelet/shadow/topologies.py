"""Six machines, each with configurations that follow one another on it: beside kubelets of two releases."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from tests.e2e.kubelet.cases import Case, older, policies
from tests.e2e.kubelet.devices.cases import FOUR_NODES, TWO_NODES

WANTED = frozenset((os.environ.get("MOORING_E2E_SHADOW_TOPOLOGIES") or "no-smt no-smt-older").split())
MEMORY_ONLY = "sockets=2 numa=4 cores=32 threads=2 l3=8 memory=64Gi cpuless=2 cpuless-memory=16Gi hugepages-2Mi=2048"


@dataclass(frozen=True, slots=True)
class Topology:
    """A machine under a kubelet that gets another configuration now and then."""

    case: Case
    """Has the first configuration."""
    others: tuple[Mapping[str, Any], ...]
    """The configurations that follow, the first one among them again."""
    memory: tuple[str, ...] = ("64Mi", "512Mi", "3Gi")
    """What containers want."""
    pages: tuple[str, ...] = ()
    """Huge pages of 2 MiB that containers want; empty for a machine without."""
    has_devices: bool = False
    """Whether plugins offer GPUs and NICs."""

    @property
    def name(self) -> str:
        return self.case.name


_ALPHA = {"CPUManagerPolicyAlphaOptions": True}


def _with_gates(given: Mapping[str, Any], gates: Mapping[str, bool]) -> Mapping[str, Any]:
    return {**given, "featureGates": dict(gates)}


TOPOLOGIES: Sequence[Topology] = (
    # Eight NUMA nodes, two L3 caches in each.
    Topology(
        Case("nps4", "epyc-7763-2s-nps4", policies("restricted"), 6, 34, reserved="0,128"),
        (
            policies("single-numa-node", scope="pod", full_pcpus_only="true"),
            policies("best-effort", "None", distribute_cpus_across_numa="true"),
            policies("restricted"),
        ),
        memory=("64Mi", "1Gi", "70Gi"),
    ),
    # Four NUMA nodes, an L3 cache spans two of them.
    Topology(
        Case("snc2", FOUR_NODES, policies("restricted", scope="pod"), 3, 24, reserved="0,40"),
        (
            policies("best-effort", scope="pod", full_pcpus_only="true", distribute_cpus_across_numa="true"),
            policies("single-numa-node", "None"),
            policies("restricted", scope="pod"),
        ),
        has_devices=True,
    ),
    # Sixteen L3 caches on two NUMA nodes, no SMT.
    Topology(
        Case(
            "uncore",
            "synth-epyc7763-2s-nps1",
            policies("best-effort", prefer_align_cpus_by_uncorecache="true"),
            5,
            70,
            is_snapshot=True,
        ),
        (
            policies("none", "None", prefer_align_cpus_by_uncorecache="true"),
            _with_gates(policies("restricted", align_by_socket="true"), _ALPHA),
            policies("best-effort", prefer_align_cpus_by_uncorecache="true"),
        ),
        memory=("64Mi", "2Gi", "300Gi"),
        pages=("64Mi", "512Mi"),
    ),
    # Two large NUMA nodes.
    Topology(
        Case("two", TWO_NODES, policies("single-numa-node", strict_cpu_reservation="true"), 6, 60, reserved="0,112"),
        (
            _with_gates(policies("restricted", distribute_cpus_across_cores="true"), _ALPHA),
            {"cpuManagerPolicy": "none", "memoryManagerPolicy": "None", "topologyManagerPolicy": "best-effort"},
            policies("single-numa-node", strict_cpu_reservation="true"),
        ),
        has_devices=True,
    ),
    # Four NUMA nodes of single-threaded cores.
    Topology(
        Case("no-smt", "kunpeng-920-2s", policies("single-numa-node", scope="pod"), 4, 40, reserved="0-1"),
        (
            policies("none"),
            policies("best-effort", distribute_cpus_across_numa="true"),
            policies("single-numa-node", scope="pod"),
        ),
        memory=("64Mi", "1Gi", "20Gi"),
    ),
    # Two of six NUMA nodes have memory and huge pages alone.
    Topology(
        Case("memory-only", MEMORY_ONLY, policies("best-effort", full_pcpus_only="true"), 4, 20, reserved="0,32"),
        (
            policies("restricted", scope="pod"),
            policies("single-numa-node"),
            policies("best-effort", full_pcpus_only="true"),
        ),
        memory=("64Mi", "1Gi", "9Gi"),
        pages=("64Mi", "256Mi"),
    ),
)


def topologies() -> list[Topology]:
    """Return those of this run: ``all``, or the named ones, whose name ends in ``-older`` for the older release."""
    both = [*TOPOLOGIES, *(replace(one, case=older(one.case)) for one in TOPOLOGIES)]
    return [one for one in both if WANTED & {"all", one.name}]
