"""What ``mooring status`` and ``mooring show --live`` say of containers that are resized."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from msgspec import to_builtins
from tests.agent.outside.nodes import MACHINE, STATIC, Told, pod, snapshot_of
from tests.cli.command import mooring
from tests.documents.validation import complaints

from mooring.agent.status.api import status_pages
from mooring.agent.status.document import status_document
from mooring.agent.status.snapshot import Published
from mooring.documents.status import AgentCountsPart
from mooring.engine.core.config import EXCLUSIVE_RESIZE, SCALE_DOWN_DELAY, MooringConfig
from mooring.engine.core.moment import SECOND, Moment
from mooring.engine.kubelet.kubelet import Kubelet, StateTexts
from mooring.engine.kubelet.start import start_kubelet
from mooring.engine.node.metrics.metrics import Metrics
from mooring.inputs.machines.loader import load_machine
from mooring.service.agent_configuration import FIXED_BY_DEFAULT
from mooring.service.http import serve_unix

NO_COUNTS = AgentCountsPart(0, 0.0, 0, 0, 0, 0, 0)

CONFIG = replace(
    STATIC,
    cpu_manager_policy_options={"scale-delay-time": "5s"},
    feature_gates={
        "CPUManagerPolicyAlphaOptions": True,
        "InPlacePodVerticalScalingExclusiveCPUs": True,
    },
)
EXTENDED = MooringConfig(frozenset({EXCLUSIVE_RESIZE, SCALE_DOWN_DELAY}), FIXED_BY_DEFAULT)
START = Moment(100 * SECOND, "boot")


def resizing() -> Told:
    """Return an agent with a container that gives back two CPUs, one that grew, and one that asked for too little."""
    kubelet = start_kubelet(load_machine(MACHINE).info, CONFIG, EXTENDED, StateTexts())
    assert isinstance(kubelet, Kubelet)
    told = Told(kubelet.at(START), Metrics.initial(kubelet.settings, kubelet.node.cpu))
    told.admit(pod("db", 2), pod("web", 2), pod("cache", 2))
    for name, sizes in (("db", (4, 2)), ("web", (3,)), ("cache", (1,))):
        for cpus in sizes:
            told.kubelet, _ = told.kubelet.resize(pod(name, cpus))
    return told


def containers(document: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {each["name"]: each["containers"][0] for each in document["pods"]}


@pytest.fixture
def path(tmp_path: Path) -> Iterator[str]:
    path = str(tmp_path / "status.sock")
    server = serve_unix(path, status_pages(Published(snapshot_of(resizing())), lambda: NO_COUNTS))
    yield path
    server.close()


def test_the_document_tells_first_pending_and_refused() -> None:
    document = to_builtins(status_document(snapshot_of(resizing()), NO_COUNTS, START.plus(2 * SECOND)))
    assert complaints("AgentStatus", document) == []
    found = containers(document)
    first = found["db"]["baseline"]
    assert found["db"]["pending"] == {"cpus": first, "releases": "4,12", "secondsLeft": 3.0}
    assert (found["web"]["baseline"], "pending" in found["web"]) == ("2,10", False)
    assert found["cache"]["resize"]["reason"] == "Infeasible"
    assert "prohibitedCPUAllocation Error" in found["cache"]["resize"]["message"]


def test_time_that_is_over_or_of_another_boot_is_none_left() -> None:
    for now in (START.plus(9 * SECOND), Moment(START.since_boot, "another")):
        document = to_builtins(status_document(snapshot_of(resizing()), NO_COUNTS, now))
        assert containers(document)["db"]["pending"]["secondsLeft"] == 0


def test_status_says_it_beside_each_container(path: str) -> None:
    for form in ("text", "wide"):
        text = " ".join(mooring("status", "--socket", path, "-o", form, columns=200).out.split())
        assert "baseline 1,9; 4,12 released now" in text
        assert "baseline 2,10" in text
        assert "resize infeasible" in text


def test_the_live_picture_says_it_below(path: str) -> None:
    text = " ".join(mooring("show", "--live", "--once", "--socket", path, columns=120).out.split())
    assert "apps/db/c0 has CPUs 1,4,9,12 (baseline 1,9); 4,12 of them are released now." in text
