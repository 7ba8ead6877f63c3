"""What a report shows: one node, the pods that came to it, what changed at each step; and what the page's scripts read.

Numbers of owners, pods, accounts and devices are positions in their lists; docs/reference/report.md describes it all.
The machine map of the page is the layout of the pictures, with cells that can be pointed at and reached by keys.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from mooring.engine.core.cpuset import CPUSet
from mooring.engine.core.errors import clean
from mooring.engine.core.machine import Finding
from mooring.engine.memorymanager.state import MemoryTable, NUMANodeState
from mooring.lazy import dataclass, field
from mooring.views.devices import DeviceView
from mooring.views.layout import (
    CellMetrics,
    PictureLayout,
    PlacedBox,
    PlacedCell,
    PlacedDevice,
    PlacedGroup,
    PlacedRow,
    arrange,
)
from mooring.views.svg import picture
from mooring.views.view import CPUUse, CPUView, NodeView, PlacementRow, owner_style, use_style
from mooring.views.wording import MARKS


@dataclass(frozen=True, slots=True)
class ReportStep:
    """What one step changed. Devices are named by their index in the report."""

    pod: int | None
    """Index of the pod that was asked; None at the start."""
    cpus: tuple[tuple[CPUView, ...], ...] = ()
    """CPUs that got another use or other owners: all with the same ones together."""
    memory: Mapping[int, NUMANodeState] = field(default_factory=dict)
    """The memory manager's NUMA nodes after the step, changed or not; none where it keeps no accounts."""
    devices: tuple[tuple[int, str], ...] = ()
    """Device and its holder now; the empty text when no container holds it."""


@dataclass(frozen=True, slots=True)
class ReportPod:
    """One pod and what became of it."""

    name: str
    """``namespace/pod``."""
    uid: str
    verdict: str
    """``admitted``, ``runs already``, ``rejected``, ``not asked``, or another word or two of the planner."""
    admitted: bool
    step: int | None = None
    """The step in which it was asked; None when it was not."""
    reason: str = ""
    """The kubelet's reason, such as ``TopologyAffinityError``."""
    message: str = ""
    """The kubelet's own message."""
    why: str = ""
    """One sentence in plain words."""
    remedy: str = ""
    """What to do about it; empty where nothing is to be done."""
    code: str = ""
    """The code of the cause, such as ``MOOR-101``."""
    containers: tuple[PlacementRow, ...] = ()
    """What each container of an admitted pod got."""


@dataclass(frozen=True, slots=True)
class ReportView:
    """The whole report."""

    kubelet: str
    """The release whose decisions these are."""
    node: NodeView
    """After the last step. Its owners are all that ever held CPUs, in the order of their pods."""
    steps: tuple[ReportStep, ...]
    pods: tuple[ReportPod, ...] = ()
    refusal: str = ""
    """The kubelet's message when it would not start, with what to do."""
    refusal_code: str = ""
    """The code of the refusal, such as ``MOOR-203``."""
    accounts: Mapping[int, NUMANodeState] = field(default_factory=dict)
    """The memory of NUMA nodes, whatever of it is given away."""
    accounted: bool = False
    """Whether the memory manager keeps the accounts; else nothing but their totals is known."""
    devices: tuple[DeviceView, ...] = ()
    distances: Mapping[int, tuple[int, ...]] = field(default_factory=dict)
    """NUMA node -> distances to all of them, in the order of the keys; empty where they are not known."""
    findings: tuple[Finding, ...] = ()
    facts: tuple[tuple[str, str], ...] = ()
    """Configuration and circumstances, as names and values."""


def changes_between(before: Mapping[int, CPUView], after: Mapping[int, CPUView]) -> tuple[tuple[CPUView, ...], ...]:
    """Return what became different, CPUs with the same state together, in the order of their first CPU.

    >>> free = {cpu: CPUView(cpu, CPUUse.FREE) for cpu in range(3)}
    >>> held = {cpu: CPUView(cpu, CPUUse.EXCLUSIVE, 0) for cpu in (1, 2)}
    >>> [[one.cpu for one in views] for views in changes_between(free, {**free, **held})]
    [[1, 2]]
    """
    found: dict[tuple[CPUUse, tuple[int, ...]], list[CPUView]] = {}
    for cpu, view in after.items():
        if before.get(cpu) != view:
            found.setdefault((view.use, view.owners), []).append(view)
    return tuple(tuple(views) for views in found.values())


_LARGEST_SCALE = 1.25
"""How much larger than planned a map may be shown where there is room."""

_FORMS = {"wide": 1144, "narrow": 328}
"""Arrangements and the pixels into which their boxes are arranged; the page shows the one that suits its width."""


