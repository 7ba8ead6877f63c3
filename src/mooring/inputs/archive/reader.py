"""Reading a node archive, or the folder that it was unpacked to.

The layout of a node archive.

Everything is below one folder, so that unpacking makes one; files of the machine keep their paths below ``/``. So the
archive is a snapshot of a machine too, and ``--machine`` takes it.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any, Final

from mooring.documents.machine import ArchivePart, NodeArchiveDocument
from mooring.documents.plan import API_VERSION
from mooring.engine.checkpoint.device_file import device_record
from mooring.engine.checkpoint.store import SIZE_LIMIT
from mooring.engine.core.errors import InputError
from mooring.engine.core.machine import Finding, Machine
from mooring.engine.core.release import NEWEST, Release
from mooring.engine.devicemanager.state import Device, Preference
from mooring.engine.kubelet.kubelet import StateTexts
from mooring.engine.node.settings import CPU_FILE, MEMORY_FILE
from mooring.inputs.archive import OF_ARCHIVE
from mooring.inputs.archive.claims import DeviceFacts
from mooring.inputs.configuration.devices import declared_devices
from mooring.inputs.configuration.node_configuration import NodeConfiguration, configuration_of
from mooring.inputs.decoding.documents import documents_in, located
from mooring.inputs.decoding.fields import Document, within
from mooring.inputs.machines.loader import machine_in, machine_of
from mooring.inputs.machines.machineinfo_json import parse_machine_info
from mooring.inputs.machines.tree import KubeletProcess, Tree, open_tree
from mooring.inputs.pods.cluster_objects import dynamic_objects
from mooring.inputs.pods.pod_fields import SUBDOMAIN, check_name
from mooring.lazy import dataclass, field, replace

TOP: Final = "mooring-node"
"""The folder around everything."""
ABOUT: Final = "mooring-node.json"
"""What was collected, what was not, and why."""
MACHINE_INFO: Final = "machine.json"
"""The machine as a MachineInfo, of a node whose sysfs was not read."""
NODE_TOPOLOGY: Final = "topology.json"
"""The machine as a NodeResourceTopology, of a node of which nothing else is known."""
KUBELET_CONFIG: Final = "kubelet/config.json"
CPU_STATE: Final = f"kubelet/{CPU_FILE}"
MEMORY_STATE: Final = f"kubelet/{MEMORY_FILE}"
DEVICE_RECORD: Final = "kubelet/kubelet_internal_checkpoint"
ALLOCATABLE: Final = "kubelet/devices.json"
"""The kubelet's healthy devices, as a document of kind NodeDevices."""
CLAIMS: Final = "claims.json"
"""Claims and slices of dynamic resource allocation."""
MOORING_CONFIG: Final = "mooring/config.json"
DEVICES: Final = "mooring/devices.json"
PODS: Final = "pods.json"

CONFIGURATIONS: Final = (KUBELET_CONFIG, MOORING_CONFIG, DEVICES)
_OBJECT: Final = (b"{", b"[", b"apiVersion:", b"kind:", b"---")
"""How an object of kubectl begins, which is often given instead of an archive."""

MACHINE_PART: Final = "machine"
ISOLATION_PART: Final = "isolation"
CONFIGURATION_PART: Final = "configuration"
STATE_PART: Final = "state files"
DEVICES_PART: Final = "devices"
PODS_PART: Final = "pods"
NEIGHBOURS_PART: Final = "pods of other namespaces"
RELEASE_PART: Final = "release"


def json_bytes(document: object) -> bytes:
    """Return a document as an archive has it."""
    return f"{json.dumps(document, indent=1)}\n".encode()


INCOMPLETE: Final = "MOOR-581"
RUNNING: Final = "MOOR-584"
CLUSTER: Final = "MOOR-585"
_KIND: Final = "NodeArchive"
_REMEDY: Final = "collect it again with mooring collect"

_CONSEQUENCES: Final = {
    CONFIGURATION_PART: "{} has no configuration of the kubelet",
    STATE_PART: "{} lacks state files, so running pods are placed again",
    DEVICES_PART: "{} does not have all about devices",
    PODS_PART: "{} has no pods, so only what state files hold counts",
    NEIGHBOURS_PART: "{} has only pods of one namespace, so of others only what state files hold counts",
    RELEASE_PART: "{} does not tell its kubelet's release (--kubelet-version), so the newest decides",
}
"""Part -> what its absence means for an answer."""


