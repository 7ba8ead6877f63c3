"""Claims of a cluster: nodes with devices and claimed CPUs, the scheduler that allocates, and who tidies claims up."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import combinations
from typing import Any

from tests.world.apiserver import PODS, APIServer
from tests.world.claims import CLAIMS
from tests.world.claims import DRIVER as CPU_DRIVER
from tests.world.cluster import Machine, Scheduler, counted

from mooring.cluster.dra.objects import GROUP
from mooring.cluster.extender.pods import Shapes, seen_pod
from mooring.engine.devicemanager.state import Device, DeviceState
from mooring.engine.extensions.device_alignment import claimed_devices
from mooring.engine.extensions.owners import claims_of
from mooring.engine.kubelet.admit import AdmitMode, AdmitResult, admit
from mooring.engine.kubelet.kubelet import Kubelet
from mooring.engine.node.claims import Claim, Share
from mooring.inputs.pods.claims import claim_of
from mooring.lazy import replace

DRIVER, CLASSES = "gpu.example.com", f"{GROUP}/deviceclasses"
CLASS = {"metadata": {"name": "gpu"}, "spec": {"selectors": [{"cel": {"expression": f'device.driver == "{DRIVER}"'}}]}}
_ENDED = ("Succeeded", "Failed")
_SURE = 30.0
"""Seconds after which a bind that was asked for has come about, or never will."""


def claim_object(name: str, count: int = 1, owner: str = "") -> dict[str, Any]:
    exact = {"deviceClassName": "gpu", "allocationMode": "ExactCount", "count": count}
    metadata = {"name": name, "namespace": "default", "uid": f"uid-{name}", "owner": owner}
    return {
        "metadata": metadata,
        "spec": {"devices": {"requests": [{"name": "r", "exactly": exact}]}},
        "status": {},
    }


def allocation(node: str, devices: list[str], driver: str = DRIVER) -> dict[str, Any]:
    found = [{"request": "r", "driver": driver, "pool": node, "device": one} for one in devices]
    return {"devices": {"results": found}}


def results(claim: dict[str, Any]) -> list[dict[str, Any]]:
    """Return what is allocated to a claim."""
    found: list[dict[str, Any]] = ((claim["status"].get("allocation") or {}).get("devices") or {}).get("results", [])
    return found


def users(claim: dict[str, Any]) -> set[str]:
    return {one["uid"] for one in claim["status"].get("reservedFor", ())}


def names_of(pod: dict[str, Any]) -> list[str]:
    """Return the names of a pod's claims; empty texts for those that are still to be made."""
    made = {one["name"]: one["resourceClaimName"] for one in pod["status"].get("resourceClaimStatuses", ())}
    return [one.get("resourceClaimName") or made.get(one["name"], "") for one in pod["spec"].get("resourceClaims", ())]


