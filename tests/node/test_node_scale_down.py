"""The scale-down delay: when CPUs go, and what a restart makes of it (resize.md section 5)."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.node.resizable import (
    DELAY_GATE,
    EXTENDED,
    SIXTEEN,
    TEN_CORES,
    config,
    cpus,
    pending,
    pod,
    resized,
    started,
    with_pods,
)

from mooring.engine.core.config import EXCLUSIVE_RESIZE, MooringConfig
from mooring.engine.core.moment import SECOND, Moment
from mooring.engine.core.pod import Pod
from mooring.engine.node import Node
from mooring.engine.node.resizing import reconcile
from mooring.engine.node.settings import Settings, build_settings

GRACE = 5
NODE, POD = "node", "pod"


@pytest.fixture(params=[NODE, POD])
def spelling(request: pytest.FixtureRequest) -> str:
    """The delay is the node's option or the pod's field."""
    return str(request.param)


def asked(spelling: str, cpu: int, uid: str = "p") -> Pod:
    return pod(cpu, uid=uid, grace=GRACE if spelling == POD else None)


def grown(spelling: str) -> Node:
    """Return a node at second 100 of its boot with a pod that has grown from two CPUs to four."""
    kubelet = config() if spelling == POD else config(scale_delay_time=f"{GRACE}s")
    node = with_pods(started(SIXTEEN, kubelet).at(Moment(100 * SECOND, "boot")), asked(spelling, 2))
    return resized(node, asked(spelling, 4))[0]


def after(node: Node, seconds: float) -> Node:
    return node.at(node.moment.plus(int(seconds * SECOND)))


def restarted(node: Node, settings: Settings | None = None) -> Node:
    found = node.restart(settings)
    assert isinstance(found, tuple), found
    assert found[1].refused == ()
    return found[0]


def seen(node: Node) -> tuple[str, str]:
    return cpus(node), pending(node)


def test_the_example_of_three_of_four() -> None:
    node = with_pods(started(TEN_CORES, config(scale_delay_time="5s")), pod(2))
    node, _ = resized(node, pod(4))
    node, _ = resized(node, pod(3))
    assert (seen(node), str(node.shared_pool)) == (("1-2,11-12", "1-2,11"), "0,3-10,13-19")
    node = reconcile(after(node, 5))
    assert (seen(node), str(node.shared_pool)) == (("1-2,11", "-"), "0,3-10,12-19")


def test_a_request_for_something_else_leaves_the_delay_alone(spelling: str) -> None:
    node, _ = resized(grown(spelling), asked(spelling, 3))
    more = replace(pod(3, gib=2), scale_down_grace=asked(spelling, 3).scale_down_grace)
    node, _ = resized(after(node, 4), more)
    assert seen(reconcile(after(node, 1))) == ("1-3", "-")


def test_without_its_gate_a_pods_delay_says_nothing() -> None:
    kubelet = config()
    kubelet = replace(kubelet, feature_gates={**kubelet.feature_gates, DELAY_GATE: False})
    node = with_pods(started(SIXTEEN, kubelet), pod(2, grace=5))
    node, _ = resized(resized(node, pod(4, grace=5))[0], pod(2, grace=5))
    assert seen(node) == ("1-2", "-")


# Restarts (resize.md section 5.3).


def with_granted(node: Node, granted: Pod) -> Node:
    """Return the node with another number on record, as a crash between the two files leaves it."""
    return replace(node, active={granted.uid: granted})


def test_a_pod_that_was_granted_all_again_needs_no_release() -> None:
    node, _ = resized(grown(POD), asked(POD, 2))
    assert seen(restarted(with_granted(node, asked(POD, 4)))) == ("1-4", "-")


def test_a_pod_that_was_granted_another_number_is_decided_about_anew() -> None:
    node, _ = resized(grown(POD), asked(POD, 2))
    node = restarted(after(with_granted(node, asked(POD, 3)), 4))
    assert seen(node) == ("1-4", "1-3")
    assert seen(reconcile(after(node, 4))) == ("1-4", "1-3")
    grows = restarted(with_granted(node, asked(POD, 6)))
    assert seen(grows) == ("1-6", "-")


def settings_with(extensions: frozenset[str]) -> Settings:
    """Return settings without the gate that lets pods have delays of their own."""
    kubelet = config()
    gates = {name: on for name, on in kubelet.feature_gates.items() if name != DELAY_GATE}
    found = build_settings(replace(kubelet, feature_gates=gates), MooringConfig(extensions), SIXTEEN)
    assert isinstance(found, Settings), found
    return found


def test_a_node_that_lost_the_gate_fails_the_pod_with_a_pending_release() -> None:
    node, _ = resized(grown(POD), asked(POD, 2))
    found = node.restart(settings_with(EXTENDED))
    assert isinstance(found, tuple)
    (refused,) = found[1].refused
    assert refused.rejection is not None
    assert (refused.rejection.reason, refused.rejection.message) == (
        "PodFeatureUnsupported",
        f"Pod requires node features that are not available: {DELAY_GATE}",
    )
    node, _ = resized(grown(POD), asked(POD, 6))
    assert seen(restarted(node, settings_with(EXTENDED))) == ("1-6", "-")


def test_a_restart_without_the_extension_gives_back_at_once(spelling: str) -> None:
    node, _ = resized(grown(spelling), asked(spelling, 2))
    assert seen(restarted(node, settings_with(frozenset({EXCLUSIVE_RESIZE})))) == ("1-2", "-")


def test_a_restart_without_any_extension_leaves_the_cpus_as_they_are(spelling: str) -> None:
    node, _ = resized(grown(spelling), asked(spelling, 2))
    assert seen(restarted(node, settings_with(frozenset()))) == ("1-4", "-")
