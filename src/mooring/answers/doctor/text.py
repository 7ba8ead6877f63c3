"""``mooring doctor``: the diagnosis for people."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from mooring.answers.base.answering import RESTART
from mooring.answers.doctor.cpu_repair import EntryHolder, Problem
from mooring.answers.doctor.diagnosis import NOT_CHECKED, Diagnosis, FileDiagnosis, FileRepair
from mooring.answers.doctor.entry_checks import NO_ENTRY, POD_ENTRIES_IGNORED, STALE
from mooring.answers.doctor.joint_checks import FILE_MISSING, LOST_ENTRIES
from mooring.cli.terminal import text_for
from mooring.engine.core.cpuset import CPUSet
from mooring.engine.core.errors import clean
from mooring.engine.core.pod import Pod
from mooring.engine.core.release import NEWEST
from mooring.engine.extensions.owners import OwnerKind, state_owner
from mooring.explanations.phrases import cpus_text, joined, plural
from mooring.views.console import Breaking, new_table

_MOST_ROWS = 40
"""Rows of the table of containers; ``-o json`` has them all."""
_MOST_CHANGES = 60
"""Lines of a comparison."""

_STYLE = {"error": "bold red", "warning": "bold yellow", "note": "bold cyan"}
_INDENT = (0, 0, 0, 2)


def doctor_text(diagnosis: Diagnosis, place: str, backups: Mapping[str, str], to: str) -> str:
    """Return the diagnosis as text for the terminal, or without any styling for the file ``to``.

    Args:
        diagnosis: what was found.
        place: where the files are, as typed.
        backups: file -> backup, of the files that were replaced; empty when nothing was written.
        to: the destination.
    """
    return text_for(Group(*_parts(diagnosis, place, backups)), to)


def _parts(diagnosis: Diagnosis, place: str, backups: Mapping[str, str]) -> Iterator[RenderableType]:
    pods = {pod.uid: pod for pod in diagnosis.question.active}
    yield from _verdict(diagnosis, place)
    for file in diagnosis.files if any(file.format for file in diagnosis.files) else ():
        yield Text("")
        yield _file_line(file)
        if file.kubelet and diagnosis.refusal is not None and file.kubelet != diagnosis.refusal.message:
            yield Padding(Text(f"The kubelet would say: {clean(file.kubelet)}", "dim"), _INDENT)
        yield from _problem_lines(file.problems)
    if diagnosis.problems:
        yield Text("")
        yield from _problem_lines(diagnosis.problems, indent=0)
    if diagnosis.remedy:
        yield Text("")
        yield Text(diagnosis.remedy)
    rows = _rows(diagnosis, pods)
    if rows:
        yield Text("")
        yield _containers(rows)
        if len(rows) > _MOST_ROWS:
            yield Text(f"and {len(rows) - _MOST_ROWS} more; -o json has them all", "dim")
    for repair in diagnosis.repairs:
        yield Text("")
        yield from _repair(repair, backups)
    yield from _steps(diagnosis, backups)
    codes = list(dict.fromkeys(problem.code for problem in diagnosis.all_problems if problem.severity == "error"))
    if codes:
        yield Text("")
        yield Text(f"More about it: mooring explain {codes[0]}", "dim")


def _verdict(diagnosis: Diagnosis, place: str) -> Iterator[RenderableType]:
    where = clean(place)
    if not any(file.format for file in diagnosis.files):
        yield Text.assemble((where, "bold"), ": no state files: the kubelet makes new ones when it starts")
        if diagnosis.is_sound:
            return
    kubelet = "the kubelet" if diagnosis.release == NEWEST else f"kubelet {diagnosis.release.name}"
    if diagnosis.refusal is not None:
        yield Text.assemble((where, "bold"), f": {kubelet} would not start:")
        yield Padding(Text(clean(diagnosis.refusal.message)), _INDENT)
    elif diagnosis.is_sound:
        yield Text.assemble((where, "bold"), f": sound: {kubelet} starts on these files")
    else:
        later = all(problem.code == RESTART for problem in diagnosis.all_problems if problem.severity == "error")
        wrong = "its start after that fails" if later else "they are wrong"
        yield Text.assemble((where, "bold"), f": {kubelet} starts on these files, but {wrong}")


def _file_line(file: FileDiagnosis) -> Text:
    if not file.format:
        return Text.assemble((file.file, "bold"), ": none")
    if file.format == NOT_CHECKED:
        return Text.assemble((file.file, "bold"), f": {NOT_CHECKED}")
    verdict = ("sound", "green") if file.is_sound else ("not sound", "bold red")
    kind = "damaged" if file.format.startswith("not ") else file.format.partition(", ")[2]
    held = f", {plural(file.containers, 'container')}" if file.containers else ""
    return Text.assemble((file.file, "bold"), ": ", verdict, f" ({clean(kind)}{held})")


def _problem_lines(problems: Sequence[Problem], indent: int = 2) -> Iterator[RenderableType]:
    for problem in problems:
        mark = (f"{problem.severity}[{problem.code}]", _STYLE[problem.severity])
        yield Padding(Text.assemble(mark, f": {clean(problem.message)}"), (0, 0, 0, indent))


def _name(holder: EntryHolder, pods: Mapping[str, Pod]) -> str:
    owner = state_owner(holder.uid, holder.container)
    if owner.kind is OwnerKind.CLAIM:
        return clean(owner.label())
    pod = pods.get(holder.uid)
    parts = [f"{pod.namespace}/{pod.name}" if pod is not None else holder.uid, holder.container]
    return clean("/".join(part for part in parts if part))


def _rows(diagnosis: Diagnosis, pods: Mapping[str, Pod]) -> list[tuple[str, str, str]]:
    """Return name, problems and outcome of every container that a problem concerns."""
    found: dict[EntryHolder, dict[str, Problem]] = {}
    for problem in diagnosis.all_problems:
        for holder in problem.holders:
            found.setdefault(holder, {}).setdefault(problem.code, problem)
    lost: dict[EntryHolder, list[str]] = {}
    for repair in diagnosis.repairs:
        for dropped in repair.dropped:
            lost.setdefault(dropped.holder, []).append(f"loses {dropped.held}: {dropped.why}")
    return [
        (
            _name(holder, pods),
            ", ".join(found.get(holder, ())) or "–",
            "; ".join(
                [
                    *lost.get(holder, ()),
                    *_afterwards(diagnosis, holder, found.get(holder, {}), lost=holder in lost),
                ]
            ),
        )
        for holder in sorted({**found, **lost})
    ]


def _afterwards(
    diagnosis: Diagnosis, holder: EntryHolder, codes: Mapping[str, Problem], *, lost: bool
) -> Iterator[str]:
    after = diagnosis.afterwards.get(holder)
    if after is not None and after.refused:
        yield f"its pod is refused at the start: {after.refused}"
    elif after is not None and after.cpus:
        cpus = cpus_text(CPUSet.parse(after.cpus).mask)
        yield f"{'gets' if lost or NO_ENTRY in codes else 'has'} {cpus} after the start"
    elif after is not None and lost:
        yield "runs in the shared pool after the start"
    elif RESTART in codes:
        yield "does not keep what it has"
    elif STALE in codes:
        yield "is dropped by the kubelet"
    elif lacking := [codes[code].file for code in (FILE_MISSING, LOST_ENTRIES) if code in codes]:
        yield f"has no readable entry in {joined(lacking)}"
    elif POD_ENTRIES_IGNORED in codes and not holder.container:
        yield "its containers keep theirs; the entry of the pod is lost"
    elif not lost and diagnosis.repairs:
        yield "keeps what it has"


def _containers(rows: Sequence[tuple[str, str, str]]) -> Table:
    table = new_table("container", "about", "what becomes of it")
    for name, codes, after in rows[:_MOST_ROWS]:
        table.add_row(Breaking(name, "/"), Breaking(codes, ", "), Text(clean(after)))
    return table


def _repair(repair: FileRepair, backups: Mapping[str, str]) -> Iterator[RenderableType]:
    done = repair.file in backups
    if repair.text is None:
        verb = "was deleted" if done else "will be deleted"
        yield Text.assemble(("Repair: ", "bold"), f"{repair.file} {verb}, because nothing in it can be read.")
        return
    verb = "was replaced" if done else "will be replaced"
    yield Text.assemble(("Repair: ", "bold"), f"{repair.file} {verb}; {_kept(repair)}.")
    for line in repair.changes[:_MOST_CHANGES]:
        style = "green" if line.startswith("+") else "red" if line.startswith("-") else "dim"
        # The sign of a line that did not change is a space, which has to stay.
        yield Padding(Text(f"{line[:1]}{clean(line[1:])}", style), _INDENT)
    if len(repair.changes) > _MOST_CHANGES:
        yield Padding(Text(f"and {len(repair.changes) - _MOST_CHANGES} more lines", "dim"), _INDENT)


def _kept(repair: FileRepair) -> str:
    total = repair.kept + len(repair.dropped)
    if not total:
        return "no container has an entry"
    if total == 1:
        return f"its container {'keeps' if repair.kept else 'loses'} what it has"
    keep = "keeps what it has" if repair.kept < 2 else "keep what they have"
    return f"{repair.kept or 'none'} of {total} containers {keep}"


def _steps(diagnosis: Diagnosis, backups: Mapping[str, str]) -> Iterator[RenderableType]:
    if backups:
        yield Text("")
        copies = ", ".join(backups.values())
        yield Text(f"Written; the previous content is in {copies}.")
        yield Text("Start the kubelet: systemctl start kubelet")
    elif diagnosis.repairs:
        yield Text("")
        yield Text("1. Stop the kubelet: systemctl stop kubelet")
        yield Text("2. Run this command again with --write; it keeps a copy of each file that it replaces.")
        yield Text("3. Start the kubelet: systemctl start kubelet")
