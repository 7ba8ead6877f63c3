"""CPUs and memory follow the devices that a container holds (extension device-alignment).

No kubelet has this: devices of dynamic resource allocation take no part in its topology manager, because they are
prepared after the admission (kubernetes/kubernetes#139982, kubernetes/website#56232). Here devices are chosen first, by
the kubelet or by a scheduler. What is held then is a fact, and CPUs and memory are merged with it: a device on one NUMA
node is one preferred hint, one that is near several nodes is a hint for each way to touch it.

Where a device of dynamic resource allocation is: its NUMA node from its attributes and the machine's PCI devices.

Sources: k8s.io/dynamic-resource-allocation v0.37.1, deviceattribute, and KEP-6072: ``numaNode`` is a number, or a list
that begins with the node of the device itself; nodes of the same socket follow, which match in a claim's constraint but
are not where the device is. ``pcieRoot`` and ``pciBusID`` are texts. Older drivers name such attributes in their own
domain: ``dra.cpu/numaNodeID``, ``dra.net/numaNode`` and ``dra.net/pciAddress``, ``gpu.nvidia.com/pcieBusID``,
``gpu.amd.com/pciAddr``, ``gpu.intel.com/pciAddress`` and ``pciRoot``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from itertools import chain
from typing import Final

from mooring.engine.core.bits import mask_of
from mooring.engine.core.config import DeviceAlignment, DeviceAlignments
from mooring.engine.core.decision import Observer
from mooring.engine.core.errors import InputError
from mooring.engine.core.machine import PCIDevice
from mooring.engine.core.machineinfo import HIGHEST_NODE
from mooring.engine.core.pod import Attributes, AttributeValue, DynamicDevice, LocationAttributes, Pod, ResourceClaim
from mooring.engine.devicemanager.facts import DeviceHintsAsked
from mooring.engine.devicemanager.hints import generate_hints
from mooring.engine.devicemanager.state import Device, DeviceState
from mooring.engine.topologymanager.merge import BEST_EFFORT, NONE, RESTRICTED, SINGLE_NUMA_NODE
from mooring.engine.topologymanager.wide import AnyHints, ResourceHints

ANNOTATION: Final = "mooring/device-alignment"
"""On a pod: one word for all of its devices, or ``nics=require, gpus=follow`` for classes."""

CLASSES: Final[Mapping[str, tuple[str, ...]]] = {
    "accelerators": ("google.com/tpu", "habana.ai/*", "intel.com/fpga*", "qat.intel.com/*", "xilinx.com/fpga*"),
    "gpus": (
        "amd.com/gpu", "gpu.amd.com", "gpu.example.com", "gpu.intel.com", "gpu.intel.com/*", "gpu.nvidia.com",
        "nvidia.com/gpu*", "nvidia.com/mig-*",
    ),
    "nics": (
        "dra.net", "intel.com/sriov*", "intel.com/intel_sriov*", "mellanox.com/*", "openshift.io/*", "rdma/*",
        "sriovnetwork.k8snetworkplumbingwg.io",
    ),
}  # fmt: skip
"""Classes that need no list of their own: names of device plugins' resources and of drivers, as their makers document
them. A driver's name has no slash."""

_WORDS: Final = {one.value: one for one in DeviceAlignment}


def alignment_of(rules: DeviceAlignments, annotations: Mapping[str, str], resource: str) -> DeviceAlignment:
    """Return what devices of a resource mean for a pod: what its annotation says, else the node's class or default.

    An annotation that cannot be read says nothing: the caller of a running node cannot refuse it.

    Args:
        rules: of the node.
        annotations: of the pod.
        resource: name of a device plugin's resource or of a DRA driver.

    >>> asked = {ANNOTATION: "nics=require"}
    >>> alignment_of(DeviceAlignments(), asked, "dra.net"), alignment_of(DeviceAlignments(), asked, "nvidia.com/gpu")
    (<DeviceAlignment.REQUIRE: 'require'>, <DeviceAlignment.FOLLOW: 'follow'>)
    """
    try:
        everything, by_class = _read(annotations.get(ANNOTATION, ""))
    except InputError:
        everything, by_class = None, {}
    for name, alignment in by_class.items():
        if _belongs(resource, _resources_of(rules, name)):
            return alignment
    if everything is not None:
        return everything
    for name, (alignment, _) in rules.classes.items():
        if _belongs(resource, _resources_of(rules, name)):
            return alignment
    return rules.default


def check_annotation(annotations: Mapping[str, str]) -> None:
    """Refuse an annotation that makes no sense.

    Raises:
        InputError: it is neither a word nor a list of classes with their words.

    >>> check_annotation({ANNOTATION: "nics=always"})
    Traceback (most recent call last):
        ...
    mooring.engine.core.errors.InputError: metadata.annotations.mooring/device-alignment: 'always' is not an \
alignment; write follow, require or ignore, or one for each class as in nics=require, gpus=follow
    """
    if ANNOTATION in annotations:
        _read(annotations[ANNOTATION])


