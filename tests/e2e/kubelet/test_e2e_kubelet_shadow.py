"""A shadow beside real kubelets agrees with every decision: ``make e2e-shadow``.

Pods come and go at random and without a pause, the kubelet is killed and starts again, once with another policy.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import subprocess
import sys
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from tests.e2e.containerd.runtime import Runtime
from tests.e2e.kubelet.apiserver import PODS, APIServer
from tests.e2e.kubelet.arrival import remove_pods
from tests.e2e.kubelet.cases import WHOLE, Case, Wants, cases, pod_of
from tests.e2e.kubelet.decided import KubeletOf, Played, Playing
from tests.e2e.kubelet.kubelet import Kubelet, kubelet_on
from tests.e2e.kubelet.patience import until
from tests.e2e.kubelet.shadowing import ShadowProcess, shadowed

CHANGES = int(os.environ.get("MOORING_E2E_SHADOW_PODS") or 12)
SEED = int(os.environ.get("MOORING_E2E_SHADOW_SEED") or 1)
CASES = cases() if WHOLE else [case for case in cases() if case.name in {"restricted", "uncore", "restricted-older"}]
BATCH = 3
"""Pods that are created at once."""


def wants(case: Case, number: int, chance: random.Random) -> dict[str, Any]:
    """Return a pod that is exclusive, wide, shared or too large."""
    cpu = chance.choice([str(case.own), "1", "2", str(case.wide), "1500m", "1000"])
    made = pod_of(f"pod-{number}", Wants("app", cpu, "64Mi"))
    return {**made, "spec": {**made["spec"], "nodeName": case.name}}


@contextlib.contextmanager
def node_of(
    case: Case, api: APIServer, node: Runtime, program: Path, machine: Path, policies: Mapping[str, Any]
) -> Iterator[Kubelet]:
    found = {**policies, **case.reservations}
    with kubelet_on(node, program, case.name, found, machine=machine, kubeconfig=api.kubeconfig) as kubelet:
        until(lambda: api.has_node(case.name), "the node is registered")
        yield kubelet


def has_judged(shadow: ShadowProcess, wanted: int) -> bool:
    return shadow.decided("admitted", "refused") >= wanted


def churn(api: APIServer, case: Case, shadow: ShadowProcess, chance: random.Random, begun: int) -> int:
    """Create and delete pods; return how many were created."""
    for number in range(begun, begun + CHANGES, BATCH):
        for one in range(number, number + BATCH):
            api.create_pod(wants(case, one, chance))
        there = api.pods()
        for pod in chance.sample(there, min(len(there), 2)):
            api.delete(f"{PODS}/{pod['metadata']['name']}")
        until(partial(has_judged, shadow, number + BATCH - 4), "most pods are judged", seconds=40)
    return begun + CHANGES


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_shadow_agrees_with_a_real_kubelet(
    case: Case, api: APIServer, kubelet_of: KubeletOf, playing: Playing, played: Played, tmp_path: Path
) -> None:
    if case.missing:
        pytest.skip(f"e2e kubelet: {case.missing}")
    machine, program, chance = played(case), kubelet_of(case.older), random.Random(SEED)  # noqa: S311 - no secret
    options = ["--kubelet-version", case.older] if case.older else []
    with playing() as node, contextlib.ExitStack() as stack:
        with node_of(case, api, node, program, machine, case.policies) as kubelet:
            shadow = stack.enter_context(shadowed(api, kubelet, machine, tmp_path / "shadow", *options))
            made = churn(api, case, shadow, chance, 0)
        with node_of(case, api, node, program, machine, case.policies) as kubelet:  # it was killed
            until(lambda: shadow.decided("restarted") == 1, "the restart is judged")
            churn(api, case, shadow, chance, made)
            remove_pods(api)
    found = shadow.document
    assert (found["differs"], found["differences"]) == (0, []), "\n".join(shadow.lines)
    assert found["unknown"] <= found["agreed"] // 10, "\n".join(shadow.lines)
    assert found["agreed"] >= CHANGES
    for recording in sorted(shadow.kept.glob("recording-*.jsonl")):
        replayed = subprocess.run(
            [sys.executable, "-m", "mooring", "replay", str(recording), "--check"], capture_output=True, check=False
        )
        assert replayed.returncode == 0, replayed.stdout.decode()


def test_a_kubelet_with_another_policy_than_it_is_said_to_have_is_caught(
    api: APIServer, kubelet_of: KubeletOf, playing: Playing, played: Played, tmp_path: Path
) -> None:
    case = CASES[0]
    machine = played(case)
    with playing() as node, node_of(case, api, node, kubelet_of(""), machine, case.policies) as kubelet:
        said = json.loads(kubelet.configuration.read_text(encoding="utf-8"))
        said["cpuManagerPolicyOptions"] = {"distribute-cpus-across-numa": "true"}
        said["topologyManagerPolicy"] = "none"
        other = tmp_path / "other.json"
        other.write_text(json.dumps(said), encoding="utf-8")
        with shadowed(api, kubelet, machine, tmp_path / "shadow", config=other) as shadow:
            made = pod_of("wide", Wants("app", str(case.wide), "64Mi"))
            api.create_pod({**made, "spec": {**made["spec"], "nodeName": case.name}})
            until(lambda: shadow.decided("admitted", "refused") == 1, "the pod is judged")
        remove_pods(api)
    [difference] = shadow.document["differences"]
    assert difference["pod"] == "default/wide"
    [bundle] = sorted(shadow.kept.glob("difference-*"))
    replayed = subprocess.run(
        [sys.executable, "-m", "mooring", "replay", str(bundle / "scenario.jsonl"), "--check"],
        capture_output=True,
        check=False,
    )
    assert replayed.returncode == 1, replayed.stdout.decode()
