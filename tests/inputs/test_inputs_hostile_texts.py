"""A sweep: escapes, markup and shell code in every key and value of every input, over verbs and outputs.

A sample is drawn with a fixed seed; `make sweep` runs all of it.
"""

from __future__ import annotations

import copy
import io
import json
import os
import re
import shlex
import shutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any
from unittest import mock

import pytest
import yaml
from tests.cli.command import CORPORA, EXAMPLES, Answered

from mooring.command.main import run
from mooring.inputs.pods.scenario import Scenario, load_scenarios

WHOLE = os.environ.get("MOORING_SWEEP") == "whole"
SAMPLE = 3
"""Cases of an ordinary run, of each payload and kind of input."""
FOUND = {("mooring-node.json", ("node",)), ("virtual machine", ("metadata", "name"))}
"""Places that an audit found; they are always tried."""
PAYLOADS = {
    "escapes": "\x1b]0;P\x07\x1b[31m\x9b2J\x1b[8m",
    "markup": "[bold]<img src=x onerror=P></script>[/]",
    "shell": "'x; touch P #$(touch P)",
}
MACHINE = ("--machine", "sockets=1 numa=2 cores=8 memory=16Gi")
NODE = (*MACHINE, "--config", str(EXAMPLES / "kubelet.yaml"))
PODS = ("-f", str(EXAMPLES / "pods.yaml"))
LIVE = ("--config", str(EXAMPLES / "fleet" / "live-kubelet.yaml"))
POD = "{apiVersion: v1, kind: Pod, metadata: {name: a}, spec: {containers: [{name: c}]}}"
_COMMAND = re.compile(r"(?:(?<=[\s`'\"(])|^)(?:kubectl|mooring|systemctl|rm|cp|mkdir) .*")
Words = Sequence[str | Path]
Route = tuple[Any, ...]
"""Keys and places on the way to a value."""


class _Terminal(io.TextIOWrapper):
    """A stream on which click and rich write as on a terminal."""

    def isatty(self) -> bool:
        return True

    def text(self) -> str:
        self.flush()
        assert isinstance(self.buffer, io.BytesIO)
        return self.buffer.getvalue().decode()


