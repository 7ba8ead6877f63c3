"""A real kubelet with pinned pods hands them over to the agent, and gets them back: as ``mooring migrate`` says before.

The steps are those that it prints, with the files and programs of a test in place of the node's.
"""

from __future__ import annotations

import contextlib
import json
import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.cli.command import mooring
from tests.e2e.containerd.runtime import Runtime
from tests.e2e.kubelet.apiserver import APIServer
from tests.e2e.kubelet.arrival import arrive
from tests.e2e.kubelet.cases import CASES, Case, story
from tests.e2e.kubelet.decided import Played, Playing, until_same
from tests.e2e.kubelet.kubelet import Kubelet, kubelet_on
from tests.e2e.kubelet.patience import until
from tests.e2e.kubelet.pinning import agent_beside
from tests.e2e.kubelet.placements import Placements, given

from mooring.engine.core.cpuset import CPUSet

STATES = ("cpu_manager_state", "memory_manager_state")
WITHOUT = {"cpuManagerPolicy": "none", "memoryManagerPolicy": "None"}


@dataclass(frozen=True, slots=True)
class Node:
    """A runtime whose kubelet gets other policies."""

    runtime: Runtime
    api: APIServer
    case: Case
    machine: Path
    program: Path

    @contextlib.contextmanager
    def kubelet(self, policies: Mapping[str, Any]) -> Iterator[Kubelet]:
        fields = {**policies, **self.case.reservations}
        with kubelet_on(
            self.runtime, self.program, self.case.name, fields, machine=self.machine, kubeconfig=self.api.kubeconfig
        ) as kubelet:
            yield kubelet


def said_before(folder: Path, node: Node, kubelet: Kubelet, pods: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Ask ``mooring migrate`` about a copy of a kubelet's files."""
    state, listed = folder / "state", folder / "pods.json"
    state.mkdir()
    for name in STATES:
        if (kubelet.root / name).exists():
            shutil.copy(kubelet.root / name, state)
    listed.write_text(json.dumps({"apiVersion": "v1", "kind": "PodList", "items": list(pods)}), encoding="utf-8")
    about = ("--active", listed, "--machine", node.machine, "--config", kubelet.configuration, "--state", state)
    answered = mooring("migrate", *about, "-o", "json")
    assert answered.code == 0, answered.out
    document: dict[str, Any] = answered.document
    return document


def placements(document: Mapping[str, Any]) -> Placements:
    """Return where containers run afterwards."""
    return {
        f"{one['name']}/{one['container']}": (_canonical(one["runsOn"]), _canonical(one["after"]["mems"]))
        for one in document["containers"]
    }


def step(document: Mapping[str, Any], title: str) -> Mapping[str, Any]:
    [found] = [one for one in document["steps"] if one["title"] == title]
    return dict(found)


@pytest.mark.parametrize("case", CASES[:3], ids=lambda case: case.name)
def test_a_kubelet_hands_its_pods_over_and_gets_them_back_as_was_said_before(
    api: APIServer, kube: Any, playing: Playing, played: Played, case: Case, tmp_path: Path
) -> None:
    with playing() as runtime:
        node = Node(runtime, api, case, played(case), kube.kubelet)
        with node.kubelet(case.policies) as before:
            until(lambda: api.has_node(case.name), "the node is registered")
            arrive(api, runtime, case.name, story(case), before.refused)
            pods = [pod for pod in api.pods() if not before.refused(pod["metadata"]["uid"])]
            until(
                lambda: all(_runs(pod) for pod in api.pods() if not before.refused(pod["metadata"]["uid"])), "all run"
            )
            pods = [pod for pod in api.pods() if not before.refused(pod["metadata"]["uid"])]
            document = said_before(tmp_path, node, before, pods)
            until_same(runtime, {**given(runtime), **_pinned(document, "before")})
            original = given(runtime)
        wanted = placements(document)
        assert original.items() >= _pinned(document, "before").items(), "what is said of now is so"

        # The state files must go, as is said.
        disabling = step(document, "Disable the kubelet's own managers")
        [left] = [line for line in disabling["outcome"] if "would not start" in line]
        words = left.split("would not start: ")[1].split(", please")[0].replace('"', '\\"')
        with contextlib.suppress(AssertionError), node.kubelet(_without(case)):
            until(lambda: words in before.log, "the kubelet ends")
        assert words in before.log
        for name in STATES:
            (before.root / name).unlink(missing_ok=True)

        with node.kubelet(_without(case)) as beside:
            [(_, text)] = step(document, "Install the agent, and do not start it")["files"].items()
            policies = next(iter(yaml.safe_load_all(text)))
            assert given(runtime) == original, "a kubelet without managers leaves running containers alone"
            with agent_beside(runtime, beside, replace(case, policies=policies), node.machine, api=api) as both:
                # Memory nodes are decided anew in the order in which containerd lists the pods, which is any.
                cpus = {place: cpus for place, (cpus, _) in wanted.items()}
                with contextlib.suppress(AssertionError):
                    until(lambda: _cpus(runtime, cpus) == cpus, "the agent has placed all", seconds=60.0)
                assert _cpus(runtime, cpus) == cpus
                exclusive = CPUSet.parse(both.agent.status()["cpus"]["exclusive"])
                [line] = step(document, "Verify, and let pods come")["outcome"]
                assert line == f"mooring status prints ready, and CPUs {exclusive} as exclusive."
            left_behind = [*both.agent.words(), "--leave"]
            done = subprocess.run(left_behind, capture_output=True, text=True, check=False, timeout=60)
            assert done.returncode == 0, done.stderr

        for name in STATES:
            (before.root / name).unlink(missing_ok=True)
            if (tmp_path / "state" / name).exists():
                shutil.copy(tmp_path / "state" / name, before.root)
        with node.kubelet(case.policies) as again:
            pinned = {place: cpus for place, (cpus, _) in _pinned(document, "before").items()}
            with contextlib.suppress(AssertionError):
                until(lambda: _cpus(runtime, pinned) == pinned, "the kubelet pins its pods again", seconds=60.0)
            assert _cpus(runtime, pinned) == pinned
            assert not [pod for pod in pods if again.refused(pod["metadata"]["uid"])]


def _canonical(listed: str) -> str:
    return str(CPUSet.parse(listed)) if listed else ""


def _runs(pod: Mapping[str, Any]) -> bool:
    return bool(pod["status"].get("phase") == "Running")


def _without(case: Case) -> Mapping[str, Any]:
    return {name: value for name, value in {**case.policies, **WITHOUT}.items() if name != "cpuManagerPolicyOptions"}


def _pinned(document: Mapping[str, Any], member: str) -> Placements:
    """Return the containers with CPUs of their own."""
    return {
        f"{one['name']}/{one['container']}": (_canonical(one[member]["cpus"]), _canonical(one[member]["mems"]))
        for one in document["containers"]
        if one[member]["cpus"]
    }


def _cpus(node: Runtime, places: Mapping[str, str]) -> dict[str, str]:
    return {place: cpus for place, (cpus, _) in given(node).items() if place in places}
