"""Answers of a plan in which CPUs go offline (extension cpu-hotplug)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from mooring.core.cpuset import CPUSet
from mooring.cpumanager.policy import withheld
from mooring.cpumanager.requests import exclusive_cpus
from mooring.explain.remarks import left_out_words, loss_words
from mooring.extensions.offline import CPUsBroken, CPUsReplaced, OfflineCPUsLeftOut
from mooring.kubelet.kubelet import Kubelet

if TYPE_CHECKING:
    from mooring.planner.answering import Answer


def corrected(answers: Iterable[Answer], kubelet: Kubelet, facts: Sequence[object]) -> list[Answer]:
    """Return the answers with the CPUs that pods have now, where they lost some or got stand-ins for lost ones."""
    return [_corrected(answer, kubelet, facts) for answer in answers]


def _corrected(answer: Answer, kubelet: Kubelet, facts: Sequence[object]) -> Answer:
    found = [fact for fact in facts if isinstance(fact, CPUsBroken | CPUsReplaced) and fact.pod == answer.pod.uid]
    if not found:
        return answer
    held = kubelet.node.cpu.assignments.get(answer.pod.uid, {})
    decision = answer.decision
    containers = {
        name: replace(placement, cpus=CPUSet(held.get(name, placement.cpus.mask)))
        for name, placement in decision.containers.items()
    }
    whole = replace(decision.pod, cpus=CPUSet(kubelet.node.cpu.pods.get(answer.pod.uid, decision.pod.cpus.mask)))
    return replace(
        answer,
        decision=replace(decision, containers=containers, pod=whole),
        why=" ".join([answer.why, *(f"{loss_words(fact)}." for fact in found)]),
        facts=(*answer.facts, *found),
    )


def with_left_out(kubelet: Kubelet, answer: Answer) -> Answer:
    """Return the answer for a pod; that of one without room also says which CPUs could not be had."""
    policy, state = kubelet.settings.cpu, kubelet.node.cpu
    if policy is None or answer.admitted or not state.offline:
        return answer
    if not any(exclusive_cpus(answer.pod, one, policy.gates) for one in answer.pod.containers):
        return answer
    pool = state.default & ~policy.reserved
    fact = OfflineCPUsLeftOut(answer.pod.uid, pool & state.offline, pool & withheld(policy, state) & ~state.offline)
    if not fact.offline and not fact.kept:
        return answer
    return replace(answer, why=f"{answer.why} {left_out_words(fact)}.", facts=(*answer.facts, fact))
