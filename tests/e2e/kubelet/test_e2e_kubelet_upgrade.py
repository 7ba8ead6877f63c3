"""A real kubelet v1.34.4 becomes v1.37.1 on its own files while pods run: as ``mooring upgrade`` says before."""

from __future__ import annotations

import contextlib
import json
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from tests.cli.command import mooring
from tests.e2e.containerd.runtime import Runtime
from tests.e2e.kubelet.apiserver import APIServer
from tests.e2e.kubelet.arrival import arrive
from tests.e2e.kubelet.cases import OLDER, OLDER_VERSION, Case, story
from tests.e2e.kubelet.decided import KubeletOf, Played, Playing
from tests.e2e.kubelet.kubelet import Kubelet, kubelet_on
from tests.e2e.kubelet.patience import until
from tests.e2e.kubelet.placements import given, placements_of

NEWER_VERSION = "v1.37.1"
STATES = ("cpu", "memory")


@dataclass(frozen=True, slots=True)
class Node:
    """A runtime and its kubelet's settings; which kubelet runs there changes."""

    runtime: Runtime
    api: APIServer
    case: Case
    machine: Path

    @contextlib.contextmanager
    def kubelet(self, program: Path) -> Iterator[Kubelet]:
        policies = {**self.case.policies, **self.case.reservations}
        with kubelet_on(
            self.runtime, program, self.case.name, policies, machine=self.machine, kubeconfig=self.api.kubeconfig
        ) as kubelet:
            yield kubelet

    def arrive(self, kubelet: Kubelet) -> list[dict[str, Any]]:
        """Let the pods of the case arrive, no two in one second, and return them as the API server has them then.

        A kubelet that starts again admits its pods by the time of their creation, which has whole seconds.
        """
        for pod in story(self.case):
            until(partial(_is_after, datetime.now(UTC)), "another second has begun")
            arrive(self.api, self.runtime, self.case.name, [pod], kubelet.refused)
        until(lambda: all(self._is_reported(pod, kubelet) for pod in self.api.pods()), "the API server has all phases")
        return self.api.pods()

    def _is_reported(self, pod: Mapping[str, Any], kubelet: Kubelet) -> bool:
        wanted = "Failed" if kubelet.refused(pod["metadata"]["uid"]) else "Running"
        return bool(pod["status"].get("phase") == wanted)


def _is_after(begun: datetime) -> bool:
    return datetime.now(UTC).replace(microsecond=0) > begun


def predicted(folder: Path, node: Node, kubelet: Kubelet, pods: list[dict[str, Any]]) -> dict[str, Any]:
    """Ask ``mooring upgrade`` about a copy of a kubelet's files."""
    state, listed = folder / "state", folder / "pods.json"
    state.mkdir()
    for manager in STATES:
        if (file := kubelet.root / f"{manager}_manager_state").exists():
            shutil.copy(file, state)
    listed.write_text(json.dumps({"apiVersion": "v1", "kind": "PodList", "items": pods}), encoding="utf-8")
    about = ("--active", listed, "--machine", node.machine, "--config", kubelet.configuration, "--state", state)
    answered = mooring("upgrade", *about, "--kubelet-version", OLDER_VERSION, NEWER_VERSION, "-o", "json")
    assert answered.code in (0, 1), answered.err
    document: dict[str, Any] = answered.document
    return document


def _refused(kubelet: Kubelet, pods: Sequence[Mapping[str, Any]]) -> set[str]:
    return {pod["metadata"]["name"] for pod in pods if kubelet.refused(pod["metadata"]["uid"])}


def _until_settled(kubelet: Kubelet, document: Mapping[str, Any], placed: Callable[[], bool]) -> None:
    """Wait until files and runtime are as predicted, or for ever differ: the test then shows where."""
    wanted = [document[f"{manager}ManagerState"] for manager in STATES]
    with contextlib.suppress(AssertionError):
        until(
            lambda: [kubelet.state(manager) for manager in STATES] == wanted and placed(), "as predicted", seconds=60.0
        )


@pytest.mark.parametrize("case", OLDER, ids=lambda case: case.name)
def test_an_upgraded_kubelet_does_with_its_files_and_pods_what_was_said_before(
    api: APIServer, kubelet_of: KubeletOf, playing: Playing, played: Played, case: Case, tmp_path: Path
) -> None:
    if case.missing:
        pytest.skip(f"e2e kubelet: {case.missing}")
    with playing() as runtime:
        node = Node(runtime, api, case, played(case))
        with node.kubelet(kubelet_of(OLDER_VERSION)) as old:
            until(lambda: api.has_node(case.name), "the node is registered")
            pods = node.arrive(old)
            running = [pod for pod in pods if not old.refused(pod["metadata"]["uid"])]
            document = predicted(tmp_path, node, old, pods)
        assert document["startError"] is None
        asked = {pod["name"] for pod in document["pods"]}
        assert asked == {pod["metadata"]["name"] for pod in running}
        refused = {pod["name"]: (pod["reason"], pod["message"]) for pod in document["pods"] if not pod["admitted"]}
        wanted = placements_of(document, "after")
        with node.kubelet(kubelet_of("")) as new:
            _until_settled(new, document, lambda: given(runtime).items() >= wanted.items())
            assert {place: found for place, found in given(runtime).items() if place in wanted} == wanted
            assert _refused(new, running) == set(refused)
            for reason, message in refused.values():
                assert f'reason="{reason}"' in new.log
                assert message in new.log
            assert new.state("cpu") == document["cpuManagerState"]
            assert new.state("memory") == document["memoryManagerState"]
