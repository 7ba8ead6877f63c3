"""``mooring doctor``: are the state files sound, and what is to be done?"""

from __future__ import annotations

import json
import os
import subprocess
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from mooring.answers.base.inputs.node import question_of, read_node
from mooring.cli import options
from mooring.cli.options import NodeOptions
from mooring.cli.output import NO, YES, Verb, emit, tell, write_answer
from mooring.engine.core.errors import InputError, KubeletCrashError
from mooring.inputs.archive import OF_ARCHIVE
from mooring.lazy import lazily

with lazily():
    from mooring.answers.base import published
    from mooring.answers.base.inputs import checks as running_inputs
    from mooring.answers.base.inputs import node as node_inputs
    from mooring.answers.doctor import answer as answers
    from mooring.answers.doctor import diagnosis as diagnosing
    from mooring.answers.doctor import lint as lint_answer
    from mooring.answers.doctor import text
    from mooring.cli import terminal
    from mooring.engine.checkpoint import device_file, formats, store
    from mooring.engine.kubelet import start as starting
    from mooring.engine.node import settings
    from mooring.inputs.machines import isolation
    from mooring.inputs.machines import tree as trees
    from mooring.service import apiserver

if TYPE_CHECKING:
    from mooring.answers.base.inputs.node import NodeInputs
    from mooring.answers.doctor.answer import DiagnosisDocument
    from mooring.inputs.machines.isolation import PinnedContainer
    from mooring.inputs.machines.tree import Tree


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
@options.flag("--write", "Write the repair, and keep a copy of every file that is replaced.")
@options.flag("--lint", "Show instead what else may run on the exclusive CPUs of this machine.")
@options.output(("text", "json"), "text")
@options.to_file
def command(form: str, to: str, inputs: NodeOptions, *, write: bool, lint: bool) -> int:
    """Show what is wrong with the kubelet's state files, which pods it concerns, and the smallest repair.

    Nothing is written without --write; stop the kubelet first.

    Exit code 0 when the files are sound, or were repaired; 1 when something is wrong; with --lint, when anything else
    may run on exclusive CPUs.
    """
    inputs = running_inputs.with_running_kubelet(inputs)
    folder = running_inputs.state_folder(inputs.running)
    if folder and not inputs.state and not write:
        # Not as the archive would have it, but the files themselves.
        inputs = replace(inputs, state=folder)
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
        before = {settings.CPU_FILE: asked.files.cpu, settings.MEMORY_FILE: asked.files.memory}
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
    copies = iter(store.replace_with_backups(folder, before, after))
    for repair in diagnosis.repairs:
        repair.written, repair.backup = True, next(copies).name if before.get(repair.file) is not None else ""


DAMAGE: Final = "damage"
CLASSES: Final[Mapping[str, tuple[str, ...]]] = {
    DAMAGE: (),
    "format": ("MOOR-304",),
    "configuration": ("MOOR-305", "MOOR-312", "MOOR-313", "MOOR-314", "MOOR-315", "MOOR-318", "MOOR-333"),
    "machine": ("MOOR-316", "MOOR-319", "MOOR-330", "MOOR-331", "MOOR-332", "MOOR-336"),
}
"""Class of a repair -> codes of the problems that it mends; all others are damage."""
_CONFIGURATION = ("config.yaml", "kubeadm-flags.env")
"""Files of kubeadm in the kubelet's root directory; a node that has others names them with ``--config``."""
_ROOT = "/var/lib/kubelet"
_KEPT_RECORDS = 100
_RECORD = "/var/lib/mooring/heal.json"

HEAL_EPILOG = """\b
Examples:
  mooring heal --dry-run
  mooring heal --config /var/lib/kubelet/config.yaml --leave machine
  mooring heal --report /etc/kubernetes/kubelet.conf --node-name node-1
"""


