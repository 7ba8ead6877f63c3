"""Resized containers of a node in words: what each has, what it got at first, and what it gives back and when.

The lines stand under the picture and under the tables of a plan.
"""

from __future__ import annotations

from collections.abc import Iterator

from mooring.core.bits import list_text
from mooring.core.moment import SECOND, Moment
from mooring.cpumanager.state import PreAssignment
from mooring.kubelet.kubelet import Kubelet
from mooring.planner.plan import Plan


def resize_lines(plan: Plan, now: Moment | None = None) -> list[str]:
    """Return one line for each container with other CPUs than at first, or about to have others.

    Without the extension exclusive-resize there is none: nothing else moves a container's CPUs.

    Args:
        plan: what was decided.
        now: of the machine's present boot, where that is known.
    """
    kubelet = plan.kubelet
    if kubelet is None or kubelet.settings.cpu is None or not kubelet.settings.cpu.resizes:
        return []
    return list(_lines(plan, kubelet, now))


def _lines(plan: Plan, kubelet: Kubelet, now: Moment | None) -> Iterator[str]:
    pods = {answer.pod.uid: answer.pod for answer in plan.answers}
    state = kubelet.node.cpu
    for uid, held in state.assignments.items():
        pod = pods.get(uid)
        name = f"{pod.namespace}/{pod.name}" if pod is not None else uid
        for container, cpus in held.items():
            baseline = state.baselines.get(uid, {}).get(container, cpus)
            pre = state.pre_assignments.get(uid, {}).get(container)
            if baseline == cpus and pre is None:
                continue
            first = f" (at first {list_text(baseline)})" if baseline != cpus else ""
            pending = f"; {_leaving(cpus, pre, (now, kubelet.node.moment))}" if pre is not None else ""
            yield f"{name}/{container} has CPUs {list_text(cpus)}{first}{pending}."


def _leaving(cpus: int, pre: PreAssignment, clocks: tuple[Moment | None, ...]) -> str:
    leaving = cpus & ~pre.cpus
    one = leaving.bit_count() == 1
    return f"{'CPU' if one else 'CPUs'} {list_text(leaving)} {'goes' if one else 'go'} back {_when(pre, clocks)}"


def _when(pre: PreAssignment, clocks: tuple[Moment | None, ...]) -> str:
    """Say when a delay is over: from now where a clock of the same boot is known."""
    now = next((clock for clock in clocks if clock is not None and clock.boot == pre.apply_at.boot), None)
    if now is None:
        return f"{_seconds(pre.apply_at.since_boot)} after the machine started (boot {pre.apply_at.boot:.8})"
    if pre.apply_at.has_come(now):
        return "at the next reconciliation"
    return f"in {_seconds(pre.apply_at.since_boot - now.since_boot)} or a little later"


def _seconds(nanoseconds: int) -> str:
    return f"{nanoseconds / SECOND:.1f}".removesuffix(".0") + " s"
