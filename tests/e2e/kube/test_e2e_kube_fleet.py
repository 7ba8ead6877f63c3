"""One sequence of pods through the real scheduler and played nodes, and through ``mooring fleet simulate``.

Each pod must come to the same node, and be refused there for the same cause. Pods arrive and leave one after another,
so that the order in which scheduler and kubelets see them is given; the work is drawn until no tie of scores decides
anything, because the real scheduler breaks ties at random, and until every pod finds a node, because the moment at
which it tries waiting pods again is its own.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import pytest
from tests.e2e.kube.conftest import Parts
from tests.e2e.kube.kinds import KINDS, Kind, group_of
from tests.e2e.kube.nodes import nodes_playing
from tests.e2e.kube.plane import scheduler
from tests.e2e.kube.pods import random_pod
from tests.e2e.kubelet.apiserver import PODS, APIServer
from tests.e2e.kubelet.patience import until

from mooring.cluster.play.nodes import PlayedNode
from mooring.engine.kubelet.admit import load_of, shape_of
from mooring.engine.kubelet.events import Admit, EventResult, Living
from mooring.explanations.why import check, predicted

ARRIVALS = 120
FIRST_SEEDS = (7, 9, 20, 30, 40) if os.environ.get("MOORING_E2E_KUBE") == "full" else (7,)
"""From which on a sequence without ties is looked for."""
NODES = {f"node-{number}": replace(kind, huge=0) for number, kind in enumerate(KINDS)}
FULL = 0.6
"""Part of all CPUs that the pods that are there request."""
WHOLE_CLUSTER = 1086
"""CPUs of all nodes together, about."""
WEIGHTS = (5, 19, 33, 47, 61, 75, 89, 100)
"""Of a pod's wishes for nodes: far apart, so that few scores are equal."""
FLAGS = ("--feature-gates=OpportunisticBatching=false",)


@dataclass(frozen=True, slots=True)
class Step:
    """One thing that happens."""

    pod: Mapping[str, Any] | None
    """That is created; None where one leaves."""
    name: str


class CodedNode(PlayedNode):
    """A played node that keeps the code of each refusal."""

    codes: ClassVar[dict[str, str]] = {}

    def happens(self, event: Living) -> EventResult:
        before = self.kubelet.settled()
        result = super().happens(event)
        if isinstance(event, Admit) and not result.admissions[0].admitted:
            shape = shape_of(event.pod)
            said = predicted(before, shape.pod)[1]
            said = said if not said.admitted else check(shape, load_of(before), before.settings)
            self.codes[event.pod.name] = said.code
        return result


