"""A kubelet's decisions as scenarios in the form of the recordings: node before, steps, outcomes.

Only what was observed is expected: whether a pod was admitted, the words of its refusal, and the state files at the
end. The engine has no part in it. The form is that of docs/reference/scenarios.md, so that ``mooring replay`` reads it.

The smallest scenario that shows a difference: without the pods and steps that it does not need.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from typing import Any, Final

from mooring.answers.base.agreement import differences
from mooring.answers.base.plan_document import state_fields
from mooring.answers.base.scenario import replay_scenario
from mooring.engine.core.config import MooringConfig
from mooring.engine.core.pod import Pod
from mooring.engine.kubelet.admit import POD_LEVEL_NOT_SUPPORTED
from mooring.engine.kubelet.events import Admit, Remove, Restart
from mooring.engine.kubelet.kubelet import Kubelet, StateTexts
from mooring.engine.node.settings import CPU_FILE, MEMORY_FILE
from mooring.inputs.archive.reduction import anonymous_pods, reduced_pods
from mooring.inputs.configuration.devices import devices_document
from mooring.inputs.machines.machineinfo_json import machine_info_document
from mooring.inputs.pods.pod_fields import STATUSES
from mooring.inputs.pods.scenario import scenario
from mooring.monitoring.shadow.interval import JudgedInterval
from mooring.monitoring.shadow.judgement import UNAVAILABLE, Agreement, KubeletEvent
from mooring.monitoring.shadow.orders import Step, with_started
from mooring.monitoring.shadow.starts import is_over_several
from mooring.monitoring.shadow.unseen import ObservedPod
from mooring.published.facts_document import kubelet_document, mooring_document
from mooring.published.naming import uid_of
from mooring.published.objects import NodeFacts

_FILE_FIELDS: Final = frozenset(state_fields(StateTexts()))


def minimal_scenario(content: Mapping[str, Any], facts: NodeFacts) -> dict[str, Any]:
    """Return a scenario without the pods and steps that a difference does not need.

    If an outcome differs, state files are not expected: the fewest pods that show the outcome remain. If only state
    files differ, pods that these name remain, because without them every file differs. A scenario in which the engine
    differs in nothing is returned as it is: the difference is not the managers'.
    """
    least = dict(content)
    found = differing_fields(least, facts)
    if not found:
        return least
    named = ""
    if outcomes := found - _FILE_FIELDS:
        steps = least["expect"].get("steps", ())
        expected = [{name: value for name, value in one.items() if name not in _FILE_FIELDS} for one in steps]
        least["expect"] = {"steps": expected}
        found = outcomes
    else:
        named = str((content["files"], content["expect"]))
    for part in ("active", "steps"):
        position = 0
        while position < len(least[part]):
            if (fewer := _without(least, part, position, named)) and differing_fields(fewer, facts) & found:
                least = fewer
            else:
                position += 1
    return least


def _without(content: Mapping[str, Any], part: str, position: int, named: str) -> dict[str, Any] | None:
    """Return a scenario without a pod or step; None where it is about a pod that the state files name."""
    one = content[part][position]
    pod = one if part == "active" else one.get("admit")
    uid = uid_of(pod) if pod is not None else one.get("remove", "")
    if (named and (not uid or uid in named)) or (part == "steps" and len(content["steps"]) == 1):
        return None
    fewer = {**content, part: [*content[part][:position], *content[part][position + 1 :]]}
    if part == "steps":
        expected = content["expect"]["steps"]
        fewer["expect"] = {"steps": [*expected[:position], *expected[position + 1 :]]}
    return fewer


def differing_fields(content: Mapping[str, Any], facts: NodeFacts) -> set[str]:
    """Return the names of the fields in which the engine differs."""
    case = scenario(content, source="recording")
    answer = replay_scenario(case, {case.machine: facts.machine})
    if "expect" not in answer:
        return set()
    return {one.field.rpartition(".")[2] for one in differences(content["expect"], answer["expect"])}


def recorded_scenario(
    node: str, interval: JudgedInterval, pods: Mapping[str, ObservedPod], *, anonymous: bool = False
) -> dict[str, Any] | None:
    """Return a scenario; None if no manager decided anything, or no steps lead from its beginning to its end.

    Args:
        node: its name.
        interval: what happened between two observations.
        pods: as they were observed last, by uid.
        anonymous: whether pods get made-up names.
    """
    if interval.base is None or interval.goal is None or interval.has_listed:
        return None
    if not (interval.fits or interval.judgements):
        return None
    steps = tuple(_managers_steps(interval, pods))
    first, begin = (*interval.points, interval.base)[0], interval.begin
    # No step can remove a state file; the start of a scenario is without it.
    if not steps or (interval.is_emptied and not isinstance(steps[0], Restart)):
        return None
    told = [pods[uid].content for uid in pods if uid in first.node.active or uid in _asked(steps)]
    # Objects of a list do not name their kind.
    found = reduced_pods({"kind": "Pod", **one} for one in told)
    reduced = {uid_of(pod): pod for pod in (anonymous_pods(found) if anonymous else found)}
    texts, plain = state_fields(interval.goal.files), MooringConfig(release=begin.facts.mooring.release)
    files = {CPU_FILE: first.files.cpu, MEMORY_FILE: first.files.memory}
    active = [
        _active_pod(reduced.get(uid) if uid in interval.before.listed else None, pod)
        for uid, pod in first.node.active.items()
    ]
    content = {
        "id": f"{node}-{datetime.fromtimestamp(interval.after.at, UTC):%Y%m%dT%H%M%S.%fZ}",
        "observed": {
            "node": node,
            "from": _time(interval.before.at),
            "to": _time(interval.after.at),
            "verdict": _verdict(interval).value,
        },
        "machine": begin.state.facts[:12],
        "release": begin.facts.mooring.release.name,
        "kubelet": kubelet_document(begin.facts.config),
        **({} if begin.facts.mooring == plain else {"mooring": mooring_document(begin.facts.mooring)}),
        "files": {file: text for file, text in files.items() if text is not None},
        "active": active,
        **_devices(first, interval.goal),
    }
    if interval.is_emptied:
        steps = steps[1:]
    else:
        content["readmit"] = False
    fields, expected = list[dict[str, Any]](), list[dict[str, Any]]()
    for step in steps:
        field, outcome = _step(step, reduced, pods, interval)
        fields.append(field)
        expected.append(outcome)
    if expected:
        expected[-1] |= texts
    begun = {} if expected else {"start": {"afterReadmission": texts} if active else texts}
    scenario = {**content, "steps": fields, "expect": {**begun, **({"steps": expected} if expected else {})}}
    # Where memory lies on several NUMA nodes, the files depend on what was released first, and while init containers
    # run, on when they end: no step says either.
    ends = (first, interval.goal, *interval.points[-1:])
    is_decided = not interval.fits or not any(
        is_over_several(one) or with_started(one).files != one.files for one in ends
    )
    return scenario if is_decided or not differing_fields(scenario, begin.facts) else None


def _managers_steps(interval: JudgedInterval, pods: Mapping[str, ObservedPod]) -> Iterator[Step]:
    """Yield the steps that the managers are asked about, so that they end where the judge compared."""
    # The node resources check is no manager: what it refuses at a restart has to go by a step.
    left = {uid for uid in interval.leaving if uid in pods and pods[uid].is_of_amounts}
    begun = interval.points[0].node.active if interval.points else {}
    refused: set[str] = set()
    for step in (*interval.steps, *_untold(interval, pods)):
        match step:
            case Admit(pod) if pod.uid not in interval.ran and (
                pods[pod.uid].is_of_amounts or pods[pod.uid].reason == POD_LEVEL_NOT_SUPPORTED
            ):
                continue
            case Admit(pod):
                refused = {pod.uid} if pods[pod.uid].reason and pod.uid not in interval.ran else set()
            case Remove(uid) if uid in pods and pods[uid].is_of_amounts and not (uid in left or uid in begun):
                continue
            case Remove(uid):
                left.discard(uid)
                refused = set()
            case Restart():
                # Of pods that are not there any more the engine can have something at the end; so has a pod that a
                # starting kubelet refused, until the next one is asked about.
                if interval.goal is not None and interval.points:
                    node, there = interval.points[-1].node, interval.goal.node.active.keys()
                    refused |= (node.cpu.assignments.keys() | node.memory.assignments.keys()) - there
        yield step
        if isinstance(step, Restart):
            yield from (Remove(uid) for uid in sorted(left))
            left.clear()
    # What a refused pod was given before its refusal is released later: the files are compared without it.
    yield from (Remove(uid) for uid in sorted(refused))


def _untold(interval: JudgedInterval, pods: Mapping[str, ObservedPod]) -> Iterator[Step]:
    """Yield what happened, too, where no order fits: nothing is said of its order."""
    asked, left = _asked(interval.steps), {step.uid for step in interval.steps if isinstance(step, Remove)}
    if _verdict(interval) is Agreement.AGREED:
        return
    for one in interval.judgements:
        if one.event in {KubeletEvent.ADMITTED, KubeletEvent.REFUSED} and one.uid not in asked and one.uid in pods:
            yield Admit(pods[one.uid].pod)
    yield from (Remove(uid) for uid in interval.leaving if uid not in left)


def _verdict(interval: JudgedInterval) -> Agreement:
    said = {one.verdict for one in interval.judgements}
    return next((one for one in (Agreement.DIFFERS, Agreement.UNKNOWN) if one in said), Agreement.AGREED)


def _time(at: float) -> str:
    return f"{datetime.fromtimestamp(at, UTC):%Y-%m-%dT%H:%M:%S.%f}"[:-3] + "Z"


def _active_pod(content: dict[str, Any] | None, pod: Pod) -> dict[str, Any]:
    """Return a pod with the statuses of its containers that a kubelet of an older release counted.

    Without content only is known what it left in the files.
    """
    if content is None:
        containers = [{"name": one.name} for one in pod.containers]
        return {"metadata": {"name": pod.name, "uid": pod.uid}, "spec": {"containers": containers}}
    told: dict[str, list[dict[str, Any]]] = {}
    for one in pod.containers:
        if one.allocated is not None:
            amounts = {resource: str(quantity) for resource, quantity in one.allocated.items()}
            told.setdefault(STATUSES[one.kind], []).append({"name": one.name, "allocatedResources": amounts})
    return {**content, "status": {**content.get("status", {}), **told}} if told else content


def _asked(steps: Iterable[Step]) -> set[str]:
    return {step.pod.uid for step in steps if isinstance(step, Admit)}


def _devices(begun: Kubelet, goal: Kubelet) -> dict[str, Any]:
    """Return the devices, what active pods hold of them, and what others are given; nothing on a node without any."""
    state, given = begun.node.providers.devices, goal.node.providers.devices.held
    if not state.devices:
        return {}
    held = {uid: found for uid, found in state.held.items() if uid in begun.node.active}
    return {
        "devices": devices_document(state.devices)["devices"],
        "held": {
            uid: {name: {resource: sorted(ids) for resource, ids in given.items()} for name, given in found.items()}
            for uid, found in ({**given, **held}).items()
        },
    }


def machine_line(facts: NodeFacts, digest: str) -> dict[str, Any]:
    """Return the machine of scenarios, as a line of the file beside them."""
    return {"name": digest[:12], "info": machine_info_document(facts.machine)}


def _step(
    step: Step, reduced: Mapping[str, dict[str, Any]], pods: Mapping[str, ObservedPod], interval: JudgedInterval
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return a step as a scenario has it, and what the kubelet did with it."""
    match step:
        case Remove(uid):
            return {"remove": uid}, {}
        case Restart():
            facts = interval.after.facts
            release = facts.mooring.release.name
            return {"restart": True, "kubelet": kubelet_document(facts.config), "release": release}, {}
        case Admit(pod):
            seen, reason, message = pods[pod.uid], "", ""
            if pod.uid not in interval.ran:
                reason, message = seen.reason, seen.message
            outcome = {"admitted": not reason, "reason": reason, "message": message}
            if UNAVAILABLE.search(message):
                # Which of several resources it names is random.
                del outcome["message"]
            return {"admit": reduced[pod.uid]}, outcome
