"""CPUs and memory follow the devices that a container holds (extension device-alignment).

No kubelet has this: devices of dynamic resource allocation take no part in its topology manager, because they are
prepared after the admission (kubernetes/kubernetes#139982, kubernetes/website#56232). Here devices are chosen first, by
the kubelet or by a scheduler. What is held then is a fact, and CPUs and memory are merged with it: a device on one NUMA
node is one preferred hint, one that is near several nodes is a hint for each way to touch it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Final

from mooring.engine.core.bits import mask_of
from mooring.engine.core.config import DeviceAlignment, DeviceAlignments
from mooring.engine.core.errors import InputError
from mooring.engine.core.observer import Observer
from mooring.engine.core.pod import Pod
from mooring.engine.devicemanager.facts import DeviceHintsAsked
from mooring.engine.devicemanager.hints import generate_hints
from mooring.engine.devicemanager.state import Device, DeviceState
from mooring.engine.topologymanager.entries import AnyHints, ResourceHints
from mooring.engine.topologymanager.merge import BEST_EFFORT, NONE, RESTRICTED, SINGLE_NUMA_NODE

ANNOTATION: Final = "mooring/device-alignment"
"""On a pod: one word for all of its devices, or ``nics=require, gpus=follow`` for classes."""

CLASSES: Final[Mapping[str, tuple[str, ...]]] = {
    "accelerators": ("google.com/tpu", "habana.ai/*", "intel.com/fpga*", "qat.intel.com/*", "xilinx.com/fpga*"),
    "gpus": (
        "amd.com/gpu",
        "gpu.amd.com",
        "gpu.example.com",
        "gpu.intel.com",
        "gpu.intel.com/*",
        "gpu.nvidia.com",
        "nvidia.com/gpu*",
        "nvidia.com/mig-*",
    ),
    "nics": (
        "dra.net",
        "intel.com/sriov*",
        "intel.com/intel_sriov*",
        "mellanox.com/*",
        "openshift.io/*",
        "rdma/*",
        "sriovnetwork.k8snetworkplumbingwg.io",
    ),
}
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
    for name, known in rules.classes.items():
        if _belongs(resource, _resources_of(rules, name)):
            return known.alignment
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
    known = rules.classes.get(name)
    return known.resources if known is not None and known.resources else CLASSES.get(name, ())


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
    for resource in sorted(_resources_held(state, pod.uid, container)):
        ids = state.held_by(pod.uid, container, resource) if container else state.held_by_pod(pod.uid, resource)
        devices = tuple(one for one in state.devices.get(resource, ()) if one.id in ids and one.mask & known)
        alignment = alignment_of(rules, pod.annotations, resource)
        if devices and alignment is not DeviceAlignment.IGNORE:
            found[resource] = alignment, devices
    return found


def _resources_held(state: DeviceState, pod: str, container: str) -> set[str]:
    def all_of() -> Iterator[str]:
        for name, resources in state.held[pod].items():
            if container in ("", name):
                yield from resources

    return {*all_of()}
