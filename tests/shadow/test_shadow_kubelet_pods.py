"""The pods of a node without an API server, as its kubelet lists them."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from tests.cli.command import mooring
from tests.shadow.listing import listing

from mooring.engine.core.machine import Finding
from mooring.inputs.pods.defaults import PodGates
from mooring.inputs.pods.pod_status import REJECTED
from mooring.monitoring.shadow.sources import STARTING, BoundPods, KubeletPods
from mooring.service.apiserver import Cluster, ClusterError, cluster_of, configuration_at

ADDRESS = "http://127.0.0.1:10255"
SECURE = "https://127.0.0.1:10250"
STATIC = {"kubernetes.io/config.source": "file"}


def pod(name: str, **status: str) -> dict[str, Any]:
    """Return a static pod as a kubelet lists it."""
    metadata = {"name": name, "namespace": "default", "uid": f"of-{name}", "annotations": STATIC}
    return {
        "metadata": {**metadata, "creationTimestamp": None},
        "spec": {"containers": [{"name": "c", "image": "none"}]},
        "status": status,
    }


@dataclass
class Asking:
    """Asks a kubelet that is its test."""

    objects: dict[str, list[dict[str, Any]]]
    cluster: Cluster
    now: float = 0.0
    told: list[Finding] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.pods = BoundPods(PodGates, self.told.append, "kubelet")
        self.kubelet = KubeletPods(lambda: self.cluster, self.pods, clock=lambda: self.now)

    def ask(self, *found: dict[str, Any], after: float = 1.0) -> dict[str, bool]:
        """Ask, and return for each pod whether it is leaving."""
        self.now += after
        self.objects["pods"] = list(found)
        self.kubelet.ask(self.cluster)
        return {one.pod.name: one.leaving for one in self.pods.snapshot().values()}


@pytest.fixture
def asking(tmp_path: Path) -> Iterator[Asking]:
    objects = dict[str, list[dict[str, Any]]]()
    with listing(objects, tmp_path) as kubeconfig:
        server = json.loads(kubeconfig.read_text())["clusters"][0]["cluster"]["server"]
        with cluster_of(configuration_at(server)) as cluster:
            yield Asking(objects, cluster)


def test_a_static_pod_has_the_uid_and_the_outcome_that_its_kubelet_says(asking: Asking) -> None:
    asking.ask(pod("large", phase="Failed", reason="OutOfcpu", message=f"{REJECTED}no"))
    seen = asking.pods.snapshot()["of-large"]
    assert (seen.reason, seen.message, seen.created) == ("OutOfcpu", "no", "")
    assert asking.pods.names() == {("default", "large"): "of-large"}


def test_a_pod_that_is_not_listed_any_more_is_leaving(asking: Asking) -> None:
    assert asking.ask(pod("one"), pod("two")) == {"one": False, "two": False}
    assert asking.ask(pod("one"), after=STARTING) == {"one": False, "two": True}


def test_a_kubelet_that_starts_has_time_to_read_its_manifests(asking: Asking) -> None:
    asking.ask(pod("one"), pod("two"))
    asking.ask(pod("one"), pod("two"), after=STARTING)
    asking.kubelet.failed(ClusterError("no answer"))
    assert asking.ask() == {"one": False, "two": False}
    assert asking.ask(pod("one")) == {"one": False, "two": False}
    assert asking.ask(pod("one"), after=STARTING) == {"one": False, "two": True}
    assert [one.message for one in asking.told] == ["no answer", "answers again"]
    assert {one.subject for one in asking.told} == {"kubelet"}


def test_only_changes_are_passed_on(asking: Asking) -> None:
    asking.ask(pod("one"))
    before = asking.pods.changes
    asking.ask(pod("one"))
    assert asking.pods.changes == before
    asking.ask(pod("one", phase="Running"))
    assert asking.pods.changes == before + 1


@pytest.mark.parametrize(
    ("found", "words"), [([], "cannot be read"), ({"metadata": {"uid": 7}}, "uid")], ids=["no object", "no pod"]
)
def test_what_is_no_list_of_pods_is_reported_and_asked_for_again(asking: Asking, found: Any, words: str) -> None:
    asking.objects["pods"] = [found]
    told = threading.Event()

    def report(finding: Finding) -> None:
        asking.told.append(finding)
        told.set()

    asking.pods = BoundPods(PodGates, report, "kubelet")
    asking.kubelet = KubeletPods(
        lambda: cluster_of(configuration_at(str(asking.cluster.http.base_url).rstrip("/"))), asking.pods
    )
    asking.kubelet.start()
    assert told.wait(60)
    asking.objects["pods"] = [pod("one")]
    assert asking.kubelet.has_listed.wait(60)
    asking.kubelet.stop()
    assert words in asking.told[0].message


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (
            ("shadow", "--kubelet-pods", "kubelet"),
            f"--kubelet-pods: 'kubelet' is not the address of a kubelet; write {ADDRESS} (readOnlyPort) or {SECURE}",
        ),
        (
            ("shadow", "--kubelet-pods", ADDRESS, "--publish"),
            "--publish: writes to an API server, and there is none; leave out --kubelet-pods",
        ),
        (
            ("record", "node-1", "--folder", "none", "--kubelet-pods", ADDRESS),
            "--kubelet-pods: is for the kubelet of this computer, and NODE names others; leave out one of the two",
        ),
    ],
)
def test_a_mistake_is_one_line(words: tuple[str, ...], line: str) -> None:
    answered = mooring(*words)
    assert (answered.code, answered.err.strip()) == (2, f"mooring: {line}")
