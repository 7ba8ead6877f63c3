"""How changes are written on the command line, both ways.

Every change is an option of ``mooring whatif`` and its value, and the value that a found change is shown with is one
that can be typed (docs/reference/whatif.md).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from types import MappingProxyType

from mooring.core.errors import InputError
from mooring.core.kubelet_gates import KUBELET_GATES
from mooring.core.quantity import Quantity
from mooring.cpumanager.options import OPTION_GROUPS
from mooring.manifest.fields import nearest
from mooring.manifest.quantities import resource_list
from mooring.planner.changes.applying import CONFIG_FIELDS
from mooring.planner.changes.change import (
    CPU_OPTIONS,
    TOPOLOGY_OPTIONS,
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
from mooring.planner.changes.naming import find_containers, find_pod, find_pods, refs
from mooring.planner.question import Question
from mooring.topologymanager.options import MAX_ALLOWABLE, PREFER_CLOSEST

GATES = "featureGates"

ASK = "--ask"
SET = "--set"
REMOVE = "--remove"
MOVE = "--move"
FIRST = "--first"
DEVICE = "--device"
FRESH = "--fresh-state"


def written(change: Change) -> tuple[str, str]:  # noqa: PLR0911 - one for each kind of change
    """Return the option of ``mooring whatif`` that makes a change, and its value."""
    match change:
        case Amount(pod, container, resource, amount):
            return ASK, f"{pod}{f'/{container}' if container else ''}:{resource}={amount}"
        case ConfigField(field, value):
            return SET, f"{field}={value}"
        case PolicyOption(field, name, value):
            return SET, f"{field}.{name}={value}"
        case FeatureGate(name, on):
            return SET, f"{GATES}.{name}={str(on).lower()}"
        case FreshState(manager):
            return FRESH, manager
        case Removal(pod, before):
            return REMOVE, _pair(pod, before)
        case Move(pod, before):
            return MOVE, _pair(pod, before)
        case Turn(pod, before):
            return FIRST, _pair(pod, before)
        case MoreDevices(resource, node):
            return DEVICE, f"{resource}={node}"


def _pair(pod: PodRef, before: PodRef | None) -> str:
    return f"{pod}={before}" if before is not None else f"{pod}"


def understood(question: Question, option: str, text: str) -> list[Change]:
    """Return the changes that an option asks for; a name with ``*`` makes one for each pod.

    Raises:
        InputError: it cannot be understood.
    """
    try:
        return _READERS[option](question, text)
    except InputError as error:
        raise InputError(error.problem, source=option, field=error.field, remedy=error.remedy) from None


def _ask(question: Question, text: str) -> list[Change]:
    target, amount = _two(text, "POD[/CONTAINER]:RESOURCE=AMOUNT")
    name, colon, resource = target.partition(":")
    if not (colon and name and resource):
        raise InputError(f"{text!r:.80} is incomplete", remedy="write POD[/CONTAINER]:RESOURCE=AMOUNT")
    quantity = _quantity(resource, amount)
    known = refs(question)
    return [Amount(known[pod.uid], container, resource, quantity) for pod, container in find_containers(question, name)]


def _quantity(resource: str, amount: str) -> Quantity:
    try:
        return resource_list({"amount": {resource: amount}}, "amount")[resource]
    except InputError as error:
        raise InputError(error.problem, field=resource, remedy=error.remedy) from None


def _set(_question: Question, text: str) -> list[Change]:
    name, value = _two(text, "FIELD=VALUE")
    field, dot, part = name.partition(".")
    if not dot:
        if field not in CONFIG_FIELDS:
            raise _unknown(name)
        return [ConfigField(field, value)]
    if field == GATES:
        if value not in ("true", "false"):
            raise InputError(f"{value!r:.40} is neither true nor false", field=name, remedy="write true or false")
        return [FeatureGate(_known(part, KUBELET_GATES, "feature gate", name), value == "true")]
    if field == CPU_OPTIONS:
        return [PolicyOption(field, _known(part, OPTION_GROUPS, "option", name), value)]
    if field == TOPOLOGY_OPTIONS:
        return [PolicyOption(field, _known(part, (PREFER_CLOSEST, MAX_ALLOWABLE), "option", name), value)]
    raise _unknown(name)


def _known(name: str, names: Collection[str], what: str, field: str) -> str:
    if name not in names:
        close = nearest(name, frozenset(names))
        remedy = f"did you mean {close}?" if close else "see docs/reference/configuration.md"
        raise InputError(f"there is no {what} {name!r:.80}", field=field, remedy=remedy)
    return name


def _unknown(name: str) -> InputError:
    fields = (*CONFIG_FIELDS, f"{CPU_OPTIONS}.NAME", f"{TOPOLOGY_OPTIONS}.NAME", f"{GATES}.NAME")
    close = nearest(name, frozenset(fields))
    remedy = f"did you mean {close}?" if close else f"fields are {', '.join(fields)}"
    return InputError(f"{name!r:.80} cannot be set", remedy=remedy)


def _remove(question: Question, text: str) -> list[Change]:
    name, before = _named_pair(question, text)
    known = refs(question)
    return [Removal(known[pod.uid], before) for pod in find_pods(question, name)]


def _move(question: Question, text: str) -> list[Change]:
    name, before = _named_pair(question, text)
    known = refs(question)
    return [Move(known[pod.uid], before) for pod in find_pods(question, name)]


def _first(question: Question, text: str) -> list[Change]:
    name, before = _named_pair(question, text)
    return [Turn(refs(question)[find_pod(question, name).uid], before)]


def _named_pair(question: Question, text: str) -> tuple[str, PodRef | None]:
    name, equals, other = text.partition("=")
    if not name or (equals and not other):
        raise InputError(f"{text!r:.80} is incomplete", remedy="write POD or POD=OTHER")
    return name, refs(question)[find_pod(question, other).uid] if other else None


def _device(_question: Question, text: str) -> list[Change]:
    resource, node = _two(text, "RESOURCE=NODE")
    if not (node.isascii() and node.isdecimal()):
        raise InputError(f"{node!r:.40} is no NUMA node", field=resource, remedy="write RESOURCE=NODE")
    return [MoreDevices(resource, int(node))]


def _fresh(_question: Question, text: str) -> list[Change]:
    if text not in ("cpu", "memory"):
        raise InputError(f"there is no state file of {text!r:.40}", remedy="write cpu or memory")
    return [FreshState(text)]


def _two(text: str, form: str) -> tuple[str, str]:
    name, equals, value = text.rpartition("=")
    if not (equals and name):
        raise InputError(f"{text!r:.80} is incomplete", remedy=f"write {form}")
    return name, value


_READERS: Mapping[str, Callable[[Question, str], list[Change]]] = MappingProxyType(
    {ASK: _ask, SET: _set, REMOVE: _remove, MOVE: _move, FIRST: _first, DEVICE: _device, FRESH: _fresh}
)
