"""``mooring replay``: recorded scenarios through the engine."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import msgspec

from mooring.answers.base.inputs.checks import STANDARD_INPUT, check_open
from mooring.cli import options
from mooring.cli.output import NO, YES, Verb, emit, emit_document, tell
from mooring.lazy import lazily

with lazily():
    from mooring.answers.base import agreement as replay_files
    from mooring.answers.replay import text
    from mooring.cli import terminal
    from mooring.inputs.pods import recordings


if TYPE_CHECKING:
    from mooring.answers.base.agreement import ReplayOutcome

EPILOG = """\b
Examples:
  mooring replay tests/corpora/admission-cpu-packed.jsonl.gz --check
  mooring replay scenario.yaml --machines machines.jsonl -o jsonl
  mooring replay recordings --check

\b
A scenario names its machine: one of the machine descriptions, a shipped
machine, or compact text (machine: sockets=2 numa=4 cores=16 ...).
"""

_SHOWN_DIFFERENCES = 5
"""Differences printed for one scenario; the rest is counted."""

_LONGEST_VALUE = 200
"""Characters of a value that are printed in a difference."""


@click.command("replay", cls=Verb, epilog=EPILOG)
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
    """Run scenario files (JSON lines, gzip, or YAML), or all recordings of a folder, and print or compare the answers.

    Exit code 1 when an answer differs from its recording or a scenario is not supported.
    """
    check_open([file for file in files if file == STANDARD_INPUT])
    is_yes = True
    for file in [one for given in files for one in recordings.recording_files(given)]:
        tally = _Tally()
        # Answers that run over the screen one by one are progress enough.
        watched = terminal.Watched(
            Path(file).name, partial(replay_files.count_lines, file), on_screen=form == "text" and check
        )
        for outcome in watched.items(replay_files.replay_file(file, machines, compare=check)):
            tally.add(outcome)
            if form == "jsonl":
                emit_document(msgspec.json.encode(outcome.answer).decode())
            lines = [*_lines(outcome, answers=form == "text" and not check)]
            if lines:
                with watched.aside():
                    (tell if form == "jsonl" else emit)("\n".join(lines))
        if form == "text":
            emit(tally.line(_shown(file, files), check=check))
        is_yes = is_yes and tally.is_yes
    return YES if is_yes else NO


class _Tally:
    """Counts of one file."""

    def __init__(self) -> None:
        self._scenarios = self._agreeing = self._differing = self._unsupported = 0

    def add(self, outcome: ReplayOutcome) -> None:
        """Count one answer."""
        self._scenarios += 1
        self._differing += bool(outcome.differences)
        self._agreeing += outcome.compared and not outcome.differences
        self._unsupported += outcome.unsupported

    @property
    def is_yes(self) -> bool:
        """Tell whether everything is supported and nothing differs."""
        return not self._differing and not self._unsupported

    def line(self, name: str, *, check: bool) -> str:
        """Return the counts in words."""
        parts = [f"{name}: {self._scenarios} scenario{'' if self._scenarios == 1 else 's'}"]
        if check:
            parts.append(f"{self._agreeing} agree, {self._differing} differ")
            unknown = self._scenarios - self._agreeing - self._differing - self._unsupported
            parts += [f"{unknown} have no recorded answer"] if unknown else []
        parts.append(f"{self._unsupported} not supported")
        return ", ".join(parts)


def _shown(file: str, given: tuple[str, ...]) -> str:
    """Return the name of a file; with its folder where it is one of a folder, because all nodes' files are alike."""
    if file == STANDARD_INPUT:
        return "standard input"
    path = Path(file)
    return path.name if file in given else f"{path.parent.name}/{path.name}"


def _lines(outcome: ReplayOutcome, *, answers: bool) -> Iterator[str]:
    """Yield what people should know: the answer if wanted, differences, and why a scenario is not supported."""
    if answers:
        yield from text.replay_lines(outcome)
    if outcome.unsupported:
        yield f"{outcome.id}: not supported: {outcome.answer['unsupported']}"
    for difference in outcome.differences[:_SHOWN_DIFFERENCES]:
        recorded, answered = _short(difference.recorded), _short(difference.answered)
        yield f"{outcome.id}: {difference.field}: recorded {recorded}, answered {answered}"
    if len(outcome.differences) > _SHOWN_DIFFERENCES:
        yield f"{outcome.id}: and {len(outcome.differences) - _SHOWN_DIFFERENCES} more differences"


def _short(value: Any) -> str:
    text = msgspec.json.encode(value).decode()
    return text if len(text) <= _LONGEST_VALUE else f"{text[:_LONGEST_VALUE]}..."
