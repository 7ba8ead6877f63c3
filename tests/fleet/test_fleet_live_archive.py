"""Archives of clusters: the same answers as from the objects, the same bytes, and nothing that is secret."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.documents.validation import complaints
from tests.fleet.clusters import asked
from tests.fleet.live_clusters import ALIGNED, MACHINE, node, objects, pod

from mooring.cli.output import json_text
from mooring.engine.core.errors import InputError
from mooring.fleet.event_files import load_cluster
from mooring.fleet.live_cluster import live_cluster
from mooring.fleet.live_objects import named_machines
from mooring.fleet.relocation.fit import FitQuestion, fit
from mooring.inputs.machines.archive import ArchiveTree
from mooring.published.cluster_archive import ABOUT, ClusterArchive, ClusterObjects, load_objects, objects_of_archive

WHEN = "2026-11-01T12:00:00Z"
HIDDEN = "hunter2"


def cluster() -> ClusterObjects:
    secretive = pod("p0", "n0", "2", nodeSelector={"kubernetes.io/hostname": "n0"}, serviceAccountName=HIDDEN)
    secretive["metadata"]["annotations"] = {"token": HIDDEN, "mooring/spread-group": "web"}
    [container] = secretive["spec"]["containers"]
    container |= {
        "env": [{"name": "PASSWORD", "value": HIDDEN}],
        "args": [HIDDEN],
        "image": HIDDEN,
        "command": [HIDDEN],
    }
    secretive["spec"]["volumes"] = [{"name": "data", "secret": {"secretName": HIDDEN}}]
    secretive["status"] |= {"podIP": HIDDEN, "message": HIDDEN}
    told = node("n0", taints=[{"key": "x", "effect": "PreferNoSchedule"}])
    told["metadata"]["annotations"] = {"note": HIDDEN}
    told["status"] |= {"addresses": [{"address": HIDDEN}], "images": [{"names": [HIDDEN]}]}
    budget = {
        "kind": "PodDisruptionBudget",
        "metadata": {"name": "b", "namespace": "default", "annotations": {"note": HIDDEN}},
        "spec": {"selector": {"matchLabels": {"app": "p1"}}},
        "status": {"disruptionsAllowed": 0},
    }
    found = objects(told, node("n1"), secretive, pod("p1", "n1", "3", second=1), pod("p2", "n1", "1", second=2), budget)
    configz = {name: {"kubeletconfig": {**ALIGNED, "tlsPrivateKeyFile": HIDDEN}} for name in ("n0", "n1")}
    return ClusterObjects(found.source, found.found, configz)


def written(folder: Path, packed: bytes) -> str:
    path = folder / "cluster.tar.gz"
    path.write_bytes(packed)
    return str(path)


def answer(found: ClusterObjects) -> dict[str, Any]:
    live = live_cluster(found, named_machines([MACHINE]))
    document = fit(live, FitQuestion("default/new", asked("4"), 4))
    return {name: getattr(document, name) for name in ("now", "causes", "after", "plan", "fixed", "assumed")}


def test_an_archive_gives_the_answers_of_the_objects_that_it_was_made_of(tmp_path: Path) -> None:
    read = load_objects(written(tmp_path, ClusterArchive(cluster(), WHEN).packed()))
    assert read.captured == WHEN
    assert answer(read) == answer(cluster())


def test_no_value_that_is_not_on_a_list_gets_into_an_archive(tmp_path: Path) -> None:
    read = load_objects(written(tmp_path, ClusterArchive(cluster(), WHEN).packed()))
    text = json.dumps([read.found, read.configz])
    assert HIDDEN not in text
    assert "spread-group" in text


def test_the_order_of_objects_does_not_change_the_bytes() -> None:
    found = cluster()
    turned = ClusterObjects(found.source, {kind: items[::-1] for kind, items in found.found.items()}, found.configz)
    assert ClusterArchive(found, WHEN).packed() == ClusterArchive(turned, WHEN).packed()


def test_what_an_archive_says_of_itself_is_what_its_schema_says() -> None:
    about = ClusterArchive(cluster(), WHEN).about
    assert complaints("ClusterArchive", json.loads(json_text(about))) == []
    assert {part.name: part.objects for part in about.parts if part.objects} == {
        "Node": 2,
        "Pod": 3,
        "PodDisruptionBudget": 1,
        "configz": 2,
    }


def test_what_could_not_be_read_is_said_again_by_every_answer(tmp_path: Path) -> None:
    found = cluster()
    less = ClusterObjects(found.source, found.found, found.configz, unread=("nodestates cannot be read",))
    read = load_objects(written(tmp_path, ClusterArchive(less, WHEN).packed()))
    assert live_cluster(read, named_machines([MACHINE])).cluster.findings[0] == "nodestates cannot be read"


def test_simulations_take_an_archive_with_its_nodes_as_they_are(tmp_path: Path) -> None:
    path = written(tmp_path, ClusterArchive(cluster(), WHEN).packed())
    found = load_cluster(path, machines=(MACHINE,)).cluster
    assert [len(now.pods) for now in found.now.values()] == [1, 2]


@pytest.mark.parametrize(
    ("files", "said"),
    [
        ({}, f"is not an archive of a cluster: {ABOUT} is missing"),
        ({ABOUT: b"{}"}, "None of None is not ClusterArchive"),
        ({ABOUT: b"["}, ABOUT),
        ({ABOUT: b"1"}, "must be a mapping"),
        ({ABOUT: b'{"kind": "ClusterArchive", "apiVersion": "mooring/v1alpha1"}'}, "has no Node object"),
    ],
)
def test_what_is_no_archive_is_one_line_that_names_the_file(files: dict[str, bytes], said: str) -> None:
    with pytest.raises(InputError) as raised:
        objects_of_archive(ArchiveTree("cluster.tar.gz", files))
    assert said in str(raised.value)
    assert "cluster.tar.gz" in str(raised.value)
