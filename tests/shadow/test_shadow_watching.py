"""The shadow's life: when it judges, what it counts and keeps, and what another configuration would have done."""

from __future__ import annotations

import json
import resource
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace as replace_part
from tests.agent.pods.fault_injector import Fault, FaultInjector
from tests.cli.command import mooring
from tests.shadow.listing import listing
from tests.shadow.observing import STATIC, Node, node, said

from mooring.answers.base.agreement import replay_file
from mooring.documents.schemas import schema
from mooring.engine.core.config import KubeletConfig
from mooring.engine.core.errors import InputError
from mooring.engine.core.machine import Finding
from mooring.inputs.pods.cluster_objects import REJECTED
from mooring.monitoring.shadow.judge import (
    add,
    continued,
    new_tally,
    write_counts,
)
from mooring.monitoring.shadow.judgement import Agreement, DifferenceCause, Judgement, KubeletEvent
from mooring.monitoring.shadow.reports import FILES, RHYTHM, ShadowFolder, ShadowMetrics, ShadowPublisher, shadow_text
from mooring.monitoring.shadow.shadow import PACKING, PATIENCE, QUIET, Shadow
from mooring.monitoring.shadow.sources import QUIET as QUIET_PUBLISHED
from mooring.monitoring.shadow.sources import BoundPods, PublishedKubelet, PublishedNodes, UnpublishedError
from mooring.monitoring.shadow.unseen import ObservedPod
from mooring.published.facts_document import facts_document
from mooring.published.observation import EngineObserver, Observation, documents_of
from mooring.published.shadow_document import ShadowCountPart, ShadowDocument, WouldBeDayPart, WouldBePart, shadow_of
from mooring.service.apiserver import Cluster, cluster_of
from mooring.service.podresources import PodResourcesError

LIMITED = replace(STATIC, topology_manager_policy="single-numa-node")


class Told(BoundPods):
    """Pods of a node whose API server is its test."""

    def __init__(self, watched: Node) -> None:
        super().__init__(lambda: watched.gates)
        self.watched = watched

    def snapshot(self) -> Mapping[str, ObservedPod]:
        return self.watched.observed().pods


@dataclass
class Seen:
    """A kubelet that is the engine, as a source."""

    watched: Node
    blind: bool = False
    newest: Observation | None = None

    @property
    def starts(self) -> int:
        return self.watched.starts

    def observe(self) -> Observation:
        if self.blind:
            raise PodResourcesError("no answer")
        found = EngineObserver("node").observe(self.watched.kubelet)
        if self.newest is None or self.newest.state != found.state:
            self.newest = found
        return self.newest


@dataclass
class Watching:
    """A shadow with a clock of its own."""

    watched: Node
    folder: ShadowFolder | None = None
    proposed: KubeletConfig | None = None
    anonymous: bool = False
    tally: ShadowDocument | None = None
    now: float = 0.0
    today: str = "2026-01-01T00:00:00Z"
    lines: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.source, self.told = Seen(self.watched), Told(self.watched)
        self.shadow = Shadow(
            self.source,
            self.told,
            self.tally or new_tally("node", "", "2026-01-01T00:00:00Z"),
            self.folder,
            self.proposed,
            anonymous=self.anonymous,
            clock=lambda: self.now,
            today=lambda: self.today,
            said=self.lines.append,
        )
        self.shadow.step()

    def wait(self, seconds: float = QUIET) -> None:
        self.told.changes += 1
        self.shadow.step()
        self.now += seconds
        self.shadow.step()


def test_a_pod_of_which_nothing_is_told_is_waited_for() -> None:
    watching = Watching(node())
    watching.watched.admit("large", "40")
    status = watching.watched.objects["large"].pop("status")
    watching.wait()
    assert watching.shadow.tally.agreed == 0
    watching.watched.objects["large"]["status"] = status
    watching.wait()
    assert watching.lines[-1] == "agreed: default/large refused"


