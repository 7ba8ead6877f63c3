"""``mooring migrate``: checks, steps and the way back for people."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from rich.console import RenderableType
from rich.padding import Padding
from rich.text import Text

from mooring.answers.migrate.migration import MigrationDocument, MigrationStepPart
from mooring.engine.core.errors import clean

_INDENT = (0, 0, 0, 3)


def migration_parts(migration: MigrationDocument) -> Iterator[RenderableType]:
    """Yield the migration for people."""
    name = clean(migration.node or migration.machine)
    yield Text.assemble((name, "bold"), f": from the kubelet's managers to the agent, {migration.way}")
    failed = [check for check in migration.checks if not check.passed]
    verdict = f"Do not start: {failed[0].name}." if failed else "Every check has passed. Nothing was changed."
    yield Text(verdict, "bold red" if failed else "bold")
    yield Text("")
    for check in migration.checks:
        word, style = ("ok    ", "green") if check.passed else ("FAILED", "bold red")
        yield Text.assemble((word, style), f" {check.name}: {clean(check.message)}")
    yield from _section("Steps", migration.steps)
    yield from _section("The way back", migration.rollback)


def _section(title: str, steps: Iterable[MigrationStepPart]) -> Iterator[RenderableType]:
    yield Text("")
    yield Text(title, "bold")
    for number, step in enumerate(steps, 1):
        yield Text("")
        yield Text(f"{number}. {step.title}")
        for path, content in step.files.items():
            yield Padding(Text(f"{path}:", "dim"), _INDENT)
            yield Padding(Text(clean_lines(content)), (0, 0, 0, 5))
        for command in step.commands:
            # In one line whatever the terminal's width: it is there to be copied, and a padding would cut it off.
            yield Text(" " * _INDENT[-1] + clean(command), "cyan", no_wrap=True, overflow="ignore")
        for line in step.outcome:
            yield Padding(Text(f"→ {clean(line)}"), _INDENT)


def clean_lines(content: str) -> str:
    """Return a text with its lines, and nothing that a terminal would obey."""
    return "\n".join(clean(line) for line in content.rstrip("\n").split("\n"))