def on_terminal(*words: str | Path) -> Answered:
    """Run ``mooring`` with standard output and standard error on a terminal without colours."""
    out, err = (_Terminal(io.BytesIO(), encoding="utf-8", write_through=True) for _ in range(2))
    environment = {"COLUMNS": "200", "TERM": "xterm", "NO_COLOR": "1", "KUBECONFIG": os.devnull, "PATH": ""}
    with (
        mock.patch.dict(os.environ, environment),
        mock.patch.object(sys, "stdin", io.TextIOWrapper(io.BytesIO())),
        mock.patch.object(sys, "stdout", out),
        mock.patch.object(sys, "stderr", err),
    ):
        code = run([os.fspath(word) for word in words])
    return Answered(code, out.text(), err.text())


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of input: the file, its documents, and the commands that read it."""

    name: str
    file: Path
    documents: Sequence[Any]
    """A text stands for a file that is no document."""
    commands: Sequence[Words]

    def write(self, documents: Sequence[Any]) -> None:
        texts = [one if isinstance(one, str) else json.dumps(one, default=str) for one in documents]
        separator = "" if self.file.suffix == ".jsonl" else "---\n"
        self.file.write_text(separator.join(f"{text}\n" for text in texts), encoding="utf-8")


@dataclass(frozen=True, slots=True)
class Case:
    """A payload at one place, for one command."""

    kind: Kind
    document: int
    route: Route
    how: str
    payload: str
    command: Words


def documents(file: Path) -> list[Any]:
    return [one for one in yaml.safe_load_all(file.read_text(encoding="utf-8")) if one is not None]


def routes(value: Any, above: Route = ()) -> Iterator[tuple[Route, str]]:
    """Yield every place and how it can be damaged."""
    if isinstance(value, Mapping):
        for key, inner in value.items():
            yield (*above, key), "key"
            yield from routes(inner, (*above, key))
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            yield from routes(inner, (*above, index))
    elif isinstance(value, str) and "\n" in value.strip():
        for line in range(len(value.splitlines())):
            yield (*above, line), "line"
    else:
        yield above, "append"
        yield above, "replace"


def damaged(document: Any, route: Route, how: str, payload: str) -> Any:
    """Return the document with the payload at one place."""
    if isinstance(document, str):
        if how != "line":
            return f"{document.rstrip()}{payload}" if how == "append" else payload
        lines = document.splitlines()
        lines[route[-1]] += payload
        return "\n".join(lines)
    changed = copy.deepcopy(document)
    inner = changed
    for step in route[: -2 if how == "line" else -1]:
        inner = inner[step]
    *_, last = route[:-1] if how == "line" else route
    if how == "key":
        inner[f"{last}{payload}"] = inner.pop(last)
    else:
        inner[last] = payload if how == "replace" else f"{inner[last]}{payload}"
    return changed


def kinds(folder: Path) -> Iterator[Kind]:
    """Yield every kind of input, with a file of its own."""

    def formed(forms: Mapping[str, Sequence[str]], *words: str | Path) -> list[Words]:
        return [
            (*verb.split(), *words, *(("-o", form) if form else ())) for verb, found in forms.items() for form in found
        ]

    pods = folder / "pods.yaml"
    forms = {
        "plan": ("", "wide", "json", "yaml", "html", "sarif", "junit", "metrics", "podresources"),
        "explain": ("", "json", "svg"),
        "show": ("", "svg", "html"),
        "capacity --shape cpu=1,memory=1Gi": ("", "json"),
        "whatif --set topologyManagerPolicy=restricted": ("", "json", "svg"),
        "compare --vary topology-policy": ("", "json", "svg"),
        "upgrade --kubelet-version 1.34": ("", "json", "html"),
    }
    yield Kind("pods", pods, documents(EXAMPLES / "pods.yaml")[:3], formed(forms, "-f", pods, *NODE))
    machine = folder / "vm.yaml"
    owner = {
        "apiVersion": "kubevirt.io/v1",
        "kind": "VirtualMachine",
        "metadata": {"name": "v", "namespace": "n"},
        "spec": {"instancetype": {"name": "u1.small"}, "template": {"spec": {"domain": {"cpu": {"cores": "2"}}}}},
    }
    yield Kind("virtual machine", machine, [owner], formed({"plan": ("", "json")}, "-f", machine, *NODE))
    config = folder / "kubelet.yaml"
    settings = formed({**forms, "topology": ("",)}, *MACHINE, "--config", config)
    settings = [(*one, *PODS) if one[0] != "topology" else one[:3] for one in settings]
    yield Kind("configuration", config, documents(EXAMPLES / "kubelet.yaml"), settings)
    devices = folder / "devices.yaml"
    beside = ("-f", EXAMPLES / "devices" / "pods.yaml", "--config", devices, "--machine", "numa=4 cores=8 memory=16Gi")
    yield Kind("devices", devices, documents(EXAMPLES / "devices" / "kubelet.yaml"), formed(forms, *beside))
    node, one = folder / "node", folder / "one.yaml"
    one.write_text(POD, encoding="utf-8")
    shutil.copytree(EXAMPLES / "node", node)
    asked = {
        "doctor": ("", "json"),
        "doctor --lint": ("", "json"),
        "migrate": ("", "json"),
        "upgrade --kubelet-version 1.34": ("", "json", "html"),
        "show": ("", "svg", "html"),
        f"plan -f {one}": ("", "json", "html"),
        "topology": ("",),
    }
    for name in ("mooring-node.json", "pods.json", "kubelet/config.json"):
        content = [json.loads((node / name).read_text(encoding="utf-8"))]
        about = [
            (*words[:1], "--machine", node) if words[0] == "topology" else words
            for words in formed(asked, "--node", node)
        ]
        yield Kind(name, node / name, content, about)
    texts = ("kubelet/cpu_manager_state", "kubelet/memory_manager_state", "proc/90/comm", "proc/cpuinfo", "proc/mounts")
    for name in (*texts, "sys/devices/system/node/node0/distance", "sys/devices/system/cpu/online"):
        text = (node / name).read_text(encoding="utf-8")
        commands = formed(
            {key: asked[key] for key in ("doctor", "doctor --lint", "migrate", f"plan -f {one}")}, "--node", node
        )
        yield Kind(name, node / name, [json.loads(text) if name.startswith("kubelet/") else text], commands)
    cases = folder / "scenarios.jsonl"
    first = next(load_scenarios(CORPORA / "admission-devices.jsonl.gz"))
    assert isinstance(first, Scenario)
    shutil.copy(CORPORA / "machines.jsonl", folder)
    replayed = [("replay", cases), ("replay", cases, "--check"), ("replay", cases, "-o", "jsonl")]
    yield Kind("scenarios", cases, [dict(first.raw)], replayed)
    cluster = folder / "live.yaml"
    fleet = [
        ("fleet", "drain", "--cluster", cluster, "worker-1", *LIVE),
        ("fleet", "fit", "--cluster", cluster, "-f", one, *LIVE),
        ("fleet", "upgrade", "v1.37.1", "--cluster", cluster, *LIVE),
    ]
    yield Kind("cluster", cluster, documents(EXAMPLES / "fleet" / "live.yaml"), fleet)


def cases(kind: Kind, payload: str) -> list[Case]:
    return [
        Case(kind, number, route, how, payload, command)
        for number, document in enumerate(kind.documents)
        for route, how in routes(document)
        for command in kind.commands
    ]


def strings(value: Any) -> Iterator[str]:
    if isinstance(value, Mapping):
        for key, inner in value.items():
            yield from (key, *strings(inner))
    elif isinstance(value, list):
        for inner in value:
            yield from strings(inner)
    elif isinstance(value, str):
        yield value


def runnable(line: str) -> bool:
    """Tell whether a shell that takes the command in this line would run what a foreigner wrote."""
    found = _COMMAND.search(line)
    if found is None or "touch P" not in found[0]:
        return False
    try:
        words = shlex.split(found[0])
    except ValueError:
        return True
    return not any("touch P" in word for word in words)


def problems(answered: Answered) -> Iterator[str]:
    """Yield what is wrong with an answer."""
    for name, text in (("standard output", answered.out), ("standard error", answered.err)):
        if any((ord(char) < 32 and char not in "\n\t") or 0x7F <= ord(char) < 0xA0 for char in text):
            yield f"control characters on {name}"
    if answered.code not in (0, 1, 2) or "internal error" in answered.err:
        yield f"exit code {answered.code}"
    if answered.out.lstrip().startswith("<") and ("<img src=x" in answered.out or "onerror=P></script" in answered.out):
        yield "markup"
    try:
        lines = [line for text in strings(json.loads(answered.out)) for line in text.splitlines()]
    except ValueError:
        lines = answered.out.splitlines()
    yield from (f"a command: {line}" for line in (*lines, *answered.err.splitlines()) if runnable(line))


def outcome(case: Case) -> list[str]:
    """Return what is wrong with the answer to one case; the file is as before afterwards."""
    kind = case.kind
    hostile = list(kind.documents)
    hostile[case.document] = damaged(hostile[case.document], case.route, case.how, PAYLOADS[case.payload])
    kind.write(hostile)
    answered = on_terminal(*case.command)
    kind.write(kind.documents)
    words = " ".join(str(word) for word in case.command)
    place = f"{kind.name} {case.how} {'.'.join(map(str, case.route))}: {case.payload}"
    said = [repr(line[:200]) for line in f"{answered.err}{answered.out}".splitlines() if line]
    return [f"{place}: {words[:100]}: {one}: {said[0] if said else ''}" for one in problems(answered)]


@pytest.mark.parametrize("payload", PAYLOADS)
def test_no_text_of_a_file_reaches_a_terminal_a_shell_or_a_page_as_more_than_text(payload: str, tmp_path: Path) -> None:
    random, chosen = Random(37), list[Case]()  # noqa: S311 - a sample, not a secret
    for kind in kinds(tmp_path):
        found = cases(kind, payload)
        drawn = found if WHOLE else random.sample(found, SAMPLE)
        chosen += [*drawn, *(case for case in found if (kind.name, case.route) in FOUND and case not in drawn)]
    wrong = [line for case in chosen for line in outcome(case)]
    assert not wrong, f"{len(wrong)} of {len(chosen)}:\n" + "\n".join(wrong[:40])


def test_undamaged_files_are_answered(tmp_path: Path) -> None:
    for kind in kinds(tmp_path):
        kind.write(kind.documents)
        for command in kind.commands:
            answered = on_terminal(*command)
            assert answered.code in (0, 1) or kind.name == "virtual machine", (command, answered.err)
            assert not [*problems(answered)], command