def test_of_a_pod_that_is_not_decided_is_said_once_what_will_become_of_it() -> None:
    watching = Watching(node())
    watching.watched.admit("web", "2")
    watching.wait()
    decided = watching.watched.kubelet
    watching.watched.admit("large", "40")
    watching.watched.admit("app", "2")
    later, watching.watched.kubelet = watching.watched.kubelet, decided
    waiting = [watching.watched.objects[name] for name in ("large", "app")]
    statuses = [one.pop("status") for one in waiting]
    watching.wait()
    watching.wait()
    refusal = f"{statuses[0]['reason']}: {statuses[0]['message'].removeprefix(REJECTED)}"
    assert watching.lines[2:] == [
        f"predicted: default/large refused, {refusal}",
        "predicted: default/app admitted, c0: 2,10",
    ]
    watching.watched.kubelet = later
    for one, status in zip(waiting, statuses, strict=True):
        one["status"] = status
    watching.wait()
    found = watching.shadow.tally
    assert (found.agreed, found.predicted, found.came_true) == (3, 2, 2)


def test_a_pod_that_is_never_decided_holds_nothing_up() -> None:
    watching = Watching(node())
    watching.watched.admit("large", "40")
    del watching.watched.objects["large"]["status"]
    watching.watched.admit("web", "2")
    watching.wait(PATIENCE)
    assert watching.lines[-1] == "agreed: default/web admitted"


def test_what_a_kubelet_that_starts_has_not_told_is_waited_for_from_its_start_on() -> None:
    watching = Watching(node())
    watching.watched.admit("large", "40")
    status = watching.watched.objects["large"].pop("status")
    watching.watched.admit("web", "2")
    watching.wait(PATIENCE - 1)
    watching.watched.restart()
    watching.wait(2)
    assert watching.lines[-1].startswith("predicted: ")
    watching.watched.objects["large"]["status"] = status
    watching.wait()
    judged = ["kubelet restarted", "default/web admitted", "default/large refused"]
    assert sorted(watching.lines[-3:]) == sorted(f"agreed: {one}" for one in judged)


def test_a_pod_that_runs_before_the_kubelet_is_asked_for_its_list_is_judged_once() -> None:
    watching = Watching(node())
    before = watching.watched.kubelet
    watching.watched.admit_pod("web", [], [{"name": "c0"}])
    after, watching.watched.kubelet = watching.watched.kubelet, before
    watching.wait()
    watching.watched.kubelet = after
    watching.wait()
    assert watching.lines[1:] == ["agreed: default/web admitted"]


@pytest.mark.parametrize(
    ("resource", "verdict"), [("cpu", "agreed"), ("memory", "differs")], ids=["of-the-same-resource", "of-another"]
)
def test_a_critical_pod_is_refused_in_other_words_where_evictions_make_no_room(resource: str, verdict: str) -> None:
    watching = Watching(node())
    watching.watched.admit("large", "39500m")
    status = watching.watched.objects["large"]["status"]
    recovering = "Unexpected error while attempting to recover from admission failure: preemption: no set"
    status["reason"] = "UnexpectedAdmissionError"
    status["message"] = f"{REJECTED}{recovering} pods to preempt: no set found: [(res: {resource}, q: 25000), ]"
    watching.wait()
    assert watching.lines[-1].startswith(f"{verdict}: default/large refused")


def test_whether_a_kubelet_ends_others_for_a_critical_pod_cannot_be_told() -> None:
    watching = Watching(node())
    watching.watched.admit("large", "39500m")
    content = watching.watched.objects["large"]
    content["status"] = {"phase": "Running", "qosClass": "Guaranteed"}
    content["spec"]["priority"] = 2_000_000_000
    watching.wait(PATIENCE)
    assert "the kubelet ends other pods for a critical one" in watching.lines[-1]


def test_a_kubelet_that_starts_is_judged_when_it_has_its_pods_again() -> None:
    watching = Watching(node())
    watching.watched.admit("web", "2")
    watching.wait()
    running = watching.watched.kubelet
    watching.watched.restart()
    whole, watching.watched.kubelet = watching.watched.kubelet, replace(running, node=replace(running.node, active={}))
    watching.wait()
    watching.watched.kubelet = whole
    watching.wait()
    assert watching.lines[2:] == ["agreed: kubelet restarted"]


