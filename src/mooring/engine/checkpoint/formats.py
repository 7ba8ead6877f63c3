"""The formats of a state file: the order in which they are tried, the outcome of reading, and their names for reports.

A release that knows data tries it first. A file that shows any sign of it (data, or a checksum of data) is never taken
for another format then; any other is tried as the formats without data in the release's order, and the complaint of the
last one is the one reported. Which release reads what is in :mod:`mooring.engine.releases.catalog`.

Source: state_checkpoint.go of both managers, checkpointmanager and cm (start errors); spec: state-files.md sections 2
and 4, releases.md section 4.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TypeAlias

from mooring.engine.checkpoint.checksum import data_checksum, legacy_checksum
from mooring.engine.checkpoint.gojson import GoFault, decode
from mooring.engine.checkpoint.goscan import JSONObject, JSONSyntaxError, JSONValue, parse
from mooring.engine.checkpoint.gotypes import CHECKSUM, STRING, GoField, GoStruct, GoValue, fresh
from mooring.engine.core.gotext import quote
from mooring.engine.releases.catalog import FileFormats, ReadFormat, pod_file_versions
from mooring.lazy import dataclass, replace

CORRUPTED = "checkpoint is corrupted"
"""The kubelet's text for a checksum that does not match."""

_NO_BYTE = re.compile("[\ud800-\udc7f\udd00-\udfff]")


@dataclass(frozen=True, slots=True)
class FormatFamily:
    """All formats of one manager's state file that a release reads, and the newest one that Mooring knows."""

    noun: str
    """``cpu manager`` or ``memory manager``, as the messages say it."""

    label: str
    """Version of the format with data: ``v4`` or ``v3``."""

    newest: GoStruct
    data: GoStruct
    older: tuple[tuple[GoStruct, ReadFormat], ...]
    """The formats without data, in the order of the release."""
    reads_data: bool = True
    """Whether the release knows data. To others its members are unknown ones, which JSON skips."""
    json_v2: bool = False
    """Whether complaints about JSON are those of Go 1.27."""

    def parse(self, text: bytes) -> JSONValue:
        """Read a JSON text, as the kubelet's Go does."""
        return parse(text, json_v2=self.json_v2)

    def decode(self, document: JSONValue, struct: GoStruct) -> tuple[dict[str, GoValue], GoFault | None]:
        """Decode a document into a structure as the kubelet hands it over."""
        return decode(document, struct, fresh(struct), json_v2=self.json_v2)


def older_formats(structures: Mapping[str, GoStruct], rules: FileFormats) -> tuple[tuple[GoStruct, ReadFormat], ...]:
    """Return the formats without data that a release reads, under the names that its structures have."""
    return tuple((replace(structures[rule.version], name=rule.name), rule) for rule in rules.older)


Checkpoint: TypeAlias = tuple[dict[str, GoValue], str]
"""The members of the first format that fits, and its version; data has none."""


@dataclass(frozen=True, slots=True)
class Unread:
    """Why no format fits."""

    message: str
    """The kubelet's error text."""
    cause: JSONSyntaxError | GoFault | None = None
    """What the data, or its JSON, fails on; the text where there is no more to say; None for a wrong checksum."""


def read_checkpoint(text: str, family: FormatFamily) -> Checkpoint | Unread:
    """Return the members of the first format that fits, or why none does.

    Args:
        text: The file; bytes that are not UTF-8 are lone surrogates, as ``surrogateescape`` makes them.
        family: The formats to try.
    """
    try:
        document = family.parse(bytes_of(text))
    except JSONSyntaxError as error:
        # Every format fails on it in the same way. Nothing was decoded, so no data is seen and the last format reports.
        return Unread(str(error), error)
    if not family.reads_data:
        return read_older(document, family)
    outer, fault = family.decode(document, family.newest)
    if fault is None:
        data = _read_data(outer, family)
    else:
        data = Unread(f"failed to deserialize {family.noun} checkpoint: {fault}", fault)
    if not isinstance(data, Unread):
        return data
    if outer["data"] or outer["dataChecksum"]:
        return replace(data, message=f"could not load {family.label} checkpoint: {data.message}")
    return read_older(document, family)


def _read_data(outer: dict[str, GoValue], family: FormatFamily) -> Checkpoint | Unread:
    """Return the decoded data of the newest format. Decoding comes before the comparison of checksums."""
    try:
        members, fault = family.decode(family.parse(outer["data"].encode()), family.data)
    except JSONSyntaxError as error:
        return Unread(f"failed to deserialize {family.noun} checkpoint data: {error}", error)
    if fault is not None:
        return Unread(f"failed to deserialize {family.noun} checkpoint data: {fault}", fault)
    return (members, "") if data_checksum(outer["data"]) == outer["dataChecksum"] else Unread(CORRUPTED)


