"""The shadow's life: when it judges, what it counts and keeps, and what another configuration would have done."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

import msgspec
import pytest
from tests.shadow.observing import STATIC, Node, node

from mooring.core.config import KubeletConfig
from mooring.documents.schemas import schema
from mooring.planner.replay.file import replay_file
from mooring.publisher.observation import EngineObserver, Observation
from mooring.service.podresources import PodResourcesError
from mooring.shadow.folder import ShadowFolder
from mooring.shadow.judgement import Agreement, DifferenceCause, KubeletEvent
from mooring.shadow.observed import ObservedPod
from mooring.shadow.pods import BoundPods
from mooring.shadow.shadow import PATIENCE, QUIET, Shadow
from mooring.shadow.tally import Tally

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
    now: float = 0.0
    lines: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.source, self.told = Seen(self.watched), Told(self.watched)
        self.shadow = Shadow(
            self.source,
            self.told,
            Tally("node", "", "2026-01-01T00:00:00Z"),
            self.folder,
            self.proposed,
            anonymous=self.anonymous,
            clock=lambda: self.now,
            said=self.lines.append,
        )
        self.shadow.step()

    def wait(self, seconds: float = QUIET) -> None:
        self.told.changes += 1
        self.shadow.step()
        self.now += seconds
        self.shadow.step()


def test_a_change_is_judged_when_it_is_quiet() -> None:
    watching = Watching(node())
    watching.watched.admit("web", "2")
    watching.wait(QUIET / 2)
    assert watching.lines == ["watching node, kubelet v1.37.1"]
    watching.now += QUIET
    watching.shadow.step()
    assert watching.lines[1:] == ["agreed: default/web admitted"]


def test_a_pod_of_which_nothing_is_told_is_waited_for() -> None:
    watching = Watching(node())
    watching.watched.admit("large", "40")
    status = watching.watched.objects["large"].pop("status")
    watching.wait()
    assert watching.shadow.tally.total(Agreement.AGREED) == 0
    watching.watched.objects["large"]["status"] = status
    watching.wait()
    assert watching.lines[-1] == "agreed: default/large refused"


def test_a_pod_that_is_never_decided_holds_nothing_up() -> None:
    watching = Watching(node())
    watching.watched.admit("large", "40")
    del watching.watched.objects["large"]["status"]
    watching.watched.admit("web", "2")
    watching.wait(PATIENCE)
    assert watching.lines[-1] == "agreed: default/web admitted"


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


def test_looks_at_which_nothing_is_seen_are_counted_and_end() -> None:
    watching = Watching(node())
    watching.source.blind = True
    watching.shadow.step()
    watching.shadow.step()
    watching.source.blind = False
    watching.watched.admit("web", "2")
    watching.wait()
    assert watching.shadow.tally.blind == 2
    assert watching.shadow.tally.total(Agreement.AGREED) == 1
    assert b"mooring_shadow_blind_looks_total 2.0" in watching.shadow.tally.metrics()
    assert (
        b'verdict="agreed",' in watching.shadow.tally.metrics()
        or b'verdict="agreed"' in watching.shadow.tally.metrics()
    )


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
    assert (least, most) == (1, 5)
    document = watching.shadow.tally.document()
    assert [(one.pod, one.cause) for one in document.differences] == [("default/large", DifferenceCause.MESSAGE.value)]


def test_another_configuration_is_asked_about_the_same_pods() -> None:
    watching = Watching(node(), proposed=LIMITED)
    watching.watched.admit("wide", "10")
    watching.watched.admit("large", "40")
    watching.wait()
    watching.watched.end("wide")
    watching.watched.admit("web", "2")
    watching.wait()
    document = watching.shadow.tally.document(watching.shadow.would_be)
    assert document.would_be is not None
    assert (document.refused, document.would_be.refusals) == (1, 2)
    assert (document.would_be.refused, document.would_be.admitted) == (["default/wide"], [])
    assert watching.shadow.tally.counts[Agreement.AGREED, KubeletEvent.REFUSED, DifferenceCause.NONE] == 1
    assert msgspec.to_builtins(document)["kind"] in str(schema("Shadow"))
