"""Which format a state file has, judged by its members alone: for reports to people, not for loading.

Source: the formats of spec: state-files.md section 2.
"""

from __future__ import annotations

from mooring.checkpoint.chain import bytes_of
from mooring.checkpoint.goscan import JSONObject, JSONSyntaxError, JSONValue, parse


def describe_format(text: str) -> str:
    """Name the manager and the format version of a state file's text, or say why it has none.

    The checksums are not looked at. A file without any member of one manager only is counted with the CPU manager.

    >>> describe_format('{"policyName":"Static","machineState":{},"checksum":3940083781}')
    'memory manager state, format V1'
    >>> describe_format("[]")
    'not a state file: the JSON text is not an object'
    """
    try:
        document = parse(bytes_of(text))
    except JSONSyntaxError as error:
        return f"not JSON: {error}"
    if not isinstance(document, JSONObject):
        return "not a state file: the JSON text is not an object"
    members = {name.lower(): value for name, value in document.members}
    if not members.keys() & {"policyname", "defaultcpuset", "machinestate", "entries", "data", "checksum"}:
        return "not a state file: it has none of the members of one"
    if "machinestate" in members or _data_has_machine_state(members.get("data")):
        return f"memory manager state, format {_memory_version(members)}"
    return f"CPU manager state, format {_cpu_version(members)}"


def _memory_version(members: dict[str, JSONValue]) -> str:
    if "data" in members or "datachecksum" in members:
        return "V3"
    return "V2" if "podentries" in members else "V1"


def _cpu_version(members: dict[str, JSONValue]) -> str:
    if "data" in members or "datachecksum" in members:
        return "V4"
    if "podentries" in members:
        return "V3"
    entries = members.get("entries")
    if isinstance(entries, JSONObject) and any(isinstance(value, str) for _, value in entries.members):
        return "V1 (not readable since kubelet 1.37)"
    return "V2"


def _data_has_machine_state(data: JSONValue) -> bool:
    """Tell whether the data of a damaged file still shows that it is the memory manager's."""
    return isinstance(data, str) and '"machineState"' in data
