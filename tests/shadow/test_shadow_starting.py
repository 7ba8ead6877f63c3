"""A kubelet that starts without its state files: the order in which it asked about many pods of one second is found."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.shadow import observing
from tests.shadow.observing import PINNED, STATIC, Node, node
from tests.shadow.test_shadow_recording import unlike

from mooring.engine.core.config import MooringConfig
from mooring.engine.kubelet.kubelet import Kubelet, StateTexts
from mooring.engine.kubelet.start import start_kubelet
from mooring.engine.releases.catalog import release_of
from mooring.inputs.machines.compact import parse_compact
from mooring.inputs.pods.pods import pod_from_object
from mooring.monitoring.shadow.judge import judge
from mooring.monitoring.shadow.judgement import Agreement

PODS = 30
LEAVING = 6
MACHINE = parse_compact("sockets=2 numa=4 cores=16 threads=2 memory=16Gi").info
CONFIG = replace(PINNED, topology_manager_policy="single-numa-node")
ASKED = [("1", "64Mi"), ("2", "64Mi"), ("1", "512Mi"), ("500m", "128Mi"), ("100m", "64Mi"), ("1500m", "256Mi")]


def busy(drawn: random.Random, in_a_second: int) -> Node:
    """Return a node on which pods came and ended, some of them with init containers."""
    watched = node(CONFIG)
    for number in range(PODS):
        cpus, memory = drawn.choice(ASKED)
        before = drawn.choice(["", "", "", "2"])
        watched.admit(f"pod-{number}", cpus, memory=memory, before=before, created=number // in_a_second)
        if drawn.random() < 0.25 and watched.kubelet.node.active:
            watched.end(some(drawn, watched, 1)[0])
    return watched


def some(drawn: random.Random, watched: Node, most: int) -> list[str]:
    active = list(watched.kubelet.node.active)
    return drawn.sample(active, min(most, len(active)))


def start_without_files(drawn: random.Random, watched: Node) -> None:
    """Start on no state file: pods of one second come in any order, and some end before or after that."""
    for uid in some(drawn, watched, drawn.randint(0, LEAVING)):
        watched.leave(uid)
    shuffled = some(drawn, watched, PODS)
    created = {uid: content["metadata"]["creationTimestamp"] for uid, content in watched.objects.items()}
    active = {uid: watched.kubelet.node.active[uid] for uid in sorted(shuffled, key=lambda uid: created[uid])}
    emptied = replace(watched.kubelet.node, active=active)
    watched.kubelet = replace(watched.kubelet, node=emptied, cpu_file=None, memory_file=None)
    watched.restart(CONFIG)
    for uid in some(drawn, watched, drawn.randint(0, LEAVING)):
        watched.end(uid, released=drawn.random() < 0.7)


@pytest.mark.long
@settings(max_examples=4)
@example(3, 12)
@example(8, 5)
@example(23, 12)
@given(st.integers(0, 2**32), st.sampled_from([3, 5, 8, 12]))
def test_the_order_of_many_pods_of_one_second_is_found(seed: int, in_a_second: int) -> None:
    drawn = random.Random(seed)  # noqa: S311 - no secret
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(observing, "MACHINE", MACHINE)
        watched = busy(drawn, in_a_second)
    before = watched.observed()
    start_without_files(drawn, watched)
    judgements = [one for interval in judge(before, watched.observed()) for one in interval.judgements]
    assert [one.line() for one in judgements if one.verdict is not Agreement.AGREED] == []
    assert "agreed: kubelet restarted" in [one.line() for one in judgements]


ALLOCATED = {"name": "c0", "allocatedResources": {"cpu": "2", "memory": "1Mi"}}
WAITING = {"name": "c0"}


@pytest.mark.parametrize("version", ["v1.34.4", "v1.37.1"])
@pytest.mark.parametrize(
    ("told", "counted", "seen"),
    [
        pytest.param([WAITING], [WAITING], [ALLOCATED], id="the container is made still"),
        pytest.param([WAITING], [ALLOCATED], [ALLOCATED], id="the container was made before the start"),
        pytest.param([], [WAITING], [ALLOCATED], id="the status came before the start"),
        pytest.param([ALLOCATED], [ALLOCATED], [ALLOCATED], id="the container runs"),
    ],
)
def test_up_to_v1_34_a_status_that_allocates_nothing_leaves_a_pod_without_cpus(
    version: str, told: list[object], counted: list[object], seen: list[object]
) -> None:
    watched = Node(_kubelet(version))
    watched.admit("early", "2")
    watched.admit("late", "2")
    _tell(watched, "early", [ALLOCATED])
    _tell(watched, "late", told)
    before = watched.observed()
    _count(watched, "late", counted)
    watched.kubelet = replace(watched.kubelet, cpu_file=None)
    watched.restart()
    _tell(watched, "late", seen)
    after = watched.observed()
    is_without = version == "v1.34.4" and counted == [WAITING]
    assert ("late" in watched.kubelet.node.cpu.assignments) is not is_without
    judgements = [one.line() for interval in judge(before, after) for one in interval.judgements]
    assert judgements == ["agreed: kubelet restarted"]
    assert list(unlike(before, after)) == []


def test_up_to_v1_34_a_running_pod_without_cpus_after_a_start_is_a_difference() -> None:
    watched = Node(_kubelet("v1.34.4"))
    watched.admit("late", "2")
    _tell(watched, "late", [ALLOCATED])
    before = watched.observed()
    _count(watched, "late", [WAITING])
    watched.kubelet = replace(watched.kubelet, cpu_file=None)
    watched.restart()
    [judgement] = [one for interval in judge(before, watched.observed()) for one in interval.judgements]
    assert judgement.verdict is Agreement.DIFFERS


def _kubelet(version: str) -> Kubelet:
    found = start_kubelet(observing.MACHINE, STATIC, MooringConfig(release=release_of(version)), StateTexts())
    assert isinstance(found, Kubelet)
    return found


def _tell(watched: Node, uid: str, statuses: list[object]) -> None:
    """Let the API server have these statuses of a pod's containers."""
    content = watched.objects[uid]
    watched.objects[uid] = {**content, "status": {**content["status"], "containerStatuses": statuses}}


def _count(watched: Node, uid: str, statuses: list[object]) -> None:
    """Let the kubelet have these statuses of a pod when it starts."""
    _tell(watched, uid, statuses)
    pod = pod_from_object(watched.objects[uid], source="it", gates=watched.gates)
    active = {**watched.kubelet.node.active, uid: pod}
    watched.kubelet = replace(watched.kubelet, node=replace(watched.kubelet.node, active=active))
