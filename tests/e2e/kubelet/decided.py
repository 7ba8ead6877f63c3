"""What a kubelet that manages CPUs and memory itself made of the pods of a case."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

from tests.e2e.containerd.runtime import Runtime
from tests.e2e.kubelet.apiserver import APIServer
from tests.e2e.kubelet.arrival import arrive
from tests.e2e.kubelet.cases import Case, story
from tests.e2e.kubelet.kubelet import kubelet_on
from tests.e2e.kubelet.patience import until
from tests.e2e.kubelet.placements import Placements, Plan, given, planned

SETTLING = 60.0
"""Seconds in which the kubelet has told the runtime of the newest shared pool; it does so every second."""


@dataclass(frozen=True, slots=True)
class Decided:
    """A kubelet's decisions, and the plan for the same pods."""

    pods: Sequence[Mapping[str, Any]]
    """As the API server has them, in the order of their arrival."""
    placements: Placements
    refused: frozenset[str]
    """Names of pods."""
    cpu_state: str
    memory_state: str
    log: str
    plan: Plan


Playing: TypeAlias = Callable[[], AbstractContextManager[Runtime]]
"""Starts a containerd whose containers can be given any CPUs and memory nodes; a fixture."""
Played: TypeAlias = Callable[[Case], Path]
"""Returns the folder with the files of a case's machine; a fixture."""
KubeletOf: TypeAlias = Callable[[str], Path]
"""Returns the kubelet of a version, the newest for an empty text; a fixture."""
Deciding: TypeAlias = Callable[[Case], Decided]
"""Returns what a kubelet made of a case; a fixture."""


def decide(api: APIServer, node: Runtime, program: Path, case: Case, machine: Path, folder: Path) -> Decided:
    """Run the pods of a case on a kubelet with the case's policies.

    Args:
        api: with nothing in it.
        node: that plays machines.
        program: the kubelet.
        case: says what to play.
        machine: folder with its files.
        folder: empty, for files of the plan.
    """
    policies = {**case.policies, **case.reservations}
    with kubelet_on(node, program, case.name, policies, machine=machine, kubeconfig=api.kubeconfig) as kubelet:
        until(lambda: api.has_node(case.name), "the node is registered")
        pods = arrive(api, node, case.name, story(case), kubelet.refused)
        plan = planned(folder, str(machine), kubelet.configuration, pods, case.older)
        until_same(node, plan.placements)
        return Decided(
            pods,
            given(node),
            frozenset(pod["metadata"]["name"] for pod in pods if kubelet.refused(pod["metadata"]["uid"])),
            kubelet.state("cpu"),
            kubelet.state("memory") if plan.memory_state else "",
            kubelet.log,
            plan,
        )


def until_same(node: Runtime, wanted: Placements) -> None:
    """Wait until the runtime was told of these placements, or for ever differs: the test then shows where."""
    try:
        until(lambda: given(node) == wanted, "as wanted", seconds=SETTLING)
    except AssertionError:
        return
