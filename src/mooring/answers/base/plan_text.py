"""``mooring plan -o text`` and ``-o wide``: the answer for people."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.text import Text

from mooring.answers.base.picture import plan_view
from mooring.answers.base.plan import AnyPlan, RefusedPlan
from mooring.answers.base.rows import device_lines, mixed_lines, plan_counts, plan_rows, pool_lines, resize_lines
from mooring.cli.terminal import text_for, width_for
from mooring.engine.core.errors import clean
from mooring.engine.core.quantity import Quantity
from mooring.engine.kubelet.kubelet import Kubelet, free_cpus, reserved_cpus, shared_cpus
from mooring.engine.node.resources import allocatable, total_requests
from mooring.engine.node.settings import policies
from mooring.explanations.phrases import plural
from mooring.inputs.configuration.layers import EffectiveField
from mooring.views.console import new_table
from mooring.views.tables import numa_table, placements_table
from mooring.views.view import NodeView

_CPU, _MEMORY, _PODS = "cpu", "memory", "pods"


def plan_text(plan: AnyPlan, effective: Sequence[EffectiveField] = (), *, wide: bool, to: str) -> str:
    """Return the answer as text for the terminal, or without any styling for the file ``to``.

    Args:
        plan: the answer.
        effective: fields of the configuration that are shown with their origins.
        wide: whether tables have more columns.
        to: the file.
    """
    parts = _parts(plan, width_for(to), wide=wide)
    return text_for(Group(*parts, *_configuration(effective)), to)


def _configuration(effective: Sequence[EffectiveField]) -> Iterator[RenderableType]:
    if not effective:
        return
    yield Text("")
    rows = [("configuration in force", "value", "set by")]
    rows += [(clean(one.name), clean(one.shown), clean(str(one.place))) for one in effective]
    widths = [max(len(row[column]) for row in rows) for column in (0, 1)]
    for number, (name, value, place) in enumerate(rows):
        line = f"{name:{widths[0]}}  {value:{widths[1]}}  {place}"
        yield Text(line, "" if number else "dim", overflow="fold")


def _parts(plan: AnyPlan, width: int, *, wide: bool) -> Iterator[RenderableType]:
    if isinstance(plan, RefusedPlan):
        yield from refusal_lines(plan)
        return
    view = plan_view(plan)
    yield from head_lines(view, plan.kubelet)
    if plan.answers:
        yield placements_table(plan_rows(plan, wide=wide), wide=wide)
        yield Text("")
        yield Text(plan_counts(plan))
    yield from (Text(line) for line in _pools(plan.kubelet))
    yield from (Text(clean(line), "bold red") for line in pool_lines(plan))
    yield from (Text(line) for line in (*device_lines(plan), *resize_lines(plan), *mixed_lines(plan)))
    yield Text("")
    yield numa_table(view, width)


def title_line(view: NodeView) -> Text:
    """Return the name of a machine, and what it is."""
    return Text.assemble((view.name, "bold"), f": {view.title}")


def head_lines(view: NodeView, kubelet: Kubelet) -> Iterator[RenderableType]:
    """Yield what begins an answer about a node: its machine, the kubelet's policies, an empty line."""
    yield title_line(view)
    yield Text(policies(kubelet.settings), "dim")
    yield Text("")


def refusal_lines(plan: RefusedPlan) -> Iterator[RenderableType]:
    """Yield that the kubelet would not start, its text, and what to do."""
    yield Text.assemble((plan.subject, "bold"), (f" [{plan.refusal.code}]", "dim"))
    yield Padding(Text(clean(plan.refusal.message)), (0, 0, 0, 2))
    if plan.remedy:
        yield Text(plan.remedy)


def _pools(kubelet: Kubelet) -> Iterator[str]:
    reserved = reserved_cpus(kubelet)
    if kubelet.settings.cpu is None:
        yield "CPU manager policy none: every container may run on all CPUs, and none gets CPUs of its own."
        return
    pool, free = shared_cpus(kubelet), free_cpus(kubelet)
    yield (
        f"Shared pool: {plural(len(pool), 'CPU')} ({pool or 'empty'}); reserved: {reserved or 'none'}; "
        f"still free for exclusive use: {len(free)}."
    )


def resources_text(plan: AnyPlan, to: str) -> str:
    """Return what ``kubectl describe node`` has: capacity, allocatable, and what the pods of the node request.

    Devices are counted as the kubelet reports them: capacity is every one, allocatable the healthy ones.

    Source: kubelet v1.37.1, pkg/kubelet/nodestatus/setters.go (MachineInfo).
    """
    if isinstance(plan, RefusedPlan):
        return plan_text(plan, wide=False, to=to)
    node, settings = plan.kubelet.node, plan.kubelet.settings
    devices = node.providers.devices.devices
    has = {
        name: amount.milli if name == _CPU else amount.units for name, amount in settings.reservation.capacity.items()
    }
    has |= {name: len(them) for name, them in devices.items()} | {_PODS: settings.max_pods}
    offers = allocatable(settings.reservation) | {_PODS: settings.max_pods}
    offers |= {name: sum(one.healthy for one in them) for name, them in devices.items()}
    asked = total_requests(node.active.values()) | {_PODS: len(node.active)}
    table = new_table("resource")
    for heading in ("capacity", "allocatable", "requested"):
        table.add_column(heading, justify="right")
    for name in sorted(has, key=lambda one: (one != _CPU, one != _MEMORY, one)):
        form = (
            Quantity.of_milli if name == _CPU else Quantity.of_bytes if name == _MEMORY or "hugepages-" in name else str
        )
        table.add_row(clean(name), *(str(form(amounts.get(name, 0))) for amounts in (has, offers, asked)))
    view = plan_view(plan)
    return text_for(Group(title_line(view), Text(""), table), to)
