"""The root directory of a node that does not exist, with secrets in every place where real nodes have some."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

SECRET = "hunter2-do-not-pack"  # noqa: S105 - it is what must not be packed
"""Stands wherever something is nobody's business."""
SYSTEM = "sys/devices/system"
NODES, CPUS_OF_NODE = 2, 8
CONFIG = "etc/kubernetes/kubelet.yaml"


def make_root(root: Path) -> Path:
    """Write the files of the node below ``root``, and return it."""
    for path, text in {**_sysfs(), **_processes(), **_groups()}.items():
        _write(root / path, text)
    for node in range(NODES):
        for cpu in _cpus_of(node):
            (root / f"{SYSTEM}/node/node{node}/cpu{cpu}").symlink_to(f"../../cpu/cpu{cpu}")
    device = root / "sys/devices/pci0000:00/0000:3b:00.0"
    for name, text in (("class", "0x030200"), ("vendor", "0x10de"), ("device", "0x2330"), ("numa_node", "1")):
        _write(device / name, f"{text}\n")
    _write(device / "config", SECRET)
    (root / "sys/bus/pci/devices").mkdir(parents=True)
    (root / "sys/bus/pci/devices/0000:3b:00.0").symlink_to("../../../devices/pci0000:00/0000:3b:00.0")
    _write(root / CONFIG, _CONFIG)
    _write(root / "etc/shadow", SECRET)
    return root


def kubelet_pods(count: int = 3) -> dict[str, Any]:
    """Return pods as kubectl prints them, with everything that a pod can give away."""
    return {"apiVersion": "v1", "kind": "List", "items": [_pod(number) for number in range(count)]}


def _pod(number: int) -> dict[str, Any]:
    amounts = {"cpu": "2", "memory": "64Mi"}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": f"shop-{number}",
            "namespace": "customer",
            "uid": f"00000000-0000-0000-0000-00000000000{number}",
            "labels": {"token": SECRET},
            "annotations": {"vault": SECRET},
            "ownerReferences": [{"kind": "ReplicaSet", "name": SECRET}],
            "managedFields": [{"manager": SECRET}],
        },
        "spec": {
            "nodeName": "edge-7",
            "priority": 10,
            "serviceAccountName": SECRET,
            "imagePullSecrets": [{"name": SECRET}],
            "volumes": [{"name": "v", "secret": {"secretName": SECRET}}],
            "containers": [
                {
                    "name": "app",
                    "image": f"registry/{SECRET}",
                    "command": [SECRET],
                    "args": [SECRET],
                    "env": [{"name": "PASSWORD", "value": SECRET}],
                    "envFrom": [{"secretRef": {"name": SECRET}}],
                    "volumeMounts": [{"name": "v", "mountPath": f"/{SECRET}"}],
                    "resources": {"requests": amounts, "limits": amounts, "claims": [{"name": SECRET}]},
                }
            ],
        },
        # Started in the opposite order of their names.
        "status": {
            "phase": "Running",
            "qosClass": "Guaranteed",
            "startTime": f"2026-01-01T00:00:{59 - number}Z",
            "hostIP": SECRET,
            "message": SECRET,
            "containerStatuses": [{"containerID": SECRET}],
        },
    }


def write_pods(file: Path, pods: Mapping[str, Any]) -> Path:
    """Write pods as JSON, and return the file."""
    file.write_text(json.dumps(pods), encoding="utf-8")
    return file


_CONFIG = f"""
apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
authentication: {{webhook: {{enabled: true}}, x509: {{clientCAFile: /{SECRET}}}}}
tlsPrivateKeyFile: /{SECRET}
staticPodURLHeader: {{Authorization: [{SECRET}]}}
providerID: {SECRET}
cpuManagerPolicy: static
topologyManagerPolicy: single-numa-node
reservedSystemCPUs: "0"
maxPods: 110
"""


