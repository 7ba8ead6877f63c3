"""Resizes in scenarios: time, retries, restarts, and the acceptance scenarios of KEP-6122."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from mooring.answers.base.agreement import replay_file
from mooring.answers.base.scenario import replay_scenario
from mooring.engine.core.errors import InputError
from mooring.inputs.machines.compact import parse_compact
from mooring.inputs.pods.scenario import Scenario, load_scenarios, scenario

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "resizing.yaml"
MACHINE = "cores=8 threads=1"
SHARING = {"reservedSystemCPUs": "0"}
PINNED = {
    "cpuManagerPolicy": "static",
    "reservedSystemCPUs": "0",
    "cpuManagerPolicyOptions": {"scale-delay-time": "5s"},
    "featureGates": {"CPUManagerPolicyAlphaOptions": True, "InPlacePodVerticalScalingExclusiveCPUs": True},
}
MOORING = {"extensions": ["exclusive-resize", "scale-down-delay"]}


def pod(uid: str, cpu: str, **spec: Any) -> dict[str, Any]:
    limits = {"cpu": cpu, "memory": "1Gi"}
    return {
        "metadata": {"uid": uid, "name": uid},
        "spec": {"containers": [{"name": "app", "resources": {"limits": limits}}], **spec},
    }


def admit(uid: str, cpu: str, **spec: Any) -> dict[str, Any]:
    return {"admit": pod(uid, cpu, **spec)}


def resize(uid: str, cpu: str) -> dict[str, Any]:
    return {"resize": {"uid": uid, "containers": {"app": {"requests": {"cpu": cpu}, "limits": {"cpu": cpu}}}}}


def advance(span: str) -> dict[str, Any]:
    return {"advance": span}


def steps(*given: dict[str, Any], kubelet: dict[str, Any] | None = None, **more: Any) -> list[dict[str, Any]]:
    """Return the results of the steps on a node with seven CPUs to give away."""
    content = {"id": "s", "machine": MACHINE, "kubelet": kubelet or PINNED, "mooring": MOORING, **more}
    if kubelet is not None and "mooring" not in more:
        del content["mooring"]
    asked = scenario({**content, "steps": list(given)}, source="s")
    found: list[dict[str, Any]] = replay_scenario(asked, {MACHINE: parse_compact(MACHINE).info})["expect"]["steps"]
    return found


def test_the_acceptance_scenarios_end_as_expected() -> None:
    outcomes = list(replay_file(EXAMPLE, compare=True))
    assert len(outcomes) == 6
    assert all(outcome.compared for outcome in outcomes)
    assert [outcome.id for outcome in outcomes if outcome.differences] == []
    # Every step is looked at.
    cases = [case for case in load_scenarios(EXAMPLE) if isinstance(case, Scenario)]
    assert [len(case.steps) for case in cases] == [len(case.expect["steps"]) for case in cases]


def test_a_deferred_resize_is_tried_again_when_a_pod_leaves() -> None:
    results = steps(admit("a", "3"), admit("b", "3"), resize("a", "5"), {"remove": "b"}, kubelet=SHARING)
    assert results[2]["resize"] == {
        "condition": "PodResizePending",
        "reason": "Deferred",
        "message": "Node didn't have enough resource: cpu, requested: 5000, used: 3000, capacity: 7000",
    }
    assert results[2]["events"] == ["ResizeDeferred"]
    assert results[3]["retried"]["a"]["resize"] == {"condition": "", "reason": "", "message": ""}


def test_deferred_resizes_are_tried_by_priority_and_those_that_raise_nothing_first() -> None:
    # Six and a half of seven CPUs are in use; what c leaves is enough for one of the others.
    results = steps(
        admit("a", "2"),
        admit("b", "2", priority=5),
        admit("c", "2500m"),
        resize("a", "4"),
        resize("b", "4"),
        resize("c", "1"),
        kubelet=SHARING,
    )
    assert [results[3]["resize"]["reason"], results[4]["resize"]["reason"]] == ["Deferred", "Deferred"]
    assert results[5]["accepted"]
    assert list(results[5]["retried"]) == ["b", "a"]
    assert results[5]["retried"]["b"]["resize"]["reason"] == ""
    assert results[5]["retried"]["a"]["resize"]["reason"] == "Deferred"


def test_what_is_not_granted_is_asked_again_after_a_restart() -> None:
    results = steps(admit("a", "3"), resize("a", "9"), {"restart": True}, advance("29s"), advance("1s"))
    assert results[1]["resize"]["reason"] == "Infeasible"
    assert results[3]["pods"]["a"]["resize"]["reason"] == ""
    assert "retried" not in results[3]
    assert results[4]["retried"]["a"]["resize"] == results[1]["resize"]


def test_waiting_resizes_are_tried_after_thirty_seconds_and_then_every_three_minutes() -> None:
    times = ["29s", "1s", "179s", "1s", "180s"]
    results = steps(admit("a", "3"), admit("b", "3"), resize("a", "5"), *map(advance, times), kubelet=SHARING)
    assert ["retried" in result for result in results[3:]] == [False, True, False, True, True]


def test_releases_are_applied_at_ticks_of_the_kubelets_own_period() -> None:
    kubelet = {**PINNED, "cpuManagerReconcilePeriod": "3s"}
    results = steps(
        admit("a", "2"), resize("a", "4"), resize("a", "3"), advance("5999ms"), advance("1ms"), kubelet=kubelet,
        mooring=MOORING,
    )  # fmt: skip
    assert [result["sharedPool"] for result in results[2:]] == ["0,5-7", "0,5-7", "0,4-7"]
    assert results[3]["pods"]["a"]["pending"] == {"app": {"cpus": "1-3", "after": "0s"}}


def test_scenarios_without_resizes_have_no_new_fields() -> None:
    (admitted, removed, restarted) = steps(admit("a", "2"), {"remove": "a"}, {"restart": True})
    assert set(removed) == {"sharedPool", "cpuManagerState", "memoryManagerState"}
    assert "retried" not in admitted
    assert set(restarted) == {"start", "readmitted", *removed}


@pytest.mark.parametrize(
    ("step", "field"),
    [
        (resize("b", "4"), r"steps\[1\]\.resize\.uid"),
        ({"resize": {"uid": "a", "containers": {"b": {}}}}, r"steps\[1\]\.resize\.containers\.b"),
        ({"resize": {"uid": "a", "containers": {"app": {"requests": {"cpu": 1}}}}}, r"steps\[1\]\.resize\.containers"),
        (
            {"resize": {"uid": "a", "containers": {"app": {"limits": {"nvidia.com/gpu": 1}}}}},
            r"steps\[1\]\.resize\.containers\.app\.limits\.nvidia\.com/gpu",
        ),
        ({"resize": 5}, r"steps\[1\]\.resize"),
        ({"resize": {"containers": {}}}, r"steps\[1\]\.resize\.uid"),
        (advance("5"), r"steps\[1\]\.advance"),
        (advance("-1s"), r"steps\[1\]\.advance"),
        (advance("25h"), r"steps\[1\]\.advance"),
        ({"reboot": False}, r"steps\[1\]"),
    ],
    ids=["nobody", "no container", "class", "resource", "number", "no uid", "no unit", "back", "too long", "no step"],
)
def test_bad_steps_are_named(step: dict[str, Any], field: str) -> None:
    with pytest.raises(InputError, match=field):
        steps(admit("a", "2"), step)
