"""Where a shadow reports: recordings and differences in its folder, its counts in an object of the cluster and as text.

In the folder everything is appended a line at a time or written whole: a shadow that is killed leaves at most one line
that is cut short, which the next one removes. Recordings are in files that are begun anew; a difference has a folder.
The object of the node is written by a thread of its own, for which the shadow never waits. A write that fails is
retried, and reported now and then.
"""

from __future__ import annotations

import os
import shutil
import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import date, timedelta
from pathlib import Path
from typing import Any, Final

import msgspec
from prometheus_client.metrics_core import CounterMetricFamily, Metric
from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.text import Text

from mooring.cli.terminal import text_for
from mooring.documents.plan import learn
from mooring.engine.checkpoint.store import make_folder, system_words, write_atomically
from mooring.engine.core.errors import InputError, MooringError, clean
from mooring.engine.core.machine import Finding
from mooring.explanations.phrases import plural
from mooring.inputs.decoding.fields import Report, ignore
from mooring.inputs.pods.scenario import SCENARIO
from mooring.monitoring.shadow.judge import RecordingDocument, now_text
from mooring.monitoring.shadow.judgement import Agreement, Judgement
from mooring.monitoring.shadow.recording import machine_line
from mooring.published.naming import uid_of
from mooring.published.objects import NodeFacts
from mooring.published.publisher import Pace
from mooring.published.shadow_document import ShadowDocument, shadow_document
from mooring.published.writing import apply, node_uid
from mooring.service.apiserver import Cluster, ClusterOnDemand
from mooring.service.http import ProgramMetrics
from mooring.views.console import STYLES, Breaking, new_table

MACHINES: Final = "machines.jsonl"
RECORDING: Final = "recording-{:06}.jsonl"
DIFFERENCE: Final = "difference-{:06}"
ARCHIVE: Final = "node.tar.gz"
LINES: Final = 1000
"""Scenarios of one file."""
FILES: Final = 50
"""Files that are kept, and differences; the oldest go."""


class _MachineLine(msgspec.Struct):
    """What the shadow reads of a line about a machine."""

    name: str


learn(_MachineLine)


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
        self.path = make_folder(path)
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
        line = machine_line(facts, digest)
        if line["name"] not in self._machines:
            _append(self.path / MACHINES, line)
            self._machines.add(line["name"])
        if self._written >= LINES:
            self._file += 1
            self._written = 0
            for old in sorted(self.path.glob("recording-*.jsonl"))[: -FILES + 1]:
                with suppress(OSError):
                    old.unlink()
        _append(self.path / RECORDING.format(self._file), content)
        self._written += 1
        self.scenarios += 1

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
        for old in sorted(self.path.glob("difference-*"))[: -FILES + 1]:
            shutil.rmtree(old, ignore_errors=True)
        folder = make_folder(self.path / DIFFERENCE.format(self._differences))
        if anonymous:
            pods = [
                pod
                for content in contents
                for pod in (*content["active"], *(step["admit"] for step in content["steps"] if "admit" in step))
                if "namespace" in pod["metadata"]
            ]
            names = {uid_of(pod): f"{pod['metadata']['namespace']}/{pod['metadata']['name']}" for pod in pods}
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


RHYTHM: Final = Pace(gathering=1.0, least=60.0)
"""The counts of a node are written once a minute at most."""
LOOKING: Final = 1.0
"""Seconds between two checks of the counts."""
ENDING: Final = 15.0
"""Seconds that the last write may take."""
_SUBJECT: Final = "--publish"


class ShadowPublisher:
    """Publishes the counts of one node from its start until it is closed."""

    def __init__(
        self,
        tally: ShadowDocument,
        connect: Callable[[], Cluster],
        report: Report = ignore,
        *,
        clock: Callable[[], float] = time.monotonic,
        today: Callable[[], str] = now_text,
    ) -> None:
        """Do nothing yet.

        Args:
            tally: is read.
            connect: opens the way to the API server, again after a failure, so that renewed credentials are read.
            report: receives outages and recoveries.
            clock: seconds that only go forward.
            today: now, as RFC 3339.
        """
        self._tally, self._report, self._clock, self._today = tally, report, clock, today
        self._cluster = ClusterOnDemand(connect)
        self._pace = RHYTHM
        self._seen = -1
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="mooring-shadow-publisher", daemon=True)

    def start(self) -> ShadowPublisher:
        """Begin to write."""
        self._thread.start()
        return self

    def close(self) -> None:
        """Write what is not written yet, and end."""
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join(ENDING)
        else:
            self._cluster.close()

    def step(self, *, last: bool = False) -> None:
        """Write when it is time to.

        Args:
            last: whether there is no later time: what has changed is written now.
        """
        now, changes = self._clock(), sum(one.count for one in self._tally.counts)
        if changes != self._seen:
            self._seen, self._pace = changes, self._pace.changed(now)
        due = self._pace.due
        if due is None or (now < due and not (last and self._pace.first is not None)):
            return
        try:
            self._tally.observed_at, http, node = self._today(), self._cluster.http, self._tally.node
            apply(http, shadow_document(self._tally, node_uid(http, node)))
        except MooringError as error:
            self._cluster.close()
            self._pace = self._pace.failed(self._clock(), self._tally.node, error)
            if message := self._pace.complaint("the counts are not published", error):
                self._report(Finding("warning", _SUBJECT, message))
        else:
            if self._pace.failures:
                self._report(Finding("info", _SUBJECT, f"the counts of {self._tally.node} are published again"))
            self._pace = self._pace.written(self._clock())

    def _run(self) -> None:
        while not self._stopping.wait(LOOKING):
            self.step()
        self.step(last=True)
        self._cluster.close()