def _sysfs() -> dict[str, str]:
    every = f"0-{NODES * CPUS_OF_NODE - 1}"
    files = {
        f"{SYSTEM}/cpu/online": every,
        f"{SYSTEM}/cpu/possible": every,
        f"{SYSTEM}/cpu/isolated": "",
        f"{SYSTEM}/node/online": f"0-{NODES - 1}",
        "sys/devices/virtual/workqueue/cpumask": "ffff",
        "sys/class/dmi/id/product_serial": SECRET,
        "proc/cpuinfo": "".join(
            f"processor\t: {cpu}\nvendor_id\t: GenuineIntel\nflags\t\t: lm\ncpu MHz\t\t: 2000.000\n\n"
            for cpu in range(NODES * CPUS_OF_NODE)
        )
        + f"Serial\t\t: {SECRET}",
        "proc/meminfo": f"MemTotal: {NODES * 4 * 1024**2} kB\nSwapTotal: 0 kB",
        "proc/cmdline": f"BOOT_IMAGE=/vmlinuz password={SECRET} isolcpus=6-7 quiet -- isolcpus={SECRET}",
        "proc/mounts": f"server:/{SECRET} /data nfs rw 0 0\ncgroup2 /sys/fs/cgroup cgroup2 rw 0 0",
        "proc/self/cgroup": f"1:name=systemd:/{SECRET}\n0::/",
        "proc/interrupts": "      CPU0   CPU1\n 24:      5      6  PCI-MSI 1-edge  nvme0q1\nNMI:  0  0  x",
        "proc/irq/24/smp_affinity_list": every,
        "proc/irq/default_smp_affinity": "ffff",
        "etc/hostname": "Edge-7",
        "etc/systemd/system.conf": f"[Manager]\nDefaultEnvironment=TOKEN={SECRET}\nCPUAffinity=0-1",
        "etc/default/irqbalance": f"IRQBALANCE_ARGS={SECRET}\nIRQBALANCE_BANNED_CPULIST=6-7",
    }
    for node in range(NODES):
        cpus = _cpus_of(node)
        mask = sum(1 << cpu for cpu in cpus)
        folder = f"{SYSTEM}/node/node{node}"
        files |= {
            f"{folder}/cpumap": f"{mask:08x}",
            f"{folder}/cpulist": f"{cpus[0]}-{cpus[-1]}",
            f"{folder}/meminfo": f"Node {node} MemTotal: {4 * 1024**2} kB",
            f"{folder}/distance": " ".join("10" if other == node else "21" for other in range(NODES)),
            f"{folder}/hugepages/hugepages-2048kB/nr_hugepages": "0",
        }
        for cpu in cpus:
            first = cpu & ~1
            for name, value in (
                ("core_id", str(first // 2)),
                ("physical_package_id", str(node)),
                ("thread_siblings", f"{3 << first:08x}"),
                ("core_siblings", f"{mask:08x}"),
            ):
                files[f"{SYSTEM}/cpu/cpu{cpu}/topology/{name}"] = value
    return {path: f"{text}\n" for path, text in files.items()}


def _cpus_of(node: int) -> list[int]:
    return list(range(node * CPUS_OF_NODE, (node + 1) * CPUS_OF_NODE))


def _processes() -> dict[str, str]:
    return {
        "proc/1/comm": "systemd\n",
        "proc/1/environ": SECRET,
        "proc/77/comm": "kubelet\n",
        "proc/77/cmdline": f"/usr/bin/kubelet\0--config=/{CONFIG}\0--kubeconfig=/{SECRET}\0--max-pods\x00250\0",
        "proc/90/comm": "irqbalance\n",
    }


def _groups() -> dict[str, str]:
    pod = "kubepods.slice/kubepods-pod00000000_0000_0000_0000_000000000000.slice"
    files = {"sys/fs/cgroup/cgroup.controllers": "cpuset cpu\n", "sys/fs/cgroup/memory.stat": SECRET}
    for group in ("", "system.slice", "system.slice/billing.service", "kubepods.slice", pod, f"{pod}/cri-1.scope"):
        folder = f"sys/fs/cgroup/{group}".rstrip("/")
        files[f"{folder}/cpuset.cpus.effective"] = "0-15\n"
        files[f"{folder}/cgroup.procs"] = "4711\n" if group.endswith((".service", ".scope")) else ""
    return files


def _write(file: Path, text: str) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text, encoding="utf-8")
