"""``mooring doctor --lint``: who else may run on exclusive CPUs, for people."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.text import Text

from mooring.cli.terminal import text_for
from mooring.planner.isolation.holders import Assignments
from mooring.render.wording import clean, plural

if TYPE_CHECKING:
    from mooring.core.machine import Finding

_STYLE = {"warning": "bold yellow", "info": "bold cyan"}


def lint_text(machine: str, assignments: Assignments, findings: Sequence[Finding], to: str) -> str:
    """Return the findings as text for the terminal, or without any styling for the file ``to``."""
    return text_for(Group(*_parts(machine, assignments, findings)), to)


def _parts(machine: str, assignments: Assignments, findings: Sequence[Finding]) -> Iterator[RenderableType]:
    exclusive = assignments.exclusive
    yield Text.assemble(
        (machine, "bold"),
        f": {plural(len(assignments.holders), 'holder')} of {plural(len(exclusive), 'exclusive CPU')}"
        f"{f' ({exclusive})' if exclusive else ''}",
    )
    yield Text("")
    for finding in findings:
        yield Text.assemble((f"{finding.severity}[{finding.code}]", _STYLE[finding.severity]), f": {finding.subject}")
        yield Padding(Text(clean(finding.message)), (0, 0, 0, 2))
    if findings:
        yield Text("")
    warnings = sum(finding.severity == "warning" for finding in findings)
    if warnings:
        codes = dict.fromkeys(finding.code for finding in findings if finding.severity == "warning")
        yield Text(f"{plural(warnings, 'warning')}. What to do: mooring explain {next(iter(codes))}")
    elif exclusive:
        yield Text("As far as the machine's files tell, nobody else runs on the exclusive CPUs.")
