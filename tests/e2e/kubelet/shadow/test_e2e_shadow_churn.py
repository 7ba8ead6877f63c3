"""A shadow agrees with every decision of real kubelets: ``make e2e-shadow``, six topologies with TOPOLOGIES=all."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from tests.e2e.kubelet.apiserver import APIServer
from tests.e2e.kubelet.decided import KubeletOf, Played, Playing
from tests.e2e.kubelet.shadow.lives import Lives, Living
from tests.e2e.kubelet.shadow.topologies import Topology, topologies

AT_A_TIME = int(os.environ.get("MOORING_E2E_SHADOW_KUBELETS") or 2)
"""Kubelets that run at the same time."""
MOST_UNKNOWN = 0.05
"""Share of the decisions of which the shadow may say that it cannot tell."""
_LOG = logging.getLogger(__name__)
logging.getLogger("httpx2").setLevel(logging.WARNING)


@pytest.fixture(scope="module")
def living(
    cluster: APIServer,
    kubelet_of: KubeletOf,
    playing: Playing,
    played: Played,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Living]:
    cluster.forget_everything()
    lives = Lives(cluster, kubelet_of, playing, played)
    with ThreadPoolExecutor(AT_A_TIME) as workers:
        begun = {one.name: workers.submit(lives.live, one, tmp_path_factory.mktemp(one.name)) for one in topologies()}
        yield lambda one: begun[one.name].result()
        workers.shutdown(cancel_futures=True)


@pytest.mark.parametrize("topology", topologies(), ids=lambda one: one.name)
def test_a_shadow_agrees_with_a_real_kubelet(topology: Topology, living: Living) -> None:
    if topology.case.missing:
        pytest.skip(f"e2e kubelet: {topology.case.missing}")
    life = living(topology)
    _LOG.info("%s", life.row())
    said, found = "\n".join(life.shadow.lines), life.shadow.document
    assert (found["differs"], found["differences"]) == (0, []), said
    assert found["unknown"] <= MOST_UNKNOWN * found["agreed"], said
    assert found["agreed"] > life.pods // 2
    for recording in sorted(life.shadow.kept.glob("recording-*.jsonl")):
        replayed = subprocess.run(
            [sys.executable, "-m", "mooring", "replay", str(recording), "--check"], capture_output=True, check=False
        )
        assert replayed.returncode == 0, replayed.stdout.decode()