def read_older(document: JSONValue, family: FormatFamily) -> Checkpoint | Unread:
    """Return the members of the first format without data whose checksum the kubelet accepts, or why none fits."""
    problem = Unread(CORRUPTED)
    for structure, rule in family.older:
        members, fault = family.decode(document, structure)
        if fault is not None:
            problem = Unread(str(fault), str(fault))
            continue
        checksum = members["checksum"]
        accepted = (legacy_checksum(structure, members, name) for name in rule.hashed_as)
        if (rule.zero and not checksum) or checksum in accepted:
            return members, rule.version
        problem = Unread(CORRUPTED)
    return problem


ALLOCATED_FILE = "allocated_pods_state"
ACTUATED_FILE = "actuated_pods_state"
"""The files of the kubelet's allocation manager: what pods were allocated, and what was carried out (spec: preview.md
section 16)."""
_POD_FILE = GoStruct(
    "Checkpoint",
    (GoField("version", "Version", STRING), GoField("data", "Data", STRING), GoField("checksum", "Checksum", CHECKSUM)),
)


def read_pod_file(text: str, release: str, *, json_v2: bool = False) -> tuple[str, frozenset[str] | Unread]:
    """Read such a file as a release does; one that does not know version 2 passes over its members.

    Returns:
        ``V1`` or ``V2``, empty where it cannot be made out; and the uids in the entries of version 1, which version 2
        has for a rollback, or why the kubelet does not start on the file.

    >>> read_pod_file('{"version":"v3","data":"{}","checksum":1}', "1.38")[1].message
    'unsupported checkpoint version "v3": this kubelet reads legacy (unversioned) and "v2" checkpoints'
    """
    try:
        document = parse(bytes_of(text), json_v2=json_v2)
    except JSONSyntaxError as error:
        return "", Unread(str(error), error)
    members, fault = decode(document, _POD_FILE, fresh(_POD_FILE), json_v2=json_v2)
    if fault is not None:
        return "", Unread(str(fault), fault)
    version = members["version"]
    if version not in ("", "v2") and "V2" in pod_file_versions(release)[1]:
        known = 'this kubelet reads legacy (unversioned) and "v2" checkpoints'
        return "", Unread(f"unsupported checkpoint version {quote(version)}: {known}")
    shown = version.upper() or "V1"
    if data_checksum(members["data"]) != members["checksum"]:
        return shown, Unread(CORRUPTED)
    try:
        data = parse(members["data"].encode(), json_v2=json_v2)
    except JSONSyntaxError as error:
        prefix = "failed to unmarshal V2 checkpoint data: " if version else ""
        return shown, Unread(f"{prefix}{error}", error)
    entries = dict(data.members).get("entries") if isinstance(data, JSONObject) else None
    return shown, frozenset(name for name, _ in entries.members) if isinstance(entries, JSONObject) else frozenset()


def bytes_of(text: str) -> bytes:
    """Return the bytes of a file's text; a surrogate that stands for no byte counts as a wrong character."""
    return _NO_BYTE.sub("\ufffd", text).encode(errors="surrogateescape")


def describe_format(text: str) -> tuple[str, str]:
    """Name the manager and the format version of a state file's text, or say why it has none; then there is no version.

    The checksums are not checked. A file without any member of one manager only is counted with the CPU manager.

    >>> describe_format('{"policyName":"Static","machineState":{},"checksum":3940083781}')
    ('memory manager state', 'format V1')
    >>> describe_format("[]")
    ('not a state file: the JSON text is not an object', '')
    """
    try:
        document = parse(bytes_of(text))
    except JSONSyntaxError as error:
        return f"not JSON: {error}", ""
    if not isinstance(document, JSONObject):
        return "not a state file: the JSON text is not an object", ""
    members = {name.lower(): value for name, value in document.members}
    if not members.keys() & {"policyname", "defaultcpuset", "machinestate", "entries", "data", "checksum"}:
        return "not a state file: it has none of the members of one", ""
    data, entries = members.get("data"), members.get("entries")
    place = 0 if members.keys() & {"data", "datachecksum"} else 1 if "podentries" in members else 2
    # The data of a damaged file may still show that it is the memory manager's.
    if "machinestate" in members or (isinstance(data, str) and '"machineState"' in data):
        return "memory manager state", f"format {('V3', 'V2', 'V1')[place]}"
    version = ("V4", "V3", "V2")[place]
    is_by_id = isinstance(entries, JSONObject) and any(isinstance(value, str) for _, value in entries.members)
    if version == "V2" and is_by_id:
        version = "V1 (not readable since kubelet 1.37)"
    return "CPU manager state", f"format {version}"
