"""Reading a state file for the doctor: what the kubelet makes of the text, and what can be made of it otherwise.

Source: spec: state-files.md sections 2 to 5.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from mooring.answers.doctor.problem import EntryHolder, Problem
from mooring.engine.checkpoint.contents import Unreadable
from mooring.engine.checkpoint.formats import (
    ALLOCATED_FILE,
    CORRUPTED,
    FormatFamily,
    bytes_of,
    describe_format,
    read_checkpoint,
    read_pod_file,
)
from mooring.engine.checkpoint.goscan import JSONObject, parse_prefix
from mooring.engine.checkpoint.gotypes import DATA_MEMBERS, MEMBERS
from mooring.engine.checkpoint.salvage import DEPTH, Salvage, containers_in, member, salvaged, unknown_members
from mooring.engine.core.gotext import quote
from mooring.engine.core.release import Release
from mooring.engine.releases.state_files import pod_file_versions
from mooring.explain.phrases import joined, plural

NOT_JSON = "MOOR-301"
WRONG_TYPE = "MOOR-302"
WRONG_CHECKSUM = "MOOR-303"
OLD_FORMAT = "MOOR-304"
OTHER_POLICY = "MOOR-305"
BAD_CPU_LIST = "MOOR-306"
UNKNOWN_MEMBERS = "MOOR-307"


@dataclass(frozen=True, slots=True)
class Reading:
    """What one file's text comes to."""

    file: str
    format: str
    """Its format in words."""
    salvage: Salvage | None
    """The best copy of the state; None when nothing parses."""
    policy: str | None
    """The policy that the kubelet reads in the file; None when it cannot read it."""
    problems: tuple[Problem, ...]
    """What is wrong with the text."""


def read(file: str, text: str, family: FormatFamily) -> Reading:
    """Read the text of a state file and say what is wrong with it as a text."""
    answer = read_checkpoint(text, family)
    salvage = salvaged(text, family, intact=not isinstance(answer, str))
    problems = [_problem(file, text, answer, salvage)] if isinstance(answer, str) else []
    policy = None if isinstance(answer, str) else answer.members["policyName"]
    return Reading(file, describe_format(text), salvage, policy, (*problems, *_newer(file, text, salvage, family)))


def _problem(file: str, text: str, complaint: str, salvage: Salvage | None) -> Problem:
    """Name what keeps the kubelet from reading the text."""
    outer = parse_prefix(bytes_of(text), DEPTH)
    left = _left(salvage)
    if outer.fault:
        line, column = bytes_of(text)[: outer.fault_at].count(b"\n") + 1, _column(bytes_of(text), outer.fault_at)
        where = f"line {line}, column {column}"
        what = "The file is empty." if not text else f"The file is not JSON: {outer.fault} ({where})."
        return Problem(NOT_JSON, "error", file, f"{what} {left}")
    document = outer.value
    if not isinstance(document, JSONObject):
        return Problem(WRONG_TYPE, "error", file, f"The file is JSON but not a state file: {complaint}.")
    if _is_by_container_id(document):
        return Problem(
            OLD_FORMAT,
            "error",
            file,
            "The file has format V1, whose entries go by container id. Kubelets up to 1.36 turn it into a newer "
            "format; 1.37 no longer reads it.",
        )
    data = member(document, "data")
    inner = parse_prefix(data.encode(errors="replace"), DEPTH) if isinstance(data, str) and data else None
    if inner is not None and inner.fault:
        return Problem(NOT_JSON, "error", file, f"The text in data is not JSON: {inner.fault}. {left}")
    if complaint.endswith(CORRUPTED):
        return Problem(WRONG_CHECKSUM, "error", file, f"The checksum does not match the file's content. {left}")
    if inner is None and complaint.endswith("unexpected end of JSON input"):
        return Problem(WRONG_TYPE, "error", file, f"The file has a dataChecksum and no data. {left}")
    reason = complaint.rpartition(": json: ")[2] or complaint
    return Problem(WRONG_TYPE, "error", file, f"A member of the file has the wrong type: {reason}. {left}")


def _column(data: bytes, offset: int) -> int:
    return offset - data.rfind(b"\n", 0, offset)


