"""Laws of upgrades, over recordings that separate neighbouring releases."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import pytest
from tests.planner.recordings import WHOLE
from tests.releases.flipped import FOLDER, machines, recorded

from mooring.answers.base.plan import AnyPlan, Question, RefusedPlan, make_plan
from mooring.answers.base.scenario import replay_scenario
from mooring.answers.upgrade.answer import UpgradeDocument, upgrade_of
from mooring.answers.upgrade.node import KubeletSetup, NodePods, UpgradedNode
from mooring.engine.core.machine import Machine
from mooring.engine.core.release import Release
from mooring.engine.kubelet.kubelet import StateTexts
from mooring.engine.releases.catalog import RELEASES
from mooring.explanations.story import PodVerdict
from mooring.inputs.configuration.devices import device_table
from mooring.inputs.pods.defaults import PodGates
from mooring.inputs.pods.pods import pod_from_object
from mooring.inputs.pods.scenario import Scenario, scenario

EVERY = 24 if WHOLE else 48
"""One scenario of so many of each kind is taken."""
PAIRS = list(pairwise(RELEASES.values()))
NAMES = [f"{old.name}-{new.name}" for old, new in PAIRS]


def recordings() -> Iterator[dict[str, Any]]:
    seen: dict[str, int] = {}
    for content in recorded(FOLDER / "v1.34.4" / "admission-deltas.jsonl.gz"):
        kind = content["id"].rpartition("-")[0]
        seen[kind] = seen.get(kind, -1) + 1
        if seen[kind] % EVERY == 0 and content["machine"] in machines():
            yield content


RECORDINGS = list(recordings())


def before_restart(content: dict[str, Any]) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """Return the steps up to the first restart, and the configuration of the kubelet that starts then."""
    steps = content["steps"]
    place = next((index for index, step in enumerate(steps) if step.get("restart")), len(steps))
    config = steps[place].get("kubelet") if place < len(steps) else None
    return steps[:place], config or content["kubelet"]


def replayed(content: dict[str, Any], old: Release, steps: list[dict[str, Any]]) -> dict[str, Any]:
    case = scenario({**content, "steps": steps, "expect": {}}, source="recording", release=old)
    found: dict[str, Any] = replay_scenario(case, machines()).get("expect", {})
    return found


def node_of(content: dict[str, Any], old: Release) -> UpgradedNode:
    """Return the node on which the recorded pods run under a release."""
    steps, config = before_restart(content)
    outcome = replayed(content, old, steps)
    answers = outcome.get("steps", [])
    running: dict[str, Any] = {pod["metadata"]["uid"]: pod for pod in content.get("active", ())}
    if "start" not in outcome or len(answers) < len(steps):
        files = StateTexts(
            *(content.get("files", {}).get(name) for name in ("cpu_manager_state", "memory_manager_state"))
        )
    else:
        last = answers[-1] if answers else outcome["start"]
        files = StateTexts(last["cpuManagerState"], last["memoryManagerState"])
        admitted = {answer["uid"] for answer in outcome["start"].get("readmitted", ()) if answer["admitted"]}
        running = {uid: pod for uid, pod in running.items() if uid in admitted}
        for step, answer in zip(steps, answers, strict=True):
            if "admit" in step and answer["admitted"]:
                running[step["admit"]["metadata"]["uid"]] = step["admit"]
            running.pop(step.get("remove", ""), None)
    case: Scenario = scenario({**content, "kubelet": config, "steps": []}, source="recording", release=old)

    def read(gates: PodGates) -> NodePods:
        by_kubelet = replace(gates, api_server=False)
        return NodePods(tuple(pod_from_object(one, source="recording", gates=by_kubelet) for one in running.values()))

    machine = Machine(case.machine, machines()[case.machine])
    return UpgradedNode("n", machine, case.kubelet, read, case.mooring, files, device_table(case.devices))


def asked(node: UpgradedNode, release: Release, *, anew: bool) -> AnyPlan:
    """Ask without the rooms of upgrades."""
    mooring = replace(node.mooring, release=release)
    gates = PodGates.of_node(node.config, mooring)
    # What is created anew has no status yet.
    pods = node.pods(replace(gates, reads_statuses=False) if anew else gates)
    question = Question(node.machine, node.config, mooring, devices=node.devices)
    return make_plan(
        replace(question, pods=(*pods.running, *pods.rejected))
        if anew
        else replace(question, active=pods.running, files=node.files)
    )


def seen(plan: AnyPlan) -> list[object]:
    """Return what a person sees of a plan's decisions."""
    answers: list[object] = [plan.refusal if isinstance(plan, RefusedPlan) else None]
    for answer in plan.answers:
        decision = answer.decision
        held = (decision.containers, decision.pod, decision.devices) if decision.admitted else ()
        answers.append((decision.admitted, decision.rejection, decision.endless, answer.crash, held))
    return answers


