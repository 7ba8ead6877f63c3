"""The CSV form of Alibaba's cluster-trace-gpu-v2023: nodes, and pods with their times.

What the tables leave open is assumed, and said in the findings: nodes name no sockets, so that a machine of two
sockets with two threads a core is taken for every node of 64 CPUs or more, and one socket below; the GPUs are spread
evenly over the sockets. Pods of the classes LS and Guaranteed are Guaranteed pods, all others Burstable. A pod with a
share of a GPU gets a whole one, because the kubelet's device manager knows no shares.

Source: github.com/alibaba/clusterdata, cluster-trace-gpu-v2023.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from mooring.engine.core.config import KubeletConfig, MooringConfig
from mooring.engine.core.errors import InputError
from mooring.engine.core.pod import Container, Pod, QoS
from mooring.engine.core.quantity import Quantity
from mooring.engine.devicemanager.state import Device
from mooring.explain.phrases import plural
from mooring.fleet.cluster import NodeCluster, NodeGroup
from mooring.fleet.inputs.event_files import MOST_SECONDS
from mooring.fleet.work import PodArrival, PodDemand, Work, asked_of, work_of
from mooring.inputs.machines.compact import parse_compact

NODE_COLUMNS: Final = ("sn", "cpu_milli", "memory_mib", "gpu")
POD_COLUMNS: Final = ("name", "cpu_milli", "memory_mib", "num_gpu", "gpu_milli")
GPU: Final = "nvidia.com/gpu"
GUARANTEED: Final = frozenset({"LS", "Guaranteed"})
_TWO_SOCKETS: Final = 64
"""CPUs from which a node has two sockets."""
_WHOLE: Final = 1000
"""Thousandths of a GPU."""
_MOST_DIGITS: Final = 15
_MOST: Final = 10**_MOST_DIGITS - 1
_MOST_GPUS: Final = 1024
"""Of a node; each is a device of its own."""


def is_nodes(text: str) -> bool:
    """Tell whether a text is the table of nodes, by its head."""
    return _head(text)[: len(NODE_COLUMNS)] == list(NODE_COLUMNS)


def is_pods(text: str) -> bool:
    """Tell whether a text is a table of pods, by its head."""
    return _head(text)[: len(POD_COLUMNS)] == list(POD_COLUMNS)


def _head(text: str) -> list[str]:
    return text.partition("\n")[0].strip().split(",")


def cluster_in(text: str, source: str, config: KubeletConfig, mooring: MooringConfig) -> NodeCluster:
    """Return the cluster of a table of nodes; equal rows are a group.

    Args:
        text: the table.
        source: its name, for messages.
        config: of every kubelet.
        mooring: of every node.

    Raises:
        InputError: a row is not valid.
    """
    kinds: dict[tuple[int, int, int, str], list[_Row]] = {}
    for row in _rows(text, source):
        kind = row.count("cpu_milli"), row.count("memory_mib"), row.count("gpu", _MOST_GPUS), row.text("model")
        kinds.setdefault(kind, []).append(row)
    groups = tuple(_group(kind, rows, config, mooring) for kind, rows in sorted(kinds.items()))
    assumed = (
        f"nodes of {_TWO_SOCKETS} CPUs or more are taken for two sockets, others for one, with two threads a core: "
        "the table names no sockets"
    )
    return NodeCluster(source, groups, (assumed,))


def _group(
    kind: tuple[int, int, int, str], rows: Sequence[_Row], config: KubeletConfig, mooring: MooringConfig
) -> NodeGroup:
    milli, memory, gpus, model = kind
    cpus = milli // 1000
    sockets = 2 if cpus >= _TWO_SOCKETS else 1
    threads = 2 if cpus % (2 * sockets) == 0 else 1
    try:
        machine = parse_compact(f"sockets={sockets} cores={cpus // threads} threads={threads} memory={memory}Mi")
    except InputError as error:
        column = "memory_mib" if error.field == "memory" else "cpu_milli"
        raise rows[0].refused(column, f"describes no machine: {error.problem}") from None
    devices = tuple(Device(f"gpu{index:02d}", (index * sockets // gpus,)) for index in range(gpus))
    parts = [f"{cpus}cpu", f"{memory // 1024}gi", *([f"{gpus}{model.lower()}"] if gpus else [])]
    return NodeGroup(
        "-".join(parts),
        len(rows),
        machine,
        config,
        mooring,
        {"gpu-model": model} if model else {},
        devices={GPU: devices} if devices else {},
    )


def work_in(text: str, source: str) -> Work:
    """Return the pods of a table.

    Raises:
        InputError: a row is not valid.
    """
    kinds: dict[tuple[int, int, int, bool], PodDemand] = {}
    arrivals: list[PodArrival] = []
    shared = unplaced = timeless = 0
    for row in _rows(text, source):
        gpus, share = row.count("num_gpu"), row.count("gpu_milli")
        shared += bool(gpus) and share < _WHOLE
        kind = row.count("cpu_milli"), row.count("memory_mib"), gpus, row.text("qos") in GUARANTEED
        if kind not in kinds:
            kinds[kind] = asked_of(_pod(*kind))
        created, deleted, scheduled = (row.time(name) for name in ("creation_time", "deletion_time", "scheduled_time"))
        unplaced += scheduled is None and deleted is not None
        timeless += created is None
        runs = deleted - scheduled if scheduled is not None and deleted is not None else None
        leaves = deleted if scheduled is None else None
        if runs is not None and runs < 0:
            raise row.refused("deletion_time", "is before scheduled_time")
        arrivals.append(PodArrival(f"default/{row.name('name')}", kinds[kind], created or 0.0, runs, leaves))
    findings = [f"pods of the classes {' and '.join(sorted(GUARANTEED))} are taken for Guaranteed ones"]
    if shared:
        findings.append(
            f"{plural(shared, 'pod')} with a share of a GPU: each a whole one, for the device manager knows no shares"
        )
    if timeless:
        findings.append(f"{plural(timeless, 'pod')} without a creation time: created at the beginning")
    if unplaced:
        findings.append(f"{plural(unplaced, 'pod')} never scheduled in the trace: there until the deletion")
    return work_of(source, arrivals, findings)


def _pod(milli: int, memory: int, gpus: int, guaranteed: bool) -> Pod:  # noqa: FBT001 - a key of a table
    amounts = {"cpu": Quantity.parse(f"{milli}m"), "memory": Quantity.parse(f"{memory}Mi")}
    devices = {GPU: Quantity.parse(str(gpus))} if gpus else {}
    limits = {**amounts, **devices} if guaranteed else devices
    container = Container("main", requests={**amounts, **devices}, limits=limits)
    return Pod("", "", containers=(container,), qos=QoS.GUARANTEED if guaranteed else QoS.BURSTABLE)


@dataclass(frozen=True, slots=True)
class _Row:
    """A row of a table, with its place."""

    cells: Mapping[str, str]
    source: str

    def refused(self, column: str, problem: str) -> InputError:
        """Return the error about a cell."""
        return InputError(problem, source=self.source, field=column, remedy="correct or remove the row")

    def text(self, column: str) -> str:
        """Return a cell; empty where the table does not have it."""
        return (self.cells.get(column) or "").strip()

    def name(self, column: str) -> str:
        """Return a cell that must not be empty."""
        if not self.text(column):
            raise self.refused(column, "must not be empty")
        return self.text(column)

    def count(self, column: str, most: int = _MOST) -> int:
        """Return a cell that is a whole number; 0 where it is empty."""
        found = self.text(column) or "0"
        if not (found.isascii() and found.isdecimal()):
            raise self.refused(column, f"{found!r:.40} is not a whole number")
        if len(found) > _MOST_DIGITS or int(found) > most:
            raise self.refused(column, f"{found:.40} is more than {most}")
        return int(found)

    def time(self, column: str) -> float | None:
        """Return a cell in seconds; None where it is empty."""
        return float(self.count(column, MOST_SECONDS)) if self.text(column) else None


def _rows(text: str, source: str) -> Iterator[_Row]:
    reader = csv.DictReader(io.StringIO(text))
    try:
        for cells in reader:
            yield _Row({key: value or "" for key, value in cells.items() if key}, f"{source}:{reader.line_num}")
    except csv.Error as error:
        raise InputError(f"is not CSV: {error}", source=f"{source}:{reader.line_num}") from None
