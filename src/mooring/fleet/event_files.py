"""What happens to a cluster beside its work, as people write it: ``events`` of a Cluster, or a file of its own.

Times in files: seconds since the beginning.

Recordings of nodes as work, and as the cluster that does it.

A pod comes when its kubelet admitted it, and runs as long as it ran. Pods that a kubelet refused are left out: what a
controller made in their place is in the recordings as well.

A cluster from a file: a document of kind Cluster with groups of nodes, or a live one as kubectl prints it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from mooring.answers.base.changes.configuration import config_field
from mooring.answers.base.trace import trace_machine
from mooring.engine.core.config import CPU_HOTPLUG, KubeletConfig
from mooring.engine.core.errors import InputError
from mooring.engine.core.pod import Pod
from mooring.engine.kubelet.events import Admit, Offline, Online, Remove, Restart
from mooring.engine.releases.catalog import KubeletVersion, chosen_release, release_of
from mooring.explanations.phrases import plural
from mooring.fleet import MOST_SECONDS
from mooring.fleet import cluster as clusters
from mooring.fleet.cluster import PodArrival
from mooring.fleet.live_cluster import LiveCluster, live_cluster
from mooring.inputs.configuration.devices import device_table
from mooring.inputs.decoding import fields as reading
from mooring.inputs.decoding.documents import load_documents, located
from mooring.inputs.node_groups import NodeGroup, groups_in, single_cluster
from mooring.inputs.pods.pods import cpu_list, resizing
from mooring.inputs.pods.scenario import RecordedNode, node_histories
from mooring.inputs.pods.scheduling_fields import taints_at
from mooring.published.cluster_objects import ClusterObjects, cluster_objects, has_nodes, is_archive, load_objects

if TYPE_CHECKING:
    from mooring.fleet.work_files import Kinds


def seconds_at(content: Mapping[str, Any], field: str) -> float | None:
    """Return a time; None where the field is absent.

    Raises:
        InputError: it is no number of seconds, negative, or too large.

    >>> seconds_at({"at": 5}, "at")
    5.0
    """
    value = content.get(field)
    if value is None:
        return None
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if not is_number or not 0 <= value <= MOST_SECONDS:
        problem = f"must be a number of seconds from 0 to {MOST_SECONDS} (100 years)"
        given = f"{value!r:.40}" if is_number else reading.kind_of(value)
        raise InputError(f"{problem}, not {given}", field=field, remedy="write 3600 for an hour")
    return float(value)


KIND: Final = "ClusterEvents"
_FIELDS: Final = ("apiVersion", "kind", "metadata", "events")
_NODE_FIELDS: Final = ("at", "do", "nodes", "every")
_RESTART, _TAINT, _OFFLINE, _ONLINE, _RESIZE = "restart", "taint", "offline", "online", "resize"
_DETAILS: Final[Mapping[str, tuple[str, ...]]] = {
    **{action.value: () for action in clusters.NodeAction},
    _RESTART: ("set", "release"),
    _TAINT: ("taints",),
    _OFFLINE: ("cpus",),
    _ONLINE: ("cpus",),
}


def with_events(cluster: clusters.NodeCluster, path: str) -> clusters.NodeCluster:
    """Return a cluster with the events of a file after its own.

    Raises:
        InputError: the file cannot be read or understood.
    """
    documents = [one for one in load_documents(path) if one.content is not None]
    if len(documents) != 1:
        raise InputError(f"has {len(documents)} documents", source=path, remedy=f"give one of kind {KIND}")
    with located(documents[0]):
        content = reading.as_mapping(documents[0].content)
        reading.check_names(content, _FIELDS)
        if (kind := reading.text_at(content, "kind")) != KIND:
            raise InputError(f"{kind!r:.60} is not a list of events", field="kind", remedy=f"write {KIND}")
        events = cluster_events(reading.list_at(content, "events"), cluster)
    return replace(cluster, events=(*cluster.events, *events))


def cluster_events(entries: Sequence[object], cluster: clusters.NodeCluster) -> tuple[clusters.ClusterEvent, ...]:
    """Return the events of a list, one for each node that they name, in the order of their times.

    Args:
        entries: as they are written.
        cluster: whose nodes they name.

    Raises:
        InputError: one is not valid, or names a node that there is not.
    """
    reader, found = _Reader(cluster), list[clusters.ClusterEvent]()
    # What is no time is reported where the event is read.
    given = [entry.get("at") if isinstance(entry, dict) else None for entry in entries]
    times = [at if isinstance(at, int | float) else 0.0 for at in given]
    for index in sorted(range(len(entries)), key=lambda place: times[place]):
        with reading.within(f"events[{index}]"):
            found += reader.events(reading.as_mapping(entries[index]))
    return tuple(sorted(found, key=lambda event: event.at))


class _Reader:
    """Reads events in the order of their times; a field that a restart changed stays changed."""

    def __init__(self, cluster: clusters.NodeCluster) -> None:
        self._members = {one.name: one for one in cluster.members()}
        self._groups: dict[str, list[clusters.Member]] = {one.name: [] for one in cluster.groups}
        for member in self._members.values():
            self._groups[member.group.name].append(member)
        self._configs: dict[str, KubeletConfig] = {}
        self._restarts: dict[object, Restart] = {}

    def events(self, content: Mapping[str, Any]) -> Iterator[clusters.ClusterEvent]:
        """Yield what an entry means, for each of its nodes."""
        action, at = reading.name_at(content, "do"), seconds_at(content, "at") or 0.0
        if action == _RESIZE:
            reading.check_names(content, ("at", "do", "pod", "containers", "resources"))
            pod = reading.name_at(content, "pod")
            wanted = {name: value for name, value in content.items() if name in ("containers", "resources")}
            yield clusters.PodResize(at, pod if "/" in pod else f"default/{pod}", resizing({"uid": pod, **wanted}))
            return
        if action not in _DETAILS:
            known = ", ".join((*_DETAILS, _RESIZE))
            raise InputError(f"{action!r:.40} is not known", field="do", remedy=f"write one of {known}")
        reading.check_names(content, (*_NODE_FIELDS, *_DETAILS[action]))
        every = seconds_at(content, "every") or 0.0
        for number, member in enumerate(self._nodes(content)):
            yield clusters.NodeEvent(at + every * number, member.name, self._change(action, content, member))

    def _nodes(self, content: Mapping[str, Any]) -> Iterator[clusters.Member]:
        names = reading.list_at(content, "nodes")
        if not names:
            raise InputError("must not be empty", field="nodes", remedy="name nodes or groups")
        for name in names:
            if name in self._groups:
                yield from self._groups[name]
            elif name in self._members:
                yield self._members[name]
            else:
                raise InputError(
                    f"{name!r:.60} is neither a node nor a group", field="nodes", remedy="groups are in the cluster"
                )

    def _change(self, action: str, content: Mapping[str, Any], member: clusters.Member) -> clusters.NodeChange:
        if action == _RESTART:
            before = self._configs.get(member.name, member.group.config)
            texts = tuple(str(one) for one in reading.list_at(content, "set"))
            release = reading.text_at(content, "release")
            key = id(before), texts, release
            found = self._restarts.get(key)
            if found is None:
                config = before
                with reading.within("set"):
                    for text in texts:
                        config = config_field(text, release or member.group.mooring.release.name).changed(config)
                chosen = release_of(release, "release") if release else None
                found = self._restarts[key] = Restart(config if texts else None, chosen)
            self._configs[member.name] = found.kubelet or before
            return found
        if action == _TAINT:
            return clusters.NodeTaints(taints_at(content))
        if action in (_OFFLINE, _ONLINE):
            if CPU_HOTPLUG not in member.group.mooring.extensions:
                remedy = f"write mooring: {{extensions: [{CPU_HOTPLUG}]}} in the group {member.group.name}"
                raise InputError(f"needs the extension {CPU_HOTPLUG}", field="do", remedy=remedy)
            cpus = cpu_list(reading.name_at(content, "cpus"), "cpus")
            return Offline(cpus) if action == _OFFLINE else Online(cpus)
        return clusters.NodeAction(action)


def recorded_arrivals(path: str, kinds: Kinds, findings: list[str]) -> list[PodArrival]:
    """Return the pods of a recording.

    Args:
        path: of a file or a folder.
        kinds: what pods ask, once for all.
        findings: receives what was left out.

    Raises:
        InputError: it cannot be read, or is no recording.
    """
    histories = node_histories(path)
    begins = min(one.begins for one in histories)
    found: dict[str, PodArrival] = {}
    names: set[str] = set()
    refused = 0

    def come(pod: Pod, content: Mapping[str, Any], at: float) -> None:
        name = f"{pod.namespace}/{pod.name}"
        # Names that were made up, or used again, are those of several pods.
        name = name if name not in names else f"{name}-{pod.uid}"
        names.add(name)
        found[pod.uid] = PodArrival(name, kinds.of(pod, content), max(at - begins, 0.0))

    for history in histories:
        for pod, content in history.running:
            come(pod, content, history.begins)
        for one in history.steps:
            match one.step:
                case Admit(pod) if one.admitted and pod.uid not in found:
                    come(pod, one.content, one.at)
                case Admit():
                    refused += not one.admitted
                case Remove(uid) if uid in found:
                    found[uid] = replace(found[uid], runs=max(one.at - begins - found[uid].at, 0.0))
    if refused:
        findings.append(f"{plural(refused, 'pod')} that a kubelet refused are left out")
    return list(found.values())


def recorded_cluster(path: str) -> clusters.NodeCluster:
    """Return the nodes of a recording, equal ones as a group, and the restarts of their kubelets.

    Raises:
        InputError: it cannot be read, is no recording, or does not describe the machine of a node.
    """
    histories = node_histories(path)
    begins = min(one.begins for one in histories)
    alike: list[tuple[NodeGroup, list[RecordedNode]]] = []
    for history in histories:
        first = history.first
        machine = trace_machine(first, history.file)
        with reading.within(first.id, source=history.file):
            devices = device_table(first.devices)
        group = NodeGroup(history.node, 1, machine, first.kubelet, first.mooring, devices=devices)
        members = next((found for one, found in alike if replace(one, name=group.name) == group), None)
        if members is None:
            alike.append((group, [history]))
        else:
            members.append(history)
    groups, events = [], list[clusters.NodeEvent]()
    for number, (group, members) in enumerate(alike, 1):
        name = members[0].node if len(members) == 1 else f"recorded-{number}"
        groups.append(replace(group, name=name, count=len(members)))
        for index, history in enumerate(members):
            node = name if len(members) == 1 else f"{name}-{index}"
            events += [
                clusters.NodeEvent(max(one.at - begins, 0.0), node, one.step)
                for one in history.steps
                if isinstance(one.step, Restart)
            ]
    return clusters.NodeCluster(path, tuple(groups), (), tuple(sorted(events, key=lambda one: one.at)))


def load_cluster(path: str, config: tuple[str, ...] = (), machines: tuple[str, ...] = ()) -> LiveCluster:
    """Read a cluster: a document of kind Cluster, whose nodes are empty, or a live one.

    Args:
        path: of the file.
        config: configuration of every node, where the cluster says nothing of it.
        machines: ``KIND:MACHINE`` of nodes of a live cluster that publish nothing.

    Raises:
        InputError: it cannot be read or understood.
    """
    if is_archive(path):
        return live(load_objects(path), config, machines)
    documents = [one for one in load_documents(path) if one.content is not None]
    if has_nodes(documents):
        return live(cluster_objects(documents, path), config, machines)
    document = single_cluster(documents, path)
    with located(document):
        content = reading.as_mapping(document.content)
        name = reading.text_at(reading.mapping_at(content, "metadata"), "name") or document.file
        groups, findings = groups_in(document, config), list[str]()
        for group in map(reading.as_mapping, reading.list_at(content, "groups")):
            # What is to be known of kubelets of releases that are not
            version = KubeletVersion(reading.text_at(group, "release"), "release")
            named = f"group {reading.name_at(group, 'name')}"
            findings += [f"{named}: {one.subject} {one.message}" for one in chosen_release([version]).findings]
        cluster = clusters.NodeCluster(name, groups, tuple(findings))
        cluster = replace(cluster, events=cluster_events(reading.list_at(content, "events"), cluster))
        return LiveCluster(cluster, {one.name: () for one in cluster.members()}, ())


def live(objects: ClusterObjects, config: tuple[str, ...], machines: tuple[str, ...]) -> LiveCluster:
    """Return the cluster of some objects; ``config`` and ``machines`` as of :func:`load_cluster`.

    Raises:
        InputError: an object is not valid, or the machine of a node is not known.
    """
    known = [one for file in config for one in load_documents(file)]
    return live_cluster(objects, machines, known)
