"""What fits into a live cluster: the plan of moves against all sequences of moves of plain kubelets."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as some
from tests.cli.command import mooring
from tests.documents.validation import complaints
from tests.fleet.clusters import asked
from tests.fleet.live_clusters import ALIGNED, MACHINE, budget, live, node, objects, pod

from mooring.cli.output import json_text
from mooring.engine.core.errors import InputError
from mooring.engine.core.pod import Pod
from mooring.engine.kubelet.admit import admit
from mooring.engine.kubelet.events import Restart
from mooring.engine.kubelet.kubelet import Kubelet
from mooring.engine.releases.catalog import release_of
from mooring.fleet.event_files import load_cluster
from mooring.fleet.live_cluster import LiveCluster, live_cluster
from mooring.fleet.nodes import Nodes
from mooring.fleet.relocation.answer import FitQuestion, drain, fit, is_clean, upgrade
from mooring.fleet.scheduler.scheduler import Scheduler
from mooring.fleet.scheduler.strategy import Strategy
from mooring.inputs.configuration.kubelet_config import kubelet_config
from mooring.inputs.machines.archive import ArchiveTree
from mooring.inputs.pods.pod_relations import PodAffinityTerm, PodRelations, PodSelector, SpreadConstraint
from mooring.inputs.pods.scheduling_fields import Operator, Requirement, scheduling_fields
from mooring.published.cluster_objects import ABOUT, ClusterArchive, ClusterObjects, load_objects, objects_of_archive

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
def test_no_sequence_of_moves_is_shorter_than_an_exact_plan_whose_moves_are_admitted_by_a_plain_replay(
    story: Story, cpus: int, wanted: int
) -> None:
    found = cluster(2, story)
    what = asked(str(cpus))
    answer = fit(found, FitQuestion("default/new", what, wanted), trials=TRIALS)
    replay(found, answer, what.shape.pod)
    best = best_of_all_sequences(found, what.shape.pod, wanted)
    assert answer.fits_now == best[0]
    for moves, most in enumerate(best):
        if moves < len(answer.plan.moves):
            assert most < answer.fits_after
    if answer.plan.is_exact and len(answer.plan.moves) <= MOST:
        assert answer.fits_after >= best[-1]


def replay(found: LiveCluster, answer: Any, shape: Pod) -> None:
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
    left = [one.kubelet for one in nodes.at]
    assert replicas_that_fit(left, asked(str(cpus)).shape.pod, wanted) >= answer.fits_after


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
    budgets = budget("p1"), budget("p0", allowed=1)
    found = live(node("n0"), node("n1"), pod("p0", "n0", "2"), pod("p1", "n1", "2", second=1), *budgets)
    question = FitQuestion("default/new", asked("4"), 3)
    chosen = fit(found, replace(question, selector=PodSelector(None, (Requirement("app", Operator.IN, ("p1",)),))))
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


def asked_about(folder: Path, manifest: str, *words: str) -> Any:
    """Ask the verb about a manifest and a cluster of one node."""
    (folder / "web.yaml").write_text(manifest)
    (folder / "kubelet.json").write_text(json.dumps(ALIGNED))
    (folder / "cluster.json").write_text(json.dumps({"kind": "List", "items": [node("n0")]}))
    files = ("--cluster", folder / "cluster.json", "--config", folder / "kubelet.json", "-f", folder / "web.yaml")
    return mooring("fleet", "fit", *files, "--machine", MACHINE, "--no-moves", "-o", "json", *words).document


@pytest.mark.parametrize(("words", "wanted", "fits"), [((), 1, 1), (("--replicas", "5"), 5, 1)])
@pytest.mark.parametrize("kind", ["apps/v1\nkind: Deployment", "argoproj.io/v1alpha1\nkind: Rollout"])
def test_a_workload_of_0_is_asked_about_by_its_template(
    tmp_path: Path, kind: str, words: tuple[str, ...], wanted: int, fits: int
) -> None:
    template = "{spec: {containers: [{name: c, resources: {limits: {cpu: 4, memory: 1Gi}}}]}}"
    manifest = f"apiVersion: {kind}\nmetadata: {{name: web}}\nspec: {{replicas: 0, template: {template}}}\n"
    found = asked_about(tmp_path, manifest, *words)
    assert (found["of"], found["replicas"], found["fitsNow"]) == ("default/web", wanted, fits)


def test_a_workload_that_is_scaled_to_0_is_no_second_kind_of_pods(tmp_path: Path) -> None:
    texts = (
        f"kind: Deployment\nmetadata: {{name: {name}}}\n"
        f"spec: {{replicas: {replicas}, template: {{spec: {{containers: [{{name: {name}}}]}}}}}}"
        for name, replicas in (("idle", 0), ("web", 3))
    )
    found = asked_about(tmp_path, "\n---\n".join(texts))
    assert (found["of"], found["replicas"]) == ("default/web", 3)


# Drains and upgrades of live clusters: which pods find a place, which do not, and why.


EXACT, BLIND = Strategy(extender=True), Strategy()


def outcomes(found: Any) -> dict[str, tuple[str, str]]:
    return {one.pod.partition("/")[2]: (one.outcome, one.target) for one in found.pods}


def test_pods_of_a_drained_node_find_places_on_others_and_daemonsets_stay() -> None:
    pods = pod("p0", "n0", "4"), pod("p1", "n0", "2", second=1), pod("d", "n0", "1", owner="DaemonSet")
    answer = drain(live(node("n0"), node("n1"), *pods), ["n0"], EXACT)
    assert outcomes(answer) == {"p0": ("moves", "n1"), "p1": ("moves", "n1"), "d": ("stays", "")}
    assert is_clean(answer.pods)


def test_a_pod_that_fits_by_sums_but_on_no_numa_node_waits_for_that_cause() -> None:
    # n1 has three free CPUs: one on one NUMA node, two on the other.
    pods = pod("p0", "n0", "3"), pod("p1", "n1", "2"), pod("p2", "n1", "2", second=1)
    [waits] = drain(live(node("n0"), node("n1"), *pods), ["n0"], EXACT).pods
    assert [(cause.code or cause.text, cause.nodes) for cause in waits.causes] == [
        ("MOOR-103", ["n1"]),
        ("drained", ["n0"]),
    ]


def test_without_the_extender_a_kubelet_refuses_what_another_node_would_admit() -> None:
    found = live(
        node("n0"),
        node("n1"),
        node("n2", labels={"small": "yes"}),
        pod("p0", "n0", "3"),
        *(pod(f"a{number}", "n1", "2", second=number) for number in (1, 2)),
        *(pod(f"b{number}", "n2", cpus, second=number) for number, cpus in ((3, "3"), (4, "1"))),
    )
    assert outcomes(drain(found, ["n0"], EXACT))["p0"] == ("moves", "n2")
    placed = {seed: outcomes(drain(found, ["n0"], BLIND, seed))["p0"] for seed in range(6)}
    assert ("refused", "n1") in placed.values()


def test_pods_without_a_controller_and_pods_of_a_budget_that_allows_nothing_are_failures() -> None:
    held = budget("")
    held["spec"]["selector"] = {"matchExpressions": [{"key": "app", "operator": "In", "values": ["held"]}]}
    found = live(node("n0"), node("n1"), pod("alone", "n0", "1", owner=""), pod("held", "n0", "1", second=1), held)
    answer = drain(found, ["n0"], EXACT)
    assert outcomes(answer) == {"alone": ("lost", ""), "held": ("held", "")}
    assert not is_clean(answer.pods)


def test_a_node_that_is_not_there_is_named_with_the_nearest() -> None:
    with pytest.raises(InputError, match=r"a node 'node-0'.*"):
        drain(live(node("node-1")), ["node-0"], EXACT)


def test_an_upgrade_without_a_difference_lets_all_pods_run_on() -> None:
    found = live(node("n0"), node("n1"), pod("p0", "n0", "4"), pod("p1", "n1", "2", second=1))
    answer = upgrade(found, ["n0", "n1"], Restart(release=release_of("1.37")), EXACT)
    assert [(one.name, one.turn, one.drained, dict(one.refused)) for one in answer.nodes] == [
        ("n0", 1, "", {}),
        ("n1", 2, "", {}),
    ]
    assert not answer.pods


def test_nodes_whose_kubelet_would_not_start_are_drained_one_after_another() -> None:
    config = kubelet_config({**ALIGNED, "reservedSystemCPUs": "0-1"}, source="new")
    found = live(node("n0"), node("n1"), pod("p0", "n0", "3"), pod("p1", "n0", "2", second=1))
    answer = upgrade(found, ["n0", "n1"], Restart(config), EXACT)
    assert "reserved cpus" in answer.nodes[0].drained
    # The pods of n0 go to n1, whose kubelet then does not start on its state files either.
    assert [one.source for one in answer.pods] == ["n0", "n0", "n1", "n1"]
    assert is_clean(answer.pods)


def test_a_restart_that_refuses_pods_names_them_and_their_new_place() -> None:
    loose = {**ALIGNED, "topologyManagerPolicy": "none", "cpuManagerPolicy": "none", "reservedSystemCPUs": ""}
    found = live(node("n0"), node("n1"), pod("p0", "n0", "5"), pod("p1", "n1", "1", second=1), config=loose)
    config = kubelet_config({**loose, "systemReserved": {"cpu": "4"}}, source="new")
    answer = upgrade(found, ["n0"], Restart(config), EXACT)
    assert set(answer.nodes[0].refused) == {"default/p0"}
    assert outcomes(answer)["p0"] == ("moves", "n1")


def test_nodes_of_one_turn_take_no_pods_of_one_another() -> None:
    config = kubelet_config({**ALIGNED, "reservedSystemCPUs": "0-1"}, source="new")
    found = live(node("n0"), node("n1"), pod("p0", "n0", "3"))
    together = upgrade(found, ["n0", "n1"], Restart(config), EXACT, unavailable=2)
    assert outcomes(together)["p0"] == ("waits", "")
    assert {one.turn for one in together.nodes} == {1}


# Archives of clusters: the same answers as from the objects, the same bytes, and nothing that is secret.


WHEN = "2026-11-01T12:00:00Z"
HIDDEN = "hunter2"


def cluster_archive() -> ClusterObjects:
    secretive = pod("p0", "n0", "2", nodeSelector={"kubernetes.io/hostname": "n0"}, serviceAccountName=HIDDEN)
    secretive["metadata"]["annotations"] = {"token": HIDDEN, "mooring/spread-group": "web"}
    [container] = secretive["spec"]["containers"]
    container |= {
        "env": [{"name": "PASSWORD", "value": HIDDEN}],
        "args": [HIDDEN],
        "image": HIDDEN,
        "command": [HIDDEN],
        "restartPolicyRules": [{"action": "RestartAllContainers", "exitCodes": {"values": [HIDDEN]}}],
        "volumeMounts": [{"name": HIDDEN, "bindMountOptions": ["noexec"]}],
    }
    secretive["spec"]["volumes"] = [{"name": "data", "secret": {"secretName": HIDDEN}}]
    secretive["status"] |= {"podIP": HIDDEN, "message": HIDDEN}
    told = node("n0", taints=[{"key": "x", "effect": "PreferNoSchedule"}])
    told["metadata"]["annotations"] = {"note": HIDDEN}
    told["status"] |= {
        "declaredFeatures": ["VolumeBindMountOptions"],
        "addresses": [{"address": HIDDEN}],
        "images": [{"names": [HIDDEN]}],
    }
    noted = budget("p1")
    noted["metadata"]["annotations"] = {"note": HIDDEN}
    found = objects(told, node("n1"), secretive, pod("p1", "n1", "3", second=1), pod("p2", "n1", "1", second=2), noted)
    configz = {name: {"kubeletconfig": {**ALIGNED, "tlsPrivateKeyFile": HIDDEN}} for name in ("n0", "n1")}
    return ClusterObjects(found.source, found.found, configz)


def written(folder: Path, packed: bytes) -> str:
    path = folder / "cluster.tar.gz"
    path.write_bytes(packed)
    return str(path)


def answer(found: ClusterObjects) -> dict[str, Any]:
    live = live_cluster(found, [MACHINE])
    document = fit(live, FitQuestion("default/new", asked("4"), 4))
    return {name: getattr(document, name) for name in ("now", "causes", "after", "plan", "fixed", "assumed")}


def test_an_archive_gives_the_answers_of_the_objects_that_it_was_made_of(tmp_path: Path) -> None:
    read = load_objects(written(tmp_path, ClusterArchive(cluster_archive(), WHEN).packed()))
    assert read.captured == WHEN
    assert answer(read) == answer(cluster_archive())
    both = read, cluster_archive()
    needed = [[len(scheduling_fields(one["spec"]).features) for one in found.of("Pod")] for found in both]
    assert needed == [[2, 0, 0]] * 2
    assert read.of("Node")[0]["status"]["declaredFeatures"] == ["VolumeBindMountOptions"]


def test_no_value_that_is_not_on_a_list_gets_into_an_archive(tmp_path: Path) -> None:
    read = load_objects(written(tmp_path, ClusterArchive(cluster_archive(), WHEN).packed()))
    text = json.dumps([read.found, read.configz])
    assert HIDDEN not in text
    assert "spread-group" in text


def test_the_order_of_objects_does_not_change_the_bytes() -> None:
    found = cluster_archive()
    turned = ClusterObjects(found.source, {kind: items[::-1] for kind, items in found.found.items()}, found.configz)
    assert ClusterArchive(found, WHEN).packed() == ClusterArchive(turned, WHEN).packed()


def test_what_an_archive_says_of_itself_is_what_its_schema_says() -> None:
    about = ClusterArchive(cluster_archive(), WHEN).about
    assert complaints("ClusterArchive", json.loads(json_text(about))) == []
    assert {part.name: part.objects for part in about.parts if part.objects} == {
        "Node": 2,
        "Pod": 3,
        "PodDisruptionBudget": 1,
        "configz": 2,
    }


def test_what_could_not_be_read_is_said_again_by_every_answer(tmp_path: Path) -> None:
    found = cluster_archive()
    less = ClusterObjects(found.source, found.found, found.configz, unread=("nodestates cannot be read",))
    read = load_objects(written(tmp_path, ClusterArchive(less, WHEN).packed()))
    assert live_cluster(read, [MACHINE]).cluster.findings[0] == "nodestates cannot be read"


def test_simulations_take_an_archive_with_its_nodes_as_they_are(tmp_path: Path) -> None:
    path = written(tmp_path, ClusterArchive(cluster_archive(), WHEN).packed())
    found = load_cluster(path, machines=(MACHINE,)).cluster
    assert [len(now.pods) for now in found.now.values()] == [1, 2]


@pytest.mark.parametrize(
    ("files", "said"),
    [
        ({}, f"is not an archive of a cluster: {ABOUT} is missing"),
        ({ABOUT: b"{}"}, "None of None is not ClusterArchive"),
        ({ABOUT: b"["}, ABOUT),
        ({ABOUT: b"1"}, "must be a mapping"),
        ({ABOUT: b'{"kind": "ClusterArchive", "apiVersion": "mooring/v1alpha1"}'}, "has no Node object"),
    ],
)
def test_what_is_no_archive_is_one_line_that_names_the_file(files: dict[str, bytes], said: str) -> None:
    with pytest.raises(InputError) as raised:
        objects_of_archive(ArchiveTree("cluster.tar.gz", files))
    assert said in str(raised.value)
    assert "cluster.tar.gz" in str(raised.value)
