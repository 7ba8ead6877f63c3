"""A node on which claims to CPUs are prepared: real scheduler, kubelet and containerd, our agent and our driver."""

from __future__ import annotations

import contextlib
import importlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import pytest
from tests.e2e.containerd.runtime import Runtime, e2e_parts
from tests.e2e.kubelet.apiserver import APIServer
from tests.e2e.kubelet.arrival import remove_pods, runs
from tests.e2e.kubelet.cases import Case, cases
from tests.e2e.kubelet.claiming import (
    CLAIMS,
    GROUP,
    DriverProcess,
    claim_of,
    device_class,
    driver_on,
    forget_claims,
    scheduler_on,
)
from tests.e2e.kubelet.decided import Played, Playing
from tests.e2e.kubelet.kubelet import NO_POLICIES
from tests.e2e.kubelet.patience import until
from tests.e2e.kubelet.pinning import Pinned, pinned
from tests.e2e.kubelet.placements import containers, given
from tests.e2e.kubelet.rights import binding_of, give_rights, kubeconfig_of

from mooring.engine.core.cpuset import CPUSet

CASE: Case = cases()[0]
"""Eight NUMA nodes of 32 CPUs each."""
ACCOUNT, NAMESPACE = "mooring-dra", "mooring"


@dataclass(frozen=True, slots=True)
class Claimed:
    """A node on which claims are prepared."""

    api: APIServer
    node: Runtime
    both: Pinned
    driver: DriverProcess

    def claim(self, name: str, *requests: tuple[str, int], **metadata: Any) -> dict[str, Any]:
        return self.api.post(CLAIMS, claim_of(name, *requests, **metadata))

    def pod(self, pod: dict[str, Any]) -> dict[str, Any]:
        """Create a pod, let the scheduler find its node, and wait until it runs."""
        made = self.api.create_pod(pod)
        until(partial(runs, self.node, made), f"pod {made['metadata']['name']} runs")
        return made

    def cpus(self, place: str) -> CPUSet:
        return CPUSet.parse(given(self.node)[place][0])

    def inside(self, place: str, *command: str) -> str:
        """Return what a command in a running container prints."""
        [one] = [one for one in containers(self.node) if one.place == place and one.state == "RUNNING"]
        return self.node.cri.execute(one.id, *command)

    def environment(self, place: str) -> dict[str, str]:
        lines = self.inside(place, "env").splitlines()
        return dict(line.split("=", 1) for line in lines if line.startswith("MOORING_"))

    def claims(self) -> dict[str, str]:
        """Return what the agent says of claims: name -> CPUs."""
        return {f"{one['namespace']}/{one['name']}": one["cpus"] for one in self.both.agent.status().get("claims", [])}

    def capacity(self) -> dict[str, int]:
        """Return what the slices offer, by device; a device that is a CPU offers itself."""
        found = self.api.get(f"{GROUP}/resourceslices")["items"]
        return {
            device["name"]: int(device["capacity"]["dra.cpu/cpu"]["value"]) if "capacity" in device else 1
            for one in found
            for device in one["spec"].get("devices") or []
        }

    def allocated(self, name: str) -> list[str]:
        """Return the devices that the scheduler has given to a claim."""
        results = self.api.get(f"{CLAIMS}/{name}")["status"]["allocation"]["devices"]["results"]
        return [one["device"] for one in results]


@contextlib.contextmanager
def claims_on(
    api: APIServer, kube: Any, playing: Playing, played: Played, *options: str, gates: Sequence[str] = ()
) -> Iterator[Claimed]:
    """Run scheduler, kubelet, agent and driver; the driver has the rights of its manifest and no others.

    Args:
        api: with nothing in it.
        kube: of ``scripts/e2e_kube_parts.py``.
        playing: starts containerd.
        played: makes the machine's files.
        options: of the driver.
        gates: feature gates of scheduler and kubelet.
    """
    script = importlib.import_module("e2e_kube_parts")
    try:
        scheduler = script.kube_program("kube-scheduler")
    except e2e_parts().UnavailableError as why:
        pytest.skip(f"e2e kubelet: {why}")
    forget_claims(api)
    api.post(f"{GROUP}/deviceclasses", device_class())
    with contextlib.ExitStack() as opened:
        node = opened.enter_context(playing())
        socket = str(node.folder / "claims.sock")
        machine = played(CASE)
        beside = {**NO_POLICIES, "featureGates": dict.fromkeys(gates, True)}
        both = opened.enter_context(
            pinned(node, kube.kubelet, CASE, machine, api=api, beside=beside, claimsSocket=socket)
        )
        opened.enter_context(scheduler_on(scheduler, api, node.folder, gates))
        give_rights(api, "dra.yaml", binding_of("mooring-dra-immediate", ACCOUNT, NAMESPACE))
        own = kubeconfig_of(api, node.folder, ACCOUNT, NAMESPACE, CASE.name)
        driver = DriverProcess(node, both.kubelet, api, socket, str(machine), options, own)
        opened.enter_context(driver_on(driver))
        made = Claimed(api, node, both, driver)
        until(made.capacity, "slices are published")
        yield made
        remove_pods(api)
    forget_claims(api)