@pytest.mark.parametrize(("seconds", "verdict"), [(QUIET, "agreed"), (PATIENCE, "differs")])
def test_a_kubelet_that_starts_has_time_to_write_its_files(seconds: float, verdict: str) -> None:
    watching = Watching(node())
    watching.watched.admit("web", "2")
    watching.wait()
    running = watching.watched.kubelet
    watching.watched.restart(replace(STATIC, cpu_manager_policy="none"))
    whole = watching.watched.kubelet
    watching.watched.kubelet = replace(whole, cpu_file=running.cpu_file)
    watching.wait(seconds)
    watching.wait(seconds)
    watching.watched.kubelet = whole
    watching.wait()
    assert [line.partition(":")[0] for line in watching.lines[2:3]] == [verdict]


@pytest.mark.parametrize(("seconds", "verdict"), [(QUIET, "agreed"), (PATIENCE, "differs")])
def test_a_starting_kubelet_tells_of_a_refused_pod_when_its_containers_ended(seconds: float, verdict: str) -> None:
    watching = Watching(node())
    watching.watched.admit("odd", "3")
    watching.wait()
    running = watching.watched.kubelet.node.active["odd"]
    watching.watched.kubelet = replace(watching.watched.kubelet, cpu_file=None)
    watching.watched.restart(replace(STATIC, cpu_manager_policy_options={"full-pcpus-only": "true"}))
    refused = watching.watched.objects["odd"]["status"]
    assert refused["reason"] == "SMTAlignmentError"
    ending = watching.watched.kubelet
    watching.watched.kubelet = replace(ending, node=ending.node.adopt([running]))
    watching.watched.objects["odd"]["status"] = {"phase": "Running", "qosClass": "Guaranteed"}
    watching.wait(seconds)
    watching.watched.objects["odd"]["status"], watching.watched.kubelet = refused, ending
    watching.wait()
    assert [line.partition(":")[0] for line in watching.lines[2:3]] == [verdict]


def test_looks_at_which_nothing_is_seen_are_counted_and_end() -> None:
    watching = Watching(node())
    watching.source.blind = True
    watching.shadow.step()
    watching.shadow.step()
    watching.source.blind = False
    watching.watched.admit("web", "2")
    watching.wait()
    assert watching.shadow.tally.blind == 2
    assert watching.shadow.tally.agreed == 1
    assert b"mooring_shadow_blind_looks_total 2.0" in ShadowMetrics(watching.shadow.tally).numbers()
    assert b'verdict="agreed"' in ShadowMetrics(watching.shadow.tally).numbers()


@pytest.mark.parametrize("anonymous", [False, True])
def test_what_agreed_is_recorded_and_replays(tmp_path: Path, *, anonymous: bool) -> None:
    watching = Watching(node(), ShadowFolder(tmp_path), anonymous=anonymous)
    for number in range(3):
        watching.watched.admit(f"secret-{number}", "2")
        watching.wait()
    watching.watched.admit("large", "40")
    watching.watched.end("secret-1")
    watching.watched.restart()
    watching.wait()
    [file] = tmp_path.glob("recording-*.jsonl")
    outcomes = list(replay_file(file, compare=True))
    assert len(outcomes) == 4
    assert all(one.compared and not one.differences for one in outcomes)
    assert ("secret-0" in file.read_text()) is not anonymous or "uid" in file.read_text()
    changed = file.read_text().replace('"admitted":true', '"admitted":false')
    file.write_text(changed)
    assert any(one.differences for one in replay_file(file, compare=True))


def test_a_line_that_was_cut_short_is_removed(tmp_path: Path) -> None:
    watching = Watching(node(), ShadowFolder(tmp_path))
    watching.watched.admit("web", "2")
    watching.wait()
    [file] = tmp_path.glob("recording-*.jsonl")
    whole = file.read_bytes()
    file.write_bytes(whole + whole[:20])
    ShadowFolder(tmp_path)
    assert file.read_bytes() == whole


