"""Drains and upgrades of live clusters: which pods find a place, which do not, and why."""

from __future__ import annotations

from typing import Any

import pytest
from tests.fleet.live_clusters import ALIGNED, live, node, pod

from mooring.engine.core.errors import InputError
from mooring.engine.releases.catalog import release_of
from mooring.fleet.cluster import NodeRestart
from mooring.fleet.relocation.drain import drain, is_clean, upgrade
from mooring.fleet.scheduler.strategy import Strategy
from mooring.inputs.configuration.kubelet_config import kubelet_config

EXACT, BLIND = Strategy(extender=True), Strategy()


def outcomes(found: Any) -> dict[str, tuple[str, str]]:
    return {one.pod.partition("/")[2]: (one.outcome, one.target) for one in found.pods}


def test_pods_of_a_drained_node_find_places_on_others_and_daemonsets_stay() -> None:
    pods = pod("p0", "n0", "4"), pod("p1", "n0", "2", second=1), pod("d", "n0", "1", owner="DaemonSet")
    answer = drain(live(node("n0"), node("n1"), *pods), ["n0"], EXACT)
    assert outcomes(answer) == {
        "p0": ("moves", "n1"),
        "p1": ("moves", "n1"),
        "d": ("stays", ""),
    }
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
    budget = {
        "kind": "PodDisruptionBudget",
        "metadata": {"namespace": "default"},
        "spec": {"selector": {"matchExpressions": [{"key": "app", "operator": "In", "values": ["held"]}]}},
        "status": {"disruptionsAllowed": 0},
    }
    found = live(node("n0"), node("n1"), pod("alone", "n0", "1", owner=""), pod("held", "n0", "1", second=1), budget)
    answer = drain(found, ["n0"], EXACT)
    assert outcomes(answer) == {"alone": ("lost", ""), "held": ("held", "")}
    assert not is_clean(answer.pods)


def test_a_node_that_is_not_there_is_named_with_the_nearest() -> None:
    with pytest.raises(InputError, match=r"a node 'node-0'.*"):
        drain(live(node("node-1")), ["node-0"], EXACT)


def test_an_upgrade_without_a_difference_lets_all_pods_run_on() -> None:
    found = live(node("n0"), node("n1"), pod("p0", "n0", "4"), pod("p1", "n1", "2", second=1))
    answer = upgrade(found, ["n0", "n1"], NodeRestart(release=release_of("1.37")), EXACT)
    assert [(one.name, one.turn, one.drained, dict(one.refused)) for one in answer.nodes] == [
        ("n0", 1, "", {}),
        ("n1", 2, "", {}),
    ]
    assert not answer.pods


def test_nodes_whose_kubelet_would_not_start_are_drained_one_after_another() -> None:
    config = kubelet_config({**ALIGNED, "reservedSystemCPUs": "0-1"}, source="new")
    found = live(node("n0"), node("n1"), pod("p0", "n0", "3"), pod("p1", "n0", "2", second=1))
    answer = upgrade(found, ["n0", "n1"], NodeRestart(config=config), EXACT)
    assert "reserved cpus" in answer.nodes[0].drained
    # The pods of n0 go to n1, whose kubelet then does not start on its state files either.
    assert [one.source for one in answer.pods] == ["n0", "n0", "n1", "n1"]
    assert is_clean(answer.pods)


def test_a_restart_that_refuses_pods_names_them_and_their_new_place() -> None:
    loose = {**ALIGNED, "topologyManagerPolicy": "none", "cpuManagerPolicy": "none", "reservedSystemCPUs": ""}
    found = live(node("n0"), node("n1"), pod("p0", "n0", "5"), pod("p1", "n1", "1", second=1), config=loose)
    config = kubelet_config({**loose, "systemReserved": {"cpu": "4"}}, source="new")
    answer = upgrade(found, ["n0"], NodeRestart(config=config), EXACT)
    assert set(answer.nodes[0].refused) == {"default/p0"}
    assert outcomes(answer)["p0"] == ("moves", "n1")


def test_nodes_of_one_turn_take_no_pods_of_one_another() -> None:
    config = kubelet_config({**ALIGNED, "reservedSystemCPUs": "0-1"}, source="new")
    found = live(node("n0"), node("n1"), pod("p0", "n0", "3"))
    together = upgrade(found, ["n0", "n1"], NodeRestart(config=config), EXACT, unavailable=2)
    assert outcomes(together)["p0"] == ("waits", "")
    assert {one.turn for one in together.nodes} == {1}
