"""How changes read."""

from __future__ import annotations

from collections.abc import Sequence

from mooring.core.pod import Pod
from mooring.core.quantity import Quantity
from mooring.explain.phrases import joined
from mooring.planner.changes.change import (
    CPU_OPTIONS,
    Amount,
    Change,
    ConfigField,
    FeatureGate,
    FreshState,
    MoreDevices,
    Move,
    PolicyOption,
    Removal,
    Turn,
)
from mooring.planner.changes.naming import pods_of
from mooring.planner.question import Question


def sentence(changes: Sequence[Change], question: Question) -> str:
    """Return changes of a question as one sentence.

    >>> from mooring.planner.changes.change import ConfigField
    >>> from mooring.core.config import KubeletConfig
    >>> from mooring.core.machine import Machine
    >>> from mooring.core.machineinfo import MachineInfo
    >>> question = Question(Machine("m", MachineInfo(1, 1, 0, ())), KubeletConfig())
    >>> sentence([ConfigField("topologyManagerScope", "pod")], question)
    'Set topologyManagerScope to pod.'
    """
    text = joined([phrase(change, question) for change in changes])
    return f"{text[:1].upper()}{text[1:]}."


def phrase(change: Change, question: Question) -> str:  # noqa: PLR0911 - one for each kind of change
    """Return a change as an instruction.

    Args:
        change: the change.
        question: the question before it, which says what was asked for.
    """
    match change:
        case Amount():
            return _amount(change, question)
        case ConfigField(field, value):
            return f"set {field} to {value or 'nothing'}"
        case PolicyOption():
            return _option(change)
        case FeatureGate(name, on):
            return f"switch {'on' if on else 'off'} the feature gate {name}"
        case FreshState(manager):
            return f"delete the state file {manager}_manager_state"
        case Removal(pod, before):
            return f"remove {pod}" + (f" before {before} is asked" if before else "")
        case Move(pod, before):
            return f"remove {pod}{f' before {before} is asked' if before else ''} and let it come back last"
        case Turn(pod, before):
            return f"ask {pod} before {before}" if before else f"ask {pod} first"
        case MoreDevices(resource, node):
            return f"have one more {resource} on NUMA node {node}"


def _amount(change: Amount, question: Question) -> str:
    before = request_of(question, change)
    who = f"container {change.container} of {change.pod}" if change.container else f"{change.pod} as a whole"
    was = f" instead of {before}" if before is not None else ""
    return f"let {who} ask for {change.amount} {_what(change.resource, change.amount)}{was}"


def _what(resource: str, amount: Quantity) -> str:
    if resource == "cpu":
        return "CPU" if amount.milli == 1000 else "CPUs"
    return f"of {resource}" if resource == "memory" or resource.startswith("hugepages-") else resource


def request_of(question: Question, change: Amount) -> Quantity | None:
    """Return what was requested before a change; None when nothing was."""
    pod = next((pod for pod in pods_of(question) if pod.uid == change.pod.uid), Pod("", ""))
    if not change.container:
        return pod.resources.requests.get(change.resource) if pod.resources else None
    found = [one.requests.get(change.resource) for one in pod.containers if one.name == change.container]
    return found[0] if found else None


def _option(change: PolicyOption) -> str:
    manager = "CPU manager" if change.field == CPU_OPTIONS else "topology manager"
    what = f"the {manager}'s option {change.name}"
    if change.value in ("true", "false"):
        return f"switch {'on' if change.value == 'true' else 'off'} {what}"
    return f"set {what} to {change.value}" if change.value else f"leave out {what}"
