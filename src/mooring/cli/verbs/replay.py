"""``mooring replay``: recorded scenarios through the engine."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import msgspec

from mooring.cli import options
from mooring.cli.answer import NO, YES
from mooring.cli.progress import counted
from mooring.planner.replay_file import Outcome, replay_file

EPILOG = """\b
Examples:
  mooring replay tests/corpora/admission-cpu-packed.jsonl.gz --check
  mooring replay scenario.yaml --machines machines.jsonl -o jsonl
"""

SHOWN_DIFFERENCES = 5
"""Differences printed for one scenario; the rest is counted."""


@click.command("replay", epilog=EPILOG)
@click.argument("files", nargs=-1, required=True, metavar="FILE...")
@click.option(
    "--machines",
    "machines",
    multiple=True,
    metavar="FILE",
    help="Machine descriptions, one a line; repeatable. Default: every *machines.jsonl beside FILE.",
)
@click.option("--check", is_flag=True, help="Compare with the recorded answers.")
@options.output(("text", "jsonl"), "text")
def command(files: tuple[str, ...], machines: tuple[str, ...], form: str, *, check: bool) -> int:
    """Run scenario files (JSON lines, gzip, or one YAML scenario) and print or compare the answers.

    Exit code 1 when an answer differs from its recording or a scenario is not supported.
    """
    tally = _Tally()
    for file in files:
        outcomes = replay_file(Path(file), [Path(path) for path in machines], compare=check)
        for outcome in counted(outcomes, file, quiet=form == "jsonl" and sys.stdout.isatty()):
            tally.add(outcome)
            if form == "jsonl":
                click.echo(msgspec.json.encode(outcome.answer))
            for line in _difference_lines(outcome):
                click.echo(line, err=form == "jsonl")
        if form == "text":
            click.echo(tally.line(file, check=check))
        tally.next_file()
    return YES if tally.is_yes else NO


class _Tally:
    """Counts of one file, and whether everything agreed so far."""

    def __init__(self) -> None:
        self.is_yes = True
        self.next_file()

    def next_file(self) -> None:
        self._scenarios = self._differing = self._unsupported = 0

    def add(self, outcome: Outcome) -> None:
        self._scenarios += 1
        self._differing += bool(outcome.differences)
        self._unsupported += outcome.unsupported
        self.is_yes = self.is_yes and not outcome.differences and not outcome.unsupported

    def line(self, file: str, *, check: bool) -> str:
        parts = [f"{Path(file).name}: {self._scenarios} scenarios"]
        if check:
            parts.append(f"{self._scenarios - self._differing - self._unsupported} agree, {self._differing} differ")
        parts.append(f"{self._unsupported} not supported")
        return ", ".join(parts)


def _difference_lines(outcome: Outcome) -> Iterator[str]:
    for difference in outcome.differences[:SHOWN_DIFFERENCES]:
        recorded, answered = _short(difference.recorded), _short(difference.answered)
        yield f"{outcome.id}: {difference.field}: recorded {recorded}, answered {answered}"
    if len(outcome.differences) > SHOWN_DIFFERENCES:
        yield f"{outcome.id}: and {len(outcome.differences) - SHOWN_DIFFERENCES} more differences"


def _short(value: Any) -> str:
    text = msgspec.json.encode(value).decode()
    return text if len(text) <= 200 else f"{text[:200]}..."
