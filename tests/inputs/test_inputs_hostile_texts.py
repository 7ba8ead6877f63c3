"""A sweep: escapes, markup and shell code in every key and value of every input, over verbs and outputs.

A sample is drawn with a fixed seed; `make sweep` runs all of it, or with SAMPLE=100 a larger sample.
"""

from __future__ import annotations

import copy
import io
import json
import os
import re
import shlex
import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from random import Random
from typing import Any
from unittest import mock

import click
import pytest
from tests.cli.command import Answered
from tests.inputs.hostile_kinds import KUBELET, MACHINE, POD, Kind, Words, kinds

from mooring.command.main import cli, run
from mooring.engine.plugins.loading import GROUP

SAMPLE = os.environ.get("MOORING_SWEEP", "3")
"""Cases of each payload and kind of input, or the word whole."""
FOUND = {("mooring-node.json", ("node",)), ("virtual machine", ("metadata", "name"))}
"""Places that an audit found; they are always tried."""
PAYLOADS = {
    "escapes": "\x1b]0;P\x07\x1b[31m\x9b2J\x1b[8m\u202e\u2028",
    "markup": "[bold]<img src=x onerror=P></script>[/]",
    "shell": "'x; touch P #$(touch P)",
}
PLUGINS = [
    EntryPoint(f"{name}{payload}", "tests.inputs.speaking_plugin:Speaking", GROUP)
    for name in ("one", "two", "three", "")
    for payload in ("", *PAYLOADS.values())
]
"""Plugins with foreign words, and with such names."""
_DATA = {"json", "jsonl", "yaml", "sarif", "machineinfo", "podresources", "evictions"}
"""Documents for programs, in which a foreign text is as it is."""
_COMMAND = re.compile(r"(?:(?<=[\s`'\"(])|^)(?:kubectl|mooring|systemctl|rm|cp|mkdir) .*")
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


def on_terminal(*words: str | Path, programs: Path) -> Answered:
    """Run ``mooring`` with standard output and standard error on a terminal without colours.

    Args:
        words: of the command.
        programs: a folder in which a kubectl may be.
    """
    out, err = (_Terminal(io.BytesIO(), encoding="utf-8", write_through=True) for _ in range(2))
    environment = {"COLUMNS": "200", "TERM": "xterm", "NO_COLOR": "1", "KUBECONFIG": os.devnull}
    environment |= {"PATH": str(programs), "XDG_CACHE_HOME": os.devnull, "MOORING_ROOT": "none"}
    with (
        # A file in place of the agent's socket
        mock.patch("mooring.service.agent_status._asked", lambda path, _page: Path(path).read_bytes()),
        mock.patch("mooring.engine.plugins.loading.entry_points", lambda group: [*entry_points(group=group), *PLUGINS]),
        mock.patch.dict(os.environ, environment),
        mock.patch.object(sys, "stdin", io.TextIOWrapper(io.BytesIO())),
        mock.patch.object(sys, "stdout", out),
        mock.patch.object(sys, "stderr", err),
    ):
        code = run([os.fspath(word) for word in words])
    return Answered(code, out.text(), err.text())


@dataclass(frozen=True, slots=True)
class Case:
    """A payload at one place, for one command."""

    kind: Kind
    document: int
    route: Route
    how: str
    payload: str
    command: Words


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


def problems(answered: Answered, words: Words) -> Iterator[str]:
    """Yield what is wrong with the answer to a command."""
    for name, text in (("standard output", answered.out), ("standard error", answered.err)):
        if any((ord(char) < 32 and char not in "\n\t") or 0x7F <= ord(char) < 0xA0 for char in text):
            yield f"control characters on {name}"
        if not (_DATA & {*words} and text is answered.out) and not re.sub(r"[\n\t]", "", text).isprintable():
            yield f"what is not printed on {name}"
    if answered.code not in (0, 1, 2) or "internal error" in answered.err:
        yield f"exit code {answered.code}"
    refused = [line for line in answered.err.splitlines() if not re.match(r"(warning|note)(\[|: )", line)]
    if answered.code == 2 and (len(refused) != 1 or answered.out):
        yield f"a refusal in {len(refused)} lines"
    # A fenced block of Markdown is text
    shown = re.sub(r"^(```+)$.*?^\1$", "", answered.out, flags=re.MULTILINE | re.DOTALL)
    is_marked_up = shown.lstrip().startswith("<") or "markdown" in words
    if is_marked_up and re.search(r"(?<!\\)<img src=x|onerror=P></script", shown):
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
    answered = on_terminal(*case.command, programs=kind.file.parent / "bin")
    kind.write(kind.documents)
    words = " ".join(str(word) for word in case.command)
    place = f"{kind.name} {case.how} {'.'.join(map(str, case.route))}: {case.payload}"
    said = [repr(line[:200]) for line in f"{answered.err}{answered.out}".splitlines() if line]
    return [f"{place}: {words[:100]}: {one}: {said[0] if said else ''}" for one in problems(answered, case.command)]


