"""Mooring without any extra: each verb that needs one says which."""

from __future__ import annotations

import json
import re
import socket
import subprocess
import sys
import tomllib
from contextlib import closing
from pathlib import Path

import pytest
from tests.cli.made_up_node import make_root
from tests.packaging.conftest import ROOT

from mooring.command.main import VERBS

CLUSTER, DAY = (str(ROOT / "examples" / "fleet" / name) for name in ("cluster.yaml", "day.yaml"))
NEEDED = {
    "agent": ("agent", "--config", "none.yaml"),
    "dra": ("dra", "--agent", "none.sock", "--kubeconfig", "none"),
    "extender": ("extender", "--config", "none.yaml"),
    "publish": ("publish", "--once", "--kubeconfig", "none"),
    "fleet simulate": ("fleet", "simulate", "--cluster", CLUSTER, "-f", DAY),
    "fleet size": ("fleet", "size", "--cluster", CLUSTER, "-f", DAY, "--group", "one-socket"),
}
EXTRAS = {"agent": "agent", "dra": "dra", "extender": "kube", "publish": "kube", "fleet": "fleet"}
# Runs command lines in turn in an interpreter that has no package but those of the base installation.
PROGRAM = """
import contextlib, io, json, sys
for name in json.loads(sys.argv[1]):
    sys.modules[name] = None
from mooring.command.main import run
for words in json.loads(sys.argv[2]):
    told = io.StringIO()
    with contextlib.redirect_stderr(told):
        code = run(words)
    print(json.dumps([code, told.getvalue()]))
"""
IMPORTED = {"grpcio": "grpc", "protobuf": "google.protobuf"}
"""Packages whose modules have other names."""


def modules_of_extras() -> list[str]:
    """Return the modules of the packages that extras install."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    lines = {line for lines in project["optional-dependencies"].values() for line in lines}
    names = {re.split("[><=]", line)[0] for line in lines}
    return [IMPORTED.get(name, name.replace("-", "_")) for name in sorted(names)]


def without_extras(*lines: tuple[str, ...]) -> list[tuple[int, str]]:
    words = [sys.executable, "-c", PROGRAM, json.dumps(modules_of_extras()), json.dumps(lines)]
    done = subprocess.run(words, capture_output=True, text=True, check=True, timeout=120)
    answers = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("[")]
    return [(code, complaint) for code, complaint in answers]


def test_a_verb_without_its_extra_names_it_in_one_line() -> None:
    answers = dict(zip(NEEDED, without_extras(*NEEDED.values()), strict=True))
    for verb, (code, complaint) in answers.items():
        extra = EXTRAS[verb.split()[0]]
        assert (code, complaint.count("\n")) == (2, 1), complaint
        assert complaint.endswith(f"install its packages: pip install 'kube-mooring[{extra}]'\n"), complaint


def test_help_of_every_verb_needs_no_extra() -> None:
    assert [answer for answer in without_extras(*((verb, "--help") for verb in VERBS)) if answer != (0, "")] == []


def test_plans_and_pictures_need_no_extra(tmp_path: Path) -> None:
    pods, config = (str(ROOT / "examples" / name) for name in ("pods.yaml", "kubelet.yaml"))
    about = ("-f", pods, "--machine", "epyc-7763-2s-nps4", "--config", config)
    forms = ("text", "json", "html", "metrics")
    lines = [("plan", *about, "-o", form, "--to", str(tmp_path / f"plan.{form}")) for form in forms]
    assert {code for code, complaint in without_extras(*lines)} == {1}, "pods are rejected, and nothing else is wrong"
    assert len(list(tmp_path.iterdir())) == len(forms)


def test_a_kubelet_beside_it_is_not_asked_for_devices_without_extras(tmp_path_factory: pytest.TempPathFactory) -> None:
    root = tmp_path_factory.mktemp("r")
    make_root(root)
    place = root / "var/lib/kubelet/pod-resources"
    place.mkdir(parents=True)
    with closing(socket.socket(socket.AF_UNIX)) as listener:
        listener.bind(str(place / "kubelet.sock"))
        [(code, complaint)] = without_extras(("collect", "--root", str(root), "--dry-run", "--no-kubectl"))
    assert (code, complaint) == (0, "")
