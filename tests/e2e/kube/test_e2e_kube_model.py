"""The scheduler that fleet simulates against the real one: for every pod the same feasible nodes and the same scores.

The real scheduler says its scores in its log. The model gets each pod in the order in which the real one tried it, and
then the node that the real one chose: ties are broken at random there. Results of an earlier pod are not reused for an
equal one (gate OpportunisticBatching), because then nothing is scored.
"""

from __future__ import annotations

import csv
import os
import random
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
from tests.e2e.kube.conftest import Parts, ready_nodes
from tests.e2e.kube.kinds import group_of, names
from tests.e2e.kube.plane import scheduler
from tests.e2e.kube.pods import random_pod
from tests.e2e.kubelet.apiserver import APIServer
from tests.e2e.kubelet.patience import until

from mooring.cluster.play.nodes import STORAGE, node_object
from mooring.fleet.cluster import Member, PodDemand, asked_of, offered
from mooring.fleet.scheduler.strategy import Strategy, scores, strategy_of
from mooring.fleet.scheduler.strategy import feasible as passing
from mooring.fleet.scheduler.table import NodeTable
from mooring.inputs.pods.pod_relations import ZONE, pod_relations
from mooring.inputs.pods.pods import pod_from_object
from mooring.inputs.pods.scheduling_fields import Taint, scheduling_fields

FULL = os.environ.get("MOORING_E2E_KUBE") == "full"
NODES, PODS = 100, 2000 if FULL else 250
TRACE = Path(__file__).parents[4] / "shared" / "traces" / "openb_pod_list_default.csv"
SEED = 5
RELATED = 1000 if FULL else 200
APPS = ("web", "db", "cache", "queue")
KEYS = ("kubernetes.io/hostname", ZONE, "pool")
FLAGS = ("--vmodule=schedule_one=10", "--feature-gates=OpportunisticBatching=false")
TRIED = re.compile(r'"Attempting to schedule pod" pod="default/([^"]+)"')
SCORED = re.compile(r'"Calculated node\'s final score for pod" pod="default/([^"]+)" node="([^"]+)" score=(\d+)')
TAINTS = (Taint("team", "a"), Taint("team", "b", "PreferNoSchedule"), Taint("old", "", "PreferNoSchedule"))


Bodies = dict[str, dict[str, Any]]


def test_every_score_of_the_real_scheduler_is_the_models(api: APIServer, parts: Parts, folder: Path) -> None:
    draw = random.Random(SEED)  # noqa: S311 - no secret
    table = a_cluster(api, draw)
    pods = named((*traced_pods(draw), *drawn_pods(draw)))
    compared = played(table, pods, Strategy(), api, parts, folder)
    assert compared["pods"] > len(pods) // 2
    assert compared["nowhere"] > 0


def test_scores_of_pods_that_others_decide_about_are_the_models(api: APIServer, parts: Parts, folder: Path) -> None:
    draw = random.Random(SEED)  # noqa: S311 - no secret
    table = a_cluster(api, draw)
    compared = played(table, named(related_pods(draw)), Strategy(), api, parts, folder)
    assert compared["pods"] > RELATED // 4
    assert compared["nowhere"] > 0


def test_scores_on_a_shape_are_the_models(api: APIServer, parts: Parts, folder: Path) -> None:
    draw = random.Random(SEED)  # noqa: S311 - no secret
    table = a_cluster(api, draw)
    strategy = strategy_of("RequestedToCapacityRatio(10:1,40:3,60:9,100:4)")
    points = [{"utilization": percent, "score": score} for percent, score in strategy.shape]
    weights = [{"name": "cpu", "weight": 1}, {"name": "memory", "weight": 1}]
    shaped = {"type": strategy.scoring.value, "resources": weights, "requestedToCapacityRatio": {"shape": points}}
    arguments = {"name": "NodeResourcesFit", "args": {"scoringStrategy": shaped}}
    compared = played(table, named(drawn_pods(draw)), strategy, api, parts, folder, [arguments])
    assert compared["scores"] > PODS


def played(
    table: NodeTable,
    bodies: Bodies,
    strategy: Strategy,
    api: APIServer,
    parts: Parts,
    folder: Path,
    plugins: Sequence[Mapping[str, Any]] = (),
) -> dict[str, int]:
    """Give pods to the real scheduler, and compare its log with the model."""
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(api.create_pod, bodies.values()))
    with scheduler(parts.scheduler, folder, api.kubeconfig, words=FLAGS, plugins=plugins) as real:
        until(lambda: all(was_tried(pod) for pod in api.pods()), "every pod was tried")
    pods = {one["metadata"]["name"]: one for one in api.pods()}
    compared = compare(table, said_scores(real.log), bodies, pods, strategy)
    print(f"\n{compared['scores']} scores of {compared['pods']} pods are equal; {compared['nowhere']} pods fit nowhere")
    return compared


