"""``mooring compare -o json``: a comparison as a document."""

from __future__ import annotations

from collections.abc import Iterable

from mooring.answers.compare.comparison import Comparison, Result
from mooring.answers.compare.variant import options_on
from mooring.documents.comparison import (
    AlignedContainersPart,
    ComparisonDocument,
    LeftOutPart,
    StrandedCPUsPart,
    VariantChangePart,
    VariantPart,
    VariantSettingsPart,
)
from mooring.documents.parts import finding_parts
from mooring.engine.core.config import KubeletConfig, with_defaults
from mooring.engine.core.machine import Finding


def comparison_document(comparison: Comparison, findings: Iterable[Finding] = ()) -> ComparisonDocument:
    """Return the document."""
    return ComparisonDocument(
        kubelet=comparison.results[0].variant.mooring.release.tag,
        by=comparison.by,
        pods=len(comparison.trace.pods),
        steps=len(comparison.trace.steps),
        variants=[
            _variant(number, result) for number, group in enumerate(comparison.groups, 1) for result in group.results
        ],
        left_out=[
            LeftOutPart(one.count, one.refusal.stage, one.refusal.message, one.refusal.code)
            for one in comparison.left_out
        ],
        never_admitted=list(comparison.never_admitted),
        findings=finding_parts(findings),
    )


def _variant(group: int, result: Result) -> VariantPart:
    variant, refusal, found = result.variant, result.outcome.refusal, result.outcome.measures
    aligned, stranded = found.aligned, found.stranded
    return VariantPart(
        group=group,
        name=variant.name,
        machine=variant.machine.name,
        as_given=variant.is_given,
        settings=_settings(variant.config),
        changes=[VariantChangePart(change.field, change.before, change.after) for change in variant.changes],
        starts=refusal is None,
        start_error_stage=refusal.stage if refusal is not None else "",
        start_error=refusal.message if refusal is not None else "",
        start_error_code=refusal.code if refusal is not None else "",
        admitted=found.admitted,
        rejected=dict(found.rejected),
        lost=found.lost,
        exclusive_containers=found.exclusive,
        memory_containers=found.memory.holders,
        device_containers=found.devices.holders,
        aligned=AlignedContainersPart(
            aligned.numa, aligned.socket, aligned.l3, aligned.core, found.memory.aligned, found.devices.aligned
        ),
        alignment_promise=found.promise.name.lower(),
        spread=round(float(found.spread), 3),
        stranded=StrandedCPUsPart(stranded.total, stranded.init, stranded.siblings, stranded.fragments),
        memory_nodes_beyond_need=found.memory_beyond,
    )


def _settings(config: KubeletConfig) -> VariantSettingsPart:
    config = with_defaults(config)
    return VariantSettingsPart(
        cpu_manager_policy=config.cpu_manager_policy,
        cpu_manager_policy_options=options_on(config.cpu_manager_policy_options),
        memory_manager_policy=config.memory_manager_policy,
        topology_manager_policy=config.topology_manager_policy,
        topology_manager_scope=config.topology_manager_scope,
        topology_manager_policy_options=options_on(config.topology_manager_policy_options),
        feature_gates=dict(sorted(config.feature_gates.items())),
    )
