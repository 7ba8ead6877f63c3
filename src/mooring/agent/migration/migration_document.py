"""``mooring migrate -o json``: a migration as a document."""

from __future__ import annotations

from collections.abc import Iterable

from mooring.agent.migration.migration import Migration
from mooring.agent.migration.steps import MigrationStep, Places, rollback_of, steps_of
from mooring.agent.migration.takeover import MigratedContainer
from mooring.answers.base.outcome import placement_part
from mooring.documents.migration import (
    MigratedContainerPart,
    MigrationCheckPart,
    MigrationDocument,
    MigrationStepPart,
)
from mooring.documents.parts import finding_parts


def migration_document(migration: Migration, places: Places, node: str) -> MigrationDocument:
    """Return the document.

    Args:
        migration: what was computed.
        places: names on the node.
        node: its name; empty where it is not known.
    """
    taken = migration.takeover
    return MigrationDocument(
        node=node,
        machine=migration.question.machine.name,
        kubelet=migration.question.mooring.release.tag,
        way=migration.way.value,
        passed=migration.passed,
        checks=[MigrationCheckPart(one.name, one.passed, one.message) for one in migration.checks],
        containers=[_container(one) for one in taken.containers] if taken is not None else [],
        shared_pool=str(taken.shared_pool) if taken is not None else "",
        steps=_steps(steps_of(migration, places)),
        rollback=_steps(rollback_of(migration, places)),
        findings=finding_parts(migration.findings),
    )


def _steps(steps: Iterable[MigrationStep]) -> list[MigrationStepPart]:
    return [MigrationStepPart(one.title, dict(one.files), list(one.commands), list(one.outcome)) for one in steps]


def _container(one: MigratedContainer) -> MigratedContainerPart:
    return MigratedContainerPart(
        uid=one.pod.uid,
        namespace=one.pod.namespace,
        name=one.pod.name,
        container=one.container,
        outcome=one.outcome.value,
        before=placement_part(one.before),
        after=placement_part(one.after),
        runs_on=str(one.runs_on),
        reason=one.reason,
    )
