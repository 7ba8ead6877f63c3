"""Outputs of lscpu, lstopo, numactl and libvirt in their real form, written from the files of a machine."""

from __future__ import annotations

import json
from collections.abc import Iterator
from xml.sax.saxutils import quoteattr

from mooring.engine.core.bits import mask_of
from mooring.engine.core.machine import Hardware, HardwareCPU, Machine
from mooring.engine.core.machineinfo import Cache


def hardware_of(machine: Machine) -> Hardware:
    assert machine.hardware is not None
    return machine.hardware


def node_of(hardware: Hardware, cpu: int) -> int:
    """Return the node whose own CPUs have the CPU."""
    return next(node.id for node in hardware.nodes if node.sysfs_cpulist and cpu in node.local_cpus)


def numbered(values: list[int | None]) -> dict[int | None, int]:
    """Return lscpu's own numbers of cores, sockets or caches, counted over the machine."""
    return {value: index for index, value in enumerate(dict.fromkeys(values))}


def lscpu_rows(machine: Machine) -> Iterator[dict[str, object]]:
    hardware = hardware_of(machine)
    cores = numbered([cpu.core for cpu in hardware.cpus])
    sockets = numbered([cpu.package_first_cpu for cpu in hardware.cpus])
    l2, l3 = (numbered([getattr(cpu, level) for cpu in hardware.cpus]) for level in ("l2", "l3"))
    for cpu in hardware.cpus:
        core = cores[cpu.core]
        yield {
            "cpu": cpu.id,
            "node": node_of(hardware, cpu.id),
            "socket": sockets[cpu.package_first_cpu],
            "core": core,
            "l1d:l1i:l2:l3": f"{core}:{core}:{l2[cpu.l2]}:{l3[cpu.l3]}",
            "online": True,
        }


def lscpu_json(machine: Machine) -> str:
    """Return ``lscpu -J -e``, with an offline CPU as releases before 2.40 write it."""
    rows = json.dumps({"cpus": list(lscpu_rows(machine))}, indent=3)
    offline = '"cpu": 4000, "node": -, "socket": -, "core": -, "l1d:l1i:l2:l3": "-", "online": false'
    dashed = "{\n " + offline.replace(", ", ",\n ") + "\n}"
    return rows.replace("\n   ]", f",{dashed}\n   ]")


def lscpu_parsable(machine: Machine) -> str:
    lines = [
        "# The following is the parsable format, which can be fed to other",
        "# CPU,Core,Socket,Node,,L1d,L1i,L2,L3",
    ]
    for row in lscpu_rows(machine):
        caches = str(row["l1d:l1i:l2:l3"]).replace(":", ",")
        lines.append(f"{row['cpu']},{row['core']},{row['socket']},{row['node']},,{caches}")
    return "\n".join([*lines, ""])


def lscpu_extended(machine: Machine) -> str:
    lines = ["CPU NODE SOCKET CORE L1d:L1i:L2:L3 ONLINE"]
    lines += [
        f"{row['cpu']:>3} {row['node']:>4} {row['socket']:>6} {row['core']:>4} {row['l1d:l1i:l2:l3']} yes"
        for row in lscpu_rows(machine)
    ]
    return "\n".join([*lines, ""])


def lscpu_summary(machine: Machine) -> str:
    hardware = hardware_of(machine)
    sockets, cores, cpus = hardware.num_packages, hardware.num_cores, len(hardware.cpus)
    fields = {
        "Architecture": "x86_64",
        "CPU(s)": cpus,
        "On-line CPU(s) list": hardware.online,
        "Thread(s) per core": cpus // cores,
        "Core(s) per socket": cores // sockets,
        "Socket(s)": sockets,
        "L3 cache": f"{32 * hardware.num_l3} MiB ({hardware.num_l3} instances)",
    } | {f"NUMA node{node.id} CPU(s)": node.sysfs_cpulist or "" for node in hardware.nodes}
    first, *others = ({"field": f"{name}:", "data": str(value)} for name, value in fields.items())
    return json.dumps({"lscpu": [{**first, "children": others}]})


def numactl(machine: Machine) -> str:
    hardware = hardware_of(machine)
    lines = [f"available: {len(hardware.nodes)} nodes (0-{len(hardware.nodes) - 1})"]
    for node in hardware.nodes:
        cpus = "".join(f" {cpu}" for cpu in node.local_cpus) if node.sysfs_cpulist else ""
        lines += [f"node {node.id} cpus:{cpus}", f"node {node.id} size: {node.memory_bytes >> 20} MB"]
        lines += [f"node {node.id} free: 17 MB"]
    lines += ["node distances:", "node " + "".join(f"{node.id:>4}" for node in hardware.nodes)]
    for node, row in zip(hardware.nodes, hardware.distances or ((10,),), strict=True):
        lines.append(f"{node.id:>4}: " + "".join(f"{distance:>4}" for distance in row))
    return "\n".join([*lines, ""])


