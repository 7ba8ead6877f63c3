"""One sentence in plain words, with its code: why a pod was placed, shared or rejected.

Made from the facts that the engine reported during the decision and from the machine; nothing is guessed.
"""

from __future__ import annotations

import re

from mooring.core.decision import Rejection
from mooring.explain import reason as code
from mooring.explain.circumstances import Circumstances
from mooring.explain.phrases import size
from mooring.explain.reason import Reason
from mooring.explain.why_admitted import why_admitted
from mooring.explain.why_affinity import why_affinity
from mooring.explain.why_allocation import why_empty_shared_pool, why_smt, why_unexpected
from mooring.explain.why_plugins import with_withheld
from mooring.node import Decision
from mooring.node.admission import TOPOLOGY_AFFINITY_ERROR

__all__ = ["Circumstances", "Reason", "why", "why_crash", "why_out_of"]

_OUT_OF = re.compile(r"resource: (\S+), requested: (\d+), used: (\d+), capacity: (\d+)")


def why(decision: Decision, circumstances: Circumstances) -> Reason:
    """Return the reason for one decision of the managers."""
    if decision.endless is not None:
        return Reason(
            code.NEVER_RETURNS,
            f"The kubelet would never return from this admission (known defect {decision.endless.defect}); "
            "nothing was decided.",
            "Restart the kubelet without distribute-cpus-across-numa, or drain the node first so that no core is "
            "half used.",
        )
    if decision.admitted:
        return why_admitted(decision, circumstances)
    return with_withheld(_why_refused(decision, circumstances), circumstances.facts)


def _why_refused(decision: Decision, circumstances: Circumstances) -> Reason:
    if decision.reason == TOPOLOGY_AFFINITY_ERROR:
        return why_affinity(decision, circumstances)
    if decision.reason == "SMTAlignmentError":
        return why_smt(decision, circumstances)
    if decision.reason == "EmptyPodSharedPoolError":
        return why_empty_shared_pool(decision)
    return why_unexpected(decision, circumstances)


def why_crash(crash: str) -> Reason:
    """Return the reason for a pod on which the kubelet crashes."""
    return Reason(
        code.CRASHES,
        f"The kubelet would crash on this admission: {crash.removesuffix(': the kubelet crashes here')}.",
        "Keep the pod away from this node: the kubelet crashes again each time it is asked.",
    )


def why_out_of(rejection: Rejection) -> Reason:
    """Return the reason for a refusal of the node resources check, which comes after the managers."""
    found = _OUT_OF.search(rejection.message)
    if found is None:
        return Reason(
            code.OUT_OF_ANOTHER_RESOURCE, "The resource managers accepted it, but the node has too little left."
        )
    resource = found.group(1)
    requested, used, capacity = (int(text) for text in found.groups()[1:])
    if resource == "pods":
        return Reason(
            code.OUT_OF_PODS,
            f"The resource managers accepted it, but the node already runs {used} pods, and maxPods is {capacity}.",
            "Remove a pod, or raise maxPods.",
        )
    known = {"cpu": code.OUT_OF_CPU, "memory": code.OUT_OF_MEMORY}.get(resource, code.OUT_OF_ANOTHER_RESOURCE)
    asks = f"The resource managers accepted it, but it requests {_amount(resource, requested)}, and"
    advice = f"Request less, or {'use a larger node' if requested > capacity else 'remove a pod'}."
    if not used:
        sentence = f"{asks} all pods of the node together may request only {_amount(resource, capacity)}."
    else:
        left = _amount(resource, max(capacity - used, 0))
        sentence = (
            f"{asks} of the {_amount(resource, capacity)} that all pods together may request only {left} are left."
        )
    return Reason(known, sentence, advice)


def _amount(resource: str, amount: int) -> str:
    """Return an amount in the units of the check: thousandths of a CPU, bytes, or pieces."""
    if resource == "cpu":
        number = f"{amount / 1000:.3f}".rstrip("0").rstrip(".")
        return f"{number} CPU{'' if amount == 1000 else 's'}"
    in_bytes = resource in ("memory", "ephemeral-storage") or resource.startswith("hugepages-")
    return f"{size(amount) if in_bytes else amount} of {resource}"
