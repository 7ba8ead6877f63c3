"""What is said of pods beyond their own answers: what a start does to those that run, and which CPUs they name."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import reduce
from operator import or_

from mooring.answers.base.answering import Answer
from mooring.engine.core.bits import CPUMask
from mooring.engine.core.config import MooringConfig
from mooring.engine.core.cpuset import CPUSet
from mooring.engine.core.decision import Placement
from mooring.engine.core.errors import KubeletCrashError
from mooring.engine.core.machine import Finding
from mooring.engine.core.pod import Pod
from mooring.engine.kubelet.events import Readmit, run
from mooring.engine.kubelet.kubelet import Kubelet
from mooring.engine.kubelet.start import NotStarted, Start, crash_at_start, refusal_of, restart_kubelet
from mooring.engine.node import Decision
from mooring.engine.node.node import placements_of
from mooring.explanations.phrases import joined
from mooring.explanations.remarks import other_cores

RESTART = "MOOR-547"
OTHER_CORES = "MOOR-548"
STATE_FILES = "state files"
_DEFECTS = ("pod-restart", "socket-restart", "memory-nil-hints")
"""Defects by which a start rejects or moves pods that run (spec: README.md section 5)."""


def restart_findings(
    begun: Kubelet, answers: Iterable[Answer], kubelet: Kubelet, started: Callable[[MooringConfig], Start]
) -> list[Finding]:
    """Name the running pods that a defect of a restart moves or rejects, CPUs that it loses, and a later start.

    Args:
        begun: the kubelet that has started again, before the first answer.
        answers: in order.
        kubelet: the kubelet after all.
        started: starts the same kubelet with other defects fixed.
    """
    found, running, cpu = [], [answer for answer in answers if answer.running], kubelet.node.cpu
    owned = reduce(or_, cpu.pods.values(), cpu.default | cpu.held | cpu.withheld)
    changed = []
    for answer in running:
        held, whole = placements_of(begun.node.providers, answer.pod)
        has_own = any(one.cpus or one.mems for one in (whole, *held.values()))
        if has_own and not _is_kept(begun, answer.pod, answer.decision):
            changed.append((answer, _cpus_of(held, whole)))
    fixed = _kept_if_fixed(kubelet.mooring, [answer.pod for answer in running], started) if changed else {}
    for answer, before in changed:
        defects = [f"defect {name}" for name, uids in fixed.items() if answer.pod.uid in uids]
        after, lost = _cpus_of(answer.decision.containers, answer.decision.pod), CPUSet(CPUMask(before.mask & ~owned))
        moves = f"moves it: CPUs {before} become {after or 'shared ones'}" if before != after else "moves its memory"
        message = f"a start of the kubelet on its state {moves if answer.admitted else 'rejects it, although it runs'}"
        message += f"; CPUs {lost} are lost, in no pool and of no container" if lost else ""
        message += f" ({joined(defects)})" if defects else ""
        if defects or lost:
            found.append(Finding("warning", f"{answer.pod.namespace}/{answer.pod.name}", message, RESTART))
    as_wholes = begun.node.cpu.pods.keys() | begun.node.memory.pods.keys()
    if changed or any(answer.pod.uid in as_wholes for answer in running):
        error = next_start_error(kubelet)
        message = f"after a start of the kubelet on them, its next start fails: {error}"
        return [*found, Finding("warning", STATE_FILES, message, RESTART)] if error else found
    return found


def _kept_if_fixed(
    mooring: MooringConfig, pods: Iterable[Pod], started: Callable[[MooringConfig], Start]
) -> dict[str, set[str]]:
    """Return the uids of the running pods that keep what they have at this start if a defect is fixed, by its name."""
    kept, running = {}, [Readmit(pod) for pod in pods]
    for defect in _DEFECTS:
        start = started(replace(mooring, fixed_defects=mooring.fixed_defects | {defect}))
        if isinstance(start, NotStarted):
            continue
        decided = [one.result.admissions[0] for one in run(start, running)]
        kept[defect] = {one.pod.uid for one in decided if _is_kept(start, one.pod, one.decision)}
    return kept


def _is_kept(begun: Kubelet, pod: Pod, decision: Decision) -> bool:
    kept = dict(decision.containers), decision.pod
    return decision.admitted and placements_of(begun.node.providers, pod) == kept


def _cpus_of(containers: Mapping[str, Placement], pod: Placement) -> CPUSet:
    """Return the exclusive CPUs of a pod, those of the pod as a whole included."""
    return reduce(or_, (one.cpus for one in containers.values()), pod.cpus)


def next_start_error(kubelet: Kubelet) -> str:
    """Return why a kubelet does not start again on its own state files; empty when it does."""
    try:
        refusal = refusal_of(restart_kubelet(kubelet))
    except KubeletCrashError as error:
        refusal = crash_at_start(error)
    return "" if refusal is None else refusal.message


def core_list_findings(answers: Iterable[Answer]) -> list[Finding]:
    """Name the containers that name CPUs which they do not get."""
    named = ((one.pod, text) for one in answers if one.admitted for text in other_cores(one.pod, one.decision))
    return [Finding("info", f"{pod.namespace}/{pod.name}", text, OTHER_CORES) for pod, text in named]
