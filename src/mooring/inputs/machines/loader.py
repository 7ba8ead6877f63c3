"""A machine from whatever the user names: this computer, a snapshot, a description, a shipped shape, a line of text.

A machine as its kubelet would read it if some CPUs were offline when it starts.

Source: cAdvisor 0.60.5, which leaves CPUs out that are offline (``machine.GetTopology``, ``sysinfo.GetNodesInfo``);
their NUMA nodes stay with their memory.

Machines that come with Mooring, by name: shapes of real computers, as lines of compact text, with their devices. Facts
are counts of cores and threads, sharing of caches, memory that is soldered or published for the whole system, devices.
What each owner chooses (DIMMs, huge pages, virtual functions) is assumed, and says so. Where the real machine is
irregular (core ids, memory sizes a little apart) the shape is the regular one next to it.
"""

from __future__ import annotations

import difflib
import os
import stat
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Final

from mooring.engine.core.cpuset import HIGHEST_CPU, CPUSet
from mooring.engine.core.errors import InputError
from mooring.engine.core.machine import Finding, Machine, MachineOrigin
from mooring.engine.core.machineinfo import HIGHEST_NODE
from mooring.lazy import dataclass, lazily, replace

with lazily():
    from mooring.inputs.decoding import files
    from mooring.inputs.machines import cadvisor, compact, composition, machineinfo_json
    from mooring.inputs.machines import differences as compared
    from mooring.inputs.machines import hardware as found_hardware
    from mooring.inputs.machines import tree as trees
    from mooring.inputs.machines.formats import description, recognition

LIVE: Final = "live"
"""Names this computer; an empty source does as well."""
MAX_DESCRIPTION_BYTES: Final = 64 * 2**20
"""Largest JSON file that is read; a machine of 65536 CPUs has about 30 MiB."""

STANDARD_INPUT: Final = "-"
UNTOLD: Final = "MOOR-463"
"""Code of the finding that lists what the format of a file does not report."""

_FORMS: Final = "name a folder or file with a machine, FILE.jsonl#NAME, a shipped machine, or write sockets=2 cores=16"


def load_machine(source: str) -> Machine:
    """Return the machine that ``source`` names.

    Lines complete each other, and amounts may follow (:mod:`mooring.inputs.machines.composition`). Of what remains
    the form decides, in this order:

    1. empty or ``live``: this computer;
    2. the name of a shipped machine (write ``./NAME`` for a file of that name);
    3. a folder or tar archive with ``sys`` in it, or a file whose content decides: a MachineInfo, or what another tool
       wrote (:mod:`mooring.inputs.machines.formats`); ``-`` is a file on standard input;
    4. ``FILE.jsonl#NAME``: one of several descriptions;
    5. text with ``=``: compact text (:mod:`mooring.inputs.machines.compact`).

    Where both views are known, ``findings`` tells how they differ.

    Raises:
        InputError: there is no such machine, or it cannot be understood.
    """
    if _is_source(source):
        return _of_source(source)
    sources, amounts = composition.parts_of(source, _is_source)
    machine = composition.completed([_of_source(one) for one in sources])
    if amounts:
        machine = composition.with_amounts(machine, amounts)
    others = [finding for finding in machine.findings if finding.code != UNTOLD]
    if len(others) < len(machine.findings) and machine.origin.unknown:
        others = [*_unknown_parts(machine.origin), *others]
    return replace(machine, findings=tuple(others))


def _is_source(text: str) -> bool:
    """Tell whether a text is the whole name of a machine, apart from compact text."""
    path, hash_sign, _ = text.rpartition("#")
    is_known = text in ("", LIVE, STANDARD_INPUT) or text in SHIPPED
    return is_known or _exists(text) or bool(hash_sign and path.endswith(".jsonl") and _exists(path))


