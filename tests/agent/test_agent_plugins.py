"""The agent with plugins: they hear what was stored, their failures are shown, waiting pods come in their order."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest
from tests.agent.sets import setting
from tests.agent.small_node import CONFIG, INFO, guaranteed
from tests.agent.whole_agent import Node, pod, start, until
from tests.documents.validation import complaints
from tests.plugins.installed_plugins import install

from mooring.agent.agent import Agent
from mooring.agent.nri.types import Event, LinuxResources
from mooring.agent.reactor.placing import place, place_waiting, without_pod
from mooring.agent.reactor.recovery import resume
from mooring.agent.state import AgentState, KnownContainer, Phase
from mooring.answers.status.text import status_text
from mooring.engine.core.config import MooringConfig
from mooring.inputs.configuration.mooring_config import plugin_choice
from mooring.service.agent_status import read_status

NAMES = {"hears": "Hears", "flawed": "Flawed", "backwards": "Backwards", "good": "Good"}
WITH_PLUGINS = """\
podResourcesSocket: ""
---
kind: MooringConfiguration
extensions: [plugins]
pluginBudget: 10s
plugins: [{names}]
"""


@pytest.fixture(autouse=True)
def _installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(tmp_path / "package", monkeypatch, NAMES)


def agent_with(node: Node, names: str) -> Agent:
    return node.agent(WITH_PLUGINS.format(names=names))


def test_plugins_hear_who_got_cpus_and_whose_came_back(node: Node) -> None:
    agent_with(node, "hears")
    runtime = node.listening.next()
    runtime.synchronize()
    own = start(node, runtime, "own", 2)
    runtime.stop(pod("own"), own)
    runtime.state_change(Event.STOP_POD_SANDBOX, pod("own"))
    heard = importlib.import_module("made_up_plugins").HEARD
    until(lambda: len(heard) == 2, "both are told")
    assert [(point, container, cpus) for point, _, container, cpus in heard] == [
        ("allocated", "own", "1-2"),
        ("deallocated", "own", "1-2"),
    ]


def test_what_plugins_do_wrong_is_in_metrics_and_status_and_nobody_is_refused(node: Node) -> None:
    agent = agent_with(node, "good, flawed")
    runtime = node.listening.next()
    runtime.synchronize()
    assert [one["failures"] for one in node.status["plugins"]] == [0, 0]
    # The other plugin's answer counts: the highest CPUs.
    assert node.cpus(start(node, runtime, "own", 2)) == "6-7"
    until(lambda: node.status["plugins"][1].get("lastFailure", {}).get("point") == "allocated", "it was told, too")
    status = node.status
    assert complaints("AgentStatus", status) == []
    good, flawed = status["plugins"]
    assert good == {"name": "good", "placement": "cpu-manager", "givenUp": False, "failures": 0}
    assert flawed["failures"] >= 2
    assert flawed["lastFailure"] == {"point": "allocated", "why": "it raised OSError: deaf"}
    lines = agent.metrics.text().splitlines()
    assert 'mooring_agent_plugin_failures_total{plugin="flawed",point="allocated"} 1.0' in lines
    assert any(
        line.startswith('mooring_agent_plugin_failures_total{plugin="flawed",point="pre_score"}') for line in lines
    )
    text = " ".join(status_text(read_status(status)).split())
    assert "the last at allocated: it raised OSError: deaf" in text


def test_without_plugins_the_status_says_nothing_of_them(node: Node) -> None:
    node.agent()
    node.listening.next().synchronize()
    assert "plugins" not in node.status


def waiting(names: list[str]) -> AgentState:
    """Return a state in which pod a has gone, and b and c run without a place, which only one of them can get."""
    mooring = MooringConfig(
        frozenset({"plugins"}), frozenset({"pod-restart"}), plugins=plugin_choice({"plugins": names})
    )
    state = place(resume(INFO, CONFIG, mooring, None, None).state, guaranteed("a", "6")).state
    for uid in ("b", "c"):
        placed = place(state, guaranteed(uid, "5"))
        assert placed.rejection is not None
        known = KnownContainer(
            f"{uid}-main-0", f"sandbox-{uid}-0", uid, "main", Phase.RUNNING, setting("", ""), LinuxResources()
        )
        state = placed.state.with_container(known)
    return without_pod(state, "a")


@pytest.mark.parametrize(("names", "first"), [([], "b"), (["good"], "b"), (["backwards"], "c")])
def test_pods_that_wait_are_asked_for_in_the_order_of_plugins(names: list[str], first: str) -> None:
    after = place_waiting(waiting(names)).state
    assert list(after.kubelet.node.active) == [first]
    assert set(after.held) == {"b", "c"} - {first}


def test_a_reload_makes_plugins_anew_or_is_refused(node: Node) -> None:
    agent = agent_with(node, "good")
    node.listening.next().synchronize()
    before = agent.holder.state.kubelet.settings.plugins
    assert before is not None
    before.choice.watch.give_up("good")
    assert node.status["plugins"][0]["givenUp"]
    agent.reload()
    agent.reconcile()
    assert node.status["configuration"]["generation"] == 2
    assert not node.status["plugins"][0]["givenUp"]
    file = node.folder / "agent.yaml"
    file.write_text(file.read_text(encoding="utf-8").replace("plugins: [good]", "plugins: [nobody]"), encoding="utf-8")
    agent.reload()
    agent.reconcile()
    assert "the plugin 'nobody' is not installed" in node.status["configuration"]["refusal"]
    assert [one["name"] for one in node.status["plugins"]] == ["good"]
