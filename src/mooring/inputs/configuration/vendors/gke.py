"""GKE: the node system configuration of a node pool (``--system-config-from-file``).

Sources: https://cloud.google.com/kubernetes-engine/docs/how-to/node-system-config;
https://cloud.google.com/kubernetes-engine/docs/reference/rest/v1/NodeKubeletConfig
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from mooring.inputs.configuration.layers import FieldPlace, Layer, Tier
from mooring.inputs.configuration.part import VendorField, VendorPart
from mooring.inputs.configuration.reservations import gke_memory, milli_by_ranges
from mooring.inputs.decoding.fields import text_at

SECTIONS: Final = frozenset({"kubeletConfig", "linuxConfig"})
_SECTION: Final = "kubeletConfig"
_POLICIES: Final = ("none", "best-effort", "restricted", "single-numa-node")
_MEMORY: Final = {"none": "None", "static": "Static"}
_TABLE: Final = (
    VendorField("cpuManagerPolicy", "cpuManagerPolicy", ("none", "static")),
    VendorField("topologyManager.policy", "topologyManagerPolicy", _POLICIES),
    VendorField("topologyManager.scope", "topologyManagerScope", ("container", "pod")),
    VendorField("cpuCFSQuota", "cpuCFSQuota"),
    VendorField("cpuCfsQuota", "cpuCFSQuota"),
    VendorField("cpuCFSQuotaPeriod", "cpuCFSQuotaPeriod"),
    VendorField("cpuCfsQuotaPeriod", "cpuCFSQuotaPeriod"),
)


def node_system_config(part: VendorPart) -> Iterator[Layer]:
    """Yield the user's settings over what GKE reserves."""
    reserved = "reserves CPU and memory by the size of the machine"
    machine = part.machine
    if machine is None:
        part.note("", f"GKE {reserved}, which is not known here")
    else:
        message = f"GKE {reserved}, as its documentation says; system pods of GKE are not counted"
        memory = {"kubeReserved.memory": part.computed(message, lambda _: gke_memory(machine.memory_capacity))}
        cpu = {"cpu": f"{milli_by_ranges(machine.num_cores)}m"}
        yield part.documented(Tier.VENDOR_FILE, {"kubeReserved": cpu}, memory)
    yield part.translated(Tier.FILE, _SECTION, _TABLE)
    policy = text_at(part.mapping(f"{_SECTION}.memoryManager"), "policy")
    if not policy:
        return
    path = f"{_SECTION}.memoryManager.policy"
    part.check_value(path, policy.lower(), tuple(_MEMORY))
    message = "GKE sets reservedMemory itself and does not document how: add it as a drop-in"
    computed = {"reservedMemory": part.computed(message)} if policy.lower() == "static" else {}
    fields = {"memoryManagerPolicy": _MEMORY[policy.lower()]}
    yield Layer(Tier.FILE, fields, lambda field: _at(part, path, field), part.vendor, computed=computed)


def _at(part: VendorPart, path: str, _field: str) -> FieldPlace:
    return part.place(path)