@dataclass
class DeviceMachine(Machine):
    """A node whose CPUs and memory follow devices, and whose CPUs claims can have."""

    given: dict[str, int] = field(default_factory=dict)
    """CPUs of claims that were not released, as masks by uid."""
    turns: list[tuple[str, bool, float]] = field(default_factory=list)
    """Claims that took CPUs or released them, and when."""
    wrong: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.kind == "devices":
            near = (0, 1, 0, 1)[: 2 + len(self.name) % 3 + int(self.name[1:]) % 3]
            devices = tuple(Device(f"{self.name}/g{number}", (node,)) for number, node in enumerate(near))
            self.kubelet = self.kubelet.with_devices(DeviceState({DRIVER: devices}))

    @property
    def devices(self) -> list[str]:
        """The devices that its slice offers."""
        found = self.kubelet.node.providers.devices.devices.get(DRIVER, ())
        return [one.id.partition("/")[2] for one in found]

    def admit(self, pod: dict[str, Any], mode: AdmitMode = AdmitMode.ADMISSION) -> tuple[Kubelet, AdmitResult]:
        """Prepare what is allocated to a pod, and decide."""
        claims = {name: self.server.objects[CLAIMS][name] for name in names_of(pod)}
        for name, one in claims.items():
            if mode is AdmitMode.ADMISSION and pod["metadata"]["uid"] not in users(one):
                self.wrong.append(f"{pod['metadata']['name']} runs without {name}")
        return self._admitted(pod, claims, mode)

    def _admitted(self, pod: dict[str, Any], claims: dict[str, Any], mode: AdmitMode) -> tuple[Kubelet, AdmitResult]:
        asked = seen_pod(json.dumps(pod).encode(), Shapes()).pod
        known = {name: claim_of(one, source="world") for name, one in claims.items()}
        given = {
            container: {DRIVER: found[DRIVER]}
            for container, found in claimed_devices(asked, known).items()
            if DRIVER in found
        }
        devices = self.kubelet.node.providers.devices
        before = self.kubelet.with_devices(replace(devices, claimed={asked.uid: given})) if given else self.kubelet
        after, found = admit(before, asked, mode)
        held = after.node.providers.devices
        return after.with_devices(replace(held, claimed={})) if given else after, found

    def would_admit(self, pod: dict[str, Any]) -> bool:
        """Tell whether a waiting pod would be admitted whatever is allocated to it here."""
        claims = {name: self.server.objects[CLAIMS].get(name) for name in names_of(pod)}
        there = {name: one for name, one in claims.items() if one is not None}
        places = {one["pool"] for claim in there.values() for one in results(claim)}
        if len(there) < len(claims) or places - {self.name}:
            return False
        open_ = [one for one in there.values() if not results(one)]
        count = sum(map(wanted, open_))
        ways = [*combinations(free(self.server, self), count)]
        for way in ways:
            rest, tried = [*way], dict(there)
            for one in open_:
                mine, rest = rest[: wanted(one)], rest[wanted(one) :]
                tried[one["metadata"]["name"]] = {**one, "status": {"allocation": allocation(self.name, mine)}}
            if not self._admitted(pod, tried, AdmitMode.TRIAL)[1].admitted:
                return False
        return bool(ways)

    def restart(self) -> None:
        """Let it start again where nothing is held that other files than the kubelet's say."""
        if not self.kubelet.node.providers.devices.held and not claims_of(self.kubelet.node.cpu):
            super().restart()

    def take(self, uid: str, count: int, numa: int) -> bool:
        """Give a claim CPUs before any pod comes, as the node's driver does; tell whether there are so many."""
        topology = self.kubelet.settings.topology
        assert topology is not None
        share = Share("cpus", f"numa{numa}", count, topology.numa[numa])
        kubelet, refused = self.kubelet.claim(Claim(uid, "default", uid, (share,)))
        if refused is None:
            self.given[uid] = claims_of(kubelet.node.cpu)[uid].cpus
            self.kubelet = counted(kubelet)
            self.turns.append((uid, True, self.threads.now))
        return refused is None

    def release(self, uid: str) -> None:
        if self.given.pop(uid, 0):
            self.kubelet = counted(self.kubelet.release(uid))
            self.turns.append((uid, False, self.threads.now))

    def problems(self) -> Iterator[str]:
        """Yield what does not hold at any time."""
        yield from self.wrong
        owned, node = 0, self.kubelet.node
        held = {uid: one.cpus for uid, one in claims_of(node.cpu).items()}
        if held != self.given:
            yield f"claims have CPUs {held} on {self.name}, and were given {self.given}"
        for uid, containers in node.cpu.assignments.items():
            for cpus in containers.values():
                if cpus & (owned | node.cpu.default):
                    yield f"{uid} owns {cpus:b} on {self.name}, and another some of it"
                owned |= cpus
        holders: dict[str, set[str]] = {}
        for claim in self.server.objects[CLAIMS].values():
            for one in results(claim):
                if one["driver"] == DRIVER and one["pool"] == self.name:
                    holders.setdefault(one["device"], set()).add(claim["metadata"]["name"])
        for device, names in holders.items():
            if len(names) > 1:
                yield f"{device} of {self.name} is allocated to {sorted(names)}"


def wanted(claim: dict[str, Any]) -> int:
    return int(claim["spec"]["devices"]["requests"][0]["exactly"]["count"])


def free(server: APIServer, machine: DeviceMachine) -> list[str]:
    """Return the devices of a node that are allocated to no claim."""
    taken = {(one["pool"], one["device"]) for claim in server.objects[CLAIMS].values() for one in results(claim)}
    return [one for one in machine.devices if (machine.name, one) not in taken]