def _of_source(source: str) -> Machine:
    if source in ("", LIVE):
        return _from_tree("/")
    if source in SHIPPED:
        return shipped_machine(source)
    if source == STANDARD_INPUT:
        return machine_in(files.read_standard_input(), files.STANDARD_INPUT)
    if _exists(source):
        if os.path.isdir(source) or source.endswith(_ARCHIVE_SUFFIXES):  # noqa: PTH112 - a str in hand
            return _from_tree(source)
        if source.endswith(".jsonl"):
            return machineinfo_json.parse_machine_lines(_read(source), source, "")
        data = _read(source)
        return _from_tree(source) if recognition.is_archive(data[:512]) else machine_in(data, source)
    path, hash_sign, name = source.rpartition("#")
    if hash_sign and path.endswith(".jsonl"):
        return machineinfo_json.parse_machine_lines(_read(path), path, name)
    if "=" in source and not _looks_like_path(source):
        return compact.parse_compact(source)
    shown = source if source.isprintable() else ascii(source)
    if len(shown) > 80:
        shown = f"{shown[:80]}..."
    if _looks_like_path(source):
        raise InputError("no such file or folder", source=shown, remedy=_FORMS)
    near = [name for name in SHIPPED if source.lower() in name]
    near = near or difflib.get_close_matches(source.lower()[:80], SHIPPED, n=3, cutoff=0.4)
    remedy = f"did you mean {' or '.join(near)}?" if near else f"{_FORMS}; shipped are {', '.join(SHIPPED)}"
    raise InputError("unknown machine", source=shown, remedy=remedy)


def machine_in(data: bytes, source: str) -> Machine:
    """Return the machine that the bytes of a file describe; their content decides the format.

    Raises:
        InputError: another format, which is named, or one that cannot be understood.
    """
    found = recognition.described(data, source)
    if found is not None:
        name = found.name or _base_name(source)
        read = machine_of(description.tree_of(found, source), name)
        return replace(
            read,
            origin=found.origin,
            published=found.published,
            findings=(*_unknown_parts(found.origin), *read.findings),
        )
    if machineinfo_json.is_lines(data):
        machine = machineinfo_json.parse_machine_lines(data, source, "")
    else:
        machine = machineinfo_json.parse_machine_info(data, source)
    return replace(machine, name=machine.name or _base_name(source))


def _unknown_parts(origin: MachineOrigin) -> Iterator[Finding]:
    assumed = f"; assumed: {', '.join(origin.assumed)}" if origin.assumed else ""
    message = f"{origin.format} does not report {', '.join(origin.unknown)}{assumed}"
    yield Finding("warning", "machine", message, UNTOLD)


def _from_tree(path: str) -> Machine:
    return machine_of(trees.open_tree(path), LIVE if path == "/" else _base_name(path))


def machine_of(tree: trees.Tree, name: str = "") -> Machine:
    """Return the machine of a tree, under a name; without one that of its folder or archive.

    Raises:
        InputError: the tree holds no machine that can be understood.
    """
    hardware = found_hardware.read_hardware(tree)
    info, info_error, topology_error = cadvisor.read_machine_info(tree)
    # Sets of CPUs and nodes are bit masks, as long as their highest member: no kernel gives such ids.
    for node in info.topology:
        highest = max((max(core.thread_ids) for core in node.cores), default=0)
        if highest > HIGHEST_CPU or node.node_id > HIGHEST_NODE:
            problem = f"names CPU {highest}" if highest > HIGHEST_CPU else f"names NUMA node {node.node_id}"
            raise InputError(problem, source=tree.name, remedy="no kernel has such a number: check the snapshot")
    refused = (
        (info_error, "describe the machine, so a kubelet does not start", "machine", "MOOR-461"),
        (topology_error, "read the topology", "topology", "MOOR-462"),
    )
    found = [
        Finding("warning", subject, f"cAdvisor cannot {what}: {error}", code)
        for error, what, subject, code in refused
        if error
    ]
    found += found_hardware.hardware_findings(tree, hardware)
    found += compared.differences(info, hardware)
    return Machine(
        name=name or _base_name(tree.name),
        info=replace(info, facts=hardware.facts),
        hardware=hardware,
        info_error=info_error,
        pci=found_hardware.read_pci_devices(tree),
        findings=tuple(found),
    )


