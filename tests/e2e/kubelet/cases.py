"""Nodes on which kubelet, plan and agent are compared, and the pods that arrive on each."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any

from tests.e2e.containerd.images import BUSYBOX
from tests.e2e.kubelet.sysfs import SNAPSHOTS

WHOLE = os.environ.get("MOORING_E2E_KUBELET", "") == "full"
RESERVED_MEMORY = "1Gi"


@dataclass(frozen=True, slots=True)
class Case:
    """A machine with a configuration."""

    name: str
    machine: str
    """A shipped name, or the name of a snapshot."""
    policies: Mapping[str, Any]
    own: int
    """CPUs of an ordinary exclusive container."""
    wide: int
    """CPUs of a container that one NUMA node does not have room for."""
    reserved: str = "0"
    is_snapshot: bool = False
    older: str = ""
    """Version of an older kubelet; empty for the newest."""

    @property
    def reservations(self) -> dict[str, Any]:
        kept = {"memory": RESERVED_MEMORY}
        return {
            "reservedSystemCPUs": self.reserved,
            "kubeReserved": kept,
            "reservedMemory": [{"numaNode": 0, "limits": kept}],
        }

    @property
    def missing(self) -> str:
        """Why the machine is not there, or the empty text."""
        if self.is_snapshot and not (SNAPSHOTS / self.machine).is_dir():
            return f"the recorded machine {self.machine} is absent"
        return ""


def policies(
    topology: str = "none", memory: str = "Static", *, scope: str = "container", **options: str
) -> Mapping[str, Any]:
    named = {name.replace("_", "-"): value for name, value in options.items()}
    return MappingProxyType(
        {
            "cpuManagerPolicy": "static",
            "memoryManagerPolicy": memory,
            "topologyManagerPolicy": topology,
            "topologyManagerScope": scope,
            **({"cpuManagerPolicyOptions": named} if named else {}),
        }
    )


_EIGHT, _SHARED_L3, _ONE = "epyc-7763-2s-nps4", "xeon-6230-2s-snc2", "xeon-6338n-1s"

CASES: Sequence[Case] = (
    Case("restricted", _EIGHT, policies("restricted"), 6, 34, reserved="0,128"),
    Case(
        "best-effort-pod",
        _SHARED_L3,
        policies("best-effort", scope="pod", full_pcpus_only="true", distribute_cpus_across_numa="true"),
        4,
        24,
        reserved="0,40",
    ),
    Case("none", _ONE, policies(memory="None"), 3, 34),
    Case(
        "uncore",
        "synth-epyc7763-2s-nps1",
        policies("best-effort", prefer_align_cpus_by_uncorecache="true"),
        5,
        70,
        is_snapshot=True,
    ),
)
MORE: Sequence[Case] = (
    Case("single-numa-node", _EIGHT, policies("single-numa-node"), 5, 34, reserved="0-1,128-129"),
    Case("single-numa-node-pod", _SHARED_L3, policies("single-numa-node", scope="pod"), 3, 24, reserved="0,40"),
    Case("strict", _ONE, policies("restricted", "None", strict_cpu_reservation="true"), 3, 34, reserved="0,32"),
    Case("restricted-no-memory", _SHARED_L3, policies("restricted", "None"), 3, 24, reserved="0,40"),
    Case("packed", _EIGHT, policies(full_pcpus_only="true"), 6, 34, reserved="0,128"),
    Case("offline-siblings", "synth-cascadelake6230-2s-snc2-smtoff", policies("restricted"), 3, 12, is_snapshot=True),
)
"""With MOORING_E2E_KUBELET=full."""


OLDER_VERSION = "v1.34.4"
"""The oldest kubelet that an API server v1.37.1 still serves."""


def older(case: Case) -> Case:
    """Return the case on a kubelet of :data:`OLDER_VERSION`."""
    return replace(case, name=f"{case.name}-older", older=OLDER_VERSION)


OLDER: Sequence[Case] = tuple(older(case) for case in CASES if case.name != "none")
"""Three topologies on the older kubelet."""


def cases() -> Sequence[Case]:
    """Return the cases of this run."""
    return (*CASES, *OLDER, *MORE) if WHOLE else (*CASES, *OLDER)


@dataclass(frozen=True, slots=True)
class Wants:
    """A container of a pod; empty amounts are left out."""

    name: str
    cpu: str = ""
    memory: str = ""
    requests_only: bool = False
    settings: Mapping[str, Any] = field(default_factory=dict)

    def document(self) -> dict[str, Any]:
        amounts = {key: value for key, value in (("cpu", self.cpu), ("memory", self.memory)) if value}
        resources = {"requests": amounts} if self.requests_only else {"limits": amounts} if amounts else {}
        return {
            "name": self.name,
            "image": BUSYBOX,
            "imagePullPolicy": "Never",
            "resources": resources,
            **self.settings,
        }


def pod_of(name: str, *containers: Wants, init: Sequence[Wants] = (), **metadata: Any) -> dict[str, Any]:
    """Return a pod that needs nothing that a cluster would have beside the node."""
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "default", **metadata},
        "spec": {
            "automountServiceAccountToken": False,
            "enableServiceLinks": False,
            "hostNetwork": True,
            "terminationGracePeriodSeconds": 1,
            "tolerations": [{"operator": "Exists"}],
            "initContainers": [one.document() for one in init],
            "containers": [one.document() for one in containers],
        },
    }


def story(case: Case) -> list[dict[str, Any]]:
    """Return pods of every kind in the order of their arrival; some have no room, and others come after them."""
    own = str(case.own)
    ends = MappingProxyType({"command": ["true"]})
    stays = MappingProxyType({"restartPolicy": "Always"})
    return [
        pod_of("first", Wants("any")),
        pod_of("own", Wants("app", own, "96Mi")),
        pod_of(
            "mixed",
            Wants("app", own, "128Mi"),
            Wants("part", "500m", "64Mi"),
            init=[Wants("side", "250m", "32Mi", settings=stays)],
        ),
        pod_of("begins", Wants("app", own, "64Mi"), init=[Wants("load", own, "256Mi", settings=ends)]),
        pod_of("burst", Wants("app", "300m", "32Mi", requests_only=True)),
        pod_of("odd", Wants("app", str(case.own + 1), "64Mi")),
        pod_of("wide", Wants("app", str(case.wide), "512Mi")),
        pod_of("half", Wants("app", own, "64Mi", requests_only=True), Wants("other", own, "64Mi")),
        pod_of("endless", Wants("app", "200", "64Mi")),
        pod_of("last", Wants("app", own, "64Mi")),
    ]