class ClaimScheduler(Scheduler):
    """Allocates claims between filter and bind; what is allocated stays so while the pod waits on."""

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self.machines: dict[str, DeviceMachine] = {}
        self.changed = 0.0
        """When an allocation was made or ended last."""
        self._asked: dict[str, float] = {}
        """When binds were asked for, by name of the pod."""

    def _claims(self, pod: dict[str, Any]) -> list[dict[str, Any]] | None:
        """Return a pod's claims; None where some are still to be made."""
        found = [self._server.objects[CLAIMS].get(name) for name in names_of(pod)]
        there = [one for one in found if one is not None]
        return there if len(there) == len(found) else None

    def nodes_for(self, pod: dict[str, Any]) -> list[str]:
        claims = self._claims(pod)
        if claims == []:
            return self._nodes
        found = [] if claims is None else self._places(claims)
        if not found:
            # No pod keeps room for itself where it cannot be.
            self.preempt(pod, [])
        return found

    def _places(self, claims: list[dict[str, Any]]) -> list[str]:
        places = {one["pool"] for claim in claims for one in results(claim)}
        count = sum(wanted(one) for one in claims if not results(one))
        return [one for one in self._nodes if {one} >= places and len(free(self._server, self.machines[one])) >= count]

    def preempt(self, pod: dict[str, Any], nodes: list[str]) -> None:
        super().preempt(pod, nodes)
        self._let_go(pod)

    def _let_go(self, pod: dict[str, Any]) -> None:
        """Take back what is allocated to a pod that nobody can bind: others have what it lacks."""
        name, uid = pod["metadata"]["name"], pod["metadata"]["uid"]
        now = self._server.objects[PODS].get(name)
        if now is None or now["spec"].get("nodeName") or self._threads.now - self._asked.get(name, 0.0) < _SURE:
            return
        for one in self._claims(pod) or ():
            if users(one) == {uid} and results(one)[0]["driver"] == DRIVER:
                self._put(one, {})

    def reserve(self, pod: dict[str, Any], node: str) -> bool:
        claims, uid, name = self._claims(pod), pod["metadata"]["uid"], pod["metadata"]["name"]
        now = self._server.objects[PODS].get(name)
        if claims is None or now is None or now["metadata"]["uid"] != uid or now["spec"].get("nodeName"):
            return not names_of(pod)
        if any(one["pool"] != node for claim in claims for one in results(claim)):
            return False
        for one in claims:
            found = free(self._server, self.machines[node])
            made = one["status"].get("allocation")
            if not made:
                if len(found) < wanted(one):
                    return False
                made = allocation(node, self._numbers.sample(found, wanted(one)))
            reserved = [{"resource": "pods", "uid": each} for each in sorted(users(one) | {uid})]
            self._put(one, {"allocation": made, "reservedFor": reserved})
        self._asked[name] = self._threads.now
        return True

    def _put(self, claim: dict[str, Any], status: dict[str, Any]) -> None:
        if claim["status"] != status:
            self.changed = self._threads.now
            self._server.put(CLAIMS, {**claim, "status": status})


def control(server: APIServer, sleep: Callable[[float], None], is_over: Callable[[], bool]) -> None:
    """Make claims of templates, some time; take claims back when their pods are gone, as the controller does."""
    numbers = server.faults.numbers("controller")
    while not is_over():
        sleep(0.5 if server.faults.is_quiet else numbers.choice([0.1, 1.0, 5.0]))
        for pod in [*server.objects[PODS].values()]:
            if "" in names_of(pod) and "deletionTimestamp" not in pod["metadata"]:
                made = f"{pod['metadata']['name']}-gpu"
                server.put(CLAIMS, claim_object(made, 1, pod["metadata"]["uid"]))
                statuses = [{"name": "gpu", "resourceClaimName": made}]
                server.put(PODS, {**pod, "status": {**pod["status"], "resourceClaimStatuses": statuses}})
        there = {
            one["metadata"]["uid"] for one in server.objects[PODS].values() if one["status"]["phase"] not in _ENDED
        }
        for claim in [*server.objects[CLAIMS].values()]:
            owner, reserved = claim["metadata"]["owner"], users(claim)
            if owner and owner not in there and not reserved & there:
                server.delete(CLAIMS, claim["metadata"]["name"])
            elif reserved - there:
                left = [{"resource": "pods", "uid": one} for one in sorted(reserved & there)]
                kept = left or results(claim)[0]["driver"] == CPU_DRIVER
                status = {"allocation": claim["status"]["allocation"], "reservedFor": left} if kept else {}
                server.put(CLAIMS, {**claim, "status": status})
