"""Machines as people paste them: parts of what a tool prints, in other languages, with what a terminal adds."""

from __future__ import annotations

import json

import pytest

from mooring.engine.core.errors import InputError
from mooring.engine.core.machine import Machine
from mooring.inputs.machines.loader import machine_in

GERMAN = """\
Architektur:                       x86_64
CPU(s):                            8
  Liste der Online-CPU(s):         0-7
    Thread(s) pro Kern:            2
    Kern(e) pro Sockel:            2
    Sockel:                        2
  NUMA-Knoten:                     2
  NUMA-Knoten0 CPU(s):             0,1,4,5
  NUMA-Knoten1 CPU(s):             2,3,6,7
"""
FRENCH = """\
Processeur(s) :                         8
Liste de processeur(s) en ligne :       0-7
Thread(s) par cœur :                    2
Cœur(s) par socket :                    2
Socket(s) :                             2
Nœud(s) NUMA :                          2
Nœud NUMA 0 de processeur(s) :          0,1,4,5
Nœud NUMA 1 de processeur(s) :          2,3,6,7
"""
CHINESE = """\
CPU:                    8
在线 CPU 列表：         0-7
每个核的线程数：        2
每个座的核数：          2
座：                    2
L3 缓存：               30 MiB (1 instance)
NUMA 节点：             2
NUMA 节点0 CPU：        0,1,4,5
NUMA 节点1 CPU：        2,3,6,7
"""
FRAGMENT = "NUMA node0 CPU(s):   0,1,4,5\nNUMA node1 CPU(s):   2,3,6,7\n"
COUNTS = "CPU(s):  8\nThread(s) per core:  2\nSocket(s):  2\nNUMA node(s):  2\n"
WRAPPED = """\
available: 2 nodes (0-1)
node 0 cpus: 0 1
   4 5
node 0 size: 4095 MB
node 0 free: 68 MB
node 1 cpus: 2 3 6
7
node 1 size: 4096 MB
node distances:
node   0   1
  0:  10  21
  1:  21  10
"""
LSTOPO_1 = """\
Machine (8191MB total)
  NUMANode L#0 (P#0 4095MB) + Package L#0 + L3 L#0 (20MB)
    L2 L#0 (256KB) + L1d L#0 (32KB) + L1i L#0 (32KB) + Core L#0
      PU L#0 (P#0)
      PU L#1 (P#4)
    L2 L#1 (256KB) + L1d L#1 (32KB) + L1i L#1 (32KB) + Core L#1
      PU L#2 (P#1)
      PU L#3 (P#5)
  NUMANode L#1 (P#1 4096MB) + Package L#1 + L3 L#1 (20MB)
    L2 L#2 (256KB) + Core L#2 + PU L#4 (P#2) + PU L#5 (P#6)
    L2 L#3 (256KB) + Core L#3
      PU L#6 (P#3)
      PU L#7 (P#7)
    HostBridge L#0
      PCI 01:00.0 (NVMExp)
"""
LSTOPO_2 = """\
Machine (8191MB total)
  Package L#0
    NUMANode L#0 (P#0 4095MB)
    L3 L#0 (20MB)
      L2 L#0 (256KB) + Core L#0
        PU L#0 (P#0)
        PU L#1 (P#4)
      L2 L#1 (256KB) + Core L#1
        PU L#2 (P#1)
        PU L#3 (P#5)
  Package L#1
    NUMANode L#1 (P#1 4096MB)
    L3 L#1 (20MB)
      L2 L#2 (256KB) + Core L#2
        PU L#4 (P#2)
        PU L#5 (P#6)
      L2 L#3 (256KB) + Core L#3
        PU L#6 (P#3)
        PU L#7 (P#7)
"""
MATRIX = (
    "\tGPU0\tGPU1\tNIC0\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID\n"
    "GPU0\t X \tSYS\tNODE\t0-1,4-5\t0\t\tN/A\nGPU1\tSYS\t X \tSYS\t2-3,6-7\t1\t\tN/A\nNIC0\tNODE\tSYS\t X \n"
)
CELLS = """\
<cells num='2'>
  <cell id='0'><memory unit='KiB'>4193280</memory><cpus num='4'>
    <cpu id='0' socket_id='0' core_id='0' siblings='0,4'/><cpu id='4' socket_id='0' core_id='0' siblings='0,4'/>
    <cpu id='1' socket_id='0' core_id='1' siblings='1,5'/><cpu id='5' socket_id='0' core_id='1' siblings='1,5'/>
  </cpus></cell>
  <cell id='1'><memory unit='KiB'>4194304</memory><cpus num='4'>
    <cpu id='2' socket_id='1' core_id='0' siblings='2,6'/><cpu id='6' socket_id='1' core_id='0' siblings='2,6'/>
    <cpu id='3' socket_id='1' core_id='1' siblings='3,7'/><cpu id='7' socket_id='1' core_id='1' siblings='3,7'/>
  </cpus></cell>
</cells>
"""
DETAIL = [{"id": cpu, "core": cpu % 4, "socket": cpu % 4 // 2, "node": cpu % 4 // 2} for cpu in range(8)]
KOORDINATOR = json.dumps(
    {
        "apiVersion": "topology.node.k8s.io/v1alpha1",
        "kind": "NodeResourceTopology",
        "metadata": {
            "name": "n",
            "annotations": {
                "node.koordinator.sh/cpu-topology": json.dumps({"detail": DETAIL}),
                "kubelet.koordinator.sh/cpu-manager-policy": '{"policy":"static","reservedCPUs":"0,4"}',
            },
        },
        "zones": [{"name": "fake-name", "type": "fake-type"}],
    }
)
VOLCANO = json.dumps(
    {
        "apiVersion": "nodeinfo.volcano.sh/v1alpha1",
        "kind": "Numatopology",
        "metadata": {"name": "n"},
        "spec": {
            "cpuDetail": {
                str(one["id"]): {
                    name: number
                    for name, key in (("numa", "node"), ("core", "core"), ("socket", "socket"))
                    if (number := one[key])
                }
                for one in DETAIL
            },
            "policies": {"CPUManagerPolicy": "static", "TopologyManagerPolicy": "restricted"},
        },
    }
)
PASTED = {
    "lscpu": "Architecture: x86_64\nCPU(s): 8\nOn-line CPU(s) list: 0-7\nThread(s) per core: 2\nCore(s) per socket: 2\n"
    f"Socket(s): 2\nNUMA node(s): 2\nL3 cache: 20480K\n{FRAGMENT}",
    "lscpu through grep": f"$ lscpu | grep -E 'Thread|NUMA'\nThread(s) per core:  2\nNUMA node(s):  2\n{FRAGMENT}",
    "lscpu of a root shell": f"root@worker-1:~# lscpu\n{FRAGMENT}root@worker-1:~# \n",
    "lines of NUMA nodes alone": FRAGMENT,
    "counts alone": COUNTS,
    "German": GERMAN,
    "French": FRENCH,
    "Chinese": CHINESE,
    "lscpu -p of two columns": "# lscpu -p=cpu,node\n# CPU,Node\n0,0\n1,0\n2,1\n3,1\n4,0\n5,0\n6,1\n7,1\n",
    "lscpu -p without its header": "".join(
        f"{cpu},{cpu % 4},{cpu % 4 // 2},{cpu % 4 // 2},,0,0,0,0\n" for cpu in range(8)
    ),
    "numactl, wrapped": f"[root@node ~]# numactl --hardware\n{WRAPPED}",
    "numactl without memory": "node 0 cpus: 0 1 4 5\nnode 1 cpus: 2 3 6 7\n",
    "lstopo of hwloc 1": f"$ lstopo-no-graphics\n{LSTOPO_1}",
    "lstopo of hwloc 2": LSTOPO_2,
    "lstopo, wrapped by mail": LSTOPO_1.replace(" + Core", " +\nCore"),
    "nvidia-smi": f"$ nvidia-smi topo -m\n{MATRIX}",
    "nvidia-smi, tabs lost": MATRIX.replace("\t", "    "),
    "cells of libvirt": CELLS,
    "Koordinator": KOORDINATOR,
    "Volcano": VOLCANO,
    "e-mail": "".join(f"> {line}\n" for line in WRAPPED.splitlines()),
    "Markdown": f"My node:\n\n```text\n$ lscpu\n{GERMAN}```\n\nAnd the pod is rejected.\n",
    "files of /sys through grep": (
        "$ grep . /sys/devices/system/node/node*/cpulist\n"
        "/sys/devices/system/node/node0/cpulist:0-1,4-5\n/sys/devices/system/node/node1/cpulist:2-3,6-7\n"
        "/sys/devices/system/cpu/cpu0/topology/thread_siblings_list:0,4\n"
    ),
    "Windows": WRAPPED.replace("\n", "\r\n"),
    "colours": FRAGMENT.replace("NUMA", "\x1b[01;31mNUMA\x1b[0m"),
}


def read(text: str) -> Machine:
    return machine_in(text.encode(), "given")


@pytest.mark.parametrize("name", PASTED)
def test_nodes_and_cores_are_read_or_follow_from_the_numbers(name: str) -> None:
    machine = read(PASTED[name])
    cores = [
        [sorted(core.thread_ids) for core in node.cores]
        for node in sorted(machine.info.topology, key=lambda node: node.node_id)
    ]
    assert [sorted(node) for node in cores] == [[[0, 4], [1, 5]], [[2, 6], [3, 7]]]
    assert machine.info.num_sockets == 2


@pytest.mark.parametrize(
    ("name", "assumed"),
    [
        ("lscpu", ("threads numbered as Linux does", "4Gi of memory for each CPU", "distances 10 and 20")),
        (
            "counts alone",
            (
                "CPUs of the NUMA nodes in the order of their cores",
                "threads numbered as Linux does",
                "4Gi of memory for each CPU",
                "distances 10 and 20",
            ),
        ),
        ("numactl, wrapped", ("2 threads a core, as the runs of CPU numbers suggest", "every NUMA node is a socket")),
        ("lstopo of hwloc 2", ("distances 10 and 20",)),
    ],
)
def test_what_is_assumed_is_listed(name: str, assumed: tuple[str, ...]) -> None:
    assert read(PASTED[name]).origin.assumed == assumed


def test_clusters_of_an_arm_machine_without_sockets_are_its_sockets() -> None:
    text = (
        "Architecture: aarch64\nCPU(s): 8\nThread(s) per core: 1\nCore(s) per cluster: 4\nSocket(s): -\nCluster(s): 2\n"
        + "".join(f"NUMA node{node} CPU(s): {2 * node}-{2 * node + 1}\n" for node in range(4))
    )
    machine = read(text)
    assert (machine.info.num_sockets, len(machine.info.topology)) == (2, 4)
    assert "every NUMA node is a socket" not in machine.origin.assumed


def test_lstopo_tells_memory_and_shared_caches() -> None:
    for text in (LSTOPO_1, LSTOPO_2):
        nodes = read(text).info.topology
        assert [node.memory // 2**20 for node in nodes] == [4095, 4096]
        assert [[cache.level for cache in node.caches] for node in nodes] == [[3], [3]]


def test_topology_objects_of_schedulers_tell_policies() -> None:
    published = [read(text).published for text in (KOORDINATOR, VOLCANO)]
    assert [dict(one.fields) for one in published if one] == [
        {"cpuManagerPolicy": "static", "reservedSystemCPUs": "0,4"},
        {"cpuManagerPolicy": "static", "topologyManagerPolicy": "restricted"},
    ]


def test_a_guest_of_libvirt_is_the_machine_of_its_cells() -> None:
    domain = (
        "<domain><name>worker</name><cpu><topology sockets='2' dies='1' cores='2' threads='2'/><numa>"
        "<cell id='0' cpus='0-3' memory='8' unit='GiB'/><cell id='1' cpus='4-7' memory='8' unit='GiB'/>"
        "</numa></cpu></domain>"
    )
    machine = read(domain)
    assert (machine.name, machine.info.num_sockets, machine.info.memory_capacity) == ("worker", 2, 16 * 2**30)
    assert [core.thread_ids for node in machine.info.topology for core in node.cores] == [
        (0, 1), (2, 3), (4, 5), (6, 7),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (MATRIX.replace("0-1,4-5", "0-x"), "given:2: GPU0: "),
        (MATRIX.replace("\t0\t", "\tN/A\t").replace("\t1\t", "\tN/A\t"), "no GPU has the CPUs of one NUMA node"),
        (f"> {WRAPPED.splitlines()[1]}\n> node 0 cpus: 1\n", "node 0 is there twice"),
        (KOORDINATOR.replace('{\\"detail', '[{\\"detail'), "cpu-topology: is not valid JSON"),
        (VOLCANO.replace('"1": {', '"x": {'), "spec.cpuDetail.x.cpu: 'x' is not a whole number"),
        (LSTOPO_2.replace("PU L#", "XU L#"), "has no PU"),
        (CELLS.replace("id='4'", "id='0'"), "CPU 0 is there twice"),
        ("```\nhello\n```\n", "is not a machine in any known format"),
    ],
)
def test_what_cannot_be_used_is_one_line(text: str, message: str) -> None:
    with pytest.raises(InputError) as raised:
        read(text)
    assert message in str(raised.value)
    assert "\n" not in str(raised.value)
