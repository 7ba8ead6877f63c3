"""Traces of the extender: one span for each answered request, with the pod and counts of nodes."""

from __future__ import annotations

import json

import pytest
from tests.scheduling.extender_cluster import facts_with, guaranteed, started, state_of_node
from tests.scheduling.extender_requests import ask, ready_extender
from tests.service.otlp_receiver import attributes, receiving

from mooring.published.facts_document import digest_of
from mooring.service.logs import open_traces

FACTS = facts_with("sockets=2 numa=2 cores=64 threads=1 memory=64Gi", topology_manager_policy="single-numa-node")
AMOUNTS = {"cpu": "2", "memory": "1Gi"}
POD = {
    "metadata": {"name": "web", "namespace": "shop", "uid": "u1"},
    "spec": {"containers": [{"name": "a", "resources": {"requests": AMOUNTS, "limits": AMOUNTS}}]},
    "status": {"qosClass": "Guaranteed", "phase": "Pending"},
}


def test_each_answered_request_is_a_span_with_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    with receiving() as receiver:
        for name, value in receiver.environment.items():
            monkeypatch.setenv(name, value)
        traces = open_traces("mooring-extender", receiver.environment, pytest.fail)
        assert traces is not None
        extender = ready_extender(traces=traces)
        full, _ = started(FACTS).admit(guaranteed("full", 31, 31))
        for node, kubelet in (("a", started(FACTS)), ("b", full), ("c", started(FACTS))):
            extender.view.put_facts(digest_of(FACTS), FACTS)
            extender.view.put_state(node, 1, state_of_node(FACTS, kubelet, node=node))
        question = json.dumps({"Pod": POD, "NodeNames": ["a", "b", "c"]}).encode()
        for path in ("/filter", "/prioritize"):
            assert ask(extender, path, question)[0] == 200
        bind = {"PodName": "web", "PodNamespace": "shop", "PodUID": "u1", "Node": "b"}
        assert ask(extender, "/bind", json.dumps(bind).encode())[0] == 200
        assert ask(extender, "/filter", b"{")[0] == 400
        nameless = {**POD, "metadata": {"name": None}}
        ask(extender, "/filter", json.dumps({"Pod": nameless, "NodeNames": []}).encode())
        extender.stop()
        traces.close()
        filtered, *_ = receiver.named("extender filter")
        pod = {"k8s.namespace.name": "shop", "k8s.pod.name": "web", "k8s.pod.uid": "u1"}
        assert attributes(filtered) == {**pod, "mooring.nodes.passed": 2, "mooring.nodes.rejected": 1}
        [prioritized] = receiver.named("extender prioritize")
        scored = attributes(prioritized)
        assert scored == {**pod, "mooring.nodes.scored": 3, "mooring.score.highest": scored["mooring.score.highest"]}
        assert scored["mooring.score.highest"] > 0
        [bound] = receiver.named("extender bind")
        assert attributes(bound) == {**pod, "k8s.node.name": "b", "mooring.decision": "refused"}
        assert bound.status.message
