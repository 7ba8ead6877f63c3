"""Mixed containers: who is one, and which annotations nobody can have meant."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.agent.small_node import CONFIG, INFO, guaranteed, shared

from mooring.engine.core.config import MIXED_CPUS, KubeletConfig, MooringConfig
from mooring.engine.core.errors import InputError
from mooring.engine.core.pod import Pod, PodResources, QoS
from mooring.engine.node import Node
from mooring.engine.node.providers import ANNOTATION, asks_to_mix, check_mixing, is_mixed

EXTENDED = MooringConfig(extensions=frozenset({MIXED_CPUS}))
ASKS = {ANNOTATION: "true"}


def node(mooring: MooringConfig = EXTENDED, config: KubeletConfig = CONFIG) -> Node:
    return Node.fresh(INFO, config, mooring)


def mixed(on: Node, pod: Pod, claimed: int = 0) -> list[str]:
    """Admit a pod and return which of its containers are mixed."""
    after, decision = on.admit(pod)
    assert decision.admitted
    held = after.cpu.assignments.get(pod.uid, {})
    return [one.name for one in pod.containers if is_mixed(on.settings, pod, one, held.get(one.name, 0), claimed)]


def test_the_pods_annotation_speaks_for_containers_with_cpus_of_their_own() -> None:
    assert mixed(node(), guaranteed("a", "2", "500m", annotations=ASKS)) == ["main"]
    assert mixed(node(), replace(shared("s"), annotations=ASKS)) == []


def test_without_extension_or_annotation_nobody_is_mixed() -> None:
    assert mixed(node(MooringConfig()), guaranteed("a", "2", annotations=ASKS)) == []
    assert mixed(node(), guaranteed("a", "2")) == []


def test_a_containers_own_annotation_wins_over_the_pods() -> None:
    one = {f"{ANNOTATION}.c1": "true"}
    assert mixed(node(), guaranteed("a", "1", "1", annotations=one)) == ["c1"]
    assert mixed(node(), guaranteed("a", "1", "1", annotations={**ASKS, f"{ANNOTATION}.c1": "false"})) == ["main"]


def test_cpus_of_a_claim_are_cpus_of_its_own() -> None:
    assert mixed(node(), replace(shared("s"), annotations=ASKS), claimed=0b10) == ["main"]


def test_who_shares_the_cpus_of_his_pod_stays_within_them() -> None:
    gates = {"PodLevelResources": True, "PodLevelResourceManagers": True}
    config = replace(CONFIG, feature_gates=gates, topology_manager_scope="pod")
    plain = guaranteed("a", "2", "500m", annotations=ASKS)
    whole = {**plain.containers[0].limits, "cpu": guaranteed("x", "3").containers[0].limits["cpu"]}
    whole["memory"] = guaranteed("x", "1").containers[0].limits["memory"].__class__.parse("1Gi")
    pod = replace(plain, resources=PodResources(whole, whole), qos=QoS.GUARANTEED)
    assert mixed(node(config=config), pod) == ["main"]


@given(st.text(max_size=8))
def test_only_true_asks_and_only_true_and_false_are_answers(text: str) -> None:
    word = text.strip().lower()
    assert asks_to_mix({ANNOTATION: text}, "main") == (word == "true")
    if word in ("true", "false"):
        check_mixing({ANNOTATION: text}, ["main"])
    else:
        with pytest.raises(InputError):
            check_mixing({ANNOTATION: text}, ["main"])


@pytest.mark.parametrize(
    ("annotations", "words"),
    [
        (
            {ANNOTATION: "yes"},
            'metadata.annotations.mooring/mixed-cpus: \'yes\' is neither true nor false; write "true" or "false"',
        ),
        (
            {f"{ANNOTATION}.mian": "true"},
            "metadata.annotations.mooring/mixed-cpus.mian: there is no such container; did you mean main?",
        ),
        (
            {f"{ANNOTATION}.zzzz": "true"},
            "metadata.annotations.mooring/mixed-cpus.zzzz: there is no such container; the pod has main, c1",
        ),
    ],
)
def test_a_mistake_is_reported_with_its_annotation_and_a_remedy(annotations: dict[str, str], words: str) -> None:
    with pytest.raises(InputError) as raised:
        check_mixing(annotations, ["main", "c1"])
    assert str(raised.value) == words


def test_annotations_of_others_that_look_alike_are_not_looked_at() -> None:
    check_mixing({f"{ANNOTATION}-of-somebody": "perhaps", "mooring/assigned": "true"}, ["main"])
