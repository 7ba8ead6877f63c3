"""``mooring doctor --lint``: reading what the lint needs, and writing its answer."""

from __future__ import annotations

from mooring.cli.answer import NO, YES, emit, emit_document, json_text, warn
from mooring.cli.inputs import NodeOptions, question_of
from mooring.core.cpuset import CPUSet
from mooring.core.errors import InputError
from mooring.core.machineinfo import MachineInfo
from mooring.core.topology import TopologyError, discover_topology
from mooring.discovery.interrupts import file_modes, no_modes
from mooring.discovery.isolation import read_isolation
from mooring.discovery.loader import LIVE
from mooring.discovery.tree import Tree, open_tree
from mooring.planner.isolation.holders import assignments_of
from mooring.planner.isolation.lint import lint
from mooring.planner.plan import make_plan


def answer_lint(options: NodeOptions, form: str, to: str) -> int:
    """Tell who else may run on exclusive CPUs; the exit code is 1 when there is a warning.

    Raises:
        InputError: something cannot be read, or the machine's source has no files of a running machine.
    """
    question = question_of(options)
    tree = _tree(options.machine or options.node)
    plan = make_plan(question)
    warn(plan.findings)
    if plan.refusal is not None:
        emit(f"The kubelet would not start, so that nobody has CPUs for itself: {plan.refusal.message}", to)
        return NO
    assignments = assignments_of(plan)
    modes = file_modes("/") if tree.name == "/" else no_modes
    findings = lint(read_isolation(tree, _online(question.machine.info), modes), assignments)
    name = question.machine.name
    if form == "json":
        from mooring.planner.isolation.isolation_document import isolation_document  # noqa: PLC0415 - only for this format

        emit_document(json_text(isolation_document(name, assignments, findings)), to)
    else:
        from mooring.cli.lint_text import lint_text  # noqa: PLC0415 - rich is not needed for JSON

        emit(lint_text(name, assignments, findings, to), to)
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
        raise InputError("tells nothing about isolation", source=source or error.source, remedy=remedy) from None


def _online(info: MachineInfo) -> CPUSet:
    try:
        return CPUSet(discover_topology(info).all_cpus)
    except TopologyError:
        return CPUSet()