@click.command("heal", cls=Verb, epilog=HEAL_EPILOG)
@options.text("--state", "DIR", "The kubelet's root directory.")
@options.node_options(without=["state"])
@click.option("--kubelet", default="kubelet", metavar="PROGRAM", help="Is asked for its release.")
@click.option(
    "--leave", multiple=True, type=click.Choice(tuple(CLASSES)), help="A class of repair that is not made; repeatable."
)
@options.flag("--dry-run", "Write nothing, and print what mooring doctor prints.")
@options.text(
    "--record",
    "FILE",
    f"Where repairs are noted, beside a .prom file that counts them. Default: {_RECORD}.",
    default=_RECORD,
)
@options.text("--report", "KUBECONFIG", "Only send what is noted, as events of the node.")
@options.output(("text", "json"), "text")
@options.to_file
def heal_command(
    form: str,
    to: str,
    inputs: NodeOptions,
    kubelet: str,
    leave: tuple[str, ...],
    record: str,
    report: str,
    *,
    dry_run: bool,
) -> int:
    """Before the kubelet starts: write the nearest state with which it does, and keep a copy of what was there.

    A running container keeps its CPUs and memory where any state allows it. Nothing is written while a kubelet runs, or
    where the state is sound.

    Exit code 0 when the kubelet starts on the files as they are now; 1 when it does not.
    """
    if report:
        return _reported(record, report, inputs.node_name)
    tree = _node_files(inputs)
    _refuse_beside_kubelet(tree)
    state = inputs.state or f"{os.environ.get(running_inputs.ROOT, '').rstrip('/')}{_ROOT}"
    usual = tuple(f"{state}/{name}" for name in _CONFIGURATION if Path(state, name).exists())
    version = inputs.kubelet_version or _release(kubelet)
    read = node_inputs.read_inputs(
        replace(inputs, state=state, config=inputs.config or usual, kubelet_version=version, node=running_inputs.NONE)
    )
    files = {name: published.state_text(state, name) for name in (formats.ALLOCATED_FILE, formats.ACTUATED_FILE)}
    pinned = isolation.pinned_containers(tree)
    starts = _starts(read, files, pinned)
    if starts and not dry_run and form == "text":
        emit(f"{state}: kubelet {read.release.release.tag} starts on these files; nothing is written", to)
        return YES
    asked = node_inputs.question_from(read)
    record_of = device_file.device_record(published.state_text(state, device_file.DEVICE_FILE))
    found = diagnosing.diagnose(asked, record_of, files, pinned)
    found.repairs += [
        answers.RepairPart(one.file, "delete", "", 0, [], [], written=False, backup="")
        for one in found.files
        if one.file in files and not one.sound
    ]
    left = sorted({kind for _, kind in _causes(found)} & set(leave))
    healed = bool(found.repairs) and not (starts or dry_run or left)
    if healed:
        _refuse_beside_kubelet(_node_files(inputs))
        before = {settings.CPU_FILE: asked.files.cpu, settings.MEMORY_FILE: asked.files.memory, **files}
        write_repair(found, before, Path(state))
        _note(found, record)
    terminal.print_answer(form, to, found, text.doctor_parts(found, state), found.findings)
    if left and not starts:
        tell(f"nothing is written: --leave {' and '.join(left)}")
    return YES if starts or found.sound or healed else NO


def _starts(read: NodeInputs, files: Mapping[str, str | None], pinned: Collection[PinnedContainer]) -> bool:
    """Tell whether the kubelet starts, and nothing that runs is missing: most starts, of which none may be delayed."""
    config, mooring = read.configuration.kubelet, read.configuration.mooring
    lost = (read.state.cpu is None and config.cpu_manager_policy != "none") or (
        read.state.memory is None and config.memory_manager_policy != "None"
    )
    if (pinned and lost) or read.machine.info_error:
        return False
    release, new_texts = mooring.release.name, not mooring.release.rules.json_texts_of_go_126
    texts = (text for text in files.values() if text is not None)
    if any(isinstance(formats.read_pod_file(text, release, json_v2=new_texts)[1], formats.Unread) for text in texts):
        return False
    try:
        start = starting.start_kubelet(read.machine.info, config, mooring, read.state)
    except KubeletCrashError:
        return False
    return starting.refusal_of(start) is None


def _node_files(inputs: NodeOptions) -> Tree:
    """Return the files of the node as they are now: a tree remembers what it has read."""
    if inputs.machine not in ("", "live"):
        return trees.FolderTree(inputs.machine)
    computer = running_inputs.computer()
    if computer is None:
        raise InputError("needs root", source="mooring heal", remedy="run it as root, or name a copy with --machine")
    return computer


