"""CPUs that are offline travel with a node's state: whoever predicts decides as the node does."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.node.hotpluggable import pod

from mooring.core.config import CPU_HOTPLUG, KubeletConfig, MooringConfig
from mooring.core.errors import InputError
from mooring.discovery.compact import parse_compact
from mooring.kubelet.kubelet import Kubelet, StateTexts
from mooring.kubelet.start import start_kubelet
from mooring.publisher.observation import EngineObserver
from mooring.publisher.restored import NodeKind, kind_of, restored
from mooring.publisher.state_document import state_document, state_of

INFO = parse_compact("sockets=1 numa=2 cores=8 threads=1 memory=8Gi").info
CONFIG = KubeletConfig(cpu_manager_policy="static", reserved_system_cpus="0", eviction_hard={})


def published() -> Kubelet:
    """Return a node that has lost a CPU of a pod: another one stands in."""
    start = start_kubelet(INFO, CONFIG, MooringConfig(frozenset({CPU_HOTPLUG})), StateTexts())
    assert start.kubelet is not None
    kubelet, decision = start.kubelet.admit(pod(2))
    assert decision.admitted
    kubelet, change = kubelet.offline(1 << min(decision.containers["a"].cpus))
    assert change.broken[0].replaced_by
    return kubelet


def test_the_node_that_is_predicted_has_the_same_cpus() -> None:
    kubelet = published()
    seen = EngineObserver("n").observe(kubelet)
    state = state_of(state_document(seen.state))
    assert state == seen.state
    kind = kind_of(seen.state.facts, seen.facts)
    assert isinstance(kind, NodeKind)
    found = restored(kind, state, dict(kubelet.node.active))
    assert not isinstance(found, str)
    # Without resizes no state file keeps what containers got at first.
    assert found.node.cpu == replace(kubelet.node.cpu, baselines={})
    for need in range(1, 8):
        asked = pod(need, uid="asked")
        assert found.node.decide(asked)[1].admitted == kubelet.node.decide(asked)[1].admitted == (need <= 4)


def test_a_state_without_offline_cpus_says_nothing_of_them() -> None:
    start = start_kubelet(INFO, CONFIG, MooringConfig(), StateTexts())
    assert start.kubelet is not None
    spec = state_document(EngineObserver("n").observe(start.kubelet).state)["spec"]
    assert not {"offline", "displaced"} & spec.keys()


def test_a_state_of_another_extension_is_a_reason() -> None:
    kubelet = published()
    seen = EngineObserver("n").observe(kubelet)
    without = kind_of("0", type(seen.facts)(seen.facts.machine, seen.facts.config, MooringConfig()))
    assert isinstance(without, NodeKind)
    found = restored(without, seen.state, {})
    assert isinstance(found, str)
    assert CPU_HOTPLUG in found


def test_offline_cpus_that_cannot_be_read_are_named() -> None:
    document = state_document(EngineObserver("n").observe(published()).state)
    document["spec"]["offline"] = "3-x"
    with pytest.raises(InputError, match=r"offline"):
        state_of(document)
