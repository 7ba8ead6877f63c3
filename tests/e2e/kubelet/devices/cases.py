"""Machines with eight GPUs and eight NICs, and pods that want some of them, drawn from a seed."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from typing import Any

from tests.e2e.kubelet.cases import WHOLE, Case, Wants, pod_of, policies

from mooring.engine.core.machine import Machine
from mooring.engine.devicemanager.state import Device

GPU, NIC = "vendor.example/gpu", "vendor.example/nic"
COUNT = 8
"""Devices of each resource."""
SEED = 19
TWO_NODES, FOUR_NODES, EIGHT_NODES = "xeon-8480-2s", "xeon-6230-2s-snc2", "epyc-7763-2s-nps4"

DEVICE_CASES: Sequence[Case] = (
    Case("two-nodes", TWO_NODES, policies("single-numa-node"), 6, 60, reserved="0,112"),
    Case("four-nodes-pod", FOUR_NODES, policies("restricted", scope="pod"), 3, 14, reserved="0,40"),
    Case("eight-nodes", EIGHT_NODES, policies("single-numa-node"), 6, 20, reserved="0,128"),
)
"""Under another policy a kubelet would merge 255 hints of each of four resources on eight NUMA nodes, for hours."""
MORE_DEVICE_CASES: Sequence[Case] = (
    Case("two-nodes-restricted", TWO_NODES, policies("restricted"), 6, 60, reserved="0,112"),
    Case("four-nodes-single", FOUR_NODES, policies("single-numa-node"), 3, 14, reserved="0,40"),
    Case("eight-nodes-single-pod", EIGHT_NODES, policies("single-numa-node", scope="pod"), 6, 20, reserved="0,128"),
    Case("two-nodes-best-effort", TWO_NODES, policies("best-effort"), 6, 60, reserved="0,112"),
    Case("eight-nodes-none", EIGHT_NODES, policies(), 6, 20, reserved="0,128"),
)
"""With MOORING_E2E_KUBELET=full."""
PODS = 60 if WHOLE else 16
"""Random pods of a case."""


def device_cases() -> Sequence[Case]:
    """Return the cases of this run."""
    return (*DEVICE_CASES, *MORE_DEVICE_CASES) if WHOLE else DEVICE_CASES


def devices_on(machine: Machine) -> dict[str, tuple[Device, ...]]:
    """Return eight GPUs and eight NICs, spread evenly over the NUMA nodes of a machine."""
    nodes = [node.node_id for node in machine.info.topology if node.cores]

    def spread(kind: str) -> tuple[Device, ...]:
        return tuple(Device(f"{kind}-{one}", (nodes[one * len(nodes) // COUNT],)) for one in range(COUNT))

    return {GPU: spread("gpu"), NIC: spread("nic")}


def random_pods(case: Case, count: int = PODS, seed: int = SEED) -> list[dict[str, Any]]:
    """Return pods of one or two containers, of which most want CPUs, GPUs and NICs; the same ones for the same seed."""
    drawn = random.Random(f"{case.name}-{seed}")  # noqa: S311 - drawn again for the same seed
    return [_pod(drawn, case, f"pod-{number:03}") for number in range(count)]


def _pod(drawn: random.Random, case: Case, name: str) -> dict[str, Any]:
    size = drawn.choice((1, 1, 1, 2))
    init = [_container(drawn, case, "load", {"command": ["true"]})] if drawn.random() < 0.2 else []
    return pod_of(name, *(_container(drawn, case, f"app{one}", {}) for one in range(size)), init=init)


def _container(drawn: random.Random, case: Case, name: str, settings: Mapping[str, Any]) -> Wants:
    cpus = drawn.choice((1, 2, case.own, case.own + 1, case.wide // 2, case.wide))
    cpu = str(cpus) if drawn.random() < 0.85 else f"{100 * drawn.randint(1, 9)}m"
    devices = {GPU: drawn.choice((0, 1, 1, 1, 2, 3)), NIC: drawn.choice((0, 0, 1, 1, 2))}
    return with_devices(Wants(name, cpu, "64Mi", settings=settings), devices)


def with_devices(wants: Wants, counts: Mapping[str, int]) -> Wants:
    """Return a container that wants devices too."""
    limits = {key: value for key, value in (("cpu", wants.cpu), ("memory", wants.memory)) if value}
    limits.update({resource: str(count) for resource, count in counts.items() if count})
    return Wants(wants.name, wants.cpu, wants.memory, settings={**wants.settings, "resources": {"limits": limits}})