def test_a_difference_is_kept_with_the_smallest_scenario_that_shows_it(tmp_path: Path) -> None:
    watching = Watching(node(), ShadowFolder(tmp_path))
    for number in range(3):
        watching.watched.admit(f"web-{number}", "1")
    watching.wait()
    watching.watched.admit("large", "40")
    watching.watched.objects["large"]["status"]["message"] = "Pod was rejected: no"
    watching.watched.admit("app", "2")
    watching.wait()
    [folder] = tmp_path.glob("difference-*")
    assert "differs: default/large refused: message" in (folder / "difference.txt").read_text()
    smallest, whole = replay_file(folder / "scenario.jsonl", compare=True)
    assert smallest.differences
    assert whole.differences
    least, most = (len(one.case.steps) + len(one.case.active) for one in (smallest, whole))  # type: ignore[union-attr]
    assert (least, most) == (1, 6)
    document = watching.shadow.tally
    assert [(one.pod, one.cause) for one in document.differences] == [("default/large", DifferenceCause.MESSAGE.value)]


def test_the_node_is_packed_beside_a_difference_now_and_then(tmp_path: Path) -> None:
    watching = Watching(node(), ShadowFolder(tmp_path))
    packed = list[list[str]]()

    def pack(pods: Sequence[Mapping[str, Any]]) -> bytes:
        packed.append(sorted(pod["metadata"]["name"] for pod in pods))
        if len(packed) == 2:
            raise InputError("is gone", source="/sys")
        return b"archive"

    watching.shadow.packed = pack
    told = list[Finding]()
    watching.shadow.report = told.append
    for name, seconds in (("one", QUIET), ("two", PACKING), ("three", QUIET)):
        watching.watched.admit(name, "40")
        watching.watched.objects[name]["status"]["message"] = "Pod was rejected: no"
        watching.wait(seconds)
    assert packed == [["one"], ["one", "two"]]
    assert [file.parent.name for file in tmp_path.glob("difference-*/node.tar.gz")] == ["difference-000001"]
    assert "/sys: is gone" in [one.message for one in told]
    assert (tmp_path / "difference-000003" / "scenario.jsonl").exists()


def test_the_oldest_differences_go(tmp_path: Path) -> None:
    folder, seen = ShadowFolder(tmp_path), node().observed().facts
    for _ in range(FILES + 2):
        folder.difference([], [], seen, "0" * 64)
    assert min(one.name for one in tmp_path.iterdir()) == "difference-000003"
    assert len(list(tmp_path.iterdir())) == FILES


def test_another_configuration_is_asked_about_the_same_pods() -> None:
    watching = Watching(node(), proposed=LIMITED)
    watching.watched.admit("wide", "10")
    watching.watched.admit("large", "40")
    watching.wait()
    watching.watched.end("wide")
    watching.watched.admit("web", "2")
    watching.wait()
    document = watching.shadow.tally
    assert document.would_be is not None
    assert (document.refused, document.would_be.refusals) == (1, 2)
    assert (document.would_be.refused, document.would_be.admitted) == (["default/wide"], [])
    assert ShadowCountPart("agreed", "refused", "", 1, "v1.37.2") in document.counts
    assert msgspec.to_builtins(document)["kind"] in str(schema("Shadow"))


