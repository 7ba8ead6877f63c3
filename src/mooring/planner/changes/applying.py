"""What changes make of a question.

The order in which changes are given matters only between turns: everything else is put together in the same way
however it is given.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType

from mooring.core.config import KubeletConfig
from mooring.core.errors import InputError
from mooring.core.pod import Pod
from mooring.devicemanager.state import Device
from mooring.planner.changes.amounts import with_amount
from mooring.planner.changes.change import (
    CPU_OPTIONS,
    Amount,
    Change,
    ConfigField,
    FeatureGate,
    FreshState,
    MoreDevices,
    Move,
    PodRef,
    PolicyOption,
    Removal,
    Turn,
)
from mooring.planner.question import Question

AGAIN = "_again"
"""What the uid of a pod that comes back has behind that of the pod that went."""


def _text_field(name: str) -> Callable[[KubeletConfig, str], KubeletConfig]:
    return lambda config, value: replace(config, **{name: value})  # type: ignore[arg-type]  # all of them are texts


CONFIG_FIELDS: Mapping[str, Callable[[KubeletConfig, str], KubeletConfig]] = MappingProxyType(
    {
        "topologyManagerPolicy": _text_field("topology_manager_policy"),
        "topologyManagerScope": _text_field("topology_manager_scope"),
        "cpuManagerPolicy": _text_field("cpu_manager_policy"),
        "memoryManagerPolicy": _text_field("memory_manager_policy"),
        "reservedSystemCPUs": _text_field("reserved_system_cpus"),
    }
)
"""Field of the KubeletConfiguration -> how to set it."""


def applied(question: Question, changes: Sequence[Change]) -> Question:
    """Return the question with all changes made.

    Raises:
        InputError: changes contradict each other, or one cannot be made on this question.
    """
    _check_distinct(changes)
    for change in changes:
        question = _with_node_change(question, change)
    for change in changes:
        if isinstance(change, Amount):
            question = _with_amount(question, change)
    for change in changes:
        if isinstance(change, Turn):
            question = replace(question, pods=_turned(question, change))
    # Who is not asked at all goes first: nobody can end before a pod that is not asked.
    ends = [change for change in changes if isinstance(change, Removal | Move)]
    for change in sorted(ends, key=lambda one: one.before is not None):
        question = _without(question, change)
    return question


def _with_node_change(question: Question, change: Change) -> Question:
    config = question.config
    match change:
        case ConfigField(field, value):
            return replace(question, config=CONFIG_FIELDS[field](config, value))
        case PolicyOption():
            return replace(question, config=_with_option(config, change))
        case FeatureGate(name, on):
            return replace(question, config=replace(config, feature_gates={**config.feature_gates, name: on}))
        case FreshState("cpu"):
            return replace(question, files=replace(question.files, cpu=None))
        case FreshState():
            return replace(question, files=replace(question.files, memory=None))
        case MoreDevices():
            return replace(question, devices=with_device(question, change))
        case _:
            return question


def _with_option(config: KubeletConfig, change: PolicyOption) -> KubeletConfig:
    is_cpu = change.field == CPU_OPTIONS
    given = config.cpu_manager_policy_options if is_cpu else config.topology_manager_policy_options
    options = {name: value for name, value in given.items() if name != change.name}
    if change.value:
        options[change.name] = change.value
    if is_cpu:
        return replace(config, cpu_manager_policy_options=options)
    return replace(config, topology_manager_policy_options=options)


def with_device(question: Question, change: MoreDevices) -> dict[str, tuple[Device, ...]]:
    """Return the devices with one more.

    Raises:
        InputError: the resource or the NUMA node is unknown.
    """
    devices = question.devices.get(change.resource)
    if devices is None:
        known = ", ".join(sorted(question.devices)) or "none"
        raise InputError(
            f"no devices of {change.resource} are declared",
            remedy=f"declared are {known}; see documents of kind NodeDevices",
        )
    nodes = sorted(node.node_id for node in question.machine.info.topology)
    if change.node not in nodes:
        raise InputError(
            f"{question.machine.name} has no NUMA node {change.node}",
            remedy=f"it has {', '.join(map(str, nodes))}",
        )
    taken = {device.id for device in devices}
    number = next(number for number in range(len(devices) + 1) if _device_id(number) not in taken)
    return {**question.devices, change.resource: (*devices, Device(_device_id(number), (change.node,)))}


def _device_id(number: int) -> str:
    return f"one-more-{number}"


def _with_amount(question: Question, change: Amount) -> Question:
    def changed(pod: Pod) -> Pod:
        if pod.uid != change.pod.uid:
            return pod
        try:
            return with_amount(pod, change.container, change.resource, change.amount, question.config.feature_gates)
        except InputError as error:
            raise error.at(f"{change.pod}") from None

    return replace(
        question,
        pods=tuple(changed(pod) for pod in question.pods),
        active=tuple(changed(pod) for pod in question.active),
    )


def _turned(question: Question, change: Turn) -> tuple[Pod, ...]:
    pod = _listed(question, change.pod)
    others = tuple(other for other in question.pods if other.uid != pod.uid)
    if change.before is None:
        return pod, *others
    if change.before.uid == pod.uid:
        raise InputError(f"{pod.namespace}/{pod.name} cannot come before itself", remedy="name two pods")
    place = others.index(_listed(question, change.before))
    return *others[:place], pod, *others[place:]


def _listed(question: Question, ref: PodRef) -> Pod:
    for pod in question.pods:
        if pod.uid == ref.uid:
            return pod
    raise InputError(f"{ref} is not asked: it runs already, or was removed", remedy="name a pod of -f")


def _without(question: Question, change: Removal | Move) -> Question:
    uid = change.pod.uid
    ran = next((pod for pod in question.active if pod.uid == uid), None)
    pod = ran or _listed(question, change.pod)
    back = (replace(pod, uid=f"{uid}{AGAIN}"),) if isinstance(change, Move) else ()
    if change.before is None and ran is None:
        others = tuple(other for other in question.pods if other.uid != uid)
        return replace(question, pods=(*others, pod) if back else others)
    pods = (*question.pods, *back)
    if change.before is None:
        key = pods[0].uid if pods else ""
    else:
        before = _listed(question, change.before)
        if ran is None and pods.index(pod) >= pods.index(before):
            raise InputError(f"{change.pod} is not admitted yet when {change.before} is asked", remedy="swap the two")
        key = before.uid
    leaving = {**question.leaving, key: (*question.leaving.get(key, ()), uid)}
    return replace(question, pods=pods, leaving=leaving)


def _check_distinct(changes: Iterable[Change]) -> None:
    seen: set[str] = set()
    for change in changes:
        place = _place(change)
        if place in seen:
            raise InputError(f"{place} is changed twice", remedy="leave one of the changes out")
        if place:
            seen.add(place)


def _place(change: Change) -> str:
    """Return what a change sets, in words; empty where it can be made more than once."""
    match change:
        case Amount(pod, container, resource, _):
            return f"{resource} of {pod}{f'/{container}' if container else ''}"
        case ConfigField(field, _):
            return field
        case PolicyOption(field, name, _):
            return f"{field}.{name}"
        case FeatureGate(name, _):
            return f"featureGates.{name}"
        case FreshState(manager):
            return f"{manager}_manager_state"
        case Removal(pod, _) | Move(pod, _):
            return f"what becomes of {pod}"
        case Turn() | MoreDevices():
            return ""
