"""The words for variants: settings, names, reasons."""

from __future__ import annotations

from collections.abc import Mapping

from mooring.core.config import KubeletConfig, with_defaults
from mooring.planner.compare.variant import Change, options_on
from mooring.topologymanager.merge import NONE


def settings_words(config: KubeletConfig) -> str:
    """Return policies and options in one line, in the words of a plan.

    >>> settings_words(KubeletConfig(cpu_manager_policy="static", topology_manager_policy="restricted"))
    'CPU manager static · topology manager restricted, scope container'
    """
    config = with_defaults(config)
    parts = [f"CPU manager {config.cpu_manager_policy}", *_options(config.cpu_manager_policy_options)]
    if config.topology_manager_policy == NONE:
        parts.append("topology manager none")
    else:
        scope = f", scope {config.topology_manager_scope}"
        parts.append(f"topology manager {config.topology_manager_policy}{scope}")
        parts += _options(config.topology_manager_policy_options)
    if config.memory_manager_policy != "None":
        parts.append(f"memory manager {config.memory_manager_policy}")
    return " · ".join(parts)


def _options(options: Mapping[str, str]) -> list[str]:
    return [name if text == "true" else f"{name} {text}" for name, text in options_on(options).items()]


def reasons_words(rejected: Mapping[str, int]) -> str:
    """Return the reasons with their counts, the most frequent first.

    >>> reasons_words({"SMTAlignmentError": 1, "TopologyAffinityError": 3})
    '3 TopologyAffinityError, 1 SMTAlignmentError'
    """
    ordered = sorted(rejected.items(), key=lambda item: -item[1])
    return ", ".join(f"{count} {reason}" for reason, count in ordered)


def change_words(change: Change) -> str:
    """Return one change, such as ``topologyManagerPolicy: none instead of restricted``.

    >>> change_words(Change("topologyManagerScope", "pod", "container"))
    'topologyManagerScope: container instead of pod'
    >>> change_words(Change("cpuManagerPolicyOptions.full-pcpus-only", "", "true"))
    'cpuManagerPolicyOptions.full-pcpus-only: true'
    >>> change_words(Change("cpuManagerPolicyOptions.full-pcpus-only", "true", ""))
    'without cpuManagerPolicyOptions.full-pcpus-only: true'
    """
    if not change.after:
        return f"without {change.field}: {change.before}"
    return f"{change.field}: {change.after}" + (f" instead of {change.before}" if change.before else "")
