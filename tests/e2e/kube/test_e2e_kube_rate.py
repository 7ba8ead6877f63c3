"""How many pods a second the scheduler binds with the extender, and by itself."""

from __future__ import annotations

import os
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import pytest
from tests.e2e.kube.conftest import Parts, Playing
from tests.e2e.kube.plane import extender, scheduler
from tests.e2e.kube.pods import pod
from tests.e2e.kubelet.apiserver import APIServer
from tests.e2e.kubelet.patience import until

NODES, PODS = 8, 300


@pytest.mark.parametrize("with_extender", [False, True], ids=["alone", "extender"])
def test_all_pods_are_bound(
    api: APIServer, parts: Parts, playing: Playing, folder: Path, *, with_extender: bool
) -> None:
    with playing(NODES) as nodes, ExitStack() as stack:
        asked = stack.enter_context(extender(folder, api.kubeconfig)) if with_extender else None
        bodies = [pod(f"rate-{number}", {"requests": {"cpu": "5m"}}) for number in range(PODS)]
        with ThreadPoolExecutor(8) as pool:
            list(pool.map(api.create_pod, bodies))
        url = (asked.url,) if asked is not None else ()
        began = _cpu_seconds(asked.pid()) if asked is not None else 0.0
        stack.enter_context(scheduler(parts.scheduler, folder, api.kubeconfig, *url))
        seen: list[tuple[float, int]] = []

        def are_bound() -> bool:
            # What the nodes hear of: lists of all pods would take a third of the API server's time.
            seen.append((time.monotonic(), len(nodes.admitted)))
            return seen[-1][1] == PODS

        until(are_bound, "all pods are bound")
        (begun, before), (ended, after) = next(one for one in seen if one[1]), seen[-1]
        rate = (after - before) / max(ended - begun, 1e-9)
        print(
            f"\n{'with the extender' if with_extender else 'alone'}: {rate:.0f} pods a second, {seen[:3]} {seen[-3:]}"
        )
        if asked is not None:
            found = asked.metrics()
            for verb in ("filter", "prioritize", "bind"):
                count, total = (found[f"request_seconds_{what}{{verb={verb}}}"] for what in ("count", "sum"))
                print(f"  {verb}: {1000 * total / count:.1f} ms in the mean of {count:.0f}")
            spent = _cpu_seconds(asked.pid()) - began
            print(f"  at most {asked.most_memory >> 20} MiB, {1000 * spent / PODS:.1f} ms of CPU time a pod")


def _cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
