"""Control groups against assignments: who may run on whose CPUs, and which container is not where it should be."""

from __future__ import annotations

from collections.abc import Iterator

from mooring.core.cpuset import CPUSet
from mooring.core.machine import Finding
from mooring.discovery.cgroups import ControlGroup
from mooring.discovery.isolation import IsolationFacts
from mooring.explain.phrases import plural
from mooring.planner.isolation.holders import Assignments, cpus_text, named


def group_findings(facts: IsolationFacts, assignments: Assignments) -> Iterator[Finding]:
    """Compare every group that has processes with what the kubelet has given away."""
    exclusive = assignments.exclusive
    if not exclusive:
        return
    if facts.groups is None:
        message = "The machine's files hold no cpusets of control groups, so that these were not checked."
        yield Finding("info", "sys/fs/cgroup", message, "MOOR-616")
        return
    kept = facts.words.isolated if facts.words is not None else CPUSet()
    yield from _hosts([group for group in facts.groups if not group.pod], exclusive - kept, assignments)
    pods = [group for group in facts.groups if group.pod]
    yield from _strangers(pods, assignments)
    yield from _misplaced(pods, assignments)


def _hosts(groups: list[ControlGroup], exclusive: CPUSet, assignments: Assignments) -> Iterator[Finding]:
    """Tell which processes outside of pods may run there. Isolated CPUs are reached only by who asks for them."""
    hit = [group for group in groups if group.cpus & exclusive]
    if not hit:
        return
    touched = CPUSet()
    for group in hit:
        touched |= group.cpus & exclusive
    tops = list(dict.fromkeys(group.path.split("/")[0] for group in hit))
    message = (
        f"Processes of {named(tops)} ({plural(len(hit), 'control group')}) may run on "
        f"{cpus_text(touched)}, held by {named(assignments.labels(touched))}."
    )
    yield Finding("warning", str(touched), message, "MOOR-611")


def _strangers(groups: list[ControlGroup], assignments: Assignments) -> Iterator[Finding]:
    """Tell which containers of pods without these CPUs may run there; sandboxes (pause) are among them and sleep."""
    by_pod: dict[str, CPUSet] = {}
    for group in groups:
        foreign = CPUSet()
        for holder in assignments.holders:
            if holder.uid != group.pod:
                foreign |= holder.cpus
        reached = group.cpus & foreign
        if reached:
            by_pod[group.pod] = by_pod.get(group.pod, CPUSet()) | reached
    if by_pod:
        touched = CPUSet()
        for cpus in by_pod.values():
            touched |= cpus
        who = named([(assignments.pods or {}).get(uid, uid) for uid in by_pod])
        message = (
            f"Containers of {who} may run on {cpus_text(touched)}, held by {named(assignments.labels(touched))} "
            "(a pause container among them does no harm)."
        )
        yield Finding("warning", str(touched), message, "MOOR-612")


def _misplaced(groups: list[ControlGroup], assignments: Assignments) -> Iterator[Finding]:
    """Tell which holders have no container with exactly their CPUs: the runtime was told something else, or nothing."""
    seen: dict[str, list[CPUSet]] = {}
    for group in groups:
        seen.setdefault(group.pod, []).append(group.cpus)
    for holder in assignments.holders:
        sets = seen.get(holder.uid)
        if sets and not any(cpus == holder.cpus for cpus in sets):
            message = (
                f"{holder.label} holds {cpus_text(holder.cpus)}, but no container of its pod is confined to them "
                f"(found: {named([str(cpus) or 'none' for cpus in sets])})."
            )
            yield Finding("warning", holder.label, message, "MOOR-613")