@dataclass(frozen=True, slots=True)
class NodeArchive:
    """A collected node. Nothing but ``mooring-node.json`` need be there."""

    tree: Tree
    about: NodeArchiveDocument
    kubelet: KubeletProcess | None = None
    """Where the node is not an archive but a computer: its kubelet."""
    kubelet_root: str = ""
    """The root directory of that kubelet."""
    origin: str = ""
    """Where it is neither: where the node is from, for messages."""
    files: Mapping[str, bytes] = field(default_factory=dict)
    """What counts in place of the tree's own, at the places of an archive."""

    @property
    def title(self) -> str:
        """Name of the node, and when it was collected; empty where its name is not known.

        It is the name of the machine, so that every answer about the archive has it.
        """
        captured = f", captured {self.about.captured}" if self.about.captured else ""
        return f"{self.about.node}{captured}" if self.about.node else ""

    def machine(self) -> Machine:
        """Return the machine.

        Raises:
            InputError: the archive holds none that can be understood.
        """
        if (described := self._data(MACHINE_INFO)) is not None:
            info = parse_machine_info(described, f"{self.tree.name}: {MACHINE_INFO}").info
            return Machine(self.title, info)
        if (described := self._data(NODE_TOPOLOGY)) is not None:
            return replace(machine_in(described, f"{self.tree.name}: {NODE_TOPOLOGY}"), name=self.title)
        if not self.tree.is_dir("sys"):
            remedy = "collect it again where sysfs is, or name another machine with --machine"
            raise InputError("holds no machine", source=self.tree.name, remedy=remedy)
        return machine_of(self.tree, self.title)

    def configuration(self, release: Release = NEWEST) -> NodeConfiguration | None:
        """Return the configuration of the kubelet, and of Mooring where there is one; None without the former.

        Args:
            release: of the kubelet.

        Raises:
            InputError: it is there and cannot be used.
        """
        documents = [document for path in CONFIGURATIONS for document in self._documents(path)]
        return configuration_of(documents, release) if documents else None

    def state(self) -> StateTexts:
        """Return the texts of the state files.

        Raises:
            InputError: one is larger than any kubelet writes.
        """
        return StateTexts(self._state(CPU_STATE), self._state(MEMORY_STATE))

    def devices(self) -> DeviceFacts:
        """Return what the node's records say of devices; what a document of the configuration declares is not in it.

        Raises:
            InputError: one of them cannot be understood.
        """
        allocatable: dict[str, tuple[Device, ...]] = {}
        preferences: dict[str, Preference] = {}
        for document in self._documents(ALLOCATABLE):
            with located(document):
                content = document.content if isinstance(document.content, dict) else {}
                listed, preferred = declared_devices(content, source=document.source)
                allocatable |= {name: found for name, found in listed.items() if isinstance(found, tuple)}
                preferences |= preferred
        claims, slices = dynamic_objects(self._documents(CLAIMS))
        return DeviceFacts(
            record=device_record(self._state(DEVICE_RECORD)),
            allocatable=allocatable,
            preferences=preferences,
            claims=claims,
            slices=slices,
            node=self.about.node,
        )

    def pod_documents(self) -> tuple[Document, ...]:
        """Return the documents with the pods of the node, in the order in which they were started.

        Raises:
            InputError: they are no documents.
        """
        return tuple(self._documents(PODS))

    def findings(self, replaced: Collection[str] = ()) -> tuple[Finding, ...]:
        """Return what a reader of answers about this node should know.

        Args:
            replaced: names of the parts that are given besides the archive.
        """
        # First where the node is from.
        taken = [f"{one.name} ({one.origin})" for one in self.about.parts if one.origin and one.name not in replaced]
        found = []
        if self.origin:
            found = [Finding("info", self.about.node, f"{self.origin}: {', '.join(taken)}", CLUSTER)]
        elif self.kubelet is not None:
            runs = f"the kubelet that runs here, process {self.kubelet.number}"
            message = f"{runs}: {', '.join(taken) or 'only the machine'}; --node none leaves it out"
            found = [Finding("info", self.about.node, message, RUNNING)]
        elif self.title:
            found = [Finding("info", self.about.node, f"archive of {self.title}", OF_ARCHIVE)]
        what = "the node" if self.kubelet or self.origin else "the archive"
        missing = (
            Finding("warning", self.tree.name, f"{_CONSEQUENCES[part.name].format(what)}: {part.missing}", INCOMPLETE)
            for part in self.about.parts
            if part.missing and part.name in _CONSEQUENCES and part.name not in replaced
        )
        return (*found, *missing)

    def _data(self, path: str) -> bytes | None:
        return self.files[path] if path in self.files else self.tree.data(path)

    def _documents(self, path: str) -> list[Document]:
        data = self._data(path)
        return [] if data is None else documents_in(data, f"{self.tree.name}: {path}")

    def _state(self, path: str) -> str | None:
        data = self._data(path)
        if data is None:
            return None
        if len(data) > SIZE_LIMIT:
            problem = f"{path} is larger than {SIZE_LIMIT} bytes"
            raise InputError(problem, source=self.tree.name, remedy="this is not a kubelet's state file")
        return data.decode(errors="surrogateescape")