def _read(path: str) -> bytes:
    """Return the bytes of a description.

    Raises:
        InputError: the file cannot be read or is too large.
    """
    try:
        if not stat.S_ISREG(os.stat(path).st_mode):  # noqa: PTH116 - as above; a named pipe would be waited for
            remedy = "name a file with a machine, or pass it on standard input: --machine -"
            raise InputError("is not a file", source=path, remedy=remedy)
        with open(path, "rb") as file:  # noqa: PTH123 - as above
            data = file.read(MAX_DESCRIPTION_BYTES + 1)
    except (OSError, ValueError) as error:
        problem = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        problem = f"cannot be read: {problem}"
        raise InputError(problem, source=path, remedy="check the path and its permissions") from None
    if len(data) > MAX_DESCRIPTION_BYTES:
        problem = f"is larger than {MAX_DESCRIPTION_BYTES} bytes"
        raise InputError(problem, source=path, remedy="is it a machine description?")
    return data


def _exists(path: str) -> bool:
    try:
        os.stat(path)  # noqa: PTH116 - pathlib raises for some of what a user may type
    except (OSError, ValueError):
        return False
    return True


_ARCHIVE_SUFFIXES: Final = (".tar", ".tgz", ".gz", ".bz2", ".xz")


def _looks_like_path(source: str) -> bool:
    return "/" in source or source.endswith((".json", ".jsonl", ".xml", ".yaml", ".yml", ".txt", *_ARCHIVE_SUFFIXES))


def _base_name(path: str) -> str:
    name = os.path.basename(os.path.abspath(path))  # noqa: PTH100, PTH119 - names only, nothing is looked up
    for suffix in (".tar.gz", ".tar.bz2", ".tar.xz", ".tgz", ".tar", ".json", ".xml", ".yaml", ".yml", ".txt"):
        if name.endswith(suffix) and name != suffix:
            return name.removesuffix(suffix)
    return name


CODE = "MOOR-517"


def without_cpus(machine: Machine, cpus: CPUSet) -> Machine:
    """Return a machine with some of its CPUs offline.

    Raises:
        InputError: it does not have them, or no CPU would be left.
    """
    known = CPUSet.from_ids(cpu for node in machine.info.topology for core in node.cores for cpu in core.thread_ids)
    if cpus - known:
        raise InputError(f"the machine has no CPU {cpus - known}", field="--offline", remedy=f"it has {known}")
    if not known - cpus:
        raise InputError("no CPU would be left", field="--offline", remedy="leave one online")
    message = "offline before the kubelet starts; for CPUs that go offline later use the extension cpu-hotplug"
    finding = Finding("info", f"CPU{'' if len(cpus) == 1 else 's'} {cpus}", message, CODE)
    topology = []
    for node in machine.info.topology:
        left = (replace(one, thread_ids=tuple(cpu for cpu in one.thread_ids if cpu not in cpus)) for one in node.cores)
        topology.append(replace(node, cores=tuple(core for core in left if core.thread_ids)))
    cores = [core for node in topology for core in node.cores]
    info = replace(
        machine.info,
        num_cores=sum(len(core.thread_ids) for core in cores),
        num_sockets=len({core.socket_id for core in cores}),
        topology=tuple(topology),
    )
    if (hardware := machine.hardware) is not None:
        online = tuple(cpu for cpu in hardware.cpus if cpu.id not in cpus)
        hardware = replace(
            hardware,
            cpus=online,
            online=hardware.online - cpus,
            offline=hardware.offline | cpus,
            nodes=tuple(replace(node, local_cpus=node.local_cpus - cpus) for node in hardware.nodes),
            num_cores=len({cpu.core for cpu in online}),
            num_packages=len({cpu.package_first_cpu for cpu in online}),
        )
    return replace(machine, info=info, hardware=hardware, findings=(*machine.findings, finding))


