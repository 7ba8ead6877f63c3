"""Pods that the extender let through are admitted by their nodes, whose kubelets are the engine; others are not.

The full size, ``MOORING_E2E_KUBE=full``, has 100 nodes of eight kinds and 2,000 pods in each of the runs.
"""

from __future__ import annotations

import os
import random
from collections.abc import Mapping
from pathlib import Path

import pytest
from tests.e2e.kube.conftest import Parts, Playing
from tests.e2e.kube.nodes import Nodes, contradiction
from tests.e2e.kube.plane import Extender, Scheduler, extender, peak_memory, scheduler
from tests.e2e.kube.pods import pod
from tests.e2e.kube.story import Story
from tests.e2e.kubelet.apiserver import APIServer
from tests.e2e.kubelet.patience import until

WHOLE = os.environ.get("MOORING_E2E_KUBE", "") == "full"
NODES, PODS, PATIENCE = (100, 2000, 1800.0) if WHOLE else (8, 150, 300.0)


@pytest.mark.parametrize("delay", [0.0, 10.0], ids=["fresh", "late"])
def test_no_pod_of_the_extender_is_refused(
    api: APIServer, parts: Parts, playing: Playing, folder: Path, delay: float
) -> None:
    with (
        playing(NODES, delay=delay) as nodes,
        extender(folder, api.kubeconfig) as asked,
        scheduler(parts.scheduler, folder, api.kubeconfig, asked.url) as running,
    ):
        story = Story(api, nodes, random.Random(f"{delay}"))  # noqa: S311 - no secret
        story.run(PODS, patience=PATIENCE)
        say(f"with the extender, states up to {delay:g} s late", story, asked, running)
        assert not story.refused_by_promise()
        assert mispredictions(asked) == {}
        check(nodes, story)


def test_pods_that_are_bound_past_the_extender_are_refused_at_most_themselves(
    api: APIServer, parts: Parts, playing: Playing, folder: Path
) -> None:
    """Between such a pod's bind and the moment in which the extender hears of it lies a race that nobody can win."""
    with (
        playing(NODES, delay=2.0) as nodes,
        extender(folder, api.kubeconfig) as asked,
        scheduler(parts.scheduler, folder, api.kubeconfig, asked.url) as running,
    ):
        story = Story(api, nodes, random.Random(5), direct=0.05)  # noqa: S311 - no secret
        story.run(PODS, patience=PATIENCE)
        say("with pods bound past the extender", story, asked, running)
        raced = story.refused_by_promise()
        assert len(raced) <= max(len(story.past) // 5, 1), raced
        until(lambda: sum(mispredictions(asked).values()) == len(raced), "the extender counts them")
        # Healed: once all has been heard, nothing is assumed any more, and no more pods are refused.
        until(lambda: asked.metrics()["assumed"] == 0, "states name all pods")
        story.direct = 0.0
        story.run(PODS // 10, patience=PATIENCE)
        assert story.refused_by_promise() == raced
        check(nodes, story)


def test_without_the_extender_pods_are_refused(api: APIServer, parts: Parts, playing: Playing, folder: Path) -> None:
    with playing(NODES) as nodes, scheduler(parts.scheduler, folder, api.kubeconfig) as running:
        story = Story(api, nodes, random.Random("0.0"))  # noqa: S311 - no secret
        story.run(PODS, patience=PATIENCE)
        say("without the extender", story, None, running)
        assert sum(story.figures().refused.values()) > 0
        check(nodes, story)


def test_the_extender_adds_the_victims_that_the_scheduler_does_not_see(
    api: APIServer, parts: Parts, playing: Playing, folder: Path
) -> None:
    """Eight NUMA nodes with two pods of 15 CPUs each: for 24 CPUs the sum needs one victim, a NUMA node two."""
    with (
        playing(1) as nodes,
        extender(folder, api.kubeconfig) as asked,
        scheduler(parts.scheduler, folder, api.kubeconfig, asked.url),
    ):
        for number in range(16):
            api.create_pod(pod(f"small-{number}", {"limits": {"cpu": "15", "memory": "64Mi"}}))
        until(lambda: len(nodes.admitted) == 16, "the node is full")
        uid = api.create_pod(pod("large", {"limits": {"cpu": "24", "memory": "64Mi"}}, urgent=True))["metadata"]["uid"]
        until(lambda: uid in nodes.admitted, "the urgent pod runs")
        assert len(api.pods()) == 15
        assert asked.metrics()["requests_total{status=200,verb=preempt}"] >= 1
        assert nodes.refusals == []


def check(nodes: Nodes, story: Story) -> None:
    """Nodes never gave anything away twice, and enough was placed for the run to mean something."""
    assert [found for node in nodes.played.values() if (found := contradiction(node))] == []
    assert not [one for one in nodes.told if "available amounts are not published" in one.message], nodes.told
    assert len(nodes.admitted) > len(story.made) / 2


def mispredictions(asked: Extender) -> Mapping[str, float]:
    return {name: value for name, value in asked.metrics().items() if name.startswith("mispredictions_total")}


def say(what: str, story: Story, asked: Extender | None, running: Scheduler) -> None:
    """Print the figures of a run."""
    print(f"\n{what}, {len(story.nodes.played)} nodes up to {story.fullest:.0%} full:\n  {story.figures()}")
    seen = running.metrics()
    print(f"  scheduler: {_mean(seen, 'scheduling_algorithm_duration_seconds')} a decision")
    print(f"  publishers: {story.nodes.writes} writes")
    if asked is not None:
        found = asked.metrics()
        for verb in ("filter", "prioritize", "bind", "preempt"):
            print(f"  {verb}: {_mean(found, 'request_seconds', f'{{verb={verb}}}')}, {_within(found, verb)}")
        print(f"  engine runs {found['engine_runs']:.0f}, answers known {found['known_answers']:.0f}")
        print(f"  extender at most {asked.most_memory / 2**20:.0f} MiB, scheduler {peak_memory(running.pid) >> 20} MiB")


def _mean(found: Mapping[str, float], name: str, labels: str = "") -> str:
    count = found.get(f"{name}_count{labels}", 0)
    return f"{1000 * found.get(f'{name}_sum{labels}', 0) / max(count, 1):.1f} ms in the mean of {count:.0f}"


def _within(found: Mapping[str, float], verb: str) -> str:
    """Return the bound below which 99 of 100 requests were answered."""
    start, count = "request_seconds_bucket{le=", found.get(f"request_seconds_count{{verb={verb}}}", 0)
    bounds = [
        (float(name.removeprefix(start).split(",")[0]), value)
        for name, value in found.items()
        if name.startswith(start) and name.endswith(f"verb={verb}}}")
    ]
    return f"99 % within {next((f'{1000 * at:g} ms' for at, value in sorted(bounds) if value >= 0.99 * count), '?')}"