def open_node(source: str) -> NodeArchive:
    """Open a node archive, or a folder that one was unpacked to.

    Raises:
        InputError: there is no such file, or it is no node archive.
    """
    if Path(source).is_file():
        with Path(source).open("rb") as file:
            if file.read(16).lstrip().startswith(_OBJECT):
                remedy = "make one with mooring collect, or name a node of the cluster; a Node is given with --active"
                raise InputError("is not a node archive but JSON or YAML", source=source, remedy=remedy)
    return node_of(open_tree(source))


def node_of(tree: Tree) -> NodeArchive:
    """Return the node whose files these are.

    Raises:
        InputError: it is no node archive.
    """
    data = tree.data(ABOUT)
    if data is None:
        remedy = "make one with mooring collect; a snapshot of a machine alone is given with --machine"
        raise InputError(f"is not a node archive: {ABOUT} is missing", source=tree.name, remedy=remedy)
    [about, *_] = documents_in(data, f"{tree.name}: {ABOUT}")
    with located(about):
        return NodeArchive(tree, about_of(about.content, source=about.source))


def about_of(document: object, *, source: str) -> NodeArchiveDocument:
    """Return what a document says.

    Fields that a later version may add are ignored; the version says when something changed its meaning. Figures
    and unread files are for people and not read again.

    Raises:
        InputError: it is no such document, or one of another version.
    """
    if not isinstance(document, dict) or document.get("kind") != _KIND:
        raise InputError(f"is no {_KIND}", source=source, remedy=_REMEDY)
    version = document.get("apiVersion")
    if version != API_VERSION:
        remedy = f"this Mooring reads {API_VERSION}: {_REMEDY} of this version"
        raise InputError(f"{version!r:.60} is not supported", source=source, field="apiVersion", remedy=remedy)
    node = _text(document, "node", source)
    with within(source=source):
        # A computer that is in no cluster may have underscores in its name.
        check_name(node.replace("_", "-") or "node", "node", SUBDOMAIN)
    entries, parts = document.get("parts"), []
    if not isinstance(entries, list):
        raise InputError("must be a list", source=source, field="parts", remedy=_REMEDY)
    for index, entry in enumerate(entries):
        if not isinstance(entry, dict):
            raise InputError("must be a mapping", source=source, field=f"parts[{index}]", remedy=_REMEDY)
        with within(f"parts[{index}]"):
            name, origin, missing = (_text(entry, field, source) for field in ("name", "origin", "missing"))
            parts.append(ArchivePart(name, origin, missing=missing))
    return NodeArchiveDocument(
        node=node,
        kubelet=_text(document, "kubelet", source),
        anonymous=document.get("anonymous") is True,
        captured=_text(document, "captured", source),
        parts=parts,
        mooring=_text(document, "mooring", source),
    )


def _text(document: dict[str, Any], field: str, source: str) -> str:
    value = document.get(field, "")
    if not isinstance(value, str):
        raise InputError("must be a string", source=source, field=field, remedy=_REMEDY)
    return value