@pytest.mark.parametrize("payload", PAYLOADS)
def test_no_text_of_a_file_reaches_a_terminal_a_shell_or_a_page_as_more_than_text(payload: str, tmp_path: Path) -> None:
    random, found = Random(37), defaultdict[str, list[Case]](list)  # noqa: S311 - a sample, not a secret
    for kind in kinds(tmp_path):
        found[kind.name] += cases(kind, payload)
    chosen: list[Case] = []
    for some in found.values():
        drawn = some if SAMPLE == "whole" else random.sample(some, min(int(SAMPLE), len(some)))
        chosen += [*drawn, *(case for case in some if (case.kind.name, case.route) in FOUND and case not in drawn)]
    wrong = [line for case in chosen for line in outcome(case)]
    assert not wrong, f"{len(wrong)} of {len(chosen)}:\n" + "\n".join(wrong[:40])


def test_undamaged_files_are_answered(tmp_path: Path) -> None:
    seen: set[tuple[str, ...]] = set()
    for kind in kinds(tmp_path):
        kind.write(kind.documents)
        for command in kind.commands:
            verb = (kind.name, str(command[0]))
            if verb in seen:
                continue
            seen.add(verb)
            answered = on_terminal(*command, programs=kind.file.parent / "bin")
            assert answered.code in (0, 1) or kind.name == "virtual machine", (command, answered.err)
            assert not [*problems(answered, command)], command


LEFT_OUT = {
    "completion": "prints no file's text",
    "demo": "reads no file",
    "machines": "reads no file",
    "version": "reads no file",
    "agent": "runs until it is ended: its log is a document a line (tests/agent/outside/test_agent_configuration.py)",
    "deploy": "runs in the chart's pods",
    "dra": "runs until it is ended",
    "extender": "runs until it is ended",
    "play": "runs until it is ended",
    "record": "runs until it is ended",
    "shadow": "runs until it is ended: what it counts is read by status",
}
"""Verb -> why no command of the sweep has it."""


def test_every_output_of_every_verb_is_swept(tmp_path: Path) -> None:
    swept = {command for kind in kinds(tmp_path) for command in map(_output, kind.commands)}
    missing = {pair for pair in _outputs(cli) if pair[0].split()[0] not in LEFT_OUT} - swept
    assert not missing


def _output(command: Words) -> tuple[str, str]:
    words = [str(word) for word in command]
    verb = " ".join(words[: 2 if words[0] == "fleet" else 1])
    return verb, words[words.index("-o") + 1] if "-o" in words else ""


def _outputs(group: click.Group, before: str = "") -> Iterator[tuple[str, str]]:
    """Yield every verb with each form of its answer; the empty one is the default."""
    context = click.Context(group)
    for name in group.list_commands(context):
        found = group.get_command(context, name)
        if isinstance(found, click.Group):
            yield from _outputs(found, f"{name} ")
        elif found is not None:
            form = next((one for one in found.params if "-o" in one.opts), None)
            choices = form.type.choices if form is not None and isinstance(form.type, click.Choice) else ()
            default = form.default if form is not None else ""
            yield from ((f"{before}{name}", "" if one == default else one) for one in (*choices, default))


@pytest.mark.parametrize("form", ["metrics", "podresources"])
def test_a_refusal_in_the_place_of_a_document_is_a_text_for_people(form: str, tmp_path: Path) -> None:
    config, pods = tmp_path / "kubelet.json", tmp_path / "pod.yaml"
    config.write_text(json.dumps(KUBELET | {"evictionHard": {"memory.available\u202e\x1b": "1Mi"}}), "utf-8")
    pods.write_text(POD, "utf-8")
    answered = on_terminal("plan", "-f", pods, *MACHINE, "--config", config, "-o", form, programs=tmp_path)
    shown = "The kubelet would not start: unsupported eviction signal memory.available\N{REPLACEMENT CHARACTER}"
    assert answered.out == f"{shown}\N{REPLACEMENT CHARACTER}\n"