def _read(text: str) -> tuple[DeviceAlignment | None, dict[str, DeviceAlignment]]:
    """Return the word for all devices, and those for classes."""
    everything: DeviceAlignment | None = None
    by_class: dict[str, DeviceAlignment] = {}
    for part in text.split(",") if text.strip() else ():
        name, equals, word = part.rpartition("=")
        found = _WORDS.get(word.strip().lower())
        if found is None or (equals and not name.strip()):
            raise InputError(
                f"{(part if found else word).strip()!r:.40} is not an alignment",
                field=f"metadata.annotations.{ANNOTATION}",
                remedy="write follow, require or ignore, or one for each class as in nics=require, gpus=follow",
            )
        if equals:
            by_class[name.strip()] = found
        else:
            everything = found
    return everything, by_class


def _resources_of(rules: DeviceAlignments, name: str) -> tuple[str, ...]:
    _, resources = rules.classes.get(name, (None, ()))
    return resources or CLASSES.get(name, ())


def _belongs(resource: str, patterns: tuple[str, ...]) -> bool:
    return any(fnmatchcase(resource, pattern) for pattern in patterns)


def held_hints(
    rules: DeviceAlignments,
    state: DeviceState,
    nodes: Sequence[int],
    pod: Pod,
    container: str,
    observer: Observer | None = None,
) -> ResourceHints | None:
    """Return the hints of what is held: one fact for each resource. None when no device ties anybody.

    Args:
        rules: of the node.
        state: devices and holders.
        nodes: ids of all NUMA nodes of the machine.
        pod: the pod.
        container: name of one of its containers; empty for the devices of all of them.
        observer: receives what was found.
    """
    hints: dict[str, AnyHints | None] = {}
    for resource, (_, held) in tying(rules, state, nodes, pod, container).items():
        ids = frozenset(device.id for device in held)
        if observer is not None:
            free = {device.id: device.mask for device in held}
            observer(DeviceHintsAsked(pod.uid, container, resource, len(held), free, len(held), follows=True))
        hints[resource] = generate_hints(held, nodes, ids, frozenset(), len(held))
    return hints or None


def policy_for(
    rules: DeviceAlignments, state: DeviceState, nodes: Sequence[int], pod: Pod, container: str, policy: str
) -> str:
    """Return the topology policy for a container, or for a whole pod, that holds devices or none.

    Under ``none`` a container that devices tie is decided as under ``best-effort``.

    Args:
        rules: of the node.
        state: devices and holders.
        nodes: ids of all NUMA nodes of the machine.
        pod: the pod.
        container: name of one of its containers; empty for the whole pod.
        policy: the node's.
    """
    found = {alignment for alignment, _ in tying(rules, state, nodes, pod, container).values()}
    if DeviceAlignment.REQUIRE in found and policy != SINGLE_NUMA_NODE:
        return RESTRICTED
    return BEST_EFFORT if found and policy == NONE else policy


def tying(
    rules: DeviceAlignments, state: DeviceState, nodes: Sequence[int], pod: Pod, container: str
) -> dict[str, tuple[DeviceAlignment, tuple[Device, ...]]]:
    """Return the devices that tie a container, or a whole pod, to NUMA nodes, and how strictly, by resource.

    A device that is near no NUMA node of the machine, as far as is known, ties no container.
    """
    if pod.uid not in state.held:
        return {}
    known = mask_of(nodes)
    found: dict[str, tuple[DeviceAlignment, tuple[Device, ...]]] = {}
    held = [resources for name, resources in state.held[pod.uid].items() if container in ("", name)]
    for resource in sorted({*chain(*held)}):
        ids = state.held_by(pod.uid, container, resource) if container else state.held_by_pod(pod.uid, resource)
        devices = tuple(one for one in state.devices.get(resource, ()) if one.id in ids and one.mask & known)
        alignment = alignment_of(rules, pod.annotations, resource)
        if devices and alignment is not DeviceAlignment.IGNORE:
            found[resource] = alignment, devices
    return found


STANDARD: Final = LocationAttributes(
    "resource.kubernetes.io/numaNode", "resource.kubernetes.io/pciBusID", "resource.kubernetes.io/pcieRoot"
)
_OLDER_NODES: Final = ("numaNode", "numaNodeID", "numa")
_OLDER_ADDRESSES: Final = ("pciBusID", "pcieBusID", "pciAddress", "pciAddr", "pciBusId")
_OLDER_ROOTS: Final = ("pcieRoot", "pciRoot")

LocationRules = Mapping[str, LocationAttributes]
"""Driver -> its attributes (``deviceAttributes`` of the configuration)."""


