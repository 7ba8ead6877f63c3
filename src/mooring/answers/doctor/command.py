"""``mooring doctor``: are the state files sound, and what is to be done?"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from mooring.answers.base.inputs.node import question_of, read_node
from mooring.cli import options
from mooring.cli.options import NodeOptions
from mooring.cli.output import NO, YES, Verb
from mooring.engine.core.errors import InputError
from mooring.inputs.archive import OF_ARCHIVE
from mooring.lazy import lazily

with lazily():
    from mooring.answers.base import published
    from mooring.answers.base.inputs import checks as running_inputs
    from mooring.answers.doctor import diagnosis as diagnosing
    from mooring.answers.doctor import lint as lint_answer
    from mooring.answers.doctor import text
    from mooring.cli import terminal
    from mooring.engine.checkpoint import device_file, formats, salvage
    from mooring.engine.node import start


if TYPE_CHECKING:
    from mooring.answers.doctor.answer import DiagnosisDocument

EPILOG = """\b
Examples:
  mooring doctor --state /var/lib/kubelet --config kubelet.yaml
  mooring doctor --state copy-of-kubelet-root --machine node.tar.gz --config kubelet.yaml --active running.yaml
  mooring doctor --state /var/lib/kubelet --config kubelet.yaml --write
  mooring doctor --node node.tar.gz -o json
  mooring doctor --state /var/lib/kubelet --config kubelet.yaml --kubelet-version 1.36
  mooring doctor --lint --node node.tar.gz
"""


@click.command("doctor", cls=Verb, epilog=EPILOG)
@options.text("--state", "DIR", "The kubelet's root directory, or a copy of it.")
@options.node_options(without=["state"])
@click.option("--write", is_flag=True, help="Write the repair, and keep a copy of every file that is replaced.")
@click.option("--lint", is_flag=True, help="Show instead what else may run on the exclusive CPUs of this machine.")
@options.output(("text", "json"), "text")
@options.to_file
def command(form: str, to: str, inputs: NodeOptions, *, write: bool, lint: bool) -> int:
    """Show what is wrong with the kubelet's state files, which pods it concerns, and the smallest repair.

    Nothing is written without --write; stop the kubelet first.

    Exit code 0 when the files are sound, or were repaired; 1 when something is wrong; with --lint, when anything else
    may run on exclusive CPUs.
    """
    inputs = running_inputs.with_running_kubelet(inputs)
    kubelet = None if inputs.running is None else inputs.running.kubelet
    if kubelet is not None and not inputs.state and not write:
        # Not as the archive would have it, but the files themselves.
        inputs = replace(inputs, state=running_inputs.state_folder(kubelet))
    state, node = inputs.state, inputs.node
    if lint:
        if write:
            raise click.UsageError("give either --lint or --write")
        return lint_answer.answer_lint(inputs, form, to)
    if not state and not node:
        raise InputError("is missing", source="--state", remedy="name the kubelet's root directory or a copy of it")
    if write and not state:
        raise InputError("needs --state", source="--write", remedy="a node archive is never written")
    if write and Path(state).is_file():
        raise InputError("is one file", source=state, field="--state", remedy="name the directory to write the repair")
    asked = replace(question_of(inputs), pods=())
    if state:
        devices = device_file.device_record(published.state_text(state, device_file.DEVICE_FILE))
    else:
        archive = inputs.running or read_node(node)
        devices = device_file.DeviceRecord() if archive is None else archive.devices().record
    names = (formats.ALLOCATED_FILE, formats.ACTUATED_FILE) if state else ()
    pod_files = {name: published.state_text(state, name) for name in names}
    diagnosis = diagnosing.diagnose(asked, devices, pod_files)
    written = write and bool(diagnosis.repairs)
    if written:
        before = {start.CPU_FILE: asked.files.cpu, start.MEMORY_FILE: asked.files.memory}
        write_repair(diagnosis, before, Path(state))
    # Of an archive also its node, and when it was captured.
    archived = [finding.message for finding in asked.findings if finding.code == OF_ARCHIVE]
    parts = text.doctor_parts(diagnosis, state or ", ".join([node, *archived]))
    terminal.print_answer(form, to, diagnosis, parts, diagnosis.findings)
    return YES if diagnosis.sound or written else NO


def write_repair(diagnosis: DiagnosisDocument, before: Mapping[str, str | None], folder: Path) -> None:
    """Write the repair, and say so in it.

    Args:
        diagnosis: with the repair.
        before: name -> text of each file on which it rests.
        folder: the kubelet's root directory.

    Raises:
        InputError: it cannot be written; then everything is as it was.
    """
    after = {one.file: one.text if one.action == "replace" else None for one in diagnosis.repairs}
    copies = iter(salvage.replace_with_backups(folder, before, after))
    for repair in diagnosis.repairs:
        repair.written, repair.backup = True, next(copies).name if before.get(repair.file) is not None else ""
