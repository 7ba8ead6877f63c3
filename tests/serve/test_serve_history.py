"""The timeline survives the page: its own folder, and the recordings of a shadow."""

from __future__ import annotations

import os
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from html import escape
from pathlib import Path

import pytest
from tests.serve.clusters import known
from tests.serve.site import HOSTILE, hostile, node_site, question, served
from tests.serve.test_serve_node import TokenGuard
from tests.shadow.observing import node

from mooring.command.main import run
from mooring.engine.core.errors import InputError
from mooring.monitoring.serve.access import OpenGuard
from mooring.monitoring.serve.cluster.open_nodes import kept_of_node
from mooring.monitoring.serve.cluster.routes import cluster_application
from mooring.monitoring.serve.history import DAY, SnapshotHistory
from mooring.monitoring.serve.node_plan import snapshot_of
from mooring.monitoring.serve.recording import Recorded, Recording
from mooring.monitoring.serve.shadowed import ShadowedMoments
from mooring.monitoring.serve.snapshot import HIDDEN, NodeSnapshot
from mooring.monitoring.shadow.folder import ShadowFolder
from mooring.monitoring.shadow.judging.judge import judge
from mooring.monitoring.shadow.recording import recorded_scenario


def complaint(text: str) -> None:
    raise AssertionError(text)


@pytest.fixture(scope="module")
def full() -> NodeSnapshot:
    return snapshot_of(question())


@pytest.fixture(scope="module")
def empty() -> NodeSnapshot:
    return snapshot_of(replace(question(), pods=()))


def test_a_moment_is_the_same_after_a_restart(tmp_path: Path, full: NodeSnapshot, empty: NodeSnapshot) -> None:
    now = [1000.0]
    before = Recording(full, lambda: now[0], SnapshotHistory(tmp_path, complaint, lambda: now[0]))
    now[0] = 2000.0
    before.take(empty)
    again = Recording(full, lambda: now[0], SnapshotHistory(tmp_path, complaint, lambda: now[0]))
    oldest, newest = again.span()
    assert (oldest, newest.number) == (1, 3)
    assert again.at(1) == Recorded(1, 1000.0, full.bare())
    assert again.at(2).snapshot == empty
    with node_site(again) as site:
        assert 'min="1" max="3"' in site.ask("/").text
        assert site.ask("/body?number=2").text.count("data-uid") == 0
        assert "at this moment" in site.ask("/body?number=1").text
        uid = full.pods[0].uid
        assert full.pods[0].name in site.ask(f"/pod?uid={uid}&number=1").text
        assert site.ask(f"/pod?uid={uid}&number=2").status == 404


def test_a_frame_that_is_cut_short_is_removed_and_a_damaged_one_is_said(
    tmp_path: Path, full: NodeSnapshot, empty: NodeSnapshot
) -> None:
    first = SnapshotHistory(tmp_path, complaint)
    for number, one in enumerate((full, empty, full), 1):
        first.add(Recorded(number, 1e10, one))
    file = next(tmp_path.iterdir())
    assert file.stat().st_mode & 0o077 == 0
    data = file.read_bytes()
    file.write_bytes(data[:-7])
    assert SnapshotHistory(tmp_path, complaint).last == 2
    file.write_bytes(data[:40] + b"\0\0\0\0" + data[44:])
    (tmp_path / "timeline-000009.moments").write_bytes(b"something else")
    (tmp_path / "timeline-x.moments").mkdir()
    damaged = Recording(full, kept=SnapshotHistory(tmp_path, complaint))
    with pytest.raises(InputError, match="damaged"):
        damaged.at(1)
    with node_site(damaged) as site:
        assert "damaged" in site.ask("/body?number=1").text
        assert site.ask("/body?number=2").status == 200


