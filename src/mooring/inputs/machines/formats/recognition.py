"""Which format a file with a machine has, by its content; what is something else is named, with what to capture."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final

from mooring.engine.core.errors import InputError
from mooring.inputs.configuration.devices import MATRIX
from mooring.inputs.decoding.documents import documents_in, located
from mooring.inputs.decoding.fields import Document
from mooring.inputs.decoding.files import pasted
from mooring.inputs.machines.formats import linux_tools, resource_topology
from mooring.inputs.machines.formats.cpulists import NUMACTL_CAPTURE, read_matrix, read_numactl
from mooring.inputs.machines.formats.description import Description, check_ids
from mooring.inputs.machines.formats.hwloc import HWLOC_CAPTURE, read_hwloc, read_lstopo_text
from mooring.inputs.machines.formats.linux_tools import LSCPU_CAPTURE
from mooring.inputs.machines.formats.resource_topology import read_numatopology, read_resource_topology
from mooring.inputs.machines.formats.xml_elements import LIBVIRT_CAPTURE, libvirt_machine, read_xml

FORMATS: Final = (
    "a sysfs snapshot, MachineInfo, lscpu -J, lstopo XML, numactl -H, virsh capabilities or a NodeResourceTopology"
)
_NODE: Final = "capture the whole node with mooring collect"
_LSCPU: Final = f"capture it with {LSCPU_CAPTURE}"
_LSTOPO: Final = f"capture it with {HWLOC_CAPTURE}"
_CONFIGURATION: Final = "mooring plan takes it with --config, and a machine with --machine"

_ARCHIVES: Final = (b"\x1f\x8b", b"BZh", b"\xfd7zXZ\x00")
_USTAR: Final = slice(257, 262)

_PICTURES: Final = (
    (b"\x89PNG", "a PNG picture"),
    (b"%PDF", "a PDF document"),
    (b"%!PS", "a PostScript picture"),
    (b"#FIG", "a picture of xfig"),
    (b"\xff\xd8\xff", "a JPEG picture"),
)
_OTHER_TEXT: Final[tuple[tuple[re.Pattern[str], str, str], ...]] = tuple(
    (re.compile(pattern, re.MULTILINE), what, remedy)
    for pattern, what, remedy in (
        (r"\AL1d|\ANAME +ONE-SIZE", "output of lscpu -C, which has caches only", _LSCPU),
        (r"^processor\s*:\s*\d", "/proc/cpuinfo, which has no NUMA nodes", _LSCPU),
        (r"\AMemTotal:", "/proc/meminfo, which has memory only", _NODE),
        (r"^# dmidecode|^Handle 0x[0-9A-F]+, DMI type", "output of dmidecode, which does not number CPUs", _NODE),
        (r"\APer-node|^ *node0 +node1|^numa_hit", "output of numastat", f"capture it with {NUMACTL_CAPTURE}"),
        (r"\Apolicy: .*\npreferred node:", "output of numactl -s", f"capture it with {NUMACTL_CAPTURE}"),
        (r"\ACPU model: ", "output of virsh nodeinfo", f"capture it with {LIBVIRT_CAPTURE}"),
        (r"\AName: .*\nRoles: ", "output of kubectl describe node", _NODE),
        (r"\ANAME +STATUS +ROLES", "output of kubectl get nodes", _NODE),
        (r"\A[\w.-]+\n +description: ", "output of lshw", _NODE),
        (r"\Atop - |\A +total +used +free", "output of top or free", _NODE),
    )
)
"""Pattern -> what the text is, and what to do instead."""
_OTHER_XML: Final = {
    "svg": ("an SVG picture", _LSTOPO),
    "domain": ("a libvirt domain without NUMA cells", f"capture the host with {LIBVIRT_CAPTURE}"),
    "domainCapabilities": ("output of virsh domcapabilities", f"capture the host with {LIBVIRT_CAPTURE}"),
    "sysinfo": ("output of virsh sysinfo", f"capture the host with {LIBVIRT_CAPTURE}"),
    "list": ("output of lshw", _NODE),
    "node": ("output of lshw", _NODE),
    "html": ("a web page", _NODE),
}
_OTHER_KINDS: Final = {
    "KubeletConfiguration": ("a kubelet's configuration", _CONFIGURATION),
    "MooringConfiguration": ("Mooring's configuration", _CONFIGURATION),
    "NodeDevices": ("a declaration of devices", _CONFIGURATION),
    "Node": ("a Node object, which has no NUMA nodes", _NODE),
    "NodeList": ("a list of Node objects, which have no NUMA nodes", _NODE),
    "Pod": ("a pod", "mooring plan takes it with -f"),
    "PodList": ("a list of pods", "mooring plan takes it with -f or --active"),
}
_BARE_DASH: Final = re.compile(r"(?<=: )-(?=,?\s*[\n}])")


def is_archive(head: bytes) -> bool:
    """Tell whether a file that begins with these bytes is a (compressed) tar archive."""
    return head.startswith(_ARCHIVES) or head[_USTAR] == b"ustar"


def described(data: bytes, source: str) -> Description | None:
    """Return what a file says about a machine; None for JSON that no other tool writes, such as a MachineInfo.

    Args:
        data: the file.
        source: names it in messages.

    Raises:
        InputError: it has another format, which is named, or it has one and cannot be understood.
    """
    found = _described(data, source)
    if found is not None:
        check_ids(found, source)
    return found


def _described(data: bytes, source: str) -> Description | None:
    for magic, what in _PICTURES:
        if data.startswith(magic):
            raise _other(what, _LSTOPO, source)
    if data.startswith(b"\x7fELF"):
        raise _other("a program", f"give {FORMATS}", source)
    if not data.removeprefix(b"\xef\xbb\xbf").strip():
        raise InputError("nothing in it", source=source, remedy=f"give {FORMATS}")
    if data.lstrip()[:1] == b"<":
        return _from_xml(data, source)
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError:
        if data.startswith((b"\xff\xfe", b"\xfe\xff")):
            documents_in(data, source)  # names the encoding
        raise _unknown(source) from None
    try:
        return _from_text(text, source)
    except InputError:
        texts = pasted(text)
        if texts == [text]:
            raise
    for part in texts[:-1]:
        with suppress(InputError):
            return _from_text(part, source)
    return _from_text(texts[-1], source)


def _from_xml(data: bytes, source: str) -> Description:
    root = read_xml(data, source)
    if root.tag == "topology" and root.first("object") is not None:
        return read_hwloc(root)
    if (found := libvirt_machine(root)) is not None:
        return found
    what, remedy = _OTHER_XML.get(root.tag, (f"XML with the element {root.tag:.40}", f"give {FORMATS}"))
    raise _other(what, remedy, source)


_READERS: Final[tuple[tuple[re.Pattern[str], Callable[[str, str], Description]], ...]] = (
    (
        re.compile(r"^# *CPU,|^# The following is the parsable format|\A\s*(?:\d+,){3}", re.MULTILINE | re.IGNORECASE),
        linux_tools.read_parsable,
    ),
    (re.compile(r"\A\s*[A-Z0-9a-z:%\[\] -]*\bCPU +(?:NODE|SOCKET|CORE)\b"), linux_tools.read_extended),
    (re.compile(r"^[ \t]*(?:available: [0-9]+ nodes?\b|node [0-9]+ cpus:)", re.MULTILINE), read_numactl),
    (MATRIX, read_matrix),
    (re.compile(r"^[ \t]*(?:Machine \(|(?:Package|Socket|NUMANode) L#)", re.MULTILINE), read_lstopo_text),
    (re.compile(r"^.*(?:\bsocket|\bSockel\b|NUMA|CPU\(s\)|座).*[:：] *[0-9]", re.MULTILINE), linux_tools.read_lscpu),
)
_PROMPT: Final = re.compile(
    r"^[^\n]{0,80}?[$#>%~][ \t]*(?:sudo +)?(?:/\S*/)?"
    r"(?:lscpu|numactl|lstopo|hwloc-ls|virsh|nvidia-smi|kubectl|oc|cat|grep|tail|head|ssh|docker|podman)"
    r"\b.*$|^\S*[@:]\S*[$#] *$",
    re.MULTILINE,
)
"""A line of a terminal before the output, or after it."""


_OF_SYSFS: Final = re.compile(r"^/sys/devices/system/(?:node/node(\d+)/cpulist:(.*)|\S+:.*)$", re.MULTILINE)
"""A line of ``grep . /sys/devices/system/node/node*/cpulist``, or of another file there."""


def _from_text(text: str, source: str) -> Description | None:
    text = _OF_SYSFS.sub(
        lambda found: f"NUMA node{found[1]} CPU(s): {found[2]}" if found[1] else "", _PROMPT.sub("", text)
    )
    head = text.lstrip()[:1]
    if head == "<":
        return _from_xml(text.encode(), source)
    if head in ("{", "["):
        return _from_json(text, source)
    if re.search(r"^(?:apiVersion|kind|zones):", text, re.MULTILINE):
        found = _from_documents(documents_in(text.encode(), source), source)
        if found is not None:
            return found
    for form, what, remedy in _OTHER_TEXT:
        if form.search(text[:65536]):
            raise _other(what, remedy, source)
    for form, read in _READERS:
        if form.search(text[:65536]):
            return read(text, source)
    raise _unknown(source)


def _from_json(text: str, source: str) -> Description | None:
    """Return what JSON says; lines of MachineInfo, and JSON that is broken, are for their own reader."""
    if text.lstrip()[:40].split(":")[0].strip(' {\n\r\t"') == "cpus":
        text = _BARE_DASH.sub("null", text)
    elif not re.search(r'"(?:lscpu|cpus|caches|kind|zones|policyName|cpuManagerPolicy|id)"\s*:', text[:65536]):
        return None
    try:
        documents = documents_in(text.encode(), source)
    except InputError:
        try:
            json.loads(text)
        except json.JSONDecodeError as error:
            place = f"{source}:{error.lineno}:{error.colno}"
            raise InputError(f"not valid JSON: {error.msg}", source=place, remedy="capture it again") from None
        except (ValueError, RecursionError):
            pass
        raise
    return _from_documents(documents, source)


def _from_documents(documents: list[Document], source: str) -> Description | None:
    document = documents[0]
    content = document.content
    if not isinstance(content, dict):
        return None
    kind: object = content.get("kind")
    if isinstance(kind, str) and kind.removesuffix("List") in ("", *_OF_NODE):
        content, kind = _only_item(content, source)
    if isinstance(kind, str) and kind in _OF_NODE:
        if len(documents) > 1:
            raise InputError("has several objects", source=source, remedy="keep that of one node")
        with located(document):
            return _OF_NODE[kind](content)
    if isinstance(rows := content.get("cpus"), list) and rows and isinstance(rows[0], dict) and "cpu" in rows[0]:
        with located(document):
            return linux_tools.read_json_table(rows, source)
    if isinstance(fields := content.get("lscpu"), list):
        with located(document):
            return linux_tools.read_summary(fields, source)
    if isinstance(kind, str) and kind:
        what, remedy = _OTHER_KINDS.get(kind, (f"a {kind:.60}", f"give {FORMATS}"))
        raise _other(what, remedy, source)
    for field, what, remedy in (
        ("caches", "output of lscpu -C, which has caches only", _LSCPU),
        ("policyName", "a kubelet's state file", "give its folder with --state"),
        ("cpuManagerPolicy", "a kubelet's configuration", _CONFIGURATION),
        ("id", "output of lshw", _NODE),
    ):
        if field in content and "num_cores" not in content and "topology" not in content:
            raise _other(what, remedy, source)
    return None


_OF_NODE: Final = {resource_topology.KIND: read_resource_topology, "Numatopology": read_numatopology}
"""Kind of an object about one node -> its reader."""


def _only_item(content: dict[str, Any], source: str) -> tuple[dict[str, Any], object]:
    items = content.get("items")
    if not isinstance(items, list):
        return content, content.get("kind")
    wanted = [
        item for item in items if isinstance(item, dict) and str(item.get("kind", resource_topology.KIND)) in _OF_NODE
    ]
    if len(wanted) != 1:
        what = f"a list with {len(wanted)} objects of kind {resource_topology.KIND}"
        raise _other(what, "keep that of one node: kubectl get noderesourcetopologies NODE -o yaml", source)
    return wanted[0], wanted[0].get("kind", resource_topology.KIND)


def _other(what: str, remedy: str, source: str) -> InputError:
    return InputError(f"this is {what}, not a machine", source=source, remedy=remedy)


def _unknown(source: str) -> InputError:
    return InputError("is not a machine in any known format", source=source, remedy=f"give {FORMATS}")
