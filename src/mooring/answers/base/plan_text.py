"""``mooring plan -o text`` and ``-o wide``: the answer for people."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.console import Group, RenderableType
from rich.text import Text

from mooring.answers.base import rows
from mooring.answers.base.picture import plan_view
from mooring.answers.base.plan import AnyPlan, RefusedPlan, not_started
from mooring.answers.base.plan_document import plan_document
from mooring.cli.terminal import text_for, width_for
from mooring.documents.plan import PlanDocument
from mooring.engine.core.errors import clean
from mooring.engine.core.quantity import Quantity
from mooring.engine.node.resources import allocatable, total_requests
from mooring.inputs.configuration.kubelet_config import EffectiveField
from mooring.views.console import indented, new_table
from mooring.views.tables import numa_table, placements_table
from mooring.views.view import NodeView

_CPU, _MEMORY, _PODS = "cpu", "memory", "pods"


def plan_text(plan: AnyPlan, effective: Sequence[EffectiveField] = (), *, wide: bool = False, to: str) -> str:
    """Return the answer as text for the terminal, or without any styling for the file ``to``.

    Args:
        plan: to show.
        effective: fields of the configuration that are shown with their origins.
        wide: whether tables have more columns.
        to: the file.
    """
    parts = [*_parts(plan, width_for(to), wide=wide)]
    fields = [(clean(one.name), clean(one.shown), clean(str(one.place))) for one in effective]
    if fields:
        fields.insert(0, ("configuration in force", "value", "set by"))
        parts.append(Text(""))
    widths = [max((len(field[column]) for field in fields), default=0) for column in (0, 1)]
    for number, (name, value, place) in enumerate(fields):
        line = f"{name:{widths[0]}}  {value:{widths[1]}}  {place}"
        parts.append(Text(line, "" if number else "dim", overflow="fold"))
    return text_for(Group(*parts), to)


def _parts(plan: AnyPlan, width: int, *, wide: bool) -> Iterator[RenderableType]:
    if isinstance(plan, RefusedPlan):
        yield from refusal_lines(plan_document(plan))
        return
    view, placements = plan_view(plan), rows.plan_rows(plan, wide=wide)
    yield from head_lines(view)
    if placements:
        yield placements_table(placements, wide=wide)
        yield Text("")
        yield Text(view.headline)
    yield Text(rows.free_line(plan.kubelet))
    yield from (Text(clean(line), "bold red") for line in rows.pool_lines(plan.findings))
    yield from map(Text, (*rows.device_lines(plan), *rows.resize_lines(plan), *rows.mixed_lines(plan)))
    yield Text("")
    yield numa_table(view, width)


def title_line(view: NodeView) -> Text:
    """Return the name of a machine, and what it is."""
    return Text.assemble((view.name, "bold"), f": {view.title}")


def head_lines(view: NodeView) -> Iterator[RenderableType]:
    """Yield what begins an answer about a node: its machine, the kubelet's policies, an empty line."""
    yield title_line(view)
    yield Text(view.subtitle, "dim")
    yield Text("")


def refusal_lines(document: PlanDocument) -> Iterator[RenderableType]:
    """Yield that the kubelet would not start, its text, and what to do."""
    yield Text.assemble((not_started(document.kubelet), "bold"), (f" [{document.start_error_code}]", "dim"))
    yield indented(clean(document.start_error or ""))
    if document.remedy:
        yield Text(document.remedy)


def resources_text(plan: AnyPlan, to: str) -> str:
    """Return what ``kubectl describe node`` has: capacity, allocatable, and what the pods of the node request.

    Devices are counted as the kubelet reports them: capacity is every one, allocatable the healthy ones.

    Source: kubelet v1.37.1, pkg/kubelet/nodestatus/setters.go (MachineInfo).
    """
    if isinstance(plan, RefusedPlan):
        return text_for(Group(*refusal_lines(plan_document(plan))), to)
    node, settings = plan.kubelet.node, plan.kubelet.settings
    devices = node.providers.devices.devices
    has = {
        name: amount.milli if name == _CPU else amount.units for name, amount in settings.reservation.capacity.items()
    }
    has |= {name: len(them) for name, them in devices.items()} | {_PODS: settings.max_pods}
    offers = allocatable(settings.reservation) | {_PODS: settings.max_pods}
    offers |= {name: sum(one.healthy for one in them) for name, them in devices.items()}
    asked = total_requests(node.active.values()) | {_PODS: len(node.active)}
    table = new_table("resource", "capacity", "allocatable", "requested", right=(1, 2, 3))
    for name in sorted(has, key=lambda one: (one != _CPU, one != _MEMORY, one)):
        form = (
            Quantity.of_milli if name == _CPU else Quantity.of_bytes if name == _MEMORY or "hugepages-" in name else str
        )
        table.add_row(clean(name), *(str(form(amounts.get(name, 0))) for amounts in (has, offers, asked)))
    view = plan_view(plan)
    return text_for(Group(title_line(view), Text(""), table), to)