@dataclass(frozen=True, slots=True)
class Upgraded:
    """A recorded node that is upgraded."""

    content: dict[str, Any]
    node: UpgradedNode
    old: Release
    new: Release
    upgrade: UpgradeDocument


@pytest.fixture(scope="module", params=PAIRS, ids=NAMES)
def upgrades(request: pytest.FixtureRequest) -> tuple[Upgraded, ...]:
    """Return the upgrade of each recorded node from a release to the next, once for all laws."""
    old, new = request.param
    nodes = [(content, node_of(content, old)) for content in RECORDINGS]
    return tuple(Upgraded(content, node, old, new, upgrade_of(node, old, new)[1]) for content, node in nodes)


@pytest.mark.corpus
def test_a_change_is_reported_exactly_where_plans_differ_and_has_a_cause(upgrades: tuple[Upgraded, ...]) -> None:
    changed = 0
    for one in upgrades:
        content, upgrade = one.content, one.upgrade
        node = one.node.prepared(KubeletSetup(one.old, one.node.config))
        situations = [
            seen(asked(node, one.old, anew=anew)) != seen(asked(node, one.new, anew=anew)) for anew in (False, True)
        ]
        assert upgrade.changed == any(situations), content["id"]
        assert upgrade.changed or not (upgrade.causes or upgrade.recreated), content["id"]
        if upgrade.changed and not by_settings(upgrade, asked(node, one.old, anew=False)):
            assert upgrade.causes, content["id"]
        changed += upgrade.changed
    pair = (upgrades[0].old.name, upgrades[0].new.name)
    assert bool(changed) == (pair not in UNSEEN) or not WHOLE


UNSEEN = {("1.34", "1.35")}
"""What differs there is what statuses say of a pod without an entry when it runs already; no recording has one."""


def by_settings(upgrade: UpgradeDocument, before: AnyPlan) -> bool:
    """Tell whether a start that changes is due to the files, or to settings that no rule decides."""
    stages = before.refusal.stage if isinstance(before, RefusedPlan) else "", upgrade.start_error_stage
    return (upgrade.start_error_before, stages[0]) != (upgrade.start_error, stages[1]) and (
        any(one.effect in ("refused", "takes effect", "group") for one in upgrade.settings)
        or any(stage in ("start", "decode", "validation") for stage in stages)
    )


@pytest.mark.corpus
def test_running_pods_are_predicted_as_a_restart_with_the_release_decides(upgrades: tuple[Upgraded, ...]) -> None:
    compared = 0
    for case in upgrades:
        content, node, upgrade = case.content, case.node, case.upgrade
        old, new = case.old, case.new
        steps, config = before_restart(content)
        readings = [node.pods(PodGates.of_node(node.config, replace(node.mooring, release=one))) for one in (old, new)]
        # A replay keeps devices, and pods as they were read under the old release.
        if content.get("devices") or not steps or readings[0] != readings[1]:
            continue
        restart = {"restart": True, "release": new.name, "kubelet": config}
        outcome = replayed(content, old, [*steps, restart])
        if len(outcome.get("steps", ())) <= len(steps):
            continue
        last = outcome["steps"][-1]
        compared += 1
        if "startError" in last:
            assert upgrade.start_error == last["startError"]
            continue
        for one, answer in zip(upgrade.pods, last["readmitted"], strict=True):
            if one.reason.startswith("OutOf"):
                break
            assert (one.outcome != PodVerdict.REJECTED) == answer["admitted"], content["id"]
            assert (one.reason, one.message) == (answer["reason"], answer["message"]), content["id"]
            if answer["admitted"]:
                placed = {name: {"cpus": held.cpus, "mems": held.mems} for name, held in one.after.items()}
                assert placed == answer["containers"], content["id"]
    assert compared


@pytest.mark.corpus
@pytest.mark.parametrize("release", RELEASES.values(), ids=list(RELEASES))
def test_an_upgrade_to_the_same_release_changes_nothing(release: Release) -> None:
    for content in RECORDINGS[::2]:
        upgrade = upgrade_of(node_of(content, release), release, release)[1]
        assert not upgrade.changed, content["id"]
        assert (upgrade.settings, upgrade.causes, upgrade.recreated, upgrade.hops) == ([], [], [], []), content["id"]