_MILAN: Final = "sockets=2 cores=128 threads=2 l3=16 l2-size=512Ki l3-size=32Mi"
_GRACE: Final = "https://docs.nvidia.com/dccpu/grace-perf-tuning-guide/system.html"


@dataclass(frozen=True, slots=True)
class ShippedMachine:
    """A named line of compact text."""

    description: str
    """What it is, in one line."""
    text: str
    """The shape, and amounts that are published (:mod:`mooring.inputs.machines.compact`)."""
    assumed: str
    """Amounts that no source tells."""
    source: str = ""
    """Where the facts are published."""


SHIPPED: Final[Mapping[str, ShippedMachine]] = MappingProxyType(
    {
        "epyc-7763-2s-nps1": ShippedMachine(
            "2 x AMD EPYC 7763 (Milan), one NUMA node per socket, 8 L3 groups of 8 cores in each",
            f"{_MILAN} numa=2 distances=10,32", "memory=512Gi",
        ),
        "epyc-7763-2s-nps4": ShippedMachine(
            "2 x AMD EPYC 7763 (Milan), four NUMA nodes per socket, 2 L3 groups of 8 cores in each",
            f"{_MILAN} numa=8 distances=10,12,32", "memory=512Gi",
        ),
        "epyc-telco-2s-nps4": ShippedMachine(
            "2 x AMD EPYC 9354 (Genoa) for packet processing, NPS4: 1 GiB pages, SR-IOV NICs on NUMA nodes 1 and 5",
            "sockets=2 numa=8 cores=64 threads=2 l3=16 l2-size=1Mi l3-size=32Mi distances=10,12,32",
            "memory=768Gi hugepages-1Gi=256 node1.intel.com/intel_sriov_dpdk=8 node5.intel.com/intel_sriov_dpdk=8",
            "https://documentation.suse.com/sbp/server-linux/html/SBP-AMD-EPYC-4-SLES15SP4/",
        ),
        "gb200-4gpu": ShippedMachine(
            "a GB200 NVL72 compute tray: 2 Grace, 4 GPUs, 34 NUMA nodes (GPU memory on 2, 10, 18, 26; 28 are empty)",
            "sockets=2 cores=144 l2-size=1Mi l3-size=114Mi distances=10,40 memory=960Gi cpuless=32 cpuless-memory=0 "
            "node2.memory=186Gi node10.memory=186Gi node18.memory=186Gi node26.memory=186Gi nvidia.com/gpu=4 "
            "nvidia.com/hostdev=4",
            "hugepages-512Mi=64",
            "https://github.com/NVIDIA/ai-cloud-validation/pull/445 https://github.com/vllm-project/vllm/pull/39361 "
            "https://docs.nvidia.com/multi-node-nvlink-systems/multi-node-tuning-guide/system.html",
        ),
        "grace-1s": ShippedMachine(
            "NVIDIA Grace CPU: 72 Arm cores without SMT, one NUMA node",
            "sockets=1 cores=72 l2-size=1Mi l3-size=114Mi memory=480Gi", "", _GRACE,
        ),
        "grace-2s": ShippedMachine(
            "NVIDIA Grace CPU Superchip: 2 x 72 Arm cores without SMT, one NUMA node each, 512 MiB pages, one NIC each",
            "sockets=2 cores=144 l2-size=1Mi l3-size=114Mi memory=960Gi distances=10,40",
            "hugepages-512Mi=128 nvidia.com/hostdev=2", _GRACE,
        ),
        "hgx-8gpu": ShippedMachine(
            "8 GPUs and 8 NICs, as in DGX H100 and H200: 2 x Intel Xeon Platinum 8480C, GPUs 0-3 at the first",
            "sockets=2 cores=112 threads=2 l2-size=2Mi l3-size=105Mi memory=2Ti distances=10,21 nvidia.com/gpu=8 "
            "nvidia.com/hostdev=8",
            "hugepages-1Gi=32", "https://docs.nvidia.com/dgx/dgxh100-user-guide/introduction-to-dgxh100.html",
        ),
        "i7-1370p": ShippedMachine(
            "Intel Core i7-1370P (Raptor Lake) laptop: 6 performance cores with SMT, 8 efficiency cores, one L3",
            "cores=6 threads=2 siblings=adjacent efficiency-cores=8 l2-size=1280Ki l3-size=24Mi", "memory=32Gi",
        ),
        "kunpeng-920-2s": ShippedMachine(
            "2 x HiSilicon Kunpeng 920: 64 Arm cores without SMT and two NUMA nodes per socket",
            "sockets=2 numa=4 cores=128 l2-size=512Ki l3-size=32Mi distances=10,16,32", "memory=512Gi",
        ),
        "small-1s8": ShippedMachine(
            "a small server or virtual machine: 4 cores with 2 threads, 16 GiB",
            "cores=4 threads=2 l3-size=16Mi memory=16Gi", "",
        ),
        "xeon-6230-2s-snc2": ShippedMachine(
            "2 x Intel Xeon Gold 6230 (Cascade Lake), sub-NUMA clustering: the L3 of a socket spans its two nodes",
            "sockets=2 numa=4 cores=40 threads=2 l3=2 l3-size=28160Ki distances=10,11,21", "memory=384Gi",
        ),
        "xeon-6338n-1s": ShippedMachine(
            "Intel Xeon Gold 6338N (Ice Lake), one socket, as in telecommunication edge servers",
            "cores=32 threads=2 l2-size=1280Ki l3-size=48Mi", "memory=256Gi",
        ),
        "xeon-8480-2s": ShippedMachine(
            "2 x Intel Xeon Platinum 8480+ (Sapphire Rapids), one NUMA node per socket",
            "sockets=2 cores=112 threads=2 l2-size=2Mi l3-size=105Mi distances=10,21", "memory=512Gi",
        ),
        "xeon-8592-2s-snc2-cxl": ShippedMachine(
            "2 x Intel Xeon Platinum 8592+ (Emerald Rapids), SNC2, CXL memory on nodes 4 and 5, 16 SR-IOV functions",
            "sockets=2 numa=4 cores=128 threads=2 l3=2 l2-size=2Mi l3-size=320Mi cpuless=2 distances=10,12,21",
            "memory=1Ti cpuless-memory=512Gi hugepages-1Gi=64 intel.com/intel_sriov_netdevice=16",
            "https://www.intel.com/content/www/us/en/products/details/processors/xeon/scalable.html "
            "https://docs.kernel.org/filesystems/resctrl.html",
        ),
        "xeonmax-9460-2s-snc4-flat": ShippedMachine(
            "2 x Intel Xeon Max 9460, SNC4 and HBM in flat mode: 8 nodes with CPUs, 8 HBM nodes without",
            "sockets=2 numa=8 cores=80 threads=2 l3=2 l2-size=2Mi l3-size=99840Ki cpuless=8 cpuless-memory=128Gi "
            "distances=10,12,21",
            "memory=512Gi",
        ),
    },
)  # fmt: skip
"""Name -> machine, in text order."""


def shipped_machine(name: str) -> Machine:
    """Return a shipped machine with its devices.

    Raises:
        InputError: there is none of that name.

    >>> shipped_machine("epyc-7763-2s-nps4").info.num_cores
    256
    """
    try:
        entry = SHIPPED[name]
    except KeyError:
        raise InputError("is not a shipped machine", source=name, remedy=f"shipped are: {', '.join(SHIPPED)}") from None
    [shape], amounts = composition.parts_of(f"{entry.text} {entry.assumed}", lambda _: False)
    assumed = tuple(entry.assumed.split())
    untold = {composition.part_of(word) for word in assumed} | {composition.OF_PAGES}
    parts = (description.OF_MEMORY, composition.OF_PAGES, composition.OF_DEVICES)
    origin = MachineOrigin("shipped machine", tuple(one for one in parts if one in untold), assumed)
    machine = composition.with_amounts(compact.parse_compact(shape), amounts)
    return replace(machine, name=name, origin=origin, findings=compact.compact_findings(machine))