def _refuse_beside_kubelet(tree: Tree) -> None:
    process, embedding = trees.kubelet_here(tree)
    if process is not None or embedding:
        name = embedding or f"process {process.number if process else ''}"
        raise InputError(f"a kubelet runs ({name})", source="mooring heal", remedy="stop it first")


def _release(kubelet: str) -> str:
    """Ask the kubelet that will start for its release."""
    try:
        words = [kubelet, "--version"]
        said = subprocess.run(words, capture_output=True, text=True, check=True, timeout=10).stdout  # noqa: S603 - theirs
    except (OSError, subprocess.SubprocessError):
        remedy = "name the program, or its release with --kubelet-version"
        raise InputError("does not tell its release", source=kubelet, field="--kubelet", remedy=remedy) from None
    return said.rpartition(" ")[2].strip()


def _causes(found: DiagnosisDocument) -> Iterator[tuple[str, str]]:
    """Yield code and class of everything that the repairs mend."""
    classes = {code: kind for kind, codes in CLASSES.items() for code in codes}
    files = {one.file for one in found.repairs}
    for problem in (problem for file in found.files if file.file in files for problem in file.problems):
        if problem.severity == "error":
            yield problem.code, classes.get(problem.code, DAMAGE)


def _noted(record: str) -> dict[str, Any]:
    try:
        noted = json.loads(Path(record).read_text(encoding="utf-8"))
        return {"counts": Counter(noted["counts"]), "events": list(noted["events"])}
    except FileNotFoundError:
        return {"counts": Counter(), "events": []}
    except (OSError, ValueError, KeyError, TypeError):
        raise InputError("is no record of mooring heal", source=record, remedy="remove it") from None


def _note(found: DiagnosisDocument, record: str) -> None:
    """Note what was written, so that it is counted now and can be sent later."""
    try:
        noted = _noted(record)
    except InputError:  # a record that a power cut has torn is no reason to count nothing
        noted = {"counts": Counter(), "events": []}
    noted["counts"].update({kind for _, kind in _causes(found)})
    lost = [f"{one.uid}/{one.container}: {one.why}" for each in found.repairs for one in each.dropped]
    files = ", ".join(f"{one.file} ({'deleted' if one.action == 'delete' else 'replaced'})" for one in found.repairs)
    codes = ", ".join(sorted({code for code, _ in _causes(found)}))
    message = f"Repaired before the kubelet's start: {files}; {codes}; lost: {'; '.join(lost) or 'nothing'}."
    repair = {"time": f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}", "message": message}
    noted["events"] = [*noted["events"], repair][-_KEPT_RECORDS:]
    Path(record).parent.mkdir(parents=True, exist_ok=True)
    write_answer(json.dumps(noted, indent=2).encode(), record)
    lines = [f'mooring_heal_repairs_total{{class="{kind}"}} {noted["counts"][kind]}\n' for kind in CLASSES]
    head = "# HELP mooring_heal_repairs_total Starts of the kubelet before which its state was repaired.\n"
    counts = f"{head}# TYPE mooring_heal_repairs_total counter\n{''.join(lines)}"
    write_answer(counts.encode(), str(Path(record).with_suffix(".prom")))


def _reported(record: str, kubeconfig: str, node: str) -> int:
    """Send what was noted, and forget each event that has arrived."""
    noted = _noted(record)
    if not noted["events"]:
        return YES
    name = node or os.uname().nodename.lower()
    with apiserver.cluster_of(apiserver.configuration_of(kubeconfig)) as cluster, apiserver.cluster_errors():
        for one in tuple(noted["events"]):
            event = {
                "metadata": {"generateName": f"{name}.", "namespace": "default"},
                "involvedObject": {"kind": "Node", "apiVersion": "v1", "name": name, "uid": name},
                "reason": "StateHealed",
                "message": one["message"][:1024],
                "type": "Warning",
                "firstTimestamp": one["time"],
                "lastTimestamp": one["time"],
                "source": {"component": "mooring-heal", "host": name},
            }
            cluster.http.post("/api/v1/namespaces/default/events", json=event).raise_for_status()
            noted["events"].remove(one)
            write_answer(json.dumps(noted, indent=2).encode(), record)
    return YES