def capabilities(machine: Machine) -> str:
    """Return ``virsh capabilities``."""
    hardware, info = hardware_of(machine), machine.info
    rows = {node.node_id: node.distances or () for node in info.topology}
    ids = {cpu: core.core_id for node in info.topology for core in node.cores for cpu in core.thread_ids}
    siblings: dict[int | None, list[int]] = {}
    for cpu in hardware.cpus:
        siblings.setdefault(cpu.core, []).append(cpu.id)
    lines = ["<capabilities><host><cpu><arch>x86_64</arch></cpu><topology><cells>"]
    for node in hardware.nodes:
        lines.append(f"<cell id='{node.id}'><memory unit='KiB'>{node.memory_bytes // 1024}</memory>")
        lines.append("<pages unit='KiB' size='4'>0</pages>")
        lines += [f"<pages unit='KiB' size='{pool.size_bytes >> 10}'>{pool.count}</pages>" for pool in node.hugepages]
        lines.append("<distances>")
        lines += [
            f"<sibling id='{other.id}' value='{rows[node.id][index]}'/>" for index, other in enumerate(hardware.nodes)
        ]
        lines.append("</distances><cpus>")
        for cpu in hardware.cpus:
            if node.sysfs_cpulist and cpu.id in node.local_cpus:
                together = ",".join(map(str, siblings[cpu.core]))
                lines.append(
                    f"<cpu id='{cpu.id}' socket_id='{cpu.package}' die_id='0' core_id='{ids[cpu.id]}' "
                    f"siblings='{together}'/>"
                )
        lines.append("</cpus></cell>")
    lines.append("</cells></topology><cache>")
    for index, (_, cpus) in enumerate(_groups(hardware, "l3")):
        listed = ",".join(map(str, cpus))
        lines.append(f"<bank id='{index}' level='3' type='both' size='32' unit='MiB' cpus='{listed}'/>")
    return "\n".join([*lines, "</cache></host></capabilities>", ""])


def _groups(hardware: Hardware, attribute: str) -> list[tuple[int, list[int]]]:
    groups: dict[int, list[int]] = {}
    for cpu in hardware.cpus:
        groups.setdefault(getattr(cpu, attribute), []).append(cpu.id)
    return list(groups.items())


def lstopo(machine: Machine, version: str = "2.0") -> str:
    """Return ``lstopo --of xml``: packages with L3 caches, L2 caches and cores, and all memory below the machine."""
    hardware = hardware_of(machine)
    info = '<info name="HostName" value="box"/><info name="Architecture" value="x86_64"/>'
    everyone = mask_of(cpu.id for cpu in hardware.cpus)
    first = '<?xml version="1.0" encoding="UTF-8"?>\n<!DOCTYPE topology SYSTEM "hwloc2.dtd">'
    lines = [first, f'<topology version="{version}">', _object("Machine", everyone, complete=True)]
    lines += [info] if version == "2.0" else []
    for node in hardware.nodes:
        attributes = f'local_memory="{node.memory_bytes}"'
        lines.append(_object("NUMANode", node.local_cpus.mask, os_index=node.id, more=attributes))
        lines.append('<page_type size="4096" count="1"/>')
        lines += [f'<page_type size="{pool.size_bytes}" count="{pool.count}"/>' for pool in node.hugepages]
        lines.append("</object>")
    lines += [part for _, cpus in _groups(hardware, "package_first_cpu") for part in _package(machine, cpus)]
    pci = '<object type="PCIDev" pci_busid="0000:3b:00.0" pci_type="0302 [10de:20b0] [10de:1450] a1{}"/>'
    lines += [pci.format("" if version == "2.0" else " 00"), "</object>"]
    if hardware.distances:
        nodes = " ".join(str(node) for node in hardware.distance_nodes)
        values = " ".join(str(value) for row in hardware.distances for value in row)
        lines.append('<distances2 type="NUMANode" nbobjs="2" kind="5" name="NUMALatency" indexing="os">')
        lines.append(f"<indexes>{nodes} </indexes><u64values>{values} </u64values></distances2>")
    return "\n".join([*lines, *([info] if version != "2.0" else []), "</topology>", ""])


def _package(machine: Machine, cpus: list[int]) -> Iterator[str]:
    hardware, own = hardware_of(machine), set(cpus)
    kernel_ids = {cpu: core for node in machine.info.topology for core in node.cores for cpu in core.thread_ids}
    places: dict[int, HardwareCPU] = {cpu.id: cpu for cpu in hardware.cpus}
    yield _object("Package", mask_of(cpus), os_index=places[cpus[0]].package)
    for _, shared in _groups(hardware, "l3"):
        if shared[0] not in own:
            continue
        yield _cache(_kernel_cache(machine, shared[0], 3), mask_of(shared))
        for _, cluster in _groups(hardware, "l2"):
            if cluster[0] in shared:
                yield _cache(_kernel_cache(machine, cluster[0], 2), mask_of(cluster))
                for _, threads in _groups(hardware, "core"):
                    if threads[0] in cluster:
                        yield _object("Core", mask_of(threads), os_index=kernel_ids[threads[0]].core_id)
                        yield from (_object("PU", 1 << cpu, os_index=cpu) + "</object>" for cpu in threads)
                        yield "</object>"
                yield "</object>"
        yield "</object>"
    yield "</object>"


def _kernel_cache(machine: Machine, cpu: int, level: int) -> Cache:
    for node in machine.info.topology:
        for core in node.cores:
            if cpu in core.thread_ids:
                known = (*core.caches, *core.uncore_caches, *node.caches)
                # The kubelet does not see an L2 of several cores.
                return next((cache for cache in known if cache.level == level), Cache(cpu, 2**20, "Unified", level))
    raise AssertionError(cpu)


def _cache(cache: Cache, cpus: int) -> str:
    return _object(f"L{cache.level}Cache", cpus, os_index=cache.id, more=f'cache_size="{cache.size}" cache_type="0"')


def _object(kind: str, cpus: int, *, os_index: int | None = 0, more: str = "", complete: bool = False) -> str:
    digits = f"{cpus:0{max(cpus.bit_length() + 31, 32) // 32 * 8}x}"
    words = ",".join(f"0x{digits[start : start + 8]}" for start in range(0, len(digits), 8))
    offline = f" complete_cpuset={quoteattr(words)} allowed_cpuset={quoteattr(words)}" if complete else ""
    return f'<object type="{kind}" os_index="{os_index}" cpuset={quoteattr(words)}{offline} {more}>'
