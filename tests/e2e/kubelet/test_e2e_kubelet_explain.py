"""``mooring explain NAMESPACE/POD`` about pods that a real kubelet rejected, with what kubectl is told, and no more."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest
from tests.e2e.containerd.images import BUSYBOX
from tests.e2e.containerd.runtime import running
from tests.e2e.kubelet.apiserver import APIServer
from tests.e2e.kubelet.arrival import arrive
from tests.e2e.kubelet.cases import Case, Wants, pod_of
from tests.e2e.kubelet.decided import Played, Playing
from tests.e2e.kubelet.kubelet import kubelet_on
from tests.e2e.kubelet.patience import until

# Four NUMA nodes of 20 CPUs: four pods of 12 leave room for a fifth in sum, and on no node.
POLICIES = MappingProxyType({"cpuManagerPolicy": "static", "topologyManagerPolicy": "single-numa-node"})
FULL = Case("explained", "xeon-6230-2s-snc2", POLICIES, 12, 24, reserved="0,40")
HERE = Case("explained-here", "live", POLICIES, 1, 2)
SERVES = {"enableServer": True, "port": 10250}
CONFIGURED = "configuration (/configz)"
needs_kubectl = pytest.mark.skipif(shutil.which("kubectl") is None, reason="kubectl is not installed")


def explained(api: APIServer, folder: Path, *options: str | Path) -> subprocess.CompletedProcess[str]:
    environment = {
        **os.environ,
        "KUBECONFIG": str(api.kubeconfig),
        "XDG_CACHE_HOME": str(folder),
        "MOORING_ROOT": "none",
        "NO_COLOR": "1",
    }
    words = [sys.executable, "-m", "mooring", "explain", "default/more", *map(str, options)]
    return subprocess.run(words, env=environment, capture_output=True, text=True, check=False, timeout=300)


def has_rejected(api: APIServer, name: str) -> bool:
    return bool((api.pod(name) or {}).get("status", {}).get("reason") == "TopologyAffinityError")


def names(pods: Sequence[dict[str, Any]]) -> set[str]:
    return {pod["metadata"]["name"] for pod in pods}


@needs_kubectl
def test_the_pod_that_a_kubelet_rejected_is_explained_with_its_neighbours_and_its_configuration(
    api: APIServer, kube: Any, playing: Playing, played: Played, tmp_path: Path
) -> None:
    machine = played(FULL)
    policies = {**FULL.policies, **FULL.reservations, **SERVES}
    with (
        playing() as node,
        kubelet_on(node, kube.kubelet, FULL.name, policies, machine=machine, kubeconfig=api.kubeconfig) as kubelet,
    ):
        wants = Wants("app", "12", "64Mi")
        room = [pod_of(f"room-{number}", wants) for number in range(4)]
        arrive(api, node, FULL.name, [*room, pod_of("more", wants)], kubelet.refused)
        until(lambda: has_rejected(api, "more"), "the API server has the rejection")
        answered = explained(api, tmp_path, "--machine", FULL.machine)
        assert answered.returncode == 1, answered
        assert "default/more is rejected: TopologyAffinityError" in answered.stdout
        assert "error[MOOR-103]" in answered.stdout
        assert CONFIGURED in answered.stderr
        assert "MOOR-519" not in answered.stderr + answered.stdout
        assert len(api.pods()) == 5


@needs_kubectl
@pytest.mark.skipif(not {0, 1} <= os.sched_getaffinity(0), reason="needs CPUs 0 and 1")
def test_a_pod_of_a_stock_image_packs_the_machine_is_deleted_and_what_it_packed_is_kept(
    api: APIServer, kube: Any, parts: Any, folder: Path, tmp_path: Path
) -> None:
    most = len(os.sched_getaffinity(0))
    policies = {**HERE.policies, **HERE.reservations, **SERVES}
    with (
        running(parts, folder) as node,
        kubelet_on(node, kube.kubelet, HERE.name, policies, kubeconfig=api.kubeconfig) as kubelet,
    ):
        # One CPU is reserved.
        arrive(api, node, HERE.name, [pod_of("more", Wants("app", str(most), "64Mi"))], kubelet.refused)
        until(lambda: has_rejected(api, "more"), "the API server has the rejection")
        asked = explained(api, tmp_path)
        assert (asked.returncode, "add --debug-image IMAGE" in asked.stderr) == (2, True), asked
        answered = explained(api, tmp_path, "--debug-image", BUSYBOX)
        assert answered.returncode == 1, answered
        assert "default/more is rejected: TopologyAffinityError" in answered.stdout
        assert CONFIGURED in answered.stderr
        assert "lacks state files" not in answered.stderr
        until(lambda: names(api.pods()) == {"more"}, "the pod that packed is deleted")
        again = explained(api, tmp_path)
        # The command that is printed names the options that were given.
        told, told_again = (one.stdout.partition("help:")[0] for one in (answered, again))
        assert (again.returncode, told_again) == (1, told)
        assert "collected earlier" in again.stderr
        assert names(api.pods()) == {"more"}