class ShadowMetrics(ProgramMetrics):
    """The counts of one node for Prometheus."""

    def __init__(self, tally: ShadowDocument) -> None:
        """Show the counts that there are whenever they are asked for."""
        super().__init__("mooring_shadow")
        self._tally = tally

    def seen(self) -> Iterator[Metric]:
        """Yield the decisions by release, verdict, event and cause, and the observations that failed."""
        says = "Decisions of the kubelet that were compared with the engine."
        labels = ["verdict", "event", "cause", "release"]
        decisions = CounterMetricFamily("mooring_shadow_decisions", says, labels=labels)
        for one in self._tally.counts:
            said = (word.replace(" ", "_") for word in (one.verdict, one.event, one.cause))
            decisions.add_metric([*said, one.release], one.count)
        yield decisions
        blind, says = self._tally.blind, "Observations of the kubelet that failed."
        yield CounterMetricFamily("mooring_shadow_blind_looks", says, value=blind)


_INDENT: Final = (0, 0, 0, 2)
_MOST: Final = 10
_DAYS: Final = 7


def shadow_text(found: ShadowDocument, to: str = "") -> str:
    """Return the text for a terminal of the present width, or for the file ``to``."""
    return text_for(Group(*_parts(found)), to)


def _parts(found: ShadowDocument) -> Iterator[RenderableType]:
    total = found.agreed + found.differs + found.unknown
    yield Text.assemble(
        (clean(found.node), STYLES["title"]),
        f": kubelet {found.release}, {plural(total, 'decision')} since {found.since}",
    )
    yield Text(f"agreed {found.agreed}, differs {found.differs}, cannot tell {found.unknown}", "bold")
    if found.predicted:
        yield Text(f"predicted: {plural(found.predicted, 'pod')}, {found.came_true} of them correctly")
    if found.counts:
        yield Text("")
        table = new_table("VERDICT", "KUBELET", "CAUSE")
        table.add_column("COUNT", justify="right")
        for one in found.counts:
            table.add_row(one.verdict, one.event, one.cause or "-", str(one.count))
        yield Padding(table, _INDENT)
    for decision in found.differences[-_MOST:]:
        name = clean(decision.pod) or "kubelet"
        yield Breaking(
            f"{name} {decision.event}: {decision.cause}: the kubelet has {clean(decision.kubelet)}, "
            f"the engine {clean(decision.engine)}"
        )
    if (other := found.would_be) is None:
        return
    yield Text("")
    first, begun = str(date.fromisoformat(found.observed_at[:10]) - timedelta(days=_DAYS - 1)), other.since[:10]
    days = [one for one in other.days if one.day >= first]
    when = f"In the last {_DAYS} days" if begun <= first else f"Since {begun}"
    yield Text(
        f"{when} the kubelet refused {plural(sum(one.refused for one in days), 'pod')}; with the other "
        f"configuration {plural(sum(one.refusals for one in days), 'pod')} would have been refused."
    )
    for words, names in (("only then refused", other.refused), ("only then admitted", other.admitted)):
        if names:
            yield Breaking(f"{words}: {', '.join(clean(one) for one in names[-_MOST:])}")


def recording_text(found: RecordingDocument, to: str = "") -> str:
    """Return the text for a terminal of the present width, or for the file ``to``."""
    table = new_table("NODE", "KUBELET", "FOLDER")
    for name in ("SCENARIOS", "LEFT OUT", "AGREED", "DIFFERS", "CANNOT TELL"):
        table.add_column(name, justify="right")
    for one in found.nodes:
        counts = (one.scenarios, one.left_out, one.agreed, one.differs, one.unknown)
        table.add_row(clean(one.node), one.release or "-", clean(one.folder), *map(str, counts))
    return text_for(table, to)
