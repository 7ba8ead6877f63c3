"""Recordings of nodes as work, and as the cluster that does it.

A pod comes when its kubelet admitted it, and runs as long as it ran. Pods that a kubelet refused are left out: what a
controller made in their place is in the recordings as well.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from mooring.answers.base.trace import trace_machine
from mooring.engine.core.errors import InputError
from mooring.engine.core.pod import Pod
from mooring.engine.kubelet.events import Admit, Remove, Restart
from mooring.explain.phrases import plural
from mooring.fleet.cluster import NodeCluster, NodeGroup
from mooring.fleet.cluster_events import NodeEvent, NodeRestart
from mooring.fleet.inputs.kinds import Kinds
from mooring.fleet.work import PodArrival
from mooring.inputs.configuration.devices import device_table
from mooring.inputs.decoding.fields import inside
from mooring.inputs.pods.recordings import RecordedNode, node_histories


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
                case _:
                    pass
    if refused:
        findings.append(f"{plural(refused, 'pod')} that a kubelet refused are left out")
    return list(found.values())


def recorded_cluster(path: str) -> NodeCluster:
    """Return the nodes of a recording, equal ones as a group, and the restarts of their kubelets.

    Raises:
        InputError: it cannot be read, is no recording, or does not describe the machine of a node.
    """
    histories = node_histories(path)
    begins = min(one.begins for one in histories)
    alike: list[tuple[NodeGroup, list[RecordedNode]]] = []
    for history in histories:
        group = _group(history)
        members = next((found for one, found in alike if replace(one, name=group.name) == group), None)
        if members is None:
            alike.append((group, [history]))
        else:
            members.append(history)
    groups, events = [], list[NodeEvent]()
    for number, (group, members) in enumerate(alike, 1):
        name = members[0].node if len(members) == 1 else f"recorded-{number}"
        groups.append(replace(group, name=name, count=len(members)))
        for index, history in enumerate(members):
            node = name if len(members) == 1 else f"{name}-{index}"
            events += _restarts(history, node, begins)
    return NodeCluster(path, tuple(groups), (), tuple(sorted(events, key=lambda one: one.at)))


def _group(history: RecordedNode) -> NodeGroup:
    first = history.first
    machine = trace_machine(first, history.file)
    try:
        devices = device_table(first.devices)
    except InputError as error:
        raise inside(error, first.id).at(history.file) from None
    return NodeGroup(history.node, 1, machine, first.kubelet, first.mooring, devices=devices)


def _restarts(history: RecordedNode, node: str, begins: float) -> Sequence[NodeEvent]:
    return [
        NodeEvent(max(one.at - begins, 0.0), node, NodeRestart(one.step.kubelet, one.step.release))
        for one in history.steps
        if isinstance(one.step, Restart)
    ]
