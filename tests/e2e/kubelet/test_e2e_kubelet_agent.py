"""The agent beside a kubelet with policy none places containers where a kubelet that manages them places them."""

from __future__ import annotations

import json
from functools import partial
from typing import Any

import pytest
from tests.e2e.containerd.runtime import Runtime
from tests.e2e.kubelet.apiserver import APIServer
from tests.e2e.kubelet.arrival import arrive, stays
from tests.e2e.kubelet.cases import Case, cases, story
from tests.e2e.kubelet.decided import Deciding, Played, Playing, until_same
from tests.e2e.kubelet.patience import until
from tests.e2e.kubelet.pinning import pinned
from tests.e2e.kubelet.placements import containers, given


@pytest.mark.parametrize("case", cases(), ids=lambda case: case.name)
def test_pods_of_the_api_server_get_the_places_that_the_kubelet_gave_them(
    case: Case, deciding: Deciding, api: APIServer, kube: Any, playing: Playing, played: Played
) -> None:
    decided = deciding(case)
    with playing() as node, pinned(node, kube.kubelet, case, played(case), api=api) as both:
        pods = arrive(api, node, case.name, story(case), both.says_no)
        until_same(node, decided.placements)
        assert given(node) == decided.placements
        assert {pod["metadata"]["name"] for pod in pods if both.says_no(pod["metadata"]["uid"])} == decided.refused


def test_static_pods_get_the_places_that_the_kubelet_gave_pods(
    deciding: Deciding, kube: Any, playing: Playing, played: Played
) -> None:
    case = cases()[0]
    decided = deciding(case)
    wanted = {_static(place, case.name): there for place, there in decided.placements.items()}
    with playing() as node, pinned(node, kube.kubelet, case, played(case)) as both:
        for pod in story(case):
            name = pod["metadata"]["name"]
            if name in decided.refused:
                # A static pod that is refused stays on its node, and this test is about those that have a place.
                continue
            fresh = both.kubelet.folder / f"{name}.json"
            fresh.write_text(json.dumps(pod), encoding="utf-8")
            fresh.rename(both.kubelet.manifests / fresh.name)
            expected = {_static(f"{name}/{one['name']}", case.name) for one in stays(pod)}
            until(partial(_run, node, expected), f"static pod {name} runs")
        until_same(node, wanted)
        assert given(node) == wanted


def _run(node: Runtime, places: set[str]) -> bool:
    return places <= {one.place for one in containers(node) if one.state == "RUNNING"}


def _static(place: str, node: str) -> str:
    pod, _, container = place.partition("/")
    return f"{pod}-{node}/{container}"
