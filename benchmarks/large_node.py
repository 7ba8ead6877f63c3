"""How long ``capacity`` and ``doctor`` take on a large node (docs/explanation/performance.md).

    python benchmarks/large_node.py [POLICY ...]

For each topology policy, with 16 and 32 NUMA nodes: the seconds of CPU time for one more small pod, one more large
pod, and the state files.
"""

from __future__ import annotations

import sys
from dataclasses import replace
from time import process_time

from shapes import machine, pod, whole

from mooring.answers.base.plan import Question
from mooring.answers.capacity.answer import capacity_of
from mooring.answers.capacity.eviction import Subject
from mooring.answers.doctor.diagnosis import diagnose
from mooring.engine.core.config import KubeletConfig, MooringConfig
from mooring.engine.core.machine import Machine
from mooring.engine.core.pod import Pod
from mooring.engine.kubelet.kubelet import Kubelet, StateTexts
from mooring.engine.kubelet.start import start_kubelet

CPUS = 4096
PODS = 400
SIZES = (4, 8, 12, 6, 10)
"""CPUs of the pods in turn: 3200 together."""
SMALL, LARGE = pod("small", 4, "4Gi"), pod("large", 300, "300Gi")


def config_of(policy: str) -> KubeletConfig:
    """Return the configuration of a policy; ``align-by-socket`` is best-effort with this option."""
    if policy != "align-by-socket":
        return replace(whole(policy, CPUS), max_pods=10_000)
    gates, options = {"CPUManagerPolicyAlphaOptions": True}, {policy: "true"}
    made = whole("best-effort", CPUS)
    return replace(made, max_pods=10_000, cpu_manager_policy_options=options, feature_gates=gates)


def filled(nodes: int, policy: str) -> tuple[Question, Kubelet]:
    """Return the question about a node with all its pods, and the kubelet that runs them."""
    description = machine(nodes, CPUS // nodes)
    start = start_kubelet(description, config_of(policy), MooringConfig(), StateTexts())
    assert isinstance(start, Kubelet), start
    kubelet = start
    for number in range(PODS):
        kubelet, _ = kubelet.admit(pod(f"pod-{number:03d}", SIZES[number % len(SIZES)], "1Gi"))
    active = tuple(kubelet.node.active.values())
    question = Question(Machine("large", description), config_of(policy), MooringConfig(), (), active=active)
    return replace(question, files=kubelet.files), kubelet


def seconds(question: Question, wanted: Pod) -> tuple[float, int]:
    """Return the CPU time of one answer, and how many more fit."""
    begin = process_time()
    found = capacity_of(Subject(wanted, question))
    return process_time() - begin, len(found.replicas)


def main(policies: list[str]) -> None:
    """Measure and print."""
    print(f"{'policy':18} {'nodes':>5} {'4 CPUs':>8} {'fit':>4} {'300 CPUs':>8} {'fit':>4} {'doctor':>8}")
    for policy in policies:
        for nodes in (16, 32):
            question, _ = filled(nodes, policy)
            small, large = seconds(question, SMALL), seconds(question, LARGE)
            begin = process_time()
            diagnose(question)
            print(f"{policy:18} {nodes:5} {small[0]:8.2f} {small[1]:4} {large[0]:8.2f} {large[1]:4} ", end="")
            print(f"{process_time() - begin:8.2f}", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:] or ["best-effort", "restricted", "single-numa-node", "none", "align-by-socket"])