def named(bodies: Iterable[dict[str, Any]]) -> Bodies:
    return {body["metadata"]["name"]: body for body in bodies}


def a_cluster(api: APIServer, draw: random.Random) -> NodeTable:
    """Make nodes with labels and taints, and the model's table of the same."""
    members, offers = [], []
    for number, (name, kind) in enumerate(names(NODES)):
        zone = draw.choice(("east", "west", "north"))
        # Some nodes have no zone.
        labels = {"pool": draw.choice("abc"), "rank": str(number % 7), **({ZONE: zone} if number % 9 else {})}
        taints = tuple(one for one in TAINTS if draw.random() < 0.15)
        member = Member(name, group_of(name, kind, labels=labels, taints=taints))
        kubelet = member.group.started()
        body = node_object(member, kubelet, "model", "10.0.0.1")
        api.post("api/v1/nodes", body)
        # The API server taints a new node as not ready, and no controller is there that takes that away.
        api.patch(f"api/v1/nodes/{name}", {"spec": body["spec"]})
        members.append(member)
        offers.append({**offered(kubelet), "ephemeral-storage": STORAGE})
    until(lambda: ready_nodes(api) == NODES, "all nodes are Ready")
    return NodeTable(members, offers)


def traced_pods(draw: random.Random) -> Iterator[dict[str, Any]]:
    """Yield pods of a production trace where it is beside the repository, half of all pods."""
    if not TRACE.exists():
        return
    with TRACE.open(encoding="utf-8", newline="") as table:
        rows = list(csv.DictReader(table))
    for number, row in enumerate(draw.sample(rows, PODS // 2)):
        body = random_pod(random.Random(0), f"trace-{number}")  # noqa: S311 - only its frame is used
        requests = {"cpu": f"{row['cpu_milli']}m", "memory": f"{row['memory_mib']}Mi"}
        body["spec"]["containers"] = [{"name": "main", "image": "none", "resources": {"requests": requests}}]
        body["spec"].pop("initContainers", None)
        body["spec"].pop("priorityClassName", None)
        yield body


def drawn_pods(draw: random.Random) -> Iterator[dict[str, Any]]:
    """Yield random pods with selectors, affinity and tolerations."""
    for number in range(PODS - PODS // 2):
        body = random_pod(draw, f"drawn-{number}")
        spec = body["spec"]
        spec.pop("priorityClassName", None)
        spec["tolerations"] = [
            toleration
            for toleration in (
                {"key": "team", "value": "a", "operator": "Equal"},
                {"key": "old", "operator": "Exists"},
                {"key": "team", "operator": "Exists", "effect": "PreferNoSchedule"},
            )
            if draw.random() < 0.3
        ]
        if draw.random() < 0.2:
            spec["nodeSelector"] = {"pool": draw.choice("aabbccd")}  # no node has d
        if draw.random() < 0.4:
            spec["affinity"] = {"nodeAffinity": affinity(draw)}
        yield body


def related_pods(draw: random.Random) -> Iterator[dict[str, Any]]:
    """Yield small pods with affinity and anti-affinity to one another, and with spread constraints."""
    for number in range(RELATED):
        body = random_pod(random.Random(number), f"related-{number}")  # noqa: S311 - only its frame is used
        spec = body["spec"]
        amounts = {"cpu": draw.choice(("100m", "1", "3")), "memory": draw.choice(("64Mi", "1Gi"))}
        spec["containers"] = [{"name": "main", "image": "none", "resources": {"requests": amounts}}]
        for left_out in ("initContainers", "priorityClassName", "tolerations"):
            spec.pop(left_out, None)
        body["metadata"]["labels"] = {"app": draw.choice(APPS), "tier": draw.choice("xy")}
        if draw.random() < 0.2:
            spec["nodeSelector"] = {"pool": draw.choice("ab")}
        spec["affinity"] = {}
        for kind in ("podAffinity", "podAntiAffinity"):
            if draw.random() < 0.4:
                spec["affinity"][kind] = pod_affinity(draw, required=0.25 if kind == "podAffinity" else 0.35)
        if draw.random() < 0.5:
            spec["topologySpreadConstraints"] = [constraint(draw, key) for key in draw.sample(KEYS, draw.randint(1, 2))]
        yield body


def pod_affinity(draw: random.Random, required: float) -> dict[str, Any]:
    wished = [{"weight": draw.randint(1, 100), "podAffinityTerm": term(draw)} for _ in range(draw.randint(1, 2))]
    found: dict[str, Any] = {"preferredDuringSchedulingIgnoredDuringExecution": wished}
    if draw.random() < required:
        found["requiredDuringSchedulingIgnoredDuringExecution"] = [term(draw) for _ in range(draw.randint(1, 2))]
    return found


def term(draw: random.Random) -> dict[str, Any]:
    return {"topologyKey": draw.choice(KEYS), **selected(draw)}


def constraint(draw: random.Random, key: str) -> dict[str, Any]:
    when = draw.choice(("DoNotSchedule", "ScheduleAnyway", "ScheduleAnyway"))
    domains = {"minDomains": draw.randint(1, 4)} if when == "DoNotSchedule" and draw.random() < 0.4 else {}
    policies = {
        name: draw.choice(("Honor", "Ignore"))
        for name in ("nodeAffinityPolicy", "nodeTaintsPolicy")
        if draw.random() < 0.4
    }
    found = {"topologyKey": key, "maxSkew": draw.randint(1, 4), "whenUnsatisfiable": when}
    return {**found, **selected(draw), **domains, **policies}


def selected(draw: random.Random) -> dict[str, Any]:
    apps = draw.sample(APPS, draw.randint(1, 3))
    found: dict[str, Any] = {"labelSelector": {"matchExpressions": [{"key": "app", "operator": "In", "values": apps}]}}
    if draw.random() < 0.2:
        found["labelSelector"]["matchLabels"] = {"tier": draw.choice("xy")}
    elif draw.random() < 0.2:
        found["matchLabelKeys"] = ["tier"]
    return found


def affinity(draw: random.Random) -> dict[str, Any]:
    wished = [
        {"weight": draw.randint(1, 100), "preference": {"matchExpressions": [expression(draw)]}}
        for _ in range(draw.randint(1, 3))
    ]
    required = {"nodeSelectorTerms": [{"matchExpressions": [expression(draw)]} for _ in range(draw.randint(1, 2))]}
    return {
        "preferredDuringSchedulingIgnoredDuringExecution": wished,
        **({"requiredDuringSchedulingIgnoredDuringExecution": required} if draw.random() < 0.5 else {}),
    }


def expression(draw: random.Random) -> dict[str, Any]:
    return draw.choice(
        (
            {"key": "pool", "operator": "In", "values": draw.sample("abc", 2)},
            {"key": "pool", "operator": "NotIn", "values": ["a"]},
            {"key": "rank", "operator": "Gt", "values": [str(draw.randint(0, 6))]},
            {"key": "rank", "operator": "Lt", "values": [str(draw.randint(0, 6))]},
            {"key": "rank", "operator": "Exists"},
            {"key": "gone", "operator": "DoesNotExist"},
        )
    )


def was_tried(pod: Mapping[str, Any]) -> bool:
    if pod["spec"].get("nodeName"):
        return True
    said = [one for one in pod.get("status", {}).get("conditions", ()) if one["type"] == "PodScheduled"]
    return any(one["status"] == "False" for one in said)


def said_scores(log: Path) -> dict[str, dict[str, int]]:
    """Return the scores that the scheduler said, pod by pod in the order of its tries; the last try counts.

    Where one node alone is feasible nothing is scored.
    """
    found: dict[str, dict[str, int]] = {}
    with log.open(encoding="utf-8", errors="replace") as lines:
        for line in lines:
            if tried := TRIED.search(line):
                found.pop(tried[1], None)
                found[tried[1]] = {}
            elif said := SCORED.search(line):
                found[said[1]][said[2]] = int(said[3])
    return found


def compare(
    table: NodeTable,
    said: Mapping[str, Mapping[str, int]],
    bodies: Mapping[str, dict[str, Any]],
    pods: Mapping[str, dict[str, Any]],
    strategy: Strategy,
) -> dict[str, int]:
    """Play the pods to the model in the order of the log; every difference fails."""
    places = {member.name: place for place, member in enumerate(table.members)}
    counted = {"pods": 0, "scores": 0, "nowhere": 0}
    for name, scored in said.items():
        asked = asked_by(bodies[name])
        feasible = np.flatnonzero(passing(table, asked))
        chosen = pods[name]["spec"].get("nodeName", "")
        if scored:
            points = scores(table, asked, feasible, strategy)
            model = {table.members[int(node)].name: int(found) for node, found in zip(feasible, points, strict=True)}
            assert model == dict(scored), (name, bodies[name]["spec"], differences(model, scored))
            assert scored[chosen] == max(scored.values())
        else:
            assert [table.members[int(node)].name for node in feasible] == [chosen] * bool(chosen), name
        if chosen:
            table.add(places[chosen], asked)
        counted["pods"] += bool(chosen)
        counted["nowhere"] += not chosen
        counted["scores"] += len(scored)
    return counted


def differences(model: Mapping[str, int], real: Mapping[str, int]) -> dict[str, tuple[int | None, int | None]]:
    every = {*model, *real}
    return {name: (model.get(name), real.get(name)) for name in sorted(every) if model.get(name) != real.get(name)}


def asked_by(body: dict[str, Any]) -> PodDemand:
    pod = pod_from_object(body, source="test")
    return asked_of(pod, scheduling_fields(body["spec"]), pod_relations(body))
