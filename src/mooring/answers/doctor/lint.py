"""``mooring doctor --lint``: which processes and interrupts may run on exclusive CPUs, as text and as a document."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.text import Text

from mooring.answers.base.inputs.node import question_of
from mooring.answers.base.isolation.holders import Assignments, assignments_of
from mooring.answers.base.isolation.lint import lint
from mooring.answers.base.plan import make_plan
from mooring.cli.options import NodeOptions
from mooring.cli.output import NO, YES, emit, emit_document, json_text, warn
from mooring.cli.terminal import text_for
from mooring.engine.core.cpuset import CPUSet
from mooring.engine.core.errors import InputError, clean
from mooring.engine.core.machineinfo import MachineInfo
from mooring.engine.core.topology import TopologyError, discover_topology
from mooring.explain.phrases import plural
from mooring.inputs.machines.files import open_tree
from mooring.inputs.machines.interrupts import file_modes, no_modes
from mooring.inputs.machines.isolation import read_isolation
from mooring.inputs.machines.loader import LIVE
from mooring.inputs.machines.tree import Tree
from mooring.lazy import lazily

with lazily():
    from mooring.answers.base.isolation import lint as isolation_lint


if TYPE_CHECKING:
    from mooring.engine.core.machine import Finding


def answer_lint(options: NodeOptions, form: str, to: str) -> int:
    """Report what else may run on exclusive CPUs; the exit code is 1 when there is a warning.

    Raises:
        InputError: something cannot be read, or the machine's source has no files of a running machine.
    """
    question = question_of(options)
    tree = _tree(options.machine or options.node)
    plan = make_plan(question)
    warn(plan.findings)
    if plan.refusal is not None:
        emit(f"The kubelet would not start, so no container has exclusive CPUs: {plan.refusal.message}", to)
        return NO
    assignments = assignments_of(plan)
    modes = file_modes("/") if tree.name == "/" else no_modes
    findings = lint(read_isolation(tree, _online(question.machine.info), modes), assignments)
    name = question.machine.name
    if form == "json":
        emit_document(json_text(isolation_lint.isolation_document(name, assignments, findings)), to)
    else:
        emit(_lint_text(name, assignments, findings, to), to)
    return NO if any(finding.severity == "warning" for finding in findings) else YES


def _tree(source: str) -> Tree:
    """Open the files of the machine.

    Raises:
        InputError: there are none, because the machine is only described.
    """
    try:
        return open_tree("/" if source in ("", LIVE) else source)
    except InputError as error:
        remedy = "give a running machine, or a node archive of mooring collect, with --machine or --node"
        raise InputError("contains no isolation settings", source=source or error.source, remedy=remedy) from None


def _online(info: MachineInfo) -> CPUSet:
    try:
        return CPUSet(discover_topology(info).all_cpus)
    except TopologyError:
        return CPUSet()


_STYLE = {"warning": "bold yellow", "info": "bold cyan"}


def _lint_text(machine: str, assignments: Assignments, findings: Sequence[Finding], to: str) -> str:
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
        yield Text("According to the machine's files, nothing else runs on the exclusive CPUs.")
