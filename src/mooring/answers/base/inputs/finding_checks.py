"""Checks for continuous integration: pods alone, where they are described, and SARIF or JUnit XML."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from mooring.cli.output import emit_document, json_text, tell, warn
from mooring.lazy import lazily

with lazily():
    from mooring.answers.base.check import check as checking
    from mooring.answers.base.check import junit, remarks, sarif
    from mooring.inputs.pods import defaults, pod_files, workloads

if TYPE_CHECKING:
    from mooring.answers.base.check.check import Check, NodeType
    from mooring.answers.base.question import Question
    from mooring.inputs.decoding.fields import Document

FORMS: Final = ("sarif", "junit")
"""Formats in which a check is written."""

alone = click.option(
    "--alone",
    "alone",
    is_flag=True,
    help="Ask about each pod without the others of -f: it ends before the next is asked about.",
)


def check_of(
    node_types: Iterable[NodeType],
    question: Question,
    manifests: Sequence[Document],
    templates: Sequence[str],
    settings: Sequence[str],
) -> Check:
    """Return a check.

    Args:
        node_types: with their plans.
        question: that was planned on the first.
        manifests: documents of ``-f``.
        templates: of ``--pod-template-path``.
        settings: files that configure the node types.

    Raises:
        InputError: a pod cannot be understood.
    """
    gates = defaults.PodGates.of_node(question.config, question.mooring)
    paths = workloads.template_paths(templates)
    described = pod_files.pods_with_origins(manifests, gates=gates, paths=paths)
    origins: Mapping[str, pod_files.PodOrigin] = {pod.uid: origin for pod, origin in described}
    file = next((one for one in settings if one != "-" and Path(one).is_file()), "")
    return checking.Check(tuple(node_types), origins, question.alone, file)


def emit_check(check: Check, form: str, to: str) -> None:
    """Write a check.

    Args:
        check: the check.
        form: one of :data:`FORMS`.
        to: the destination.

    Raises:
        InputError: it cannot be written.
    """
    if form == "junit":
        # JUnit has no place for warnings.
        warn(check.findings)
        emit_document(junit.junit_text(check), to)
    else:
        emit_document(json_text(sarif.sarif_document(check)), to)


def show_errors(check: Check) -> None:
    """Print to standard error why the answer of a check is no, each reason with its place."""
    for remark in remarks.remarks_of(check):
        if remark.gravity == "error":
            place = f"{remark.place}: " if remark.place is not None else ""
            tell(f"error[{remark.code}]: {place}{remark.text}")
