"""A real kubelet with real device plugins decides about random pods as the engine says, devices included."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pytest
from tests.e2e.containerd.runtime import Runtime
from tests.e2e.kubelet.apiserver import APIServer
from tests.e2e.kubelet.arrival import arrive
from tests.e2e.kubelet.cases import Case, Wants, pod_of
from tests.e2e.kubelet.decided import Played, Playing
from tests.e2e.kubelet.devices.cases import GPU, NIC, device_cases, devices_on, random_pods, with_devices
from tests.e2e.kubelet.devices.following import Following, Held, exclusive_cpus, held_by
from tests.e2e.kubelet.devices.plugin import DevicePlugin, plugins_on
from tests.e2e.kubelet.kubelet import Kubelet, kubelet_on
from tests.e2e.kubelet.patience import until

from mooring.engine.core.cpuset import CPUSet
from mooring.engine.kubelet.admit import AdmitResult
from mooring.inputs.machines.loader import load_machine
from mooring.service.podresources import preferring_plugins, resources_of


@dataclass(frozen=True, slots=True)
class Outcome:
    """What the kubelet made of a pod, and what the engine says of it."""

    pod: dict[str, Any]
    refused: bool
    cpus: dict[str, CPUSet]
    held: Held
    answer: AdmitResult
    """Of the engine, that knew the devices of all pods before."""
    following: Following


@dataclass(frozen=True, slots=True)
class Followed:
    """A kubelet with device plugins, and all its decisions."""

    case: Case
    node: Runtime
    kubelet: Kubelet
    outcomes: list[Outcome]


@pytest.fixture(params=device_cases(), ids=lambda case: case.name)
def followed(
    request: pytest.FixtureRequest, api: APIServer, kube: Any, playing: Playing, played: Played
) -> Iterator[Followed]:
    case: Case = request.param
    machine = load_machine(case.machine)
    devices = devices_on(machine)
    policies = {**case.policies, **case.reservations}
    with (
        playing() as node,
        kubelet_on(node, kube.kubelet, case.name, policies, machine=played(case), kubeconfig=api.kubeconfig) as kubelet,
        plugins_on(*(DevicePlugin(kubelet.device_plugins, one, devices[one]) for one in (GPU, NIC))),
    ):
        until(lambda: api.has_node(case.name), "the node is registered")
        following = Following.on(machine, kubelet.configuration, devices)
        outcomes = []
        for wanted in random_pods(case):
            [pod] = arrive(api, node, case.name, [wanted], kubelet.refused)
            uid = pod["metadata"]["uid"]
            answer, refused = following.ask(pod), kubelet.refused(uid)
            held = {} if refused else held_by(kubelet.root, uid)
            if not refused:
                following.take(uid, held)
            cpus = {} if refused else exclusive_cpus(kubelet.state("cpu"), uid)
            outcomes.append(Outcome(pod, refused, cpus, held, answer, following))
        yield Followed(case, node, kubelet, outcomes)


def test_random_pods_are_admitted_refused_and_placed_as_the_engine_says(followed: Followed) -> None:
    for one in followed.outcomes:
        decision, name = one.answer.decision, one.pod["metadata"]["name"]
        assert one.refused is not decision.admitted, (name, decision.rejection)
        if one.refused:
            assert f'reason="{decision.reason}"' in followed.kubelet.log
            assert decision.message in followed.kubelet.log
            continue
        # The record of CPUs keeps init containers that have ended only as long as their CPUs are not reused.
        stays = {container["name"] for container in one.pod["spec"]["containers"]}
        planned = {key: place.cpus for key, place in decision.containers.items() if place.cpus and key in stays}
        assert {key: cpus for key, cpus in one.cpus.items() if key in stays} == planned, name
        assert one.held.keys() == decision.devices.keys()
        for container, resources in decision.devices.items():
            hint = decision.affinity.get(container)
            affinity = None if hint is None else hint.mask
            for resource, planned_devices in resources.items():
                ids = frozenset(device.id for device in planned_devices)
                mine, theirs = (
                    one.following.nearness(affinity, resource, taken) for taken in (ids, one.held[container][resource])
                )
                assert mine == theirs, (name, container, resource)
    assert any(one.refused for one in followed.outcomes)
    assert any(one.held for one in followed.outcomes)


def test_a_plugin_that_prefers_devices_is_asked_by_the_kubelet_and_known_to_mooring(
    api: APIServer, kube: Any, playing: Playing, played: Played
) -> None:
    case = device_cases()[0]
    devices = devices_on(load_machine(case.machine))
    policies = {**case.policies, **case.reservations}

    def last_ones(available: Sequence[str], required: Sequence[str], count: int) -> Sequence[str]:
        return [*required, *(one for one in reversed(available) if one not in required)][:count]

    with (
        playing() as node,
        kubelet_on(node, kube.kubelet, case.name, policies, machine=played(case), kubeconfig=api.kubeconfig) as kubelet,
        plugins_on(
            DevicePlugin(kubelet.device_plugins, GPU, devices[GPU], last_ones),
            DevicePlugin(kubelet.device_plugins, NIC, devices[NIC]),
        ),
    ):
        until(lambda: api.has_node(case.name), "the node is registered")
        sockets = preferring_plugins(kubelet.device_plugins)
        assert resources_of(sockets, [GPU, NIC]) == {GPU}
        wanted = [pod_of(f"pod-{count}", with_devices(Wants("app", "2", "64Mi"), {GPU: count})) for count in (1, 2)]
        held = [
            held_by(kubelet.root, pod["metadata"]["uid"])["app"][GPU]
            for pod in arrive(api, node, case.name, wanted, kubelet.refused)
        ]
        assert held == [{"gpu-3"}, {"gpu-1", "gpu-2"}]
