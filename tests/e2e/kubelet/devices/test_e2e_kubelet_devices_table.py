"""Real parts align random pods as the table of the documentation says: the engine's answer on a sample of its pods."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pytest
from tests.e2e.kubelet.apiserver import APIServer
from tests.e2e.kubelet.cases import WHOLE
from tests.e2e.kubelet.decided import Played, Playing
from tests.e2e.kubelet.devices.cases import FOUR_NODES, SEED
from tests.e2e.kubelet.devices.following import Held
from tests.e2e.kubelet.devices.settings import TOPOLOGY, alignment, device_node

from mooring.engine.kubelet.admit import AdmitResult, admit
from mooring.engine.kubelet.kubelet import Kubelet
from mooring.inputs.machines.loader import load_machine
from mooring.inputs.pods.pods import pod_from_object

COUNT = 60 if WHOLE else 12
"""Pods of a setting."""


@dataclass(slots=True)
class Judge:
    """A kubelet of the engine that manages everything, and whose device manager gave out the same devices."""

    kubelet: Kubelet

    def ask(self, uid: str, document: Mapping[str, Any], granted: Held) -> AdmitResult:
        known = {one.id: one for devices in self.kubelet.node.providers.devices.devices.values() for one in devices}
        held = {
            container: {resource: tuple(known[one] for one in sorted(ids)) for resource, ids in each.items()}
            for container, each in granted.items()
        }
        metadata = {**document["metadata"], "uid": uid}
        pod = pod_from_object({**document, "metadata": metadata}, source="e2e")
        self.kubelet, answer = admit(alignment.holding(self.kubelet, uid, held), pod)
        return answer


@pytest.mark.parametrize("setting", list(alignment.Setting), ids=lambda setting: setting.name.lower())
def test_pods_on_real_parts_are_aligned_or_refused_as_the_engine_says(
    api: APIServer, kube: Any, playing: Playing, played: Played, setting: Any
) -> None:
    machine = load_machine(FOUR_NODES)
    pods = alignment.arrivals(machine, COUNT, SEED)
    planned, _ = alignment.outcomes(machine, TOPOLOGY, setting, pods)
    offered = alignment.devices_on(machine)
    judge = Judge(alignment.Node(machine, TOPOLOGY, alignment.Setting.KUBELET_PLUGINS, offered).manager)
    leaving: dict[int, list[tuple[str, str]]] = {}
    found = []
    with device_node(api, kube, playing, played, FOUR_NODES, setting) as node:
        for number, pod in enumerate(pods):
            for name, uid in leaving.pop(number, ()):
                node.leave(name)
                judge.kubelet = alignment.without(judge.kubelet, uid)
            made = node.arrive(pod.document)
            name, uid, granted = made["metadata"]["name"], made["metadata"]["uid"], node.granted(made)
            outcome = node.outcome(made)
            found.append(outcome)
            is_refused = outcome is alignment.Outcome.REFUSED
            if node.both is not None and granted:
                answer = judge.ask(uid, pod.document, granted)
                assert answer.admitted is not is_refused, name
                if not is_refused:
                    places = {key: (str(one.cpus), set(one.mems)) for key, one in answer.decision.containers.items()}
                    assert {key: (cpus, set(mems)) for key, (cpus, mems) in node.told(made).items()} == places, name
                else:
                    judge.kubelet = alignment.without(judge.kubelet, uid)
            if is_refused:
                node.leave(name)
            else:
                assert node.held(made) == granted
                leaving.setdefault(number + pod.stays + 1, []).append((name, uid))
    assert found == planned
    if setting is not alignment.Setting.KUBELET_CLAIMS:
        assert alignment.Outcome.MISALIGNED not in found