def drawn(seed: int) -> list[Step]:
    """Return a sequence of arrivals and departures."""
    draw, steps = random.Random(seed), list[Step]()  # noqa: S311 - no secret
    there: dict[str, float] = {}
    for number in range(ARRIVALS):
        body = random_pod(draw, f"pod-{number}")
        spec = body["spec"]
        spec.pop("priorityClassName", None)
        for container in (*spec["containers"], *spec.get("initContainers", ())):
            container["resources"].get("limits", {}).pop("hugepages-2Mi", None)
        wished = [
            {
                "weight": weight,
                "preference": {"matchExpressions": [{"key": "rank", "operator": "In", "values": [rank]}]},
            }
            for weight, rank in zip(draw.sample(WEIGHTS, len(NODES)), "01234567", strict=True)
        ]
        spec["affinity"] = {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": wished}}
        name = str(body["metadata"]["name"])
        there[name] = cpus(body)
        steps.append(Step(body, name))
        while sum(there.values()) > FULL * WHOLE_CLUSTER:
            leaving = draw.choice(sorted(there))
            del there[leaving]
            steps.append(Step(None, leaving))
    return steps


def cpus(body: Mapping[str, Any]) -> float:
    """Return the CPUs that a pod requests."""
    found = 0.0
    for container in body["spec"]["containers"]:
        resources = container["resources"]
        text = str({**resources.get("limits", {}), **resources.get("requests", {})}.get("cpu", "0"))
        found += float(text[:-1]) / 1000 if text.endswith("m") else float(text)
    return found


def cluster_document() -> dict[str, Any]:
    """Return the nodes as ``mooring fleet`` reads them."""
    groups = [
        {"name": name, "count": 1, "labels": {"rank": name.removeprefix("node-")}, **described(kind)}
        for name, kind in NODES.items()
    ]
    return {"apiVersion": "mooring/v1alpha1", "kind": "Cluster", "metadata": {"name": "played"}, "groups": groups}


def described(kind: Kind) -> dict[str, Any]:
    group = group_of("described", kind)
    config = group.config
    reserved = [{"numaNode": one.numa_node, "limits": dict(one.limits)} for one in config.reserved_memory]
    devices = {
        resource: [{"id": one.id, "numa": list(one.numa or ())} for one in found]
        for resource, found in group.devices.items()
    }
    return {
        "machine": kind.machine,
        "kubelet": {
            "cpuManagerPolicy": "static",
            "cpuManagerPolicyOptions": dict(kind.options),
            "memoryManagerPolicy": config.memory_manager_policy,
            **({"reservedMemory": reserved} if reserved else {}),
            "topologyManagerPolicy": kind.topology,
            "topologyManagerScope": kind.scope,
            "topologyManagerPolicyOptions": dict(kind.topology_options),
            "reservedSystemCPUs": kind.reserved,
            "kubeReserved": {"memory": "1Gi"},
            "evictionHard": {},
            "maxPods": 250,
        },
        **({"devices": {"devices": devices}} if devices else {}),
    }


def simulated(folder: Path, steps: list[Step], seed: int) -> dict[str, tuple[str, str, str]]:
    """Return fate, node and code of each pod as ``mooring fleet simulate`` says."""
    leaves = {step.name: at for at, step in enumerate(steps) if step.pod is None}
    lines = [
        {"pod": step.pod, "at": at, **({"leaves": leaves[step.name]} if step.name in leaves else {})}
        for at, step in enumerate(steps)
        if step.pod is not None
    ]
    (folder / "cluster.yaml").write_text(json.dumps(cluster_document()), encoding="utf-8")
    (folder / "work.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines), encoding="utf-8")
    words = ["--cluster", "cluster.yaml", "-f", "work.jsonl", "--seed", str(seed), "-o", "json"]
    done = subprocess.run(
        [sys.executable, "-m", "mooring", "fleet", "simulate", *words],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode in (0, 1), done.stderr
    return {
        one["name"].removeprefix("default/"): (one["fate"], one["node"], one["code"])
        for one in json.loads(done.stdout)["records"]
    }


def without_ties(folder: Path, first_seed: int) -> tuple[list[Step], dict[str, tuple[str, str, str]]]:
    """Return a sequence in which every pod finds a node, whatever breaks ties, and what comes of it.

    Args:
        folder: for the files of the simulation.
        first_seed: of the sequences that are tried.
    """
    for seed in range(first_seed, first_seed + 40):
        steps = drawn(seed)
        first = simulated(folder, steps, 0)
        refused = Counter(code for fate, _, code in first.values() if fate == "refused")
        waits = [name for name, (_, node, _) in first.items() if not node]
        if waits or len(refused) < 2 or refused.total() < 5:
            continue
        if all(simulated(folder, steps, other) == first for other in (1, 2, 3)):
            return steps, first
    raise AssertionError("no sequence without ties was drawn")


@pytest.mark.parametrize("first_seed", FIRST_SEEDS)
def test_the_same_pods_are_refused_by_the_same_nodes_for_the_same_causes(
    api: APIServer, parts: Parts, folder: Path, first_seed: int
) -> None:
    steps, said = without_ties(folder, first_seed)
    codes = CodedNode.codes
    codes.clear()
    groups = [group_of(name, kind, labels={"rank": name.removeprefix("node-")}) for name, kind in NODES.items()]
    with (
        nodes_playing(api, groups, kind=CodedNode) as nodes,
        scheduler(parts.scheduler, folder, api.kubeconfig, words=FLAGS),
    ):
        found: dict[str, str] = {}
        for step in steps:
            if step.pod is None:
                api.delete(f"{PODS}/{step.name}")
                until(lambda: api.pod(step.name) is None, f"{step.name} is gone")  # noqa: B023 - called at once
                continue
            api.create_pod(dict(step.pod))
            until(lambda: phase(api, step.name) in ("Running", "Failed"), f"{step.name} is decided")  # noqa: B023
            found[step.name] = str((api.pod(step.name) or {})["spec"]["nodeName"])
    assert found == {name: node for name, (_, node, _) in said.items()}
    refused = {name: (node, code) for name, (fate, node, code) in said.items() if fate == "refused"}
    assert {one.pod: (one.node, codes[one.pod]) for one in nodes.refusals} == refused
    print(f"\n{len(found)} pods on the same nodes; refused {Counter(codes.values())}")


def phase(api: APIServer, name: str) -> str:
    return str((api.pod(name) or {}).get("status", {}).get("phase", ""))
