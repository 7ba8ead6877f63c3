"""Preemption as fleet simulates it against the real scheduler: the same victims, on one of the best nodes.

Low pods of ten priorities fill the nodes; then urgent pods come one by one. No kubelet is there, so that victims end at
once (a grace period of 0) and no pod has a start time: pods of one node have different priorities.
Where several nodes cost the same, the real scheduler takes any of them.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
from tests.e2e.kube.conftest import Parts
from tests.e2e.kube.plane import scheduler
from tests.e2e.kube.pods import pod
from tests.e2e.kube.test_e2e_kube_model import FULL, SEED, a_cluster, asked_by
from tests.e2e.kubelet.apiserver import APIServer
from tests.e2e.kubelet.patience import until

from mooring.fleet.nodes import PlacedPod
from mooring.fleet.scheduler.scheduler import candidates, cheapest, possible_nodes
from mooring.fleet.scheduler.strategy import feasible
from mooring.fleet.scheduler.table import NodeTable

PRIORITIES = range(10)
URGENT_PODS = 60 if FULL else 15
CLASSES = "apis/scheduling.k8s.io/v1/priorityclasses"
EVICTED = re.compile(r'"Preemptor Pod preempted victim Pod" preemptor="default/([^"]+)" victim="default/([^"]+)"')


def test_victims_are_those_of_the_real_scheduler(api: APIServer, parts: Parts, folder: Path) -> None:
    draw = random.Random(SEED)  # noqa: S311 - no secret
    table = a_cluster(api, draw)
    for value in (*PRIORITIES, 1000):
        content = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "value": value}
        with suppress(AssertionError):
            api.post(CLASSES, {**content, "metadata": {"name": f"level-{value}"}})
    placed = filled(api, table, draw)
    preempted = free = 0
    with scheduler(parts.scheduler, folder, api.kubeconfig, words=("--v=3",)) as real:
        for number in range(URGENT_PODS):
            name = f"urgent-{number}"
            amounts = {"cpu": str(draw.choice((2, 8, 20))), "memory": draw.choice(("1Gi", "8Gi"))}
            body = low_pod(name, amounts, 1000)
            api.create_pod(body)
            until(lambda name=name: bool(node_of(api, name)), f"{name} is bound")  # type: ignore[misc]
            victims = {victim for preemptor, victim in EVICTED.findall(real.log.read_text()) if preemptor == name}
            node = next(place for place, one in enumerate(table.members) if one.name == node_of(api, name))
            asked = asked_by(body)
            fitting = feasible(table, asked)
            if fitting.any():
                free += 1
                assert fitting[node]
                assert not victims
            else:
                preempted += 1
                best = cheapest(list(candidates(table, placed, asked, possible_nodes(table, asked))))
                assert (node, victims) in [(place, {victim.name for victim in found}) for place, found in best]
            for victim in victims:
                table.remove(node, placed[node].pop(victim).asked)
            table.add(node, asked)
            placed[node][name] = PlacedPod(name, asked, "", 0.0)
    print(f"\n{preempted} pods preempted others as in the model; {free} found a node without that")
    assert preempted > URGENT_PODS // 4


def filled(api: APIServer, table: NodeTable, draw: random.Random) -> list[dict[str, PlacedPod]]:
    """Bind low pods to the nodes, past every scheduler, until few CPUs are free."""
    placed: list[dict[str, PlacedPod]] = [{} for _ in table.members]
    for node, member in enumerate(table.members):
        for name, body in low_pods(draw, node, int(table.row(table.offered, "cpu")[node]) // 1000):
            asked = asked_by(body)
            if table.lacking(asked, node):
                continue
            body["spec"]["nodeName"] = member.name
            api.create_pod(body)
            table.add(node, asked)
            placed[node][name] = PlacedPod(name, asked, "", 0.0)
    assert np.all(table.used[table.resources["pods"]] > 0)
    return placed


def low_pods(draw: random.Random, node: int, cpus: int) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield pods of different priorities that together ask for all CPUs of a node but one."""
    shares = [*sorted(draw.sample(range(1, cpus - 1), min(len(PRIORITIES), cpus - 1) - 1)), cpus - 1]
    sizes = [end - start for start, end in zip([0, *shares], shares, strict=False)]
    for size, priority in zip(sizes, draw.sample(PRIORITIES, len(sizes)), strict=True):
        name = f"low-{node}-{priority}"
        yield name, low_pod(name, {"cpu": str(size), "memory": "64Mi"}, priority)


def low_pod(name: str, amounts: dict[str, str], priority: int) -> dict[str, Any]:
    body = pod(name, {"requests": amounts})
    body["spec"] |= {"terminationGracePeriodSeconds": 0, "priorityClassName": f"level-{priority}", "priority": priority}
    return body


def node_of(api: APIServer, name: str) -> str:
    return str(api.get(f"api/v1/namespaces/default/pods/{name}")["spec"].get("nodeName", ""))
