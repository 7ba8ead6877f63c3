"""A scenario: PCI devices on NUMA nodes as a real kernel knows them, and containers whose CPUs follow their devices.

Each NUMA node has a PCIe root of its own with a display controller and a network card (``Shape.devices``). The scenario
plays the kubelet that has given them to pods; everything else is real: sysfs, containerd, runc and the agent. Where a
container's CPUs, memory and devices are is looked up from inside.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.agent.devices.made_up_podresources import PodResources
from tests.e2e.guest.agent import kubelet, online
from tests.e2e.guest.node import POD_RESOURCES, Node, Running, Wanted
from tests.e2e.guest.resizing import refusal
from tests.e2e.guest.runtimes import RUN
from tests.e2e.guest.sight import started

from mooring.engine.core.cpuset import CPUSet
from mooring.engine.core.machine import PCIDevice
from mooring.engine.devicemanager.state import Device
from mooring.inputs.machines.loader import load_machine

MIB = 2**20
PCI = Path("/sys/bus/pci/devices")
GPU, NIC = "vendor.example/gpu", "vendor.example/nic"
CLASSES = {GPU: "0380", NIC: "0200"}
EXTENSION = {"kind": "MooringConfiguration", "apiVersion": "mooring/v1alpha1", "extensions": ["device-alignment"]}
NODE = Node()
RESOURCES = PodResources(POD_RESOURCES)


def found() -> dict[str, dict[int, PCIDevice]]:
    """Return what Mooring reads of this machine: resource -> NUMA node -> device."""
    devices = load_machine("").pci
    return {
        resource: {one.numa: one for one in devices if one.class_code.startswith(start) and one.numa is not None}
        for resource, start in CLASSES.items()
    }


def step_mooring_reads_the_devices_as_the_kernel_has_them() -> str:
    known = {one.address: (one.numa, one.root) for one in load_machine("").pci}
    kernel = {}
    for place in PCI.iterdir():
        node = int((place / "numa_node").read_text())
        root = next(part for part in place.resolve().parts if part.startswith("pci0"))
        kernel[place.name] = (None if node < 0 else node, root)
    assert known == kernel, (known, kernel)
    nodes = set(online("node"))
    for resource, by_node in found().items():
        assert set(by_node) == nodes, (resource, by_node)
        assert len({one.root for one in by_node.values()}) == len(nodes), by_node
    told = subprocess.run([sys.executable, "-m", "mooring", "topology"], capture_output=True, text=True, check=True)
    lines = [line for line in told.stdout.splitlines() if any(one.address in line for one in found()[GPU].values())]
    assert lines, told.stdout
    return "\n".join(lines)


def step_the_agent_comes_up_and_follows_devices() -> str:
    RUN.mkdir(parents=True, exist_ok=True)
    RESOURCES.start()
    for resource, by_node in found().items():
        RESOURCES.plugins[resource] = tuple(Device(one.address, (node,)) for node, one in by_node.items())
    NODE.come_up(kubelet(), EXTENSION)
    return str(NODE.status()["state"]) if "state" in NODE.status() else "ready"


def wanted(name: str, **nodes: int) -> Running:
    """Let the kubelet give a pod the GPU and the NIC of NUMA nodes, and run its sandbox."""
    devices = {"gpu": GPU, "nic": NIC}
    held = {devices[kind]: (Device(found()[devices[kind]][node].address, (node,)),) for kind, node in nodes.items()}
    RESOURCES.pods[name] = {"app": held}
    return NODE.run_sandbox(Wanted(name, "2", 24 * MIB))


def step_cpus_and_memory_of_a_container_are_beside_its_devices() -> str:
    told = []
    for node in (3, 1, 2):
        made = wanted(f"near-{node}", gpu=node, nic=node)
        NODE.create(made, ("sleep", "1000000"))
        NODE.cri.start(made.container)
        started(made.cgroup)
        address = found()[GPU][node].address
        script = (
            "grep -E '(Cpus|Mems)_allowed_list' /proc/self/status; "
            f"read near < {PCI}/{address}/numa_node; echo near: $near; "
            "cat /sys/devices/system/node/node$near/cpulist"
        )
        cpus, mems, near, local = NODE.cri.execute(made.container, "sh", "-c", script).splitlines()
        inside = CPUSet.parse(cpus.split()[1])
        assert near == f"near: {node}", near
        assert len(inside) == 2, cpus
        assert inside <= CPUSet.parse(local), (cpus, local)
        assert mems.split()[1] == str(node), mems
        told.append(f"{address} on node {node} with CPUs {local}: {cpus.split()[1]}")
    return "; ".join(told)


def step_devices_of_two_numa_nodes_refuse_the_container() -> str:
    made = wanted("apart", gpu=1, nic=2)
    words = refusal(lambda: NODE.create(made, ("sleep", "1000000")))
    assert "MOOR-137" in words, words
    assert "TopologyAffinityError" in words or "Topology locality" in words, words
    return words


def diagnosis() -> str:
    return NODE.diagnosis()
