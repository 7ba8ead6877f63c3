"""The folder of a shadow: recordings in files that are begun anew, and a folder for every difference.

Everything is appended a line at a time or written whole: a shadow that is killed leaves at most one line that is cut
short, which the next one removes.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import msgspec

from mooring.engine.checkpoint.store import make_folder, system_words, write_atomically
from mooring.engine.core.errors import InputError
from mooring.inputs.pods.recordings import SCENARIO
from mooring.monitoring.shadow.judging.judgement import Agreement, Judgement
from mooring.monitoring.shadow.recording import machine_line, uid_of
from mooring.monitoring.shadow.tally import Tally, write_counts
from mooring.published.objects import NodeFacts

MACHINES: Final = "machines.jsonl"
RECORDING: Final = "recording-{:06}.jsonl"
DIFFERENCE: Final = "difference-{:06}"
ARCHIVE: Final = "node.tar.gz"
LINES: Final = 1000
"""Scenarios of one file."""
FILES: Final = 50
"""Files that are kept, and differences; the oldest go."""


@dataclass(frozen=True, slots=True)
class _MachineLine:
    """What the shadow reads of a line about a machine."""

    name: str


class ShadowFolder:
    """Written by one thread of one program."""

    def __init__(self, path: Path, keeps: Collection[Agreement] = (Agreement.AGREED,)) -> None:
        """Make the folder, and remove a line that an earlier shadow cut short.

        Args:
            path: of the folder.
            keeps: verdicts; the decisions between two observations are recorded if they have no others.

        Raises:
            InputError: it cannot be written, or its list of machines cannot be read.
        """
        self._path = make_folder(path)
        self.keeps = frozenset(keeps)
        self._machines = _machine_names(path / MACHINES)
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
                with suppress(OSError):
                    old.unlink()
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
        self,
        judgements: Iterable[Judgement],
        contents: Sequence[Mapping[str, Any]],
        facts: NodeFacts,
        digest: str,
        *,
        anonymous: bool = False,
    ) -> Path:
        """Write a folder for a report: the differing decisions as lines, the machine, and scenarios that show them.

        Args:
            judgements: that the lines say.
            contents: the scenarios.
            facts: of the node.
            digest: of its machine.
            anonymous: whether the lines name pods as the scenarios do, and by their uids where those do not.

        Raises:
            InputError: it cannot be written.
        """
        self._differences += 1
        for old in sorted(self._path.glob("difference-*"))[: -FILES + 1]:
            shutil.rmtree(old, ignore_errors=True)
        folder = make_folder(self._path / DIFFERENCE.format(self._differences))
        if anonymous:
            names = {uid: name for content in contents for uid, name in _names(content)}
            judgements = [replace(one, name=names.get(one.uid, one.uid)) for one in judgements]
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


def _names(content: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield uid, and namespace with name, of the pods of a scenario."""
    for pod in (*content["active"], *(step["admit"] for step in content["steps"] if "admit" in step)):
        metadata = pod["metadata"]
        if "namespace" in metadata:
            yield uid_of(pod), f"{metadata['namespace']}/{metadata['name']}"


def _append(path: Path, content: Mapping[str, Any]) -> None:
    """Append a line whole, or nothing: a disk that is nearly full takes a part of it without an error."""
    left = memoryview(msgspec.json.encode(content) + b"\n")
    try:
        with path.open("ab", buffering=0) as file:
            before = os.fstat(file.fileno()).st_size
            try:
                while left:
                    left = left[file.write(left) :]
            except OSError:
                file.truncate(before)
                raise
    except OSError as error:
        raise InputError(f"cannot be written: {system_words(error)}", source=str(path)) from None


def _mend(path: Path) -> bytes:
    """Cut off a last line that has no end, and return the others.

    Raises:
        InputError: the file cannot be read or written.
    """
    try:
        data = path.read_bytes()
        whole = data.rfind(b"\n") + 1
        if whole < len(data):
            with path.open("r+b") as file:
                file.truncate(whole)
    except FileNotFoundError:
        return b""
    except OSError as error:
        raise InputError(
            f"cannot be used: {system_words(error)}", source=str(path), remedy="move it away, or check its permissions"
        ) from None
    return data[:whole]


def _numbers(folder: Path, pattern: str) -> list[int]:
    found = (path.name.partition("-")[2].removesuffix(".jsonl") for path in folder.glob(pattern))
    return [int(text) for text in found if text.isdecimal()]


def _machine_names(path: Path) -> set[str]:
    """Return the machines that scenarios of the folder can name.

    Raises:
        InputError: a line describes no machine. It is not set aside: recordings could then not be replayed.
    """
    names = set[str]()
    for number, line in enumerate(_mend(path).splitlines(), 1):
        try:
            names.add(msgspec.json.decode(line, type=_MachineLine).name)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            remedy = "remove the line; the recordings of its machine cannot be replayed without it"
            problem = f"describes no machine: {error}"
            raise InputError(problem, source=str(path), field=f"line {number}", remedy=remedy) from None
    return names
