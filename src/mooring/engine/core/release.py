"""A kubelet release as the engine knows it: its name, and the rules of older kubelets that it still follows.

The engine's own rules are those of the newest known release, which may be a preview. What an older kubelet does
otherwise is a named rule: a field of :class:`ReleaseRules`. The code beside the rule it changes reads that name and
compares no version numbers. Which release follows which rule, with the source, is in :mod:`mooring.engine.releases`,
and so are the feature gates, policy options and state file formats of each release.

Source: spec: releases.md.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields

from mooring.lazy import dataclass


@dataclass(frozen=True, slots=True)
class ReleaseRules:
    """Rules of older kubelets; every rule that is off is decided as the newest known release does.

    The defaults are those of :data:`NEWEST`, which follows the rules that a preview drops.

    >>> {*ReleaseRules(device_hints_over_all_nodes=True).names()} - {*ReleaseRules().names()}
    {'device-hints-over-all-nodes'}
    """

    spread_by_cpu_number: bool = True
    average_sizes: bool = True
    uncore_by_average_size: bool = True
    distribute_ignores_hint_width: bool = True
    saved_combo: bool = True
    group_loop: bool = True
    claim_loop: bool = True
    huge_amounts_wrap: bool = True
    hints_without_score: bool = True
    pod_allocation_not_restored: bool = True
    pod_allocation_not_rolled_back: bool = True
    pod_memory_not_restored: bool = True
    pod_memory_of_app_types: bool = True
    restart_blocks_against_pod: bool = True
    gauges_by_difference: bool = True
    resize_names_policies: bool = True
    resize_retried_with_resources_only: bool = True
    json_texts_of_go_126: bool = True
    swap_behavior_needs_gate: bool = True
    certificate_algorithms_unknown: bool = True
    smt_check_before_existing: bool = False
    distribute_ignores_sockets: bool = False
    distribute_claims_full_share: bool = False
    empty_memory_request_is_served: bool = False
    empty_pod_resources_decide_qos: bool = False
    reserved_cpu_not_rounded: bool = False
    resize_asks_like_admission: bool = False
    memory_pinning_counted_first: bool = False
    device_hints_over_all_nodes: bool = False
    resize_beyond_node_refused: bool = False
    pod_level_pods_by_containers_without_gate: bool = False
    status_resources_decide_size: bool = False
    static_policies_refuse_every_resize: bool = False
    resize_leaves_eviction_threshold: bool = False
    resize_counts_sidecars_alone: bool = False
    partial_uncore_rounds_down: bool = False
    pod_level_pods_by_containers: bool = False
    pod_level_pods_admitted_without_gate: bool = False
    huge_page_limits_beside_requests: bool = False
    static_memory_policy_not_asked: bool = False
    status_of_init_containers_ignored: bool = False
    huge_page_requests_of_containers: bool = False
    eviction_defaults_not_merged: bool = False
    uncore_alignment_not_counted: bool = False
    alignment_not_counted_at_start: bool = False
    exclusive_cpus_summed_at_start: bool = False
    capitalized_topology_option_texts: bool = False
    static_cpu_policy_not_asked: bool = False
    smt_text_needs_free_cores: bool = False
    violating_hints_accepted: bool = False
    memory_file_compared_by_number: bool = False
    best_effort_memory_policy_unknown: bool = False
    machine_not_read_for_policy_none: bool = False
    pod_resources_unknown: bool = False
    gates_checked_after_decoding: bool = False
    default_pod_sysctls_unknown: bool = False
    memory_throttling_needs_no_gate: bool = False
    memory_reservation_policy_unknown: bool = False
    image_minimum_gc_age_not_checked: bool = False
    log_query_text_names_handler: bool = False
    run_once_accepted: bool = False
    resizes_exclusive_cpus: bool = False
    """Whether exclusive CPUs change with a resize by their gate alone (KEP-5554): in no known release. It is no rule of
    an older kubelet; a release that does it is an entry in :mod:`mooring.engine.releases.catalog`."""

    def names(self) -> tuple[str, ...]:
        """Return the names of the rules that are on, with hyphens."""
        return tuple(name.replace("_", "-") for name in self._on())

    def _on(self) -> Iterator[str]:
        for field in fields(self):
            if getattr(self, field.name):
                yield field.name


NEWEST_RULES = ReleaseRules()
"""The rules of :data:`NEWEST`."""


@dataclass(frozen=True, slots=True)
class Release:
    """A minor release of the kubelet.

    >>> str(NEWEST), str(Release("1.38", "v1.38.0-beta.0"))
    ('v1.37.2', 'v1.38.0-beta.0, a preview')
    """

    name: str
    """Such as ``1.34``; the key of every table in :mod:`mooring.engine.releases`."""
    tag: str
    """The patch release whose sources and recordings the rules are from, such as ``v1.34.4``."""
    rules: ReleaseRules = NEWEST_RULES
    """What this release decides otherwise than the newest known one."""

    @property
    def is_preview(self) -> bool:
        """Whether the release may still change before it is out."""
        return "-" in self.tag

    def __str__(self) -> str:
        return f"{self.tag}, a preview" if self.is_preview else self.tag


NEWEST = Release("1.37", "v1.37.2")
"""The newest release that is out: it decides where none is named."""
