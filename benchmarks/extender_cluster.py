"""A cluster for the extender's figures: any number of nodes, a given number of kinds and of different states."""

from __future__ import annotations

from dataclasses import replace

from shapes import machine, pod, started, whole

from mooring.cluster.extender.answers import Answers
from mooring.cluster.extender.deciding import Decider
from mooring.cluster.extender.options import WEIGHTS
from mooring.cluster.extender.pods import Seen, Shapes
from mooring.cluster.extender.view import ClusterView
from mooring.engine.checkpoint.cpu_file import cpu_state_text
from mooring.engine.checkpoint.memory_file import memory_state_text
from mooring.engine.core.config import MooringConfig
from mooring.engine.kubelet.kubelet import Kubelet, StateTexts
from mooring.published.facts_document import digest_of
from mooring.published.objects import NodeFacts, NodeState, PodKey

NUMA_NODES = 4
TOTAL = NUMA_NODES * 32


def cluster(nodes: int, states: int, kinds: int = 1) -> Answers:
    """Return an extender that knows the nodes; each has up to 24 pods of 4 CPUs, and all outlooks are made.

    Args:
        nodes: how many.
        states: how many of them differ in what their pods have; further ones are equal to one of these.
        kinds: how many configurations the nodes have, dealt out in turn; a divisor of the states.
    """
    info, config = machine(NUMA_NODES), whole("single-numa-node", TOTAL)
    facts = [NodeFacts(info, replace(config, max_pods=110 + kind), MooringConfig()) for kind in range(kinds)]
    digests, shapes = [digest_of(one) for one in facts], Shapes()
    view = ClusterView(lambda: 0.0)
    for digest, one in zip(digests, facts, strict=True):
        view.put_facts(digest, one)
    templates = [_filled(number) for number in range(states)]
    for number in range(nodes):
        name, template = f"node-{number}", templates[number % states]
        uids = {uid: f"{number:08x}-0000-4000-8000-{place:012x}" for place, uid in enumerate(template.node.active)}
        for uid, own in uids.items():
            running = replace(template.node.active[uid], uid=own, name=f"pod-{own[:8]}-{own[-4:]}")
            view.put_pod(Seen(shapes.shared(running), name))
        keys = tuple(PodKey("default", f"pod-{own[:8]}-{own[-4:]}", own) for own in uids.values())
        digest = digests[number % kinds]
        view.put_state(name, number, NodeState(name, digest, _files(template, uids), pods=keys))
    for name in view.changed_nodes():
        outlook = view.outlook(name)
        if outlook.kind is None:
            raise ValueError(outlook.trouble)
    return Answers(view, Decider(), WEIGHTS, shapes)


def _filled(number: int) -> Kubelet:
    kubelet = started(machine(NUMA_NODES), whole("single-numa-node", TOTAL), 0.0)
    for place in range(number % 24):
        kubelet, _ = kubelet.admit(pod(f"template-{place:04d}-end", 2 + (place + number) % 4))
    kubelet, _ = kubelet.remove(f"template-{number % 7:04d}-end")
    return kubelet


def _files(template: Kubelet, uids: dict[str, str]) -> StateTexts:
    """Return the files of a node whose pods have other uids."""
    cpu, memory, gates = template.node.cpu, template.node.memory, template.settings.gates
    pod_level = gates["PodLevelResourceManagers"]
    cpu = replace(cpu, assignments={uids[uid]: held for uid, held in cpu.assignments.items()}, baselines={})
    memory = replace(memory, assignments={uids[uid]: held for uid, held in memory.assignments.items()})
    baselines = gates["InPlacePodVerticalScalingExclusiveCPUs"]
    return StateTexts(
        cpu_state_text(cpu, pod_level=pod_level, baselines=baselines), memory_state_text(memory, pod_level=pod_level)
    )
