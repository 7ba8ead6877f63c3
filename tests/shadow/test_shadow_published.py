"""Recording what nodes publish: the same shadow, over the API server."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.cli.command import mooring
from tests.shadow.listing import listing
from tests.shadow.observing import STATIC, Node, node
from tests.shadow.test_shadow_watching import Told

from mooring.answers.base.agreement import replay_file
from mooring.documents.schemas import schema
from mooring.monitoring.shadow import commands as shadow
from mooring.monitoring.shadow.folder import ShadowFolder
from mooring.monitoring.shadow.judgement import Agreement
from mooring.monitoring.shadow.shadow import Shadow
from mooring.monitoring.shadow.sources import QUIET, PublishedKubelet, PublishedNodes, UnpublishedError
from mooring.monitoring.shadow.tally import new_tally
from mooring.published.facts_document import facts_document
from mooring.published.observation import EngineObserver, documents_of


class Publishing:
    """Nodes that publish, and the shadow of one of them."""

    def __init__(self, watched: Node, folder: Path) -> None:
        self.watched, self.nodes, self.now, self.written = watched, PublishedNodes(), 1e9, 0
        self.told, self.lines, self.folder = Told(watched), list[str](), folder
        self.watch_anew()

    def watch_anew(self) -> None:
        """Begin to record, again after something happened that nothing recorded."""
        self.publish()
        tally = new_tally("node", "", "2026-01-01T00:00:00Z")
        self.shadow = Shadow(
            PublishedKubelet("node", self.nodes),
            self.told,
            tally,
            ShadowFolder(self.folder, tuple(Agreement)),
            said=self.lines.append,
            clock=lambda: self.now,
            moment=lambda: self.now,
            anonymous=True,
            alias=self.folder.name,
        )
        self.shadow.step()

    def publish(self) -> None:
        self.written += 1
        self.now += 1
        facts, state = published(self.watched, self.written)
        self.nodes.take_facts(facts)
        self.nodes.take_state(state)

    def wait(self) -> None:
        self.publish()
        self.told.changes += 1
        self.shadow.step()
        self.now += QUIET
        self.shadow.step()


def published(watched: Node, sequence: int = 1) -> tuple[dict[str, Any], dict[str, Any]]:
    seen = EngineObserver("node").observe(watched.kubelet)
    state, _ = documents_of(seen, sequence=sequence, moment=None)
    return facts_document(seen.facts), msgspec.json.decode(msgspec.json.encode(state))


def test_what_a_node_publishes_is_recorded_and_replays(tmp_path: Path) -> None:
    story = Publishing(node(), tmp_path)
    story.watched.admit("web", "2")
    story.wait()
    story.watched.admit("large", "40")
    story.watched.end("web")
    story.wait()
    story.watched.restart(replace(STATIC, topology_manager_policy="restricted"))
    story.wait()
    assert story.lines == [
        "watching node, kubelet v1.37.2",
        "agreed: default/web admitted",
        "agreed: default/web removed",
        "agreed: default/large refused",
        "agreed: kubelet restarted",
    ]
    outcomes = list(replay_file(tmp_path / "recording-000001.jsonl", compare=True))
    assert [(one.compared, one.differences) for one in outcomes] == [(True, ())] * 3
    told = [json.loads(line)["observed"] for line in (tmp_path / "recording-000001.jsonl").read_text().splitlines()]
    assert told[0] == {
        "node": tmp_path.name,
        "from": "2001-09-09T01:46:41.000Z",
        "to": "2001-09-09T01:46:42.000Z",
        "verdict": "agreed",
    }
    assert told[2]["to"] == "2001-09-09T01:46:50.000Z"


def test_a_difference_is_recorded_as_one(tmp_path: Path) -> None:
    story = Publishing(node(), tmp_path)
    story.watched.admit("large", "40")
    story.watched.admit("web", "2")
    story.watched.objects["large"]["status"]["message"] = "Pod was rejected: no"
    story.wait()
    [line] = (tmp_path / "recording-000001.jsonl").read_text().splitlines()
    assert json.loads(line)["observed"]["verdict"] == "differs"
    [outcome] = replay_file(tmp_path / "recording-000001.jsonl", compare=True)
    assert outcome.differences
    assert (tmp_path / "difference-000001" / "difference.txt").exists()


def test_the_same_state_written_again_is_no_change_and_one_that_is_gone_is_not_seen(tmp_path: Path) -> None:
    story = Publishing(node(), tmp_path)
    source = PublishedKubelet("node", story.nodes)
    seen = source.observe()
    story.publish()
    assert source.observe() is seen
    story.nodes.drop_state({"metadata": {"name": "node"}})
    with pytest.raises(UnpublishedError):
        source.observe()


def test_the_verb_records_each_node_in_a_folder(tmp_path: Path) -> None:
    facts, state = published(node())
    other = {**state, "metadata": {"name": "other"}, "spec": {**state["spec"]}}
    with listing({"nodefacts": [facts], "nodestates": [state, other]}, tmp_path) as kubeconfig:
        words = ["--folder", str(tmp_path / "kept"), "--kubeconfig", str(kubeconfig), "--for", "0s"]
        said = mooring("record", "node", "other", *words, "-o", "json")
        assert (said.code, len(said.err.splitlines())) == (0, 2)
        document = json.loads(said.out)
        assert [(one["node"], one["scenarios"]) for one in document["nodes"]] == [("node", 0), ("other", 0)]
        assert document["kind"] in str(schema("Recording"))
        assert "other" in mooring("record", "other", *words).out
        unknown = mooring("record", "none", *words)
    assert (unknown.code, unknown.out) == (2, "")
    assert "node none publishes nothing; run mooring publish on it" in unknown.err


@pytest.mark.parametrize("nodes", [(), ("node",)])
def test_a_short_recording_does_not_wait_long_for_an_api_server(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, nodes: tuple[str, ...]
) -> None:
    assert [shadow.listing_time(seconds) for seconds in (None, 0, 12, 3600)] == [30, 5, 12, 30]
    monkeypatch.setattr(shadow, "SHORTEST_LISTING", 0.05)
    monkeypatch.setattr(shadow, "LONGEST_LISTING", 0.1)
    (tmp_path / "config.yaml").write_text("kind: KubeletConfiguration\napiVersion: kubelet.config.k8s.io/v1beta1\n")
    with listing({}, tmp_path) as kubeconfig:
        pass  # nothing listens there any more
    here = ("--state", tmp_path, "--machine", "small-1s8") if not nodes else ()
    words = ("--folder", tmp_path / "kept", "--kubeconfig", kubeconfig, "--for", "10ms", *here)
    answered = mooring("record", *nodes, *words)
    assert (answered.code, answered.out) == (2, "")
    assert " within 0.05 s; check that the account may list" in answered.err.splitlines()[-1]


def test_a_folder_of_recordings_replays(tmp_path: Path) -> None:
    for name in ("node-1", "node-2"):
        story = Publishing(node(), tmp_path / name)
        story.watched.admit("web", "2")
        story.wait()
    assert mooring("replay", tmp_path, "--check").out.count("1 scenario, 1 agree, 0 differ") == 2
    (tmp_path / "empty").mkdir()
    assert mooring("replay", tmp_path / "empty").code == 2