def located(
    driver: str, attributes: Attributes, pci: Iterable[PCIDevice] = (), rules: LocationRules | None = None
) -> tuple[int, ...] | None:
    """Return the NUMA nodes of a device; None when nothing tells them.

    The configured attributes come first, then the standard ones, then those of older drivers; of each first the node,
    then the PCI address, then the PCIe root, whose devices have one node or several.

    Args:
        driver: that offers the device.
        attributes: of the device.
        pci: the machine's PCI devices.
        rules: attributes of drivers that no standard knows.

    >>> located("gpu.example.com", {"resource.kubernetes.io/numaNode": (5, 4, 6, 7)})
    (5,)
    """
    devices = tuple(pci)
    for names in _names_of(driver, attributes, rules or {}):
        found = _by(names, attributes, devices)
        if found:
            return found
    return None


def pci_address_of(driver: str, attributes: Attributes, rules: LocationRules | None = None) -> str:
    """Return the PCI address of a device, such as ``0000:3b:00.0``; empty when no attribute tells it.

    Args:
        driver: that offers the device.
        attributes: of the device.
        rules: attributes of drivers that no standard knows.

    >>> pci_address_of("dra.net", {"dra.net/pciAddress": "0000:3B:00.0"})
    '0000:3b:00.0'
    """
    for names in _names_of(driver, attributes, rules or {}):
        address = _first(attributes.get(names.pci_bus_id))
        if isinstance(address, str) and address:
            return address.lower()
    return ""


def dynamic_devices(
    devices: Iterable[DynamicDevice], pci: Iterable[PCIDevice] = (), rules: LocationRules | None = None
) -> dict[str, tuple[Device, ...]]:
    """Return the devices of slices as the record of devices has them: driver -> devices.

    >>> one = DynamicDevice("gpu.example.com", "node-1", "gpu0", {"resource.kubernetes.io/numaNode": 1})
    >>> dynamic_devices([one])
    {'gpu.example.com': (Device(id='node-1/gpu0', numa=(1,), healthy=True, root=''),)}
    """
    known, found = tuple(pci), dict[str, list[Device]]()
    for one in devices:
        found.setdefault(one.driver, []).append(Device(one.id, located(one.driver, one.attributes, known, rules)))
    return {driver: tuple(listed) for driver, listed in found.items()}


def claimed_devices(pod: Pod, claims: Mapping[str, ResourceClaim]) -> dict[str, dict[str, frozenset[str]]]:
    """Return what the containers of a pod hold by claims: container -> driver -> ids.

    Devices that are given for administration have no holder (KEP-5018).

    Args:
        pod: the pod.
        claims: of its namespace, by name.
    """
    held: dict[str, dict[str, frozenset[str]]] = {}
    for container in pod.containers:
        for use in container.claims:
            claim = claims.get(use.claim)
            for device in claim.devices if claim else ():
                if device.admin_access or use.request not in ("", device.request, device.request.partition("/")[0]):
                    continue
                of_driver = held.setdefault(container.name, {})
                of_driver[device.driver] = of_driver.get(device.driver, frozenset()) | {device.id}
    return held


def _names_of(driver: str, attributes: Attributes, rules: LocationRules) -> Iterator[LocationAttributes]:
    """Yield the configured attributes, the standard ones, and those of an older driver: its own domain comes first."""
    if driver in rules:
        yield rules[driver]
    yield STANDARD
    domains = sorted({name.rpartition("/")[0] for name in attributes}, key=lambda domain: (domain != driver, domain))
    for domain in domains:
        yield LocationAttributes(
            *(
                next((f"{domain}/{name}" for name in names if f"{domain}/{name}" in attributes), "")
                for names in (_OLDER_NODES, _OLDER_ADDRESSES, _OLDER_ROOTS)
            )
        )


def _by(names: LocationAttributes, attributes: Attributes, pci: tuple[PCIDevice, ...]) -> tuple[int, ...] | None:
    node = _first(attributes.get(names.numa_node))
    if type(node) is int:
        return (node,) if 0 <= node <= HIGHEST_NODE else None
    address = _first(attributes.get(names.pci_bus_id))
    if isinstance(address, str):
        near = next((one for one in pci if one.address == address.lower()), None)
        if near is not None and near.numa is not None:
            return (near.numa,)
        if near is not None and near.root:
            return _nodes_of_root(near.root, pci)
    root = attributes.get(names.pcie_root)
    roots = root if isinstance(root, tuple) else (root,)
    nodes = {node for one in roots if isinstance(one, str) for node in _nodes_of_root(one, pci) or ()}
    return tuple(sorted(nodes)) or None


def _nodes_of_root(root: str, pci: tuple[PCIDevice, ...]) -> tuple[int, ...] | None:
    return tuple(sorted({one.numa for one in pci if one.root == root and one.numa is not None})) or None


def _first(value: AttributeValue | None) -> AttributeValue | None:
    return (value[0] if value else None) if isinstance(value, tuple) else value