def test_counts_go_on_after_a_restart_of_the_shadow(tmp_path: Path) -> None:
    first = Watching(node(), ShadowFolder(tmp_path), LIMITED)
    first.watched.admit("wide", "10")
    first.wait()
    next_day = Watching(first.watched, ShadowFolder(tmp_path), LIMITED, tally=continued(tmp_path, "node", "v1.37.1"))
    next_day.today = "2026-01-02T00:00:00Z"
    next_day.watched.admit("large", "40")
    next_day.wait()
    found = continued(tmp_path, "node", "v1.37.1")
    assert (found.since, found.agreed, found.refused) == ("2026-01-01T00:00:00Z", 2, 1)
    assert [(one.day, one.decisions, one.refused) for one in found.days] == [("2026-01-01", 1, 0), ("2026-01-02", 1, 1)]
    assert found.would_be is not None
    assert [(one.day, one.refused, one.refusals) for one in found.would_be.days] == [
        ("2026-01-01", 0, 1),
        ("2026-01-02", 1, 1),
    ]
    other = Watching(
        first.watched, proposed=replace(LIMITED, topology_manager_scope="pod"), tally=continued(tmp_path, "node", "")
    )
    assert other.shadow.tally.would_be is not None
    assert not other.shadow.tally.would_be.days, "another configuration has refused nothing yet"


OTHER = msgspec.json.encode(new_tally("other", "v1.37.1", "2026-01-01T00:00:00Z"))


@pytest.mark.parametrize("damaged", [OTHER, OTHER[:-20], b'{"node":"\xff"}', b"\xff\xfe"])
def test_a_file_of_counts_that_cannot_be_used_is_kept(tmp_path: Path, damaged: bytes) -> None:
    (tmp_path / "counts.json").write_bytes(damaged)
    told = list[Finding]()
    found = continued(tmp_path, "node", "v1.37.1", told.append)
    assert (found.node, found.agreed, [one.name for one in tmp_path.iterdir()]) == ("node", 0, ["counts.json.bak-1"])
    assert (tmp_path / "counts.json.bak-1").read_bytes() == damaged
    assert ["kept as counts.json.bak-1, and counting begins anew" in one.message for one in told] == [True]


def test_the_sentence_is_about_seven_days() -> None:
    days = [WouldBeDayPart(f"2026-01-{day:02}", 10, 1) for day in range(1, 11)]
    found = replace_part(new_tally("node", "v1.37.1", "2026-01-01T00:00:00Z"), observed_at="2026-01-10T12:00:00Z")
    older = replace_part(found, would_be=WouldBePart(10, [], [], "2026-01-01T00:00:00Z", days))
    younger = replace_part(found, would_be=WouldBePart(10, [], [], "2026-01-08T00:00:00Z", days[-3:]))
    words = "the kubelet refused {} pods; with the other configuration {} pods would have been refused."
    assert f"In the last 7 days {words.format(70, 7)}" in " ".join(shadow_text(older).split())
    assert f"Since 2026-01-08 {words.format(30, 3)}" in " ".join(shadow_text(younger).split())


# Recording what nodes publish: the same shadow, over the API server.


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
        self.now += QUIET_PUBLISHED
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
@pytest.mark.parametrize(("span", "seconds"), [("10ms", "0.05"), ("80ms", "0.08"), ("1h", "0.1"), (None, "0.1")])
def test_a_short_recording_does_not_wait_long_for_an_api_server(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, nodes: tuple[str, ...], span: str | None, seconds: str
) -> None:
    monkeypatch.setattr("mooring.monitoring.shadow.commands.SHORTEST_LISTING", 0.05)
    monkeypatch.setattr("mooring.monitoring.shadow.commands.LONGEST_LISTING", 0.1)
    (tmp_path / "config.yaml").write_text("kind: KubeletConfiguration\napiVersion: kubelet.config.k8s.io/v1beta1\n")
    with listing({}, tmp_path) as kubeconfig:
        pass  # nothing listens there any more
    here = ("--state", tmp_path, "--machine", "small-1s8") if not nodes else ()
    words = ("--folder", tmp_path / "kept", "--kubeconfig", kubeconfig, *(("--for", span) if span else ()), *here)
    answered = mooring("record", *nodes, *words)
    assert (answered.code, answered.out) == (2, "")
    assert f" within {seconds} s; check that the account may list" in answered.err.splitlines()[-1]


def test_a_folder_of_recordings_replays(tmp_path: Path) -> None:
    for name in ("node-1", "node-2"):
        story = Publishing(node(), tmp_path / name)
        story.watched.admit("web", "2")
        story.wait()
    assert mooring("replay", tmp_path, "--check").out.count("1 scenario, 1 agree, 0 differ") == 2
    (tmp_path / "empty").mkdir()
    assert mooring("replay", tmp_path / "empty").code == 2


