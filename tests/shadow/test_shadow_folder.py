"""What a shadow keeps: whole lines on a full disk, damaged files, and no names where it is anonymous."""

from __future__ import annotations

import json
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from tests.shadow.observing import STATIC, node
from tests.shadow.test_shadow_watching import LIMITED, Seen, Watching

from mooring.engine.core.errors import InputError
from mooring.engine.core.machine import Finding
from mooring.monitoring.shadow.folder import ShadowFolder
from mooring.monitoring.shadow.judge import judge
from mooring.monitoring.shadow.tally import add, continued, new_tally, write_counts
from mooring.published.observation import Observation

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


@pytest.mark.parametrize("damaged", [b'{"node":"\xff"}', b"\xff\xfe"])
def test_counts_that_are_no_text_are_kept_aside(tmp_path: Path, damaged: bytes) -> None:
    (tmp_path / "counts.json").write_bytes(damaged)
    told = list[Finding]()
    assert continued(tmp_path, "node", "v1.37.1", told.append).node == "node"
    assert (tmp_path / "counts.json.bak-1").read_bytes() == damaged
    assert ["kept as counts.json.bak-1" in one.message for one in told] == [True]


def test_a_byte_that_is_no_text_in_a_state_file_is_a_difference_that_can_be_counted(tmp_path: Path) -> None:
    watched = node()
    before = watched.observed()
    watched.admit("web", "2")
    after = watched.observed()
    files = after.state.files
    damaged = replace(files, cpu=(files.cpu or "").replace("{", '{"odd":"\udcff",', 1))
    judged = judge(before, replace(after, state=replace(after.state, files=damaged)))
    tally = new_tally("node", "v1.37.1", "2026-01-01T00:00:00Z")
    add(tally, [one for interval in judged for one in interval.judgements], "2026-01-01T00:00:00Z")
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
    [judged] = [one for interval in judge(node().observed(), watched.observed()) for one in interval.judgements]
    folder = ShadowFolder(tmp_path).difference([judged], [], watched.observed().facts, DIGEST, anonymous=True)
    assert (folder / "difference.txt").read_text() == "agreed: 1 refused\n"
