"""The node of another configuration: it has the pods of the real one, also where no steps tell of them."""

from __future__ import annotations

from tests.shadow.observing import STATIC, node
from tests.shadow.test_shadow_watching import LIMITED, Watching

from mooring.engine.core.config import KubeletConfig
from mooring.engine.core.machine import Finding
from mooring.monitoring.shadow.shadow import PATIENCE, Shadow
from mooring.monitoring.shadow.sources import BoundPods
from mooring.monitoring.shadow.tally import new_tally
from mooring.published.shadow_document import WouldBePart


def others_pods(watching: Watching) -> list[str]:
    assert watching.shadow.would_be is not None
    return sorted(watching.shadow.would_be.kubelet.node.active)


def test_pods_of_which_no_order_tells_come_and_go_on_the_other_node() -> None:
    watching = Watching(node(), proposed=LIMITED)
    watching.watched.admit("old", "2")
    watching.wait()
    for uid, cpus in (("web", "2"), ("wide", "10"), ("secret", "1")):
        assert watching.watched.admit(uid, cpus)
    # The API server does not tell of a pod that the kubelet lists: nothing can be said of what happened.
    secret = watching.watched.objects.pop("secret")
    watching.watched.end("old")
    watching.wait(PATIENCE)
    assert watching.shadow.tally.unknown == 3
    assert others_pods(watching) == ["web"]
    watching.watched.objects["secret"] = secret
    watching.wait(PATIENCE)
    assert others_pods(watching) == ["secret", "web"]
    other = watching.shadow.tally.would_be
    assert other is not None
    assert (other.refused, other.refusals) == (["default/wide"], 1), "it is asked once about a pod that it refuses"


def test_a_pod_that_the_kubelet_refused_does_not_stay_on_the_other_node() -> None:
    watching = Watching(node(LIMITED), proposed=STATIC)
    watching.watched.admit("wide", "10")
    watching.wait()
    other = watching.shadow.tally.would_be
    assert other is not None
    assert other.admitted == ["default/wide"]
    assert others_pods(watching) == []


def test_a_pod_that_is_not_decided_at_the_begin_is_asked_about_once() -> None:
    watched = node()
    assert watched.admit_pod("shared", [], [{"name": "c0", "resources": {"requests": {"cpu": "10"}}}])
    status = watched.objects["shared"].pop("status")
    watching = Watching(watched, proposed=LIMITED)
    assert others_pods(watching) == []
    watched.objects["shared"]["status"] = {**status, "qosClass": "Burstable"}
    watching.wait()
    assert others_pods(watching) == ["shared"]
    other = watching.shadow.tally.would_be
    assert other is not None
    assert (other.refused, [(one.refused, one.refusals) for one in other.days]) == ([], [(0, 0)])


def test_counts_of_an_earlier_configuration_are_not_those_of_one_that_does_not_start() -> None:
    watched, told = node(), list[Finding]()
    tally = new_tally("node", "", "2026-01-01T00:00:00Z")
    tally.would_be = WouldBePart(1, ["default/web"], [], "2026-01-01T00:00:00Z", [], "earlier")
    source = Watching(watched).source
    pods = BoundPods(lambda: watched.gates)
    Shadow(source, pods, tally, proposed=KubeletConfig(cpu_manager_policy="static"), report=told.append).step()
    assert [one.subject for one in told] == ["--would-be"]
    assert tally.would_be is None