def _left(salvage: Salvage | None) -> str:
    """Say what can still be read."""
    if salvage is None:
        return "Nothing in it can be read."
    entries = plural(containers_in(salvage.document), "container")
    if salvage.trusted:
        copy = "data" if salvage.in_data else "the members for older kubelets"
        return f"The copy in {copy} is whole, with a right checksum: {entries}."
    if not salvage.whole:
        return f"Readable before the damage: {entries}."
    return f"What it says can be read, but nothing vouches for it: {entries}."


def _is_by_container_id(document: JSONObject) -> bool:
    entries = member(document, "entries")
    if member(document, "data") or not isinstance(entries, JSONObject):
        return False
    return any(isinstance(value, str) for _, value in entries.members)


def _newer(file: str, text: str, salvage: Salvage | None, family: FormatFamily) -> Iterator[Problem]:
    """Report members that a newer kubelet, or an editor, has written."""
    outer = parse_prefix(bytes_of(text), DEPTH)
    names = unknown_members(outer.value, MEMBERS) if outer.whole and isinstance(outer.value, JSONObject) else []
    if salvage is not None and salvage.in_data:
        names += unknown_members(salvage.document, DATA_MEMBERS | {field.member for field in family.data.fields})
    if names:
        shown = joined([quote(name) for name in dict.fromkeys(names)])
        yield Problem(
            UNKNOWN_MEMBERS,
            "warning",
            file,
            f"The file has members that kubelet v1.37.1 does not know and loses with its next write: {shown}. A newer "
            "kubelet may have written it.",
        )


def pod_file_problems(file: str, text: str, release: Release) -> tuple[str, str, tuple[Problem, ...]]:
    """Return format, words of the kubelet and problems of a file of allocated or actuated pods."""
    found = read_pod_file(text, release.name, json_v2=not release.rules.json_texts_of_go_126)
    if found.problem:
        code = WRONG_CHECKSUM if found.problem == CORRUPTED else WRONG_TYPE if found.version else NOT_JSON
        words = (
            f"could not restore state from checkpoint: failed to get pod resource information: {found.problem}, please "
            f"drain this node and delete pod resource information checkpoint file {quote(file)} before restarting "
            "Kubelet"
        )
        words = words if file == ALLOCATED_FILE else f"failed to initialize actuated state checkpoint: {words}"
        message = f"Kubelet {release.tag} does not start on it ({found.problem}): drain the node and delete the file."
        return "pods with their resources, damaged", words, (Problem(code, "error", file, message),)
    problems: tuple[Problem, ...] = ()
    if found.version not in pod_file_versions(release.name)[1]:
        message = (
            f"Kubelet {release.tag} does not know format {found.version} and reads the amounts in it alone, not the "
            "names and specs of pods."
        )
        problems = (Problem(UNKNOWN_MEMBERS, "warning", file, message),)
    return f"pods with their resources, format {found.version}, {plural(len(found.pods), 'pod')}", "", problems


def policy_problem(configured: str, reading: Reading, salvaged_policy: str) -> Problem | None:
    """Say that another policy wrote the file; of one that the kubelet cannot read, only when it names a policy."""
    found = salvaged_policy if reading.policy is None else reading.policy
    if found == configured or (reading.policy is None and not found):
        return None
    what = f"was written under policy {quote(found)}" if found else "names no policy"
    return Problem(
        OTHER_POLICY, "error", reading.file, f"Policy {quote(configured)} is configured, and the file {what}."
    )


def unreadable_problems(file: str, entries: tuple[Unreadable, ...], *, what: str) -> Iterator[Problem]:
    """Say which entries of a file cannot be read one by one.

    Args:
        file: its name.
        entries: that cannot be read.
        what: an entry should be: ``CPU list`` or ``list of memory blocks``.
    """
    pool = [one for one in entries if not one.uid and not one.container]
    rest = [one for one in entries if one not in pool]
    if pool:
        yield Problem(BAD_CPU_LIST, "error", file, f"The shared pool is not a {what}: {quote(pool[0].text)}.")
    if rest:
        shown = joined([quote(one.text) for one in rest[:3]]) + (" and others" if len(rest) > 3 else "")
        holders = tuple(EntryHolder(one.uid, one.container) for one in rest)
        yield Problem(
            BAD_CPU_LIST,
            "error",
            file,
            f"{plural(len(rest), 'container')} without a readable {what}: {shown}.",
            holders,
        )
