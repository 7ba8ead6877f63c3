"""The whole agent in the guest with containerd and runc, and the same decisions asked of the engine here.

``make e2e-numa`` runs it. ``MOORING_E2E_NUMA=full`` has 30 exclusive pods and more, under both policies. Else there are
fewer, because an emulated guest takes five to ten seconds for each.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from tests.cli.command import mooring
from tests.e2e.guest.runner import Ran, Shape, e2e_guest, is_full, run, steps_of, why_not

SCENARIO = "agent"
SHAPE = Shape(node_memory=2048 if is_full() else 768)
"""The first node has the file system of the guest and a shim for each pod in it, besides the pods themselves."""
SHORT = {"shared": 3, "exclusive": 8, "churned": 2, "late": 1, "leaving": 2}
FULL = {"shared": 6, "exclusive": 30, "churned": 10, "late": 4, "leaving": 30}
POLICIES = ("restricted", "best-effort") if is_full() else ("restricted",)
SECONDS = 5400 if is_full() else 1200


@pytest.fixture(
    scope="module",
    params=[(edition, policy) for edition in e2e_guest().editions() for policy in POLICIES],
    ids="-".join,
)
def ran(request: pytest.FixtureRequest) -> Ran:
    edition, policy = request.param
    if why_not():
        pytest.skip(f"e2e-numa agent: {why_not()}")
    values = {"policy": policy, **(FULL if is_full() else SHORT)}
    try:
        return run(SCENARIO, SHAPE, edition=edition, containers=True, values=values, seconds=SECONDS)
    except e2e_guest().UnavailableError as why:
        pytest.skip(f"e2e-numa agent {edition}: {why}")


@pytest.mark.parametrize("step", list(steps_of(SCENARIO)))
def test_in_the_guest(ran: Ran, step: str) -> None:
    ran.check(step)


def test_the_guest_powered_off_by_itself(ran: Ran) -> None:
    assert ran.ended, ran.console[-3000:]


def test_the_first_pods_are_where_mooring_plan_says(ran: Ran, tmp_path: Path) -> None:
    filled, (machine, configuration) = only(ran, "filled"), written(ran, tmp_path)
    assert all("admit" in step for step in filled["order"])
    pods = tmp_path / "pods.json"
    pods.write_text(
        json.dumps({"apiVersion": "v1", "kind": "List", "items": [one["admit"] for one in filled["order"]]})
    )
    answered = mooring("plan", "-f", pods, "--machine", machine, "--config", configuration, "-o", "json", stdin=None)
    assert answered.code == 0, answered.err
    planned = {pod["uid"]: placement(pod) for pod in answered.document["pods"]}
    assert {uid: where for uid, where in planned.items() if where[0]} == filled["placed"]
    assert answered.document["sharedPool"] == filled["pool"]


def test_the_whole_play_ends_where_the_engine_here_ends(ran: Ran, tmp_path: Path) -> None:
    answers = replayed(ran, only(ran, "played")["order"], tmp_path)
    played = only(ran, "played")
    assert all(answer["admitted"] for step, answer in answers if "admit" in step)
    last: dict[str, list[str]] = {}
    for step, answer in answers:
        if "remove" in step:
            last.pop(step["remove"], None)
        elif placement(answer)[0]:
            last[step["admit"]["metadata"]["uid"]] = placement(answer)
    assert last == played["placed"]
    assert answers[-1][1]["sharedPool"] == played["pool"]


def test_the_refusal_is_the_engine_s_own_word_for_word(ran: Ran, tmp_path: Path) -> None:
    refused = only(ran, "refused")
    *_, (_, answer) = replayed(ran, [*only(ran, "filled")["order"], {"admit": refused["pod"]}], tmp_path)
    assert not answer["admitted"]
    assert f"{answer['reason']}: {answer['message']}" in refused["said"]


def only(ran: Ran, kind: str) -> Mapping[str, Any]:
    found = ran.told(kind)
    assert len(found) == 1, f"the guest did not come to it: {kind}"
    return found[0]


def placement(answer: Mapping[str, Any]) -> list[str]:
    """Return CPUs and memory nodes of a pod's only container."""
    container = answer["containers"]["app"]
    return [container["cpus"], container["mems"]]


def written(ran: Ran, folder: Path) -> tuple[Path, Path]:
    """Write the guest's machine and configuration for commands here."""
    told = only(ran, "machine")
    machine, configuration = folder / "machine.json", folder / "kubelet.json"
    machine.write_text(json.dumps({"name": "guest", "info": told["info"]}))
    configuration.write_text(json.dumps(told["kubelet"]))
    return machine, configuration


def replayed(
    ran: Ran, order: Sequence[Mapping[str, Any]], folder: Path
) -> list[tuple[Mapping[str, Any], Mapping[str, Any]]]:
    """Play the guest's decisions on its machine here; return each with its answer."""
    told = only(ran, "machine")
    machines = [{"name": "guest", "info": told["info"]}]
    scenario = {"id": "guest", "machine": "guest", "machines": machines, "kubelet": told["kubelet"], "steps": order}
    path = folder / "scenario.jsonl"
    path.write_text(json.dumps(scenario) + "\n")
    answered = mooring("replay", path, "-o", "jsonl", stdin=None)
    assert answered.code == 0, answered.err
    return list(zip(order, answered.document["expect"]["steps"], strict=True))