# What a shadow keeps: whole lines on a full disk, damaged files, and no names where it is anonymous.


DISTRIBUTING = replace(STATIC, cpu_manager_policy_options={"distribute-cpus-across-numa": "true"})
DIGEST = "0" * 64


@contextmanager
def limited_files(size: int) -> Iterator[None]:
    """Let no file grow beyond a size: the write that reaches it is cut short without an error, as on a full disk."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_a_line_for_which_the_disk_has_no_room_is_not_there_in_part(tmp_path: Path) -> None:
    folder, facts = ShadowFolder(tmp_path), node().observed().facts
    folder.record({"id": "first"}, facts, DIGEST)
    [file] = tmp_path.glob("recording-*.jsonl")
    with limited_files(file.stat().st_size + 5), pytest.raises(InputError, match="cannot be written"):
        folder.record({"id": "second"}, facts, DIGEST)
    folder.record({"id": "third"}, facts, DIGEST)
    assert [json.loads(line)["id"] for line in file.read_text().splitlines()] == ["first", "third"]
    assert folder.scenarios == 2


@pytest.mark.parametrize(
    "damage",
    [
        b'{"name":"aaa","inf{"name":"bbb","info":{}}',
        b"[1]",
        b'{"info":{}}',
        b'{"name":"\xff"}',
        b'{"odd":' + b"[" * 100_000,
    ],
)
def test_a_damaged_line_about_a_machine_is_named(tmp_path: Path, damage: bytes) -> None:
    ShadowFolder(tmp_path).record({"id": "first"}, node().observed().facts, DIGEST)
    with (tmp_path / "machines.jsonl").open("ab") as file:
        file.write(damage + b"\n")
    with pytest.raises(InputError, match=r"machines\.jsonl: line 2: describes no machine: .*; remove the line"):
        ShadowFolder(tmp_path)


@pytest.mark.parametrize("name", ["machines.jsonl", "recording-000001.jsonl"])
def test_a_directory_in_the_place_of_a_file_is_named(tmp_path: Path, name: str) -> None:
    (tmp_path / name).mkdir()
    with pytest.raises(InputError, match=rf"{name}: cannot be used: .*directory; move it away"):
        ShadowFolder(tmp_path)


def test_a_byte_that_is_no_text_in_a_state_file_is_a_difference_that_can_be_counted(tmp_path: Path) -> None:
    watched = node()
    before = watched.observed()
    watched.admit("web", "2")
    after = watched.observed()
    files = after.state.files
    damaged = replace(files, cpu=(files.cpu or "").replace("{", '{"odd":"\udcff",', 1))
    judged = said(before, replace(after, state=replace(after.state, files=damaged)))
    tally = new_tally("node", "v1.37.1", "2026-01-01T00:00:00Z")
    add(tally, judged, "2026-01-01T00:00:00Z")
    write_counts(tmp_path, tally)
    [difference] = continued(tmp_path, "node", "v1.37.1").differences
    assert (difference.cause, difference.kubelet) == ("cpu state file", "odd ?")


class OtherOptions(Seen):
    """A kubelet that is not of the configuration that it tells."""

    def observe(self) -> Observation:
        found = super().observe()
        if found.facts.config != STATIC:
            found = self.newest = replace(found, facts=replace(found.facts, config=STATIC))
        return found


def test_an_anonymous_shadow_keeps_no_names_of_pods(tmp_path: Path) -> None:
    watching = Watching(node(DISTRIBUTING), ShadowFolder(tmp_path), LIMITED, anonymous=True)
    watching.shadow.source = OtherOptions(watching.watched)
    watching.shadow.step()
    for uid, cpus in (("1", "2"), ("2", "10")):
        watching.watched.admit(uid, cpus)
        watching.watched.objects[uid]["metadata"] |= {"name": f"payroll-{uid}", "namespace": "finance"}
    watching.wait()
    assert watching.lines[1].startswith("differs: finance/payroll-1 admitted: cpus")
    kept = {file.name: file.read_text() for file in tmp_path.rglob("*") if file.is_file()}
    assert [name for name, text in kept.items() if "payroll" in text or "finance" in text] == []
    assert kept["difference.txt"].splitlines()[0].startswith("differs: namespace-1/pod-1 admitted: cpus")
    counts = watching.shadow.tally
    assert [one.pod for one in counts.differences] == ["1"]
    assert counts.would_be is not None
    assert counts.would_be.refused == ["2"]
    assert watching.shadow.tally.differs == 1


def test_a_pod_that_no_scenario_names_has_its_uid_in_an_anonymous_difference(tmp_path: Path) -> None:
    watched = node()
    watched.admit("1", "40")
    [judged] = said(node().observed(), watched.observed())
    folder = ShadowFolder(tmp_path).difference([judged], [], watched.observed().facts, DIGEST, anonymous=True)
    assert (folder / "difference.txt").read_text() == "agreed: 1 refused\n"


# What a shadow publishes and when: soon after the beginning, once a minute at most, and at its end.


SHADOW = "PATCH /apis/mooring.dev/v1alpha1/nodeshadows/n1"
AGREED = Judgement(Agreement.AGREED, KubeletEvent.ADMITTED, "1", "default/web")


@dataclass
class Published:
    """A shadow's publisher with a clock of its own."""

    cluster: FaultInjector
    now: float = 0.0
    told: list[Finding] = field(default_factory=list)
    tally: ShadowDocument = field(default_factory=lambda: new_tally("n1", "v1.37.1", "2026-01-01T00:00:00Z"))

    def __post_init__(self) -> None:
        self.publisher = ShadowPublisher(
            self.tally, self.connect, self.told.append, clock=lambda: self.now, today=lambda: "2026-01-02T00:00:00Z"
        )

    def connect(self) -> Cluster:
        return cluster_of(self.cluster.config())

    def let_pass(self, seconds: int) -> None:
        for _ in range(seconds):
            self.publisher.step()
            self.now += 1.0

    def agree(self) -> None:
        add(self.tally, [AGREED], "2026-01-01T12:00:00Z")

    @property
    def agreed(self) -> list[int]:
        return [shadow_of(body)[1].agreed for body in self.written]

    @property
    def written(self) -> list[dict[str, Any]]:
        return [request.body for request in self.cluster.asked(SHADOW)]


