"""Groups of equal nodes in a document of kind Cluster: their machine, configuration, labels and taints."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from mooring.engine.core.config import EXTENSIONS, KubeletConfig, MooringConfig
from mooring.engine.core.errors import InputError
from mooring.engine.core.machine import Machine
from mooring.engine.core.release import FeatureGates, resolve_gates
from mooring.engine.devicemanager.state import Device, DeviceState
from mooring.engine.kubelet.kubelet import Kubelet, StateTexts
from mooring.engine.kubelet.start import NotStarted, start_on
from mooring.engine.releases.catalog import release_of
from mooring.engine.releases.gates import declared_features, known_gates
from mooring.inputs.configuration.devices import KIND as DEVICES
from mooring.inputs.configuration.devices import offered_devices
from mooring.inputs.configuration.kubelet_config import KIND as KUBELET
from mooring.inputs.configuration.mooring_config import KIND as MOORING
from mooring.inputs.configuration.node_configuration import configuration_of
from mooring.inputs.configuration.sources import load_sources
from mooring.inputs.decoding import fields as reading
from mooring.inputs.decoding.documents import load_documents, located
from mooring.inputs.decoding.fields import Document, as_mapping, inside, list_at, name_at, text_at
from mooring.inputs.machines.loader import load_machine
from mooring.inputs.pods.scheduling_fields import Taint, taints_at
from mooring.lazy import dataclass, field, replace

KIND: Final = "Cluster"
API_VERSION: Final = "mooring/v1alpha1"
MOST_NODES: Final = 100_000
_FIELDS: Final = ("apiVersion", "kind", "metadata", "groups", "events")
_GROUP_FIELDS: Final = (
    "name", "count", "machine", "config", "kubelet", "mooring", "devices", "release", "labels", "taints", "zones",
    "dra",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class NodeGroup:
    """Nodes that differ in their names and zones only."""

    name: str
    count: int
    machine: Machine
    config: KubeletConfig = field(default_factory=KubeletConfig)
    mooring: MooringConfig = field(default_factory=MooringConfig)
    labels: Mapping[str, str] = field(default_factory=dict)
    taints: tuple[Taint, ...] = ()
    devices: Mapping[str, tuple[Device, ...]] = field(default_factory=dict)
    zones: tuple[str, ...] = ()
    """Of the nodes in turn; empty where there are none."""
    source: str = ""
    """The file that describes it; empty where none does."""
    drivers: Mapping[str, Any] = field(default_factory=dict)
    """Driver of dynamic resource allocation -> the grouping of CPUs, or devices as a ResourceSlice lists them."""
    features: frozenset[str] | None = None
    """What the nodes declare; None where their configuration tells."""

    @property
    def declared(self) -> frozenset[str]:
        """The features that the nodes declare."""
        if self.features is not None:
            return self.features
        release = self.mooring.release.name
        gates = resolve_gates(self.config.feature_gates, known_gates(release), EXTENSIONS)
        return frozenset(declared_features(release, gates) if isinstance(gates, FeatureGates) else ())

    def started(self) -> Kubelet:
        """Return the kubelet of an empty node.

        Raises:
            InputError: it does not start.
        """
        start = start_on(self.machine, self.config, self.mooring, StateTexts())
        if isinstance(start, NotStarted):
            problem = f"the kubelet would not start: {start.refusal.message}"
            remedy = "see mooring plan with this machine and configuration"
            raise InputError(problem, source=self.source, field=f"groups.{self.name}", remedy=remedy)
        return start.with_devices(DeviceState(dict(self.devices)))


def load_groups(path: str) -> tuple[NodeGroup, ...]:
    """Read the groups of a file.

    Raises:
        InputError: it cannot be read, or is no document of kind Cluster.
    """
    document = single_cluster([one for one in load_documents(path) if one.content is not None], path)
    with located(document):
        return groups_in(document)


def single_cluster(documents: Sequence[Document], path: str) -> Document:
    """Return the one document of a file.

    Raises:
        InputError: there is none, or another.
    """
    if len(documents) != 1:
        raise InputError(f"has {len(documents)} documents", source=path, remedy=f"give one of kind {KIND}")
    return documents[0]


def groups_in(document: Document, config: tuple[str, ...] = ()) -> tuple[NodeGroup, ...]:
    """Return the groups of a document of kind Cluster.

    Args:
        document: the document.
        config: configuration files of every node, where a group names none.

    Raises:
        InputError: it is of another kind, or a group cannot be understood.
    """
    content = as_mapping(document.content)
    reading.check_names(content, _FIELDS)
    if (kind := text_at(content, "kind")) != KIND:
        raise InputError(f"{kind!r:.60} is not a cluster", field="kind", remedy=f"write {KIND}")
    reading.check_version(content, API_VERSION, required=True)
    groups: list[NodeGroup] = []
    for index, entry in enumerate(list_at(content, "groups")):
        try:
            groups.append(_group(as_mapping(entry), document.file, config))
        except InputError as error:
            raise inside(error, f"groups[{index}]") if not error.source else error from None
    if not groups:
        raise InputError("must not be empty", field="groups", remedy="list at least one group of nodes")
    names = [one.name for one in groups]
    twice = next((name for name in names if names.count(name) > 1), "")
    if twice:
        raise InputError(f"{twice!r:.60} is the name of two", field="groups", remedy="give each its own name")
    if sum(one.count for one in groups) > MOST_NODES:
        raise InputError(f"are more than {MOST_NODES} nodes", field="groups", remedy="lower a count")
    return tuple(groups)


def _group(content: Mapping[str, Any], file: str, config: tuple[str, ...]) -> NodeGroup:
    reading.check_names(content, _GROUP_FIELDS)
    name = name_at(content, "name")
    count = reading.count_at(content, "count", 1, least=0)
    source = name_at(content, "machine")
    try:
        machine = load_machine(source)
    except InputError as error:
        raise reading.caused_in(error, "machine") from None
    files = [str(Path(file).parent / one) for one in _texts(content, "config")] or list(config)
    sources = [source for path in files for source in load_sources(path)]
    inline = [
        Document(
            {"apiVersion": _VERSIONS[kind], "kind": kind, **reading.mapping_at(content, field)}, f"{name}.{field}", 1, 1
        )
        for field, kind in _INLINE.items()
        if content.get(field) is not None
    ]
    try:
        configuration = configuration_of([*sources, *inline], machine=machine.info)
    except InputError as error:
        # About fields that stand in the group itself it is an error of the group.
        field = error.source.removeprefix(f"{name}.")
        if field not in _INLINE:
            raise
        raise inside(InputError(error.problem, field=error.field, remedy=error.remedy), field) from None
    mooring = configuration.mooring
    if release := text_at(content, "release"):
        mooring = replace(mooring, release=release_of(release, "release"))
    return NodeGroup(
        name,
        count,
        machine,
        configuration.kubelet,
        mooring,
        reading.texts_at(content, "labels") if content.get("labels") else {},
        taints_at(content),
        offered_devices(configuration.devices, machine),
        tuple(_texts(content, "zones")),
        file,
        reading.mapping_at(content, "dra"),
    )


_INLINE: Final = {"kubelet": KUBELET, "mooring": MOORING, "devices": DEVICES}
"""Field of a group -> kind of the configuration whose fields stand there."""
_VERSIONS: Final = {KUBELET: "kubelet.config.k8s.io/v1beta1", MOORING: "mooring/v1alpha1", DEVICES: "mooring/v1alpha1"}


def _texts(content: Mapping[str, Any], field: str) -> list[str]:
    found = list_at(content, field)
    if not all(isinstance(one, str) for one in found):
        raise InputError("must be a list of strings", field=field, remedy="put each in quotes")
    return found
