"""``mooring plan -o text`` and ``-o wide``: the answer for people."""

from __future__ import annotations

from io import StringIO

from rich.console import Console, Group, RenderableType
from rich.text import Text

from mooring.planner.picture import plan_rows, plan_view, policies
from mooring.planner.plan import Plan, free_cpus, reserved_cpus
from mooring.render.console import plain as plain_text
from mooring.render.console import write
from mooring.render.tables import numa_table, placements_table


def plan_text(plan: Plan, *, wide: bool, plain: bool) -> str:
    """Return the answer as text for the terminal, or without any styling for a file."""
    console = Console()
    body = _body(plan, console.width, wide=wide)
    if plain:
        return plain_text(body, max(console.width, 100))
    captured = Console(
        file=StringIO(),
        width=console.width,
        force_terminal=console.is_terminal,
        no_color=console.no_color,
        color_system="auto" if console.is_terminal else None,
    )
    write(captured, body)
    output = captured.file
    return output.getvalue() if isinstance(output, StringIO) else ""


def _body(plan: Plan, width: int, *, wide: bool) -> RenderableType:
    if plan.kubelet is None:
        message = plan.refusal.message if plan.refusal else ""
        return Group(Text("The kubelet would not start:", "bold"), Text(f"  {message}"))
    view = plan_view(plan)
    admitted = sum(answer.admitted for answer in plan.answers)
    rejected = len(plan.answers) - admitted
    pool = plan.kubelet.node.shared_pool
    return Group(
        Text.assemble((view.name, "bold"), f": {view.title}"),
        Text(policies(plan.kubelet), "dim"),
        Text(""),
        placements_table(plan_rows(plan, why_admitted=wide), wide=wide),
        Text(""),
        Text(f"{_pods(admitted)} admitted, {rejected} rejected."),
        Text(
            f"Shared pool: {len(pool)} CPUs ({pool or 'empty'}); reserved: {reserved_cpus(plan.kubelet) or 'none'}; "
            f"still free for exclusive use: {len(free_cpus(plan.kubelet))}."
        ),
        Text(""),
        numa_table(view, width),
    )


def _pods(count: int) -> str:
    return f"{count} pod{'' if count == 1 else 's'}"
