"""Machines that come with Mooring, by name: shapes of real computers, as lines of compact text, with their devices.

Facts are counts of cores and threads, sharing of caches, memory that is soldered or published for the whole system,
devices. What each owner chooses (DIMMs, huge pages, virtual functions) is assumed, and says so. Where the real machine
is irregular (core ids, memory sizes a little apart) the shape is the regular one next to it.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from mooring.engine.core.errors import InputError
from mooring.engine.core.machine import Machine, MachineOrigin
from mooring.inputs.machines.compact import OF_MEMORY, compact_findings, parse_compact
from mooring.inputs.machines.composition import OF_DEVICES, OF_PAGES, part_of, parts_of, with_amounts
from mooring.lazy import dataclass, replace

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
    [shape], amounts = parts_of(f"{entry.text} {entry.assumed}", lambda _: False)
    assumed = tuple(entry.assumed.split())
    untold = {part_of(word) for word in assumed} | {OF_PAGES}
    origin = MachineOrigin(
        "shipped machine", tuple(one for one in (OF_MEMORY, OF_PAGES, OF_DEVICES) if one in untold), assumed
    )
    machine = with_amounts(parse_compact(shape), amounts)
    return replace(machine, name=name, origin=origin, findings=compact_findings(machine))
