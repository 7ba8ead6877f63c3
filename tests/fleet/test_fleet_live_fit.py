"""What fits into a live cluster: the plan of moves against all sequences of moves of plain kubelets."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as some
from tests.fleet.clusters import asked
from tests.fleet.live_clusters import live, node, pod

from mooring.engine.core.pod import Pod
from mooring.engine.kubelet.admit import admit
from mooring.engine.kubelet.kubelet import Kubelet
from mooring.fleet.command import fit_question
from mooring.fleet.documents import FleetFitDocument
from mooring.fleet.live_cluster import LiveCluster
from mooring.fleet.live_objects import requirements_of_text
from mooring.fleet.nodes import Nodes
from mooring.fleet.relocation.fit import FitQuestion, fit
from mooring.fleet.relocation.moves import room
from mooring.fleet.scheduler.scheduler import Scheduler
from mooring.fleet.scheduler.strategy import Strategy
from mooring.inputs.pods.pod_relations import PodAffinityTerm, PodRelations, PodSelector, SpreadConstraint
from mooring.inputs.pods.scheduling_fields import Operator, Requirement

LAW = settings(deadline=None, max_examples=6, suppress_health_check=[HealthCheck.too_slow])
TRIALS = 300
MOST = 2
"""Moves that the plain search tries."""
Story = Sequence[tuple[int, int]]
"""Node and CPUs of each pod, in the order of their start."""
FRAGMENTED: Story = ((0, 3), (0, 1), (1, 3), (1, 1))
"""The pods of one CPU keep the only whole NUMA node of each node."""


def cluster(nodes: int, story: Story) -> LiveCluster:
    pods = [pod(f"p{number}", f"n{place}", str(cpus), second=number) for number, (place, cpus) in enumerate(story)]
    return live(*(node(f"n{place}") for place in range(nodes)), *pods)


@some.composite
def stories(draw: some.DrawFn) -> Story:
    """Pods that the kubelets of two nodes have admitted in their order."""
    found: list[tuple[int, int]] = []
    for _ in range(draw(some.integers(1, 4))):
        entry = draw(some.integers(0, 1)), draw(some.integers(1, 4))
        if is_admitted([*found, entry]):
            found.append(entry)
    return found


def is_admitted(story: Story) -> bool:
    return not any("would be refused" in one for one in cluster(2, story).cluster.findings)


def replicas_that_fit(kubelets: Sequence[Kubelet], shape: Pod, most: int) -> int:
    count = 0
    for begun in kubelets:
        kubelet = begun
        for _ in range(most):
            kubelet, answer = admit(kubelet, replace(shape, uid=f"new-{count}", name=f"new-{count}"))
            if not answer.admitted:
                break
            count += 1
    return min(count, most)


def best_of_all_sequences(found: LiveCluster, shape: Pod, wanted: int) -> list[int]:
    """Return for each number of moves how many replicas fit after the best sequence of at most so many."""
    kubelets = [now.kubelet for now in found.cluster.now.values()]
    places = {group.name: place for place, group in enumerate(found.cluster.groups)}
    where = {one.uid: places[name] for name, pods in found.pods.items() if name for one in pods}
    pods = {one.uid: one.pod for name, on_node in found.pods.items() if name for one in on_node}
    reached, best = [(tuple(kubelets), where)], [replicas_that_fit(kubelets, shape, wanted)]
    for _ in range(MOST):
        following = []
        for before, located in reached:
            for uid, source in located.items():
                for target in set(range(len(before))) - {source}:
                    after, answer = admit(before[target], pods[uid])
                    if answer.admitted:
                        moved = list(before)
                        moved[target], moved[source] = after, before[source].without([uid])
                        following.append((tuple(moved), {**located, uid: target}))
        reached = following
        best.append(max([best[-1], *(replicas_that_fit(one, shape, wanted) for one, _ in reached)]))
    return best


@LAW
@given(stories(), some.integers(1, 4), some.integers(1, 4))
@example(FRAGMENTED, 4, 2)
@example(FRAGMENTED, 4, 1)
def test_no_sequence_of_moves_is_shorter_than_an_exact_plan(story: Story, cpus: int, wanted: int) -> None:
    found = cluster(2, story)
    what = asked(str(cpus))
    answer = fit(found, FitQuestion("default/new", what, wanted), trials=TRIALS)
    best = best_of_all_sequences(found, what.shape.pod, wanted)
    assert answer.fits_now == best[0]
    for moves, most in enumerate(best):
        if moves < len(answer.plan.moves):
            assert most < answer.fits_after
    if answer.plan.is_exact and len(answer.plan.moves) <= MOST:
        assert answer.fits_after >= best[-1]


@LAW
@given(stories(), some.integers(1, 4), some.integers(1, 4))
@example(FRAGMENTED, 4, 2)
def test_every_move_is_admitted_by_a_plain_replay_and_so_are_the_replicas_then(
    story: Story, cpus: int, wanted: int
) -> None:
    found = cluster(2, story)
    answer = fit(found, FitQuestion("default/new", asked(str(cpus)), wanted), trials=TRIALS)
    replay(found, answer, asked(str(cpus)).shape.pod)


def replay(found: LiveCluster, answer: FleetFitDocument, shape: Pod) -> None:
    kubelets = [now.kubelet for now in found.cluster.now.values()]
    admitted = sum(len(one.node.active) for one in kubelets)
    places = {group.name: place for place, group in enumerate(found.cluster.groups)}
    pods = {one.uid: one.pod for on_node in found.pods.values() for one in on_node}
    for move in answer.plan.moves:
        source, target = places[move.source], places[move.target]
        kubelets[target], decided = admit(kubelets[target], pods[move.uid])
        assert decided.admitted
        kubelets[source] = kubelets[source].without([move.uid])
        assert sum(len(one.node.active) for one in kubelets) == admitted
    for name, count in answer.after.items():
        assert replicas_that_fit([kubelets[places[name]]], shape, count) == count


@LAW
@given(stories(), some.integers(1, 4), some.integers(1, 4), some.integers(0, 9))
@example(FRAGMENTED, 4, 1, 0)
@example(((1, 2), (1, 3), (2, 2)), 3, 4, 1)
@example(((1, 1), (2, 2)), 3, 5, 0)
@example(((2, 2), (0, 1), (0, 4)), 3, 5, 2)
def test_with_the_named_nodes_cordoned_as_many_fit_wherever_a_scheduler_puts_the_replacements(
    story: Story, cpus: int, wanted: int, seed: int
) -> None:
    pods = [pod(f"p{number}", f"n{place}", str(size), second=number) for number, (place, size) in enumerate(story)]
    found = live(node("n0"), node("n1"), node("n2"), *pods)
    answer = fit(found, FitQuestion("default/new", asked(str(cpus)), wanted), trials=TRIALS)
    nodes = Nodes(found.cluster)
    scheduler = Scheduler(nodes, Strategy(extender=True), seed)
    demands = {one.uid: one.asked for on_node in found.pods.values() for one in on_node}
    for move in answer.plan.moves:
        nodes.end(nodes.places[move.source], move.pod)
        for name, place in nodes.places.items():
            nodes.table.open[place] = name not in move.cordon
        landed = scheduler.choose(demands[move.uid]).node
        assert landed is not None
        assert nodes.begin(landed, move.pod, demands[move.uid], 0.0).admitted
    nodes.table.open[:] = True
    assert sum(room(nodes, place, asked(str(cpus)), wanted) for place in range(3)) >= answer.fits_after


def test_a_bounded_search_says_so_and_its_moves_are_admitted() -> None:
    found = cluster(2, FRAGMENTED)
    answer = fit(found, FitQuestion("default/new", asked("4"), 2), trials=1)
    assert not answer.plan.is_exact or answer.plan.at_least == len(answer.plan.moves)
    assert answer.fits_after > answer.fits_now
    replay(found, answer, asked("4").shape.pod)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"owner": "DaemonSet"}, "daemonset"),
        ({"owner": ""}, "no-controller"),
        ({"owner": "Node"}, "static"),
        ({"priority": 5}, "priority"),
        ({"topologySpreadConstraints": [{"maxSkew": 1, "topologyKey": "zone", "labelSelector": {}}]}, "not-simulated"),
    ],
)
def test_pods_that_a_drain_would_leave_alone_are_not_moved(change: dict[str, Any], reason: str) -> None:
    found = live(node("n0"), node("n1"), pod("p0", "n0", "2", **change), pod("p1", "n1", "2", second=1))
    answer = fit(found, FitQuestion("default/new", asked("4"), 3))
    assert answer.fixed == {reason: 1}
    assert all(move.uid != "uid-p0" for move in answer.plan.moves)


def test_only_pods_of_the_selector_are_moved_and_none_that_a_budget_protects() -> None:
    budget = {
        "kind": "PodDisruptionBudget",
        "metadata": {"name": "b", "namespace": "default"},
        "spec": {"selector": {"matchLabels": {"app": "p1"}}},
        "status": {"disruptionsAllowed": 0},
    }
    found = live(node("n0"), node("n1"), pod("p0", "n0", "2"), pod("p1", "n1", "2", second=1), budget)
    question = FitQuestion("default/new", asked("4"), 3)
    chosen = fit(found, replace(question, selector=PodSelector(None, requirements_of_text("app=p1"))))
    assert chosen.fixed == {"not-selected": 1, "disruption-budget": 1}
    assert not chosen.plan.moves


def test_causes_name_the_nodes_that_take_no_more() -> None:
    found = live(node("n0"), node("n1", unschedulable=True), node("n2", taints=[{"key": "x", "effect": "NoSchedule"}]))
    answer = fit(found, FitQuestion("default/new", asked("4"), 9))
    assert answer.now == {"n0": 1}
    assert [(one.text, one.nodes) for one in answer.causes] == [
        ("cordoned", ["n1"]),
        ("taints, node selector or node affinity", ["n2"]),
        ("too little free cpu", ["n0"]),
    ]


def test_replicas_that_repel_one_another_fit_once_a_node_and_move_nothing() -> None:
    term = PodAffinityTerm(PodSelector(None, (Requirement("app", Operator.IN, ("new",)),)), "kubernetes.io/hostname")
    repelling = PodRelations("default", (("app", "new"),), anti_affinity=(term,))
    what = replace(asked("1"), relations=repelling)
    answer = fit(live(node("n0"), node("n1"), pod("p0", "n0", "2")), FitQuestion("default/new", what, 3))
    assert answer.now == {"n0": 1, "n1": 1}
    assert {one.text for one in answer.causes} == {"affinity to pods or spread constraints"}
    assert (answer.plan.moves, answer.plan.is_exact) == ([], False)


def test_soft_spreading_of_a_deployment_does_not_keep_pods_from_moving() -> None:
    soft = SpreadConstraint(PodSelector(None, ()), "kubernetes.io/hostname", 3, is_required=False)
    what = replace(asked("4"), relations=PodRelations("default", spread=(soft,)))
    answer = fit(cluster(2, FRAGMENTED), FitQuestion("default/new", what, 1))
    assert (answer.fits_now, len(answer.plan.moves), answer.fits_after) == (0, 1, 1)


@pytest.mark.parametrize(("replicas", "count"), [(None, 1), (5, 5)])
@pytest.mark.parametrize("kind", ["apps/v1\nkind: Deployment", "argoproj.io/v1alpha1\nkind: Rollout"])
def test_a_workload_that_is_scaled_to_0_is_asked_about_by_its_template(
    tmp_path: Path, kind: str, replicas: int | None, count: int
) -> None:
    file = tmp_path / "web.yaml"
    template = "{spec: {containers: [{name: c, resources: {limits: {cpu: 4, memory: 1Gi}}}]}}"
    file.write_text(f"apiVersion: {kind}\nmetadata: {{name: web}}\nspec: {{replicas: 0, template: {template}}}\n")
    found = fit_question((str(file),), replicas, "", moves=False)
    assert (found.name, found.replicas) == ("default/web", count)
    assert found.asked.shape.pod.containers[0].limits["cpu"].milli == 4000


def test_a_workload_that_is_scaled_to_0_is_no_second_kind_of_pods(tmp_path: Path) -> None:
    file = tmp_path / "web.yaml"
    file.write_text(
        "\n---\n".join(
            f"kind: Deployment\nmetadata: {{name: {name}}}\n"
            f"spec: {{replicas: {replicas}, template: {{spec: {{containers: [{{name: {name}}}]}}}}}}"
            for name, replicas in (("idle", 0), ("web", 3))
        )
    )
    found = fit_question((str(file),), None, "", moves=False)
    assert (found.name, found.replicas) == ("default/web", 3)
