"""``mooring replay -o text``: what became of each step, for people."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from mooring.answers.base.agreement import ReplayOutcome
from mooring.answers.base.plan_document import span_text
from mooring.engine.kubelet.events import Admit, Advance, Offline, Online, Reboot, Remove, Resizing, Step
from mooring.explanations.phrases import cpus_text, plural
from mooring.inputs.pods.scenario import MergeCase, Scenario


def replay_lines(outcome: ReplayOutcome) -> Iterator[str]:
    """Yield the lines of one answer: the scenario, then each step."""
    case, answer = outcome.case, outcome.answer
    if isinstance(case, MergeCase):
        yield f"{case.id}: {_merge_words(answer['result'])}"
    elif "expect" in answer:
        yield from _scenario_lines(case, answer["expect"])


def _merge_words(result: Mapping[str, Any]) -> str:
    nodes = "no mask" if result["numa"] is None else f"NUMA nodes {','.join(map(str, result['numa']))}"
    preferred = "preferred" if result["preferred"] else "not preferred"
    return f"{nodes}, {preferred}, {'admitted' if result['admitted'] else 'not admitted'}"


def _scenario_lines(case: Scenario, expect: Mapping[str, Any]) -> Iterator[str]:
    if "startError" in expect:
        yield f"{case.id}: the kubelet would not start: {expect['startError']}"
        return
    start = expect["start"]
    yield f"{case.id}: started, shared pool {start['sharedPool'] or 'empty'}"
    for back in start.get("readmitted", ()):
        yield f"  running {back['uid']}: {_verdict(back)}"
    results = expect.get("steps", [])
    for step, result in zip(case.steps, results, strict=False):
        yield f"  {_step_words(step)}: {_result_words(step, result)}"
    if expect.get("endless"):
        named = _step_words(case.steps[len(results)]) if len(results) < len(case.steps) else "the last step"
        yield f"  {named}: the kubelet would never return"


def _step_words(step: Step) -> str:
    match step:
        case Admit():
            return f"admit {step.pod.namespace}/{step.pod.name}"
        case Remove():
            return f"remove {step.uid}"
        case Resizing():
            return f"resize {step.uid}"
        case Advance():
            return f"{span_text(step.nanoseconds)} later"
        case Offline() | Online():
            return f"{cpus_text(step.cpus.mask)} {'offline' if isinstance(step, Offline) else 'online'}"
        case Reboot():
            return "reboot"
        case _:
            return "restart"


def _result_words(step: Step, result: Mapping[str, Any]) -> str:
    waited = "".join(f"; {uid}: {_resize_words(one)}" for uid, one in result.get("retried", {}).items())
    return _own_words(step, result) + waited


def _own_words(step: Step, result: Mapping[str, Any]) -> str:
    if isinstance(step, Offline | Online):
        parts = [f"shared pool {result['usablePool'] or 'empty'}", *_standing_words(result)]
        for pod, sets in result["restored"].items():
            parts += [f"{_place(pod, name)} {one['cpus']} again" for name, one in sets.items()]
        return "; ".join(parts)
    if isinstance(step, Admit):
        return _verdict(result)
    if isinstance(step, Resizing):
        return _resize_words(result)
    if isinstance(step, Advance):
        changing = [f"{uid}: {_resize_words(one)}" for uid, one in result["pods"].items() if one["resize"]["condition"]]
        return "; ".join([f"shared pool {result['sharedPool'] or 'empty'}", *changing])
    if "startError" in result:
        return f"the kubelet would not start: {result['startError']}"
    if isinstance(step, Remove):
        return "; ".join([f"shared pool {result['sharedPool'] or 'empty'}", *_standing_words(result)])
    refused = [back for back in result["readmitted"] if not back["admitted"]]
    kept = len(result["readmitted"]) - len(refused)
    words = "".join(f"; {back['uid']} refused: {back['reason']}: {back['message']}" for back in refused)
    return f"{plural(kept, 'pod')} admitted again{words}"


def _standing_words(result: Mapping[str, Any]) -> Iterator[str]:
    """Yield whose sets are not what they were, after whatever step."""
    for pod, sets in result.get("displaced", {}).items():
        for name, one in sets.items():
            yield f"{_place(pod, name)} {one['cpus']} instead of {one['original']}"
    for pod, sets in result.get("broken", {}).items():
        for name, one in sets.items():
            why = result.get("refused", {}).get(pod, {}).get(name, "")
            yield f"{_place(pod, name)} {one['cpus']} broken: {one['lost']} offline{f' ({why})' if why else ''}"


def _place(pod: str, container: str) -> str:
    return f"{pod}/{container}" if container else pod


def _resize_words(result: Mapping[str, Any]) -> str:
    """Say what a pod holds, what it releases, and why it does not get what it wants."""
    wanting = result["resize"]
    parts = [f"{wanting['reason']}: {wanting['message']}"] if wanting["reason"] else []
    for name, held in result["containers"].items():
        pending = result["pending"].get(name)
        then = f" ({pending['cpus']} after {pending['after']})" if pending else ""
        parts.append(f"{name} {held['cpus'] or 'shared'}{then}")
    return ", ".join(parts)


def _verdict(result: Mapping[str, Any]) -> str:
    if not result["admitted"]:
        return f"{result['reason']}: {result['message']}"
    parts = []
    for name, held in result["containers"].items():
        mems = f" memory {held['mems']}" if held["mems"] else ""
        parts.append(f"{name} {held['cpus'] or 'shared'}{mems}")
    return f"admitted; {', '.join(parts)}"