@pytest.fixture
def shadow_publishing() -> Iterator[Published]:
    with FaultInjector(node="n1") as cluster:
        one = Published(cluster)
        yield one
        one.publisher.close()


def test_counts_are_written_soon_and_then_once_a_minute_at_most(shadow_publishing: Published) -> None:
    shadow_publishing.let_pass(3)
    assert shadow_publishing.agreed == [0]
    for _ in range(int(RHYTHM.least)):
        shadow_publishing.agree()
        shadow_publishing.let_pass(1)
    assert shadow_publishing.agreed == [0, int(RHYTHM.least) - 1]
    shadow_publishing.let_pass(int(RHYTHM.heartbeat) - 1)
    assert len(shadow_publishing.agreed) == 3, "the rest, and no heartbeat yet"


def test_what_is_not_written_yet_is_written_at_the_end(shadow_publishing: Published) -> None:
    shadow_publishing.let_pass(3)
    shadow_publishing.agree()
    shadow_publishing.publisher.step(last=True)
    shadow_publishing.publisher.step(last=True)
    assert shadow_publishing.agreed == [0, 1]


def test_a_cluster_without_the_definition_is_reported_with_the_remedy(shadow_publishing: Published) -> None:
    shadow_publishing.cluster.fail(SHADOW, Fault(404))
    shadow_publishing.let_pass(10)
    assert shadow_publishing.told[0].message.endswith("apply the definitions of deploy/crds")
    assert shadow_publishing.told[1].message == "the counts of n1 are published again"
    assert shadow_publishing.agreed[-1] == 0
