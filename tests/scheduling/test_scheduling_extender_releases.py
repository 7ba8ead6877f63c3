"""In one cluster with kubelets of several releases every node is predicted as its own kubelet decides."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.scheduling.extender_cluster import facts_with, guaranteed, started, state_of_node

from mooring.cluster.extender.deciding import Decider
from mooring.cluster.extender.view import ClusterView
from mooring.engine.core.config import MooringConfig
from mooring.engine.core.pod import Pod, PodResources
from mooring.engine.kubelet.shapes import shape_of
from mooring.engine.releases.catalog import RELEASES
from mooring.published.facts_document import digest_of, facts_document, facts_of
from mooring.published.objects import NodeFacts

MACHINE = "sockets=1 numa=2 cores=16 threads=1 memory=64Gi"


def facts_of_release(name: str) -> NodeFacts:
    facts = facts_with(MACHINE, topology_manager_policy="single-numa-node")
    return replace(facts, mooring=MooringConfig(release=RELEASES[name]))


def pod_level(uid: str, cpus: int) -> Pod:
    """Return a pod with resources of its own; up to 1.33 the managers go by its container's."""
    pod = guaranteed(uid, cpus)
    amounts = pod.containers[0].limits
    return replace(pod, resources=PodResources(amounts, amounts))


def test_two_nodes_of_different_releases_decide_differently_about_one_pod() -> None:
    view, asked = ClusterView(lambda: 0.0), pod_level("asked", 4)
    view.replace_pods([])
    admitted = {}
    for name in ("1.33", "1.37"):
        # As the extender reads it from the cluster.
        facts = facts_of(facts_document(facts_of_release(name)))
        kubelet = started(facts)
        for uid in ("a", "b"):
            kubelet, decision = kubelet.admit(guaranteed(f"{uid}-{name}", 5))
            assert decision.admitted
        view.put_facts(digest_of(facts), facts)
        view.put_state(name, 1, state_of_node(facts, kubelet, node=name))
        _, decision = kubelet.admit(asked)
        admitted[name] = decision.admitted
    assert admitted == {"1.33": False, "1.37": True}
    decider = Decider()
    reasons = {name: decider.verdict(view.outlook(name, asked), shape_of(asked)).reason for name in admitted}
    assert "TopologyAffinityError" in reasons["1.33"]
    assert not reasons["1.37"]


@pytest.mark.parametrize("name", list(RELEASES))
def test_facts_carry_the_release(name: str) -> None:
    facts = facts_of_release(name)
    assert facts_of(facts_document(facts)).mooring.release == RELEASES[name]
    assert len({digest_of(facts_of_release(one)) for one in RELEASES}) == len(RELEASES)
