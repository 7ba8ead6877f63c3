"""What a kubelet did, as scenarios in the form of the recordings: each a node before, steps, and what came of them.

Only what was observed is expected: whether a pod was admitted, the words of its refusal, and the state files at the
end. The engine has no part in it. The form is that of docs/reference/scenarios.md, so that ``mooring replay`` reads it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from mooring.discovery.machineinfo_json import machine_info_document
from mooring.kubelet.admit import POD_LEVEL_NOT_SUPPORTED
from mooring.manifest.pods import MIRROR
from mooring.manifest.scenario import scenario
from mooring.manifest.steps import Admit, Remove, Restart
from mooring.node.start import CPU_FILE, MEMORY_FILE
from mooring.planner.nodearchive.reduction import anonymous_pods, reduced_pods
from mooring.planner.outcome import state_fields
from mooring.planner.replay.agreement import differences
from mooring.planner.replay.scenario import replay_scenario
from mooring.publisher.facts_document import kubelet_document
from mooring.publisher.objects import NodeFacts
from mooring.shadow.judging import Stretch
from mooring.shadow.observed import ObservedPod
from mooring.shadow.orders import Step


def recorded_scenario(
    name: str, stretch: Stretch, pods: Mapping[str, ObservedPod], *, anonymous: bool = False
) -> dict[str, Any] | None:
    """Return a scenario; None where no manager decided anything.

    Args:
        name: its id.
        stretch: what happened between two observations.
        pods: as they were told of last, by uid.
        anonymous: whether pods get made-up names.
    """
    before, after = stretch.before, stretch.after
    wanted = [step for step in stretch.steps if not _is_of_predicates(step, pods)]
    if not wanted:
        return None
    named = [step.pod.uid for step in wanted if isinstance(step, Admit)]
    members = [uid for uid in pods if uid in before.held or uid in named]
    reduced = _pods((pods[uid].content for uid in members), anonymous=anonymous)
    started = before.starts == after.starts
    fields = [_step(step, reduced) for step in wanted]
    expected = [_expected(step, pods) for step in wanted]
    gone = [uid for uid in pods if uid not in after.held]
    # What has ended may stand in a file still; the scenario's end is after its release.
    texts = state_fields(after.state.files)
    expected[-1] |= {name: text for name, text in texts.items() if not any(uid in text for uid in gone)}
    files = {CPU_FILE: before.state.files.cpu, MEMORY_FILE: before.state.files.memory}
    return {
        "id": name,
        "machine": before.state.facts[:12],
        "release": before.facts.mooring.release.name,
        "kubelet": kubelet_document(before.facts.config),
        "files": {file: text for file, text in files.items() if text is not None},
        "active": [reduced[uid] for uid in members if uid in before.held and uid in reduced],
        "steps": fields if started else [_with_facts(field, after.facts) for field in fields],
        "expect": {"steps": expected},
    }


def machine_line(facts: NodeFacts, digest: str) -> dict[str, Any]:
    """Return the machine of scenarios, as a line of the file beside them."""
    return {"name": digest[:12], "info": machine_info_document(facts.machine)}


def smallest(content: Mapping[str, Any], facts: NodeFacts) -> dict[str, Any]:
    """Return a scenario without the pods and steps that a difference does not need.

    A scenario in which the engine differs in nothing is returned as it is: the difference is not the managers'.
    """
    least = dict(content)
    if not _differs(least, facts):
        return least
    for part in ("active", "steps"):
        position = 0
        while position < len(least[part]):
            fewer = dict(least)
            fewer[part] = [*least[part][:position], *least[part][position + 1 :]]
            if part == "steps":
                expected = least["expect"]["steps"]
                fewer["expect"] = {"steps": [*expected[:position], *expected[position + 1 :]]}
            if fewer["steps"] and _differs(fewer, facts):
                least = fewer
            else:
                position += 1
    return least


def _differs(content: Mapping[str, Any], facts: NodeFacts) -> bool:
    case = scenario(content, source="recording")
    answer = replay_scenario(case, {case.machine: facts.machine})
    return "expect" in answer and bool(differences(content["expect"], answer["expect"]))


def _pods(contents: Iterable[Mapping[str, Any]], *, anonymous: bool) -> dict[str, dict[str, Any]]:
    # Objects of a list do not name their kind.
    found = reduced_pods({"kind": "Pod", **content} for content in contents)
    given = anonymous_pods(found) if anonymous else found
    return {_uid(pod): pod for pod in given}


def _uid(pod: Mapping[str, Any]) -> str:
    metadata = pod["metadata"]
    return str(metadata.get("annotations", {}).get(MIRROR) or metadata["uid"])


def _is_of_predicates(step: Step, pods: Mapping[str, ObservedPod]) -> bool:
    if not isinstance(step, Admit):
        return False
    seen = pods[step.pod.uid]
    return seen.is_of_amounts or seen.reason == POD_LEVEL_NOT_SUPPORTED


def _step(step: Step, pods: Mapping[str, dict[str, Any]]) -> dict[str, Any]:
    match step:
        case Admit(pod):
            return {"admit": pods[pod.uid]}
        case Remove(uid):
            return {"remove": uid}
        case Restart():
            return {"restart": True}


def _with_facts(step: dict[str, Any], facts: NodeFacts) -> dict[str, Any]:
    if "restart" not in step:
        return step
    return {**step, "kubelet": kubelet_document(facts.config), "release": facts.mooring.release.name}


def _expected(step: Step, pods: Mapping[str, ObservedPod]) -> dict[str, Any]:
    if not isinstance(step, Admit):
        return {}
    seen = pods[step.pod.uid]
    return {"admitted": not seen.reason, "reason": seen.reason, "message": seen.message}
