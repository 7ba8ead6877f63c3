"""Leaving a cluster: the pods that leave have what the agent has, and a node counts when its pod is ready."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from mooring.cluster.deployment.tasks import DAEMON_SET, has_left, leaving_patch

DEPLOY = Path(__file__).resolve().parents[2] / "deploy"


def shipped() -> dict[str, Any]:
    documents = yaml.safe_load_all((DEPLOY / "agent" / "agent.yaml").read_text(encoding="utf-8"))
    [found] = [one for one in documents if one["kind"] == "DaemonSet"]
    assert found["metadata"]["name"] == DAEMON_SET
    return dict(found)


def patched(daemon_set: dict[str, Any]) -> dict[str, Any]:
    pod = leaving_patch(daemon_set)["spec"]["template"]["spec"]
    spec = {**daemon_set["spec"]["template"]["spec"], **pod}
    return {**daemon_set, "spec": {**daemon_set["spec"], "template": {"spec": spec}}}


def test_a_pod_leaves_with_the_rights_and_volumes_of_the_agent_before_it_waits() -> None:
    [agent] = shipped()["spec"]["template"]["spec"]["containers"]
    pod = patched(shipped())["spec"]["template"]["spec"]
    *before, leave = pod["initContainers"]
    assert [one["name"] for one in before] == ["prepare"]
    assert leave["args"] == [*agent["args"], "--leave"]
    for name in ("image", "securityContext", "volumeMounts"):
        assert leave[name] == agent[name]
    [resting] = pod["containers"]
    assert resting["args"] == ["deploy", "wait"]
    assert not [name for one in (leave, resting) for name in one if name.endswith("Probe")]


def test_a_second_try_changes_nothing() -> None:
    assert leaving_patch(patched(shipped())) == {"spec": {}}


def test_a_node_counts_once_its_new_pod_is_ready() -> None:
    def state(observed: int, updated: int, ready: int) -> dict[str, Any]:
        status = {"observedGeneration": observed, "desiredNumberScheduled": 2}
        return {
            "metadata": {"generation": 5},
            "status": {**status, "updatedNumberScheduled": updated, "numberReady": ready},
        }

    assert not has_left(state(4, 2, 2))
    assert not has_left(state(5, 1, 2))
    assert not has_left(state(5, 2, 1))
    assert has_left(state(5, 2, 2))
