"""The folder of a shadow: recordings in files that are begun anew, and a folder for every difference.

Everything is appended a line at a time or written whole: a shadow that is killed leaves at most one line that is cut
short, which the next one removes.
"""

from __future__ import annotations

import shutil
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import Any, Final

import msgspec

from mooring.checkpoint.store import make_folder, system_words, write_atomically
from mooring.core.errors import InputError
from mooring.manifest.recordings import SCENARIO
from mooring.publisher.objects import NodeFacts
from mooring.shadow.counts_file import write_counts
from mooring.shadow.judgement import Agreement, Judgement
from mooring.shadow.recording import machine_line
from mooring.shadow.tally import Tally

MACHINES: Final = "machines.jsonl"
RECORDING: Final = "recording-{:06}.jsonl"
DIFFERENCE: Final = "difference-{:06}"
ARCHIVE: Final = "node.tar.gz"
LINES: Final = 1000
"""Scenarios of one file."""
FILES: Final = 50
"""Files that are kept, and differences; the oldest go."""


class ShadowFolder:
    """Written by one thread of one program."""

    def __init__(self, path: Path, keeps: Collection[Agreement] = (Agreement.AGREED,)) -> None:
        """Make the folder, and remove a line that an earlier shadow cut short.

        Args:
            path: of the folder.
            keeps: verdicts; the decisions between two observations are recorded if they have no others.

        Raises:
            InputError: it cannot be written.
        """
        self._path = make_folder(path)
        self.keeps = frozenset(keeps)
        self._machines = {line["name"] for line in _lines(path / MACHINES)}
        numbers = sorted(_numbers(path, "recording-*.jsonl"))
        self._file = numbers[-1] if numbers else 0
        self._written = LINES
        for number in numbers[-1:]:
            _mend(path / RECORDING.format(number))
        self._differences = max(_numbers(path, "difference-*"), default=0)
        self.scenarios = 0
        """Written since the start."""
        self.left_out = 0
        """Stretches of decisions of which no scenario can be made."""

    def record(self, content: Mapping[str, Any], facts: NodeFacts, digest: str) -> None:
        """Append a scenario.

        Raises:
            InputError: it cannot be written.
        """
        self._describe(self._path, facts, digest)
        if self._written >= LINES:
            self._file += 1
            self._written = 0
            for old in sorted(self._path.glob("recording-*.jsonl"))[: -FILES + 1]:
                old.unlink(missing_ok=True)
        _append(self._path / RECORDING.format(self._file), content)
        self._written += 1
        self.scenarios += 1

    def count(self, tally: Tally) -> None:
        """Write the counts.

        Raises:
            InputError: that fails.
        """
        write_counts(self._path, tally)

    def difference(
        self, judgements: Iterable[Judgement], contents: Iterable[Mapping[str, Any]], facts: NodeFacts, digest: str
    ) -> Path:
        """Write a folder for a report: the differing decisions as lines, the machine, and scenarios that show them.

        Raises:
            InputError: it cannot be written.
        """
        self._differences += 1
        for old in sorted(self._path.glob("difference-*"))[: -FILES + 1]:
            shutil.rmtree(old, ignore_errors=True)
        folder = make_folder(self._path / DIFFERENCE.format(self._differences))
        write_atomically(folder / "difference.txt", "".join(f"{one.line()}\n" for one in judgements))
        _append(folder / MACHINES, machine_line(facts, digest))
        for content in contents:
            _append(folder / SCENARIO, content)
        return folder

    def archive(self, folder: Path, packed: bytes) -> None:
        """Write the archive of the node into the folder of a difference.

        Raises:
            InputError: it cannot be written.
        """
        try:
            (folder / ARCHIVE).touch(0o600)
            (folder / ARCHIVE).write_bytes(packed)
        except OSError as error:
            raise InputError(f"cannot be written: {system_words(error)}", source=str(folder / ARCHIVE)) from None

    def _describe(self, folder: Path, facts: NodeFacts, digest: str) -> None:
        line = machine_line(facts, digest)
        if line["name"] not in self._machines:
            _append(folder / MACHINES, line)
            self._machines.add(line["name"])


def _append(path: Path, content: Mapping[str, Any]) -> None:
    try:
        with path.open("ab", buffering=0) as file:
            file.write(msgspec.json.encode(content) + b"\n")
    except OSError as error:
        raise InputError(f"cannot be written: {system_words(error)}", source=str(path)) from None


def _mend(path: Path) -> None:
    """Cut off a last line that has no end."""
    data = path.read_bytes()
    whole = data.rfind(b"\n") + 1
    if whole < len(data):
        with path.open("r+b") as file:
            file.truncate(whole)


def _numbers(folder: Path, pattern: str) -> list[int]:
    found = (path.name.partition("-")[2].removesuffix(".jsonl") for path in folder.glob(pattern))
    return [int(text) for text in found if text.isdecimal()]


def _lines(path: Path) -> list[dict[str, Any]]:
    if not path.exists():
        return []
    _mend(path)
    return [msgspec.json.decode(line, type=dict[str, Any]) for line in path.read_bytes().splitlines()]
