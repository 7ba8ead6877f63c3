"""Running one command line inside the test's process, with streams like a shell's."""

from __future__ import annotations

import io
import json
import os
import shlex
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

import click

from mooring.command.main import cli, run

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "examples"
CORPORA = ROOT / "tests" / "corpora"
GOLDEN = ROOT / "tests" / "cli" / "golden"

SMALL = ("--machine", "small-1s8")
NODE = ("--machine", "epyc-7763-2s-nps4", "--config", str(EXAMPLES / "kubelet.yaml"))
"""The node of the example."""
PODS = ("-f", str(EXAMPLES / "pods.yaml"))
HUGE = "sockets=2 numa=4 cores=64 threads=2 memory=256Gi hugepages-2Mi=2048 distances=10,12,32"
AI = ("-f", str(EXAMPLES / "ai-pods.yaml"), "--machine", HUGE, "--config", str(EXAMPLES / "ai-kubelet.yaml"))
RESIZING = (*NODE[:2], "--config", str(EXAMPLES / "resizing-kubelet.yaml"))
MEMORY = (*NODE[:2], "--config", str(GOLDEN / "memory.yaml"))
REFUSED = (*NODE[:2], "--config", str(GOLDEN / "refused.yaml"))
"""A node whose kubelet does not start."""
INPUTS = {
    "PODS": PODS,
    "NODE": NODE,
    "EPYC": NODE[:2],
    "SMALL": SMALL,
    "AI": AI,
    "RESIZING": RESIZING,
    "MEMORY": ("-f", str(GOLDEN / "memory-pods.yaml"), *MEMORY),
    "CRASH": ("-f", str(GOLDEN / "crash-pods.yaml"), *MEMORY),
    "REFUSED": REFUSED,
    "CHANGES": (
        *("-f", "tests/cli/cases/changes/asked.yaml", "--active", "tests/cli/cases/changes/running.yaml"),
        *("--config", "tests/cli/cases/changes/node.yaml", "--machine", "sockets=2 cores=8 threads=1 memory=32Gi"),
    ),
}
"""Options with files, by their names in tables of commands."""


EXECUTED = """
found = {name: module for name, module in sys.modules.items() if type(module).__name__ != "_PostponedModule"}
executed = {name for name, module in found.items() if not hasattr(module, "__path__")}
executed |= {".".join(name.split(".")[:size]) for name in executed for size in range(1, name.count(".") + 1)}
"""
"""Program text: the modules that were executed, and the packages that have one of them."""


@dataclass(frozen=True, slots=True)
class Answered:
    """What a command came to."""

    code: int
    out: str
    err: str

    @property
    def document(self) -> Any:
        """The answer as JSON."""
        return json.loads(self.out)

    @property
    def complaint(self) -> str:
        """The one line on standard error, warnings aside."""
        lines = [line for line in self.err.splitlines() if not line.startswith(("warning: ", "warning["))]
        assert len(lines) == 1, self.err
        return lines[0]


def mooring(
    *arguments: str | Path,
    stdin: bytes | None = b"",
    columns: int = 100,
    encoding: str = "utf-8",
    code: int | None = None,
) -> Answered:
    """Run ``mooring ARGUMENTS`` and return its exit code and what it printed.

    Args:
        arguments: of the command.
        stdin: what standard input holds; None when it is closed.
        columns: width of the terminal.
        encoding: of standard output.
        code: the exit code that is expected, where one is; with code 2 there is no answer on standard output.
    """
    out, err = _stream(encoding), _stream("utf-8")
    given = None if stdin is None else io.TextIOWrapper(io.BytesIO(stdin), encoding="utf-8")
    environment = {"COLUMNS": str(columns), "LINES": "40", "TERM": "dumb", "NO_COLOR": "1"}
    with (
        mock.patch.dict(os.environ, environment),
        mock.patch.object(sys, "stdin", given),
        mock.patch.object(sys, "stdout", out),
        mock.patch.object(sys, "stderr", err),
    ):
        found = run([os.fspath(argument) for argument in arguments])
    answered = Answered(found, _text(out), _text(err))
    assert code in (None, found), answered
    assert code != 2 or not answered.out, answered
    return answered


def typed(line: str) -> list[str]:
    """Return the words of a command line of a table, whose paths begin at the repository."""
    found = (one for word in shlex.split(line) for one in INPUTS.get(word, (word,)))
    return [str(ROOT / one) if one.startswith(("examples/", "tests/")) else one for one in found]


def options_of(verb: str) -> set[str]:
    """Return the options of a verb."""
    command = cli.get_command(click.Context(cli), verb)
    assert command is not None
    return {option for parameter in command.params for option in parameter.opts}


def _stream(encoding: str) -> io.TextIOWrapper:
    return io.TextIOWrapper(io.BytesIO(), encoding=encoding, write_through=True)


def _text(stream: io.TextIOWrapper) -> str:
    stream.flush()
    buffer = stream.buffer
    assert isinstance(buffer, io.BytesIO)
    return buffer.getvalue().decode(stream.encoding)
