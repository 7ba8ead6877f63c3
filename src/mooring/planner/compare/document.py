"""``mooring compare -o json``: a comparison as a versioned document."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from mooring import KUBELET_VERSION
from mooring.core.config import KubeletConfig, with_defaults
from mooring.core.machine import Finding
from mooring.explain.remedies import refusal_code
from mooring.planner.compare.comparison import Comparison, Result
from mooring.planner.compare.measures import Measures
from mooring.planner.compare.variant import options_on
from mooring.planner.plan_document import API_VERSION

KIND = "Comparison"


def comparison_document(comparison: Comparison, findings: Iterable[Finding] = ()) -> dict[str, Any]:
    """Return the document; it holds nothing but dicts, lists, texts, numbers, flags and None."""
    return {
        "apiVersion": API_VERSION,
        "kind": KIND,
        "kubelet": KUBELET_VERSION,
        "by": comparison.by,
        "pods": len(comparison.trace.pods),
        "steps": len(comparison.trace.steps),
        "variants": [
            {"group": number, **_variant_fields(result)}
            for number, group in enumerate(comparison.groups, 1)
            for result in group.results
        ],
        "leftOut": [
            {
                "count": one.count,
                "startErrorStage": one.refusal.stage,
                "startError": one.refusal.message,
                "startErrorCode": refusal_code(one.refusal),
            }
            for one in comparison.left_out
        ],
        "neverAdmitted": list(comparison.never_admitted),
        "findings": [finding.fields() for finding in findings],
    }


def _variant_fields(result: Result) -> dict[str, Any]:
    variant, refusal = result.variant, result.outcome.refusal
    return {
        "name": variant.name,
        "machine": variant.machine.name,
        "asGiven": variant.is_given,
        "settings": _settings_fields(variant.config),
        "changes": [
            {"field": change.field, "before": change.before, "after": change.after} for change in variant.changes
        ],
        "starts": refusal is None,
        "startErrorStage": refusal.stage if refusal is not None else "",
        "startError": refusal.message if refusal is not None else "",
        "startErrorCode": refusal_code(refusal) if refusal is not None else "",
        **_measure_fields(result.outcome.measures),
    }


def _settings_fields(config: KubeletConfig) -> dict[str, Any]:
    config = with_defaults(config)
    return {
        "cpuManagerPolicy": config.cpu_manager_policy,
        "cpuManagerPolicyOptions": options_on(config.cpu_manager_policy_options),
        "memoryManagerPolicy": config.memory_manager_policy,
        "topologyManagerPolicy": config.topology_manager_policy,
        "topologyManagerScope": config.topology_manager_scope,
        "topologyManagerPolicyOptions": options_on(config.topology_manager_policy_options),
        "featureGates": dict(sorted(config.feature_gates.items())),
    }


def _measure_fields(found: Measures) -> dict[str, Any]:
    return {
        "admitted": found.admitted,
        "rejected": dict(found.rejected),
        "lost": found.lost,
        "exclusiveContainers": found.exclusive,
        "aligned": {
            "numa": found.aligned.numa,
            "socket": found.aligned.socket,
            "l3": found.aligned.l3,
            "core": found.aligned.core,
        },
        "spread": round(float(found.spread), 3),
        "strandedCPUs": {
            "total": found.stranded.total,
            "init": found.stranded.init,
            "siblings": found.stranded.siblings,
            "fragments": found.stranded.fragments,
        },
        "memoryNodesBeyondNeed": found.memory_beyond,
    }
