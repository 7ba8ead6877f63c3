"""``mooring doctor``: the diagnosis for people."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from rich.console import RenderableType
from rich.text import Text

from mooring.answers.base.answering import RESTART
from mooring.answers.doctor import answer as parts
from mooring.answers.doctor.diagnosis import NOT_CHECKED
from mooring.engine.core.cpuset import CPUSet
from mooring.engine.core.errors import clean
from mooring.engine.core.release import NEWEST
from mooring.engine.extensions.owners import OwnerKind, state_owner
from mooring.explanations.phrases import cpus_text, joined, plural
from mooring.views.console import Breaking, indented, new_table

_MOST_ROWS = 40
"""Rows of the table of containers; ``-o json`` has them all."""
_MOST_CHANGES = 60
"""Lines of a comparison."""

_STYLE = {"error": "bold red", "warning": "bold yellow", "note": "bold cyan", "info": "bold cyan"}


def lint_parts(found: parts.IsolationDocument) -> Iterator[RenderableType]:
    """Yield for people what else may run on exclusive CPUs."""
    cpus = f" ({found.exclusive})" if found.exclusive else ""
    exclusive = plural(len(CPUSet.parse(found.exclusive)), "exclusive CPU")
    yield Text.assemble((found.machine, "bold"), f": {plural(len(found.holders), 'holder')} of {exclusive}{cpus}")
    yield Text("")
    for one in found.findings:
        yield Text.assemble((f"{one.severity}[{one.code}]", _STYLE[one.severity]), f": {one.subject}")
        yield indented(clean(one.message))
    if found.findings:
        yield Text("")
    codes = [one.code for one in found.findings if one.severity == "warning"]
    if codes:
        yield Text(f"{plural(len(codes), 'warning')}. What to do: mooring explain {codes[0]}")
    elif found.exclusive:
        yield Text("According to the machine's files, nothing else runs on the exclusive CPUs.")


def doctor_parts(diagnosis: parts.DiagnosisDocument, place: str) -> Iterator[RenderableType]:
    """Yield the diagnosis for people; ``place`` is where the files are, as typed."""
    yield from _verdict(diagnosis, place)
    for file in diagnosis.files if any(file.exists for file in diagnosis.files) else ():
        yield Text("")
        yield _file_line(file)
        if file.kubelet_message and not diagnosis.starts and file.kubelet_message != diagnosis.start_error:
            yield indented(f"The kubelet would say: {clean(file.kubelet_message)}", "dim")
        yield from _problem_lines(file.problems)
    if diagnosis.problems:
        yield Text("")
        yield from _problem_lines(diagnosis.problems, indent=0)
    if diagnosis.remedy:
        yield Text("")
        yield Text(diagnosis.remedy)
    rows = _rows(diagnosis)
    if rows:
        yield Text("")
        table = new_table("container", "about", "what becomes of it")
        for name, about, after in rows[:_MOST_ROWS]:
            table.add_row(Breaking(name, "/"), Breaking(about, ", "), Text(clean(after)))
        yield table
        if len(rows) > _MOST_ROWS:
            yield Text(f"and {len(rows) - _MOST_ROWS} more; -o json has them all", "dim")
    for repair in diagnosis.repairs:
        yield Text("")
        yield from _repair(repair)
    backups = [repair.backup for repair in diagnosis.repairs if repair.written]
    if backups:
        yield Text("")
        copies = ", ".join(one for one in backups if one) or "no copy: there was no file"
        yield Text(f"Written; the previous content is in {copies}.")
        yield Text("Start the kubelet: systemctl start kubelet")
    elif diagnosis.repairs:
        yield Text("")
        yield Text("1. Stop the kubelet: systemctl stop kubelet")
        yield Text("2. Run this command again with --write; it keeps a copy of each file that it replaces.")
        yield Text("3. Start the kubelet: systemctl start kubelet")
    codes = list(dict.fromkeys(problem.code for problem in diagnosis.all_problems if problem.severity == "error"))
    if codes:
        yield Text("")
        yield Text(f"More about it: mooring explain {codes[0]}", "dim")


def _verdict(diagnosis: parts.DiagnosisDocument, place: str) -> Iterator[RenderableType]:
    where = clean(place)
    if not any(file.exists for file in diagnosis.files):
        yield Text.assemble((where, "bold"), ": no state files: the kubelet makes new ones when it starts")
        if diagnosis.sound:
            return
    kubelet = "the kubelet" if diagnosis.release == NEWEST.name else f"kubelet {diagnosis.release}"
    if not diagnosis.starts:
        yield Text.assemble((where, "bold"), f": {kubelet} would not start:")
        yield indented(clean(diagnosis.start_error))
    elif diagnosis.sound:
        yield Text.assemble((where, "bold"), f": sound: {kubelet} starts on these files")
    else:
        later = all(problem.code == RESTART for problem in diagnosis.all_problems if problem.severity == "error")
        wrong = "its start after that fails" if later else "they are wrong"
        yield Text.assemble((where, "bold"), f": {kubelet} starts on these files, but {wrong}")


def _file_line(file: parts.StateFilePart) -> Text:
    if not file.exists:
        return Text.assemble((file.file, "bold"), ": none")
    if file.format == NOT_CHECKED:
        return Text.assemble((file.file, "bold"), f": {NOT_CHECKED}")
    verdict = ("sound", "green") if file.sound else ("not sound", "bold red")
    held = f", {plural(file.containers, 'container')}" if file.containers else ""
    return Text.assemble((file.file, "bold"), ": ", verdict, f" ({clean(file.version or 'damaged')}{held})")


def _problem_lines(problems: Sequence[parts.ProblemPart], indent: int = 2) -> Iterator[RenderableType]:
    for problem in problems:
        mark = (f"{problem.severity}[{problem.code}]", _STYLE[problem.severity])
        yield indented(Text.assemble(mark, f": {clean(problem.message)}"), by=indent)


def _rows(diagnosis: parts.DiagnosisDocument) -> list[tuple[str, str, str]]:
    """Return name, problems and outcome of every container that a problem concerns."""
    entries: dict[parts.EntryHolder, parts.EntryPart] = {}
    found: dict[parts.EntryHolder, dict[str, parts.ProblemPart]] = {}
    for problem in diagnosis.all_problems:
        for entry in problem.containers:
            entries[entry.holder] = entry
            found.setdefault(entry.holder, {}).setdefault(problem.code, problem)
    lost: dict[parts.EntryHolder, list[str]] = {}
    for repair in diagnosis.repairs:
        for dropped in repair.dropped:
            entries[dropped.holder] = dropped
            lost.setdefault(dropped.holder, []).append(f"loses {dropped.held}: {dropped.why}")
    afterwards = {one.holder: one for one in diagnosis.afterwards}
    rows = []
    for holder, entry in sorted(entries.items()):
        codes, after = found.get(holder, {}), afterwards.get(holder)
        becomes = [*lost.get(holder, ()), *_afterwards(diagnosis, after, entry, codes, lost=holder in lost)]
        owner, pod = state_owner(entry.uid, entry.container), f"{entry.namespace}/{entry.name}"
        names = (pod if entry.name else entry.uid, entry.container)
        name = owner.label() if owner.kind is OwnerKind.CLAIM else "/".join(filter(None, names))
        rows.append((clean(name), ", ".join(codes) or "–", "; ".join(becomes)))
    return rows


def _afterwards(
    diagnosis: parts.DiagnosisDocument,
    after: parts.RepairedEntryPart | None,
    entry: parts.EntryPart,
    codes: Mapping[str, parts.ProblemPart],
    *,
    lost: bool,
) -> Iterator[str]:
    if after is not None and after.refused:
        yield f"its pod is refused at the start: {after.refused}"
    elif after is not None and after.cpus:
        cpus = cpus_text(CPUSet.parse(after.cpus).mask)
        yield f"{'gets' if lost or parts.NO_ENTRY in codes else 'has'} {cpus} after the start"
    elif after is not None and lost:
        yield "runs in the shared pool after the start"
    elif RESTART in codes:
        yield "does not keep what it has"
    elif parts.STALE in codes:
        yield "is dropped by the kubelet"
    elif lacking := [codes[code].file for code in (parts.FILE_MISSING, parts.LOST_ENTRIES) if code in codes]:
        yield f"has no readable entry in {joined(lacking)}"
    elif parts.POD_ENTRIES_IGNORED in codes and not entry.container:
        yield "its containers keep theirs; the entry of the pod is lost"
    elif not lost and diagnosis.repairs:
        yield "keeps what it has"


def _repair(repair: parts.RepairPart) -> Iterator[RenderableType]:
    done = "was" if repair.written else "will be"
    if repair.action == "delete":
        yield Text.assemble(("Repair: ", "bold"), f"{repair.file} {done} deleted, because nothing in it can be read.")
        return
    total = repair.kept + len(repair.dropped)
    keep = "keeps what it has" if repair.kept < 2 else "keep what they have"
    kept = f"{repair.kept or 'none'} of {total} containers {keep}"
    if total < 2:
        one = f"its container {'keeps' if repair.kept else 'loses'} what it has"
        kept = one if total else "no container has an entry"
    yield Text.assemble(("Repair: ", "bold"), f"{repair.file} {done} replaced; {kept}.")
    for line in repair.changes[:_MOST_CHANGES]:
        style = "green" if line.startswith("+") else "red" if line.startswith("-") else "dim"
        # The sign of a line that did not change is a space, which has to stay.
        yield indented(f"{line[:1]}{clean(line[1:])}", style)
    if len(repair.changes) > _MOST_CHANGES:
        yield indented(f"and {len(repair.changes) - _MOST_CHANGES} more lines", "dim")
