"""Where containers run, in one form: as the OCI runtime was told, and as ``mooring plan`` says."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

from tests.cli.command import mooring
from tests.e2e.containerd.cri import MESSAGES, STATES
from tests.e2e.containerd.runtime import Runtime
from tests.e2e.containerd.wrapper import asked

from mooring.engine.core.cpuset import CPUSet

Placements: TypeAlias = Mapping[str, tuple[str, str]]
"""CPU list and list of memory nodes by ``POD/CONTAINER``; empty means any."""


@dataclass(frozen=True, slots=True)
class Seen:
    """A container as the runtime lists it."""

    id: str
    uid: str
    """Of the pod."""
    place: str
    """``POD/CONTAINER``."""
    state: str


@dataclass(frozen=True, slots=True)
class Plan:
    """What ``mooring plan`` says."""

    placements: Placements
    refused: Mapping[str, tuple[str, str]]
    """Reason and message by pod."""
    cpu_state: str
    memory_state: str


def containers(node: Runtime) -> list[Seen]:
    """Return all containers of a runtime, those that have ended too."""
    pods = {
        pod.id: pod.metadata
        for pod in node.cri.call("ListPodSandbox", MESSAGES["Empty"](), "ListPodSandboxResponse").items
    }
    found = node.cri.call("ListContainers", MESSAGES["Empty"](), "ListContainersResponse").containers
    return [
        Seen(one.id, pods[one.pod_sandbox_id].uid, _place(pods[one.pod_sandbox_id], one), STATES[one.state])
        for one in found
        if one.pod_sandbox_id in pods
    ]


def given(node: Runtime) -> Placements:
    """Return the cpuset that the OCI runtime was told last of every container; what an update leaves out stays."""
    last: dict[str, tuple[str, str]] = {}
    for line in asked(node.folder):
        if line.verb in ("create", "update"):
            cpus, mems = last.get(line.id, ("", ""))
            last[line.id] = _canonical(line.cpus) or cpus, _canonical(line.mems) or mems
    return {one.place: last[one.id] for one in containers(node) if one.id in last}


def planned(folder: Path, machine: str, config: Path, pods: Sequence[Mapping[str, Any]], version: str = "") -> Plan:
    """Ask ``mooring plan`` about pods as the API server has them.

    Args:
        folder: gets files; one for each question.
        machine: for ``--machine``.
        config: the kubelet's file.
        pods: in the order in which they arrived.
        version: of the kubelet; empty for the newest.
    """
    folder.mkdir(exist_ok=True)
    listed = folder / "pods.json"
    listed.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": list(pods)}), encoding="utf-8")
    state = folder / "state"
    words: tuple[str | Path, ...] = (
        "-f",
        listed,
        "--machine",
        machine,
        "--config",
        config,
        "--save-state",
        state,
        "-o",
        "json",
    )
    if version:
        words = (*words, "--kubelet-version", version)
    answered = mooring("plan", *words)
    assert answered.code in (0, 1), answered.err
    document = answered.document
    assert "startError" not in document, document
    placements = placements_of(document, "containers")
    refused = {pod["name"]: (pod["reason"], pod["message"]) for pod in document["pods"] if not pod["admitted"]}
    return Plan(placements, refused, *(_text(state / f"{one}_manager_state") for one in ("cpu", "memory")))


def placements_of(document: Mapping[str, Any], member: str) -> Placements:
    """Return where the containers of admitted pods go as a document of Mooring says.

    Args:
        document: with pods and a shared pool.
        member: of its pods that has the placements.
    """
    pool = document["sharedPool"]
    return {
        f"{pod['name']}/{container}": (_canonical(place["cpus"] or pool), _canonical(place["mems"]))
        for pod in document["pods"]
        if pod["admitted"]
        for container, place in pod[member].items()
    }


def _text(path: Path) -> str:
    return path.read_text(encoding="utf-8") if path.exists() else ""


def _place(pod: Any, container: Any) -> str:
    return f"{pod.name}/{container.metadata.name}"


def _canonical(listed: str) -> str:
    return str(CPUSet.parse(listed)) if listed else ""
