"""One cluster for the tier; skipped by name and reason where a part cannot be had."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.e2e.chart.cluster import Cluster, cluster_of_one
from tests.e2e.containerd.runtime import SCRIPT, e2e_parts, parts_named, why_not
from tests.e2e.folders import short_folder
from tests.e2e.image.archive import ARCHIVE
from tests.e2e.kubelet.kubelet import environment_problem


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    reason = why_not() or environment_problem()
    if not ARCHIVE.exists():
        reason = reason or "no build/image/mooring.tar; make image builds it"
    if not Path("/usr/lib/cni/bridge").exists():
        reason = reason or "no network plugins (Debian: containernetworking-plugins)"
    if reason:
        pytest.skip(f"e2e chart: {reason}")
    if str(SCRIPT.parent) not in sys.path:
        sys.path.append(str(SCRIPT.parent))
    made: Any = importlib.import_module("e2e_kube_parts")
    try:
        parts, kube = parts_named("debian"), made.kube_parts()
        for name in ("kube-scheduler", "kube-controller-manager", "kube-proxy"):
            made.kube_program(name)
        made.helm()
    except e2e_parts().UnavailableError as why:
        pytest.skip(f"e2e chart: {why}")
    with short_folder("chart-") as folder, cluster_of_one(parts, kube, ARCHIVE, folder) as found:
        yield found