@dataclass(frozen=True, slots=True)
class MapDrawing:
    """One arrangement of the map. The methods return SVG, escaped already."""

    name: str
    layout: PictureLayout
    metrics: CellMetrics
    view: NodeView
    device_names: Mapping[tuple[str, str], str]

    @property
    def width(self) -> int:
        """Return the width in pixels at which the map is shown at most."""
        return round(self.layout.width * self._scale)

    @property
    def height(self) -> int:
        """Return the height in pixels that goes with the width."""
        return round(self.layout.height * self._scale)

    @property
    def _scale(self) -> float:
        return max(1.0, min(_LARGEST_SCALE, _FORMS[self.name] / max(self.layout.width, 1)))

    def frame(self, box: PlacedBox) -> str:
        """Return a box with its title and its memory bar."""
        return "".join(picture.box_elements(box, self.view))

    def heading(self, placed: PlacedGroup) -> str:
        """Return what stands above the devices of one resource."""
        return picture.device_heading(placed)

    def device(self, placed: PlacedDevice) -> str:
        """Return the cell of a device."""
        return picture.device_cell(
            placed, self.metrics, self.view, self.device_names.get((placed.view.resource, placed.view.id), "")
        )

    def strips(self, row: PlacedRow) -> str:
        """Return the brackets over the cores of a row that have one use."""
        return "".join(picture.strip_elements(row, self.metrics, self.view))

    def cpu(self, placed: PlacedCell) -> str:
        """Return the cell of a CPU: its ground, its number and its mark."""
        return picture.cpu_cell(placed, self.metrics, self.view)


def map_drawings(report: ReportView) -> tuple[MapDrawing, ...]:
    """Return the map in all its arrangements: the picture's, where what some step changes is always a cell."""
    view = report.node
    boxes = picture.dense_boxes(view, {one.cpu for step in report.steps[1:] for views in step.cpus for one in views})
    metrics = picture.map_metrics(view, changes=bool(view.owners))
    names = picture.names_of_devices(view)
    return tuple(
        MapDrawing(name, arrange(boxes, metrics, width), metrics, view, names) for name, width in _FORMS.items()
    )


API_VERSION = "mooring/v1alpha1"
KIND = "Report"

UNSAFE: Mapping[int, str] = {ord(sign): f"\\u{ord(sign):04x}" for sign in "<>&\u2028\u2029"}
"""What could end the element around the data, as JSON writes it."""


def data_text(report: ReportView) -> str:
    """Return the data as JSON that can stand inside a script element."""
    return json.dumps(report_data(report), separators=(",", ":")).translate(UNSAFE)


def report_data(report: ReportView) -> dict[str, Any]:
    """Return the data: dicts, lists, texts, numbers, flags and None."""
    view = report.node
    pods = {pod.uid: index for index, pod in enumerate(report.pods)}
    return {
        "apiVersion": API_VERSION,
        "kind": KIND,
        "kubelet": report.kubelet,
        "machine": view.name,
        "uses": [{"name": use.value, "style": use_style(use), "mark": MARKS.get(use, "")} for use in CPUUse],
        "cpus": [
            {"id": cpu.cpu, "core": cpu.core, "socket": cpu.socket, "numa": cpu.numa, "l3": cpu.l3}
            for cpu in sorted(view.cpus(), key=lambda cpu: cpu.cpu)
        ],
        "owners": [
            {
                "label": owner.label,
                "forms": [form for form in owner.forms[1:] if "…" not in form],
                "mark": owner.mark,
                "style": owner_style(owner),
                "pod": pods.get(owner.uid),
            }
            for owner in view.owners
        ],
        "pods": [{name: _cleaned(getattr(pod, name)) for name in _OF_POD} for pod in report.pods],
        "accounted": report.accounted,
        "accounts": [
            {
                "node": node,
                "resource": clean(resource),
                "total": table.total,
                "reserved": table.system_reserved,
                "allocatable": table.allocatable,
            }
            for (node, resource), table in _tables(report).items()
        ],
        "devices": [{name: _cleaned(getattr(device, name)) for name in _OF_DEVICE} for device in report.devices],
        "steps": list(_steps(report)),
    }


def _tables(report: ReportView) -> dict[tuple[int, str], MemoryTable]:
    """Return the accounts by NUMA node and resource, ascending, ``memory`` before huge pages."""
    return {
        (node, resource): table
        for node, state in sorted(report.accounts.items())
        for resource, table in sorted(state.memory.items(), key=lambda item: (item[0] != "memory", item[0]))
        if table.total
    }


def _steps(report: ReportView) -> Iterator[dict[str, Any]]:
    """Yield what each step changed; of memory what containers hold, what is free, and the groups of NUMA nodes."""
    use_numbers, tables = {use: number for number, use in enumerate(CPUUse)}, _tables(report)
    memory: dict[int, dict[str, Any]] = {}
    for step in report.steps:
        before, memory = memory, {}
        for index, (node, resource) in enumerate(tables if step.memory else ()):
            now = step.memory[node]
            table = now.memory[resource]
            memory[index] = {"assigned": table.reserved, "free": table.free, "group": list(now.cells)}
        yield {
            "pod": step.pod,
            "cpus": [
                {
                    "cpus": str(CPUSet.from_ids(one.cpu for one in views)),
                    "use": use_numbers[views[0].use],
                    "owners": list(views[0].owners),
                }
                for views in step.cpus
            ],
            "accounts": [{"account": index, **now} for index, now in memory.items() if before.get(index) != now],
            "devices": [{"device": index, "holder": clean(holder)} for index, holder in step.devices],
        }


_OF_POD = ("name", "verdict", "admitted", "step", "reason", "message", "why", "remedy", "code")
_OF_DEVICE = ("resource", "id", "numa", "address", "healthy", "offered")


def _cleaned(value: Any) -> Any:
    return clean(value) if isinstance(value, str) else list(value) if isinstance(value, tuple) else value