@contextmanager
def files_of_at_most(size: int) -> Iterator[None]:
    """Let the system write a part of what would make a file larger, and then refuse, as on a disk that is full."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_a_moment_of_which_a_part_is_written_leaves_the_others_whole(
    tmp_path: Path, full: NodeSnapshot, empty: NodeSnapshot
) -> None:
    said: list[str] = []
    history = SnapshotHistory(tmp_path, said.append)
    for number, one in enumerate((full, empty), 1):
        history.add(Recorded(number, 1e10, one))
    file = next(tmp_path.iterdir())
    before = file.read_bytes()
    with files_of_at_most(len(before) + 100):
        history.add(Recorded(3, 1e10, full))
    assert file.read_bytes() == before
    with files_of_at_most(100):
        history.add(Recorded(4, 1e10, full))
    assert list(tmp_path.iterdir()) == [file]
    assert len(said) == 1
    history.add(Recorded(5, 1e10, full))
    assert [history.at(number).snapshot for number in (1, 2, 5)] == [full.bare(), empty, full.bare()]
    again = SnapshotHistory(tmp_path, complaint)
    assert [again.at(number).snapshot for number in (1, 2, 3)] == [full.bare(), empty, full.bare()]


def test_days_and_bytes_are_bounded(tmp_path: Path, empty: NodeSnapshot, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mooring.monitoring.serve.history.MOMENTS", 2)
    now = [0.0]
    history = SnapshotHistory(tmp_path, complaint, lambda: now[0])
    for number in range(1, 9):
        history.add(Recorded(number, now[0], empty))
        now[0] += DAY / 4
    assert history.last == 8
    assert history.first == 3
    assert history.at(3).at == DAY / 2
    monkeypatch.setattr("mooring.monitoring.serve.history.LARGEST", 1)
    history.add(Recorded(9, now[0], empty))
    assert (history.first, history.last) == (9, 9)


def test_a_folder_that_cannot_be_written_is_said_once_and_the_page_goes_on(
    tmp_path: Path, full: NodeSnapshot, empty: NodeSnapshot, capsys: pytest.CaptureFixture[str]
) -> None:
    said: list[str] = []
    folder = tmp_path / "history"
    recorded = Recording(full, kept=SnapshotHistory(folder, said.append))
    for path in folder.iterdir():
        path.unlink()
    folder.rmdir()
    for one in (empty, full):
        recorded.take(one)
    assert recorded.at(2).snapshot == empty
    (tmp_path / "file").write_text("", encoding="utf-8")
    assert run(["serve", "--machine", "epyc-7763-2s-nps4", "--history", str(tmp_path / "file" / "x")]) == 2
    assert "cannot be made" in capsys.readouterr().err


def test_people_see_the_past_of_their_namespaces_only_and_hostile_names_are_texts(
    tmp_path: Path, empty: NodeSnapshot, full: NodeSnapshot
) -> None:
    history = SnapshotHistory(tmp_path, complaint)
    for number, one in enumerate((full, snapshot_of(hostile())), 1):
        history.add(Recorded(number, 1e10, one))
    recorded = Recording(empty, kept=SnapshotHistory(tmp_path, complaint))
    with node_site(recorded, TokenGuard(), loopback=False) as site:
        some = site.ask("/body?number=1", Authorization="Bearer data").text
        assert "data/database-0" in some
        assert "core/" not in some
        assert HIDDEN in some
        assert site.ask("/body?number=1").status == 401
        page = site.ask("/body?number=2", Authorization="Bearer all").text
        assert HOSTILE not in page
        assert escape(HOSTILE) in page


def shadow_folder(folder: Path, names: tuple[str, ...]) -> None:
    """Write what a shadow writes: pods come, one after the other, and one is refused."""
    written = ShadowFolder(folder)
    watched = node()
    for number, name in enumerate(names):
        before = watched.observed()
        watched.admit(f"pod-{number}", "2" if number < 2 else "40")
        watched.tell()
        after = watched.observed()
        for stretch in judge(before, after):
            pods = {uid: one for look in (before, after) for uid, one in look.pods.items()}
            content = recorded_scenario("n1", stretch, pods)
            assert content is not None
            written.record({**content, "id": name}, stretch.before.facts, stretch.before.state.facts)


def test_a_shadows_recordings_are_the_moments_after_each(tmp_path: Path, empty: NodeSnapshot) -> None:
    shadow_folder(tmp_path, tuple(f"n1-20261124T0{hour}0000.000000Z" for hour in (1, 2, 3)))
    with (tmp_path / "recording-000001.jsonl").open("ab") as file:
        file.write(b'{"id": "nothing"}\n[1]\n{"id": "n1-20261124T040000.000000Z"}\n{"id": "n1-2026')
    noon = 1795521600.0
    os.utime(tmp_path / "recording-000001.jsonl", (noon, noon))
    kept = ShadowedMoments(tmp_path, noon)
    assert kept.last == 4
    assert [len(kept.at(number).snapshot.pods) for number in (1, 2, 3)] == [1, 2, 2]
    assert kept.at(1).at == noon - 11 * 3600
    last = kept.at(3).snapshot
    assert any("was refused" in one.text for one in last.notices)
    recorded = Recording(empty, kept=kept)
    with node_site(recorded) as site:
        assert 'min="1" max="5"' in site.ask("/").text
        uid = last.pods[0].uid
        assert "come from NUMA node 0" in site.ask(f"/pod?uid={uid}&number=1").text
        assert "no machine is called" in site.ask("/body?number=4").text
    assert ShadowedMoments(tmp_path, noon + 2 * DAY).last == 0


def test_a_folder_that_is_no_shadows_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for folder in (tmp_path, tmp_path / "none"):
        assert run(["serve", "--machine", "epyc-7763-2s-nps4", "--recordings", str(folder)]) == 2
        assert "name the folder that mooring shadow --folder writes" in capsys.readouterr().err
    assert run(["serve", "--history", str(tmp_path), "--recordings", str(tmp_path)]) == 2


def test_recordings_of_each_node_are_on_its_page_and_no_name_leads_out_of_the_folder(tmp_path: Path) -> None:
    names = tuple(f"n1-{datetime.now(UTC) - timedelta(hours=one):%Y%m%dT%H%M%S.%fZ}" for one in (2, 1))
    folder = tmp_path / "all"
    shadow_folder(folder / "node-0000", names)
    shadow_folder(tmp_path / "secret", names)
    (folder / "node-0001").mkdir()
    cluster = known(2)
    app, _ = cluster_application(cluster, "Cluster", OpenGuard(), loopback=True, recordings=folder)
    with served(app) as site:
        assert 'min="1" max="3"' in site.ask("/nodes/node-0000/").text
        assert "default/pod-0" in site.ask("/nodes/node-0000/body?number=1").text
        assert 'max="1"' in site.ask("/nodes/node-0001/").text
    assert kept_of_node(folder, "../secret") is None
    assert kept_of_node(tmp_path, "secret") is not None
