"""Which running pods a plan may move, and why it leaves others alone.

Source: ``kubectl drain`` v1.37 (pods of DaemonSets, static pods, pods without a controller); policy/v1.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from mooring.fleet.live.budgets import EVERYTHING, DisruptionBudget
from mooring.fleet.live.pod_object import Fixed, LivePod
from mooring.fleet.live.reading import LiveCluster
from mooring.inputs.pods.pod_relations import PodSelector


@dataclass(frozen=True, slots=True)
class MoveRules:
    """What a plan may move."""

    priority: int
    """Pods of a higher priority are left alone."""
    selector: PodSelector = EVERYTHING
    """Of labels; pods without these are left alone."""


def fixed(pod: LivePod, live: LiveCluster, rules: MoveRules) -> Fixed | None:
    """Return why a pod is left alone; None for one that may be moved."""
    if pod.leaving:
        return Fixed.LEAVING
    if (stays := pod.stays) is not None:
        return stays
    if not pod.owner:
        return Fixed.ALONE
    if not rules.selector.matches(pod.pod.namespace, pod.labels):
        return Fixed.NOT_CHOSEN
    if pod.pod.priority > rules.priority:
        return Fixed.PRIORITY
    if _is_blocked(pod, live.budgets):
        return Fixed.BUDGET
    asked = pod.asked
    return Fixed.NOT_READ if asked.fields.ignored or asked.relations.has_required_terms or pod.pod.claims else None


def _is_blocked(pod: LivePod, budgets: tuple[DisruptionBudget, ...]) -> bool:
    return any(one.blocks(pod) for one in budgets)


def fixed_counts(live: LiveCluster, rules: MoveRules) -> Mapping[Fixed, int]:
    """Return how many pods on nodes are left alone, by reason."""
    found = (fixed(pod, live, rules) for node, pods in live.pods.items() if node for pod in pods)
    return Counter(one for one in found if one is not None)
