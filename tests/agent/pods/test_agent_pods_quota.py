"""The quota of a pod's cgroup, against what a real kubelet said of its pods, and rule by rule."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.agent.pods.runtime_view import recorded

from mooring.agent.pods.derive import pod_of
from mooring.agent.pods.quotas import quota_of_pod
from mooring.core.pod import Container, ContainerKind, Pod, PodResources, QoS
from mooring.core.quantity import Quantity


def cpu(amount: str) -> dict[str, Quantity]:
    return {"cpu": Quantity.parse(amount)} if amount else {}


def of(*limits: str, qos: QoS = QoS.GUARANTEED, whole: str = "", overhead: str = "") -> Pod:
    """Return a pod; a limit's container is an init container after ``i:`` and a sidecar after ``s:``."""
    kinds = {"i": ContainerKind.INIT, "s": ContainerKind.SIDECAR, "": ContainerKind.APP}
    made = []
    for number, text in enumerate(limits):
        kind, _, amount = text.rpartition(":")
        made.append(Container(f"c{number}", kinds[kind], limits=cpu(amount)))
    resources = PodResources(limits=cpu(whole)) if whole else None
    return Pod("u", "n", containers=tuple(made), qos=qos, resources=resources, overhead=cpu(overhead))


RECORDED = ("guaranteed", "static-pod-guaranteed", "besteffort", "init sidecar app-after-sidecar")
"""Messages about all containers of a pod, in the order of its specification."""


@pytest.mark.parametrize("names", RECORDED)
def test_it_is_what_a_real_kubelet_said(names: str) -> None:
    messages = [recorded(name) for name in names.split()]
    sandbox = messages[0][0]
    pod = pod_of(sandbox, [container for _, container in messages])
    kinds = {"i": ContainerKind.INIT, "s": ContainerKind.SIDECAR} if len(messages) > 1 else {}
    made = [replace(one, kind=kinds.get(one.name, ContainerKind.APP)) for one in pod.containers]
    quota = sandbox.pod_resources.quota or 0
    assert quota_of_pod(replace(pod, containers=tuple(made))) == max(quota, 0)


@pytest.mark.parametrize(
    ("pod", "quota"),
    [
        (of("2", "1500m"), 350_000),
        (of("2", "i:5"), 500_000),
        (of("s:1", "2"), 300_000),
        (of("s:1", "i:3", "2"), 400_000),
        (of("i:3", "s:1", "2"), 300_000),
        (of("1", "", whole="4"), 400_000),
        (of("2", overhead="250m"), 225_000),
        (of("5m"), 1_000),
        (of("2", "", qos=QoS.BURSTABLE), 0),
        (of("2", "1", qos=QoS.BURSTABLE), 300_000),
        (of("2", "", qos=QoS.BURSTABLE, whole="3"), 300_000),
        (of("", qos=QoS.BEST_EFFORT, overhead="1"), 0),
        (of("", qos=QoS.BURSTABLE, overhead="1"), 0),
    ],
    ids=lambda value: str(value) if isinstance(value, int) else "pod",
)
def test_each_rule_of_the_kubelet(pod: Pod, quota: int) -> None:
    assert quota_of_pod(pod) == quota


def test_another_period_gives_another_quota() -> None:
    assert quota_of_pod(of("2"), 10_000) == 20_000
