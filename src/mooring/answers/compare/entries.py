"""The entries of an answer: groups or single variants, ranked, with the words for them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from mooring.answers.compare.answer import Comparison, Result
from mooring.answers.compare.variant import VariantChangePart, options_on
from mooring.engine.core.config import KubeletConfig, with_defaults
from mooring.engine.core.machine import Machine
from mooring.engine.topologymanager.merge import NONE


def settings_words(config: KubeletConfig) -> str:
    """Return policies and options in one line, in the words of a plan.

    >>> settings_words(KubeletConfig(cpu_manager_policy="static", topology_manager_policy="restricted"))
    'CPU manager static · topology manager restricted, scope container'
    """
    config = with_defaults(config)
    parts = [f"CPU manager {config.cpu_manager_policy}", *option_words(config.cpu_manager_policy_options)]
    if config.topology_manager_policy == NONE:
        parts.append("topology manager none")
    else:
        scope = f", scope {config.topology_manager_scope}"
        parts.append(f"topology manager {config.topology_manager_policy}{scope}")
        parts += option_words(config.topology_manager_policy_options)
    if config.memory_manager_policy != "None":
        parts.append(f"memory manager {config.memory_manager_policy}")
    return " · ".join(parts)


def option_words(options: Mapping[str, str]) -> list[str]:
    """Return the options that are on, with their values where these are more than a yes."""
    return [name if text == "true" else f"{name} {text}" for name, text in options_on(options).items()]


def reasons_words(rejected: Mapping[str, int]) -> str:
    """Return the reasons with their counts, the most frequent first.

    >>> reasons_words({"SMTAlignmentError": 1, "TopologyAffinityError": 3})
    '3 TopologyAffinityError, 1 SMTAlignmentError'
    """
    ordered = sorted(rejected.items(), key=lambda item: -item[1])
    return ", ".join(f"{count} {reason}" for reason, count in ordered)


def change_words(change: VariantChangePart) -> str:
    """Return one change, such as ``topologyManagerPolicy: none instead of restricted``.

    >>> change_words(VariantChangePart("topologyManagerScope", "pod", "container"))
    'topologyManagerScope: container instead of pod'
    >>> change_words(VariantChangePart("cpuManagerPolicyOptions.full-pcpus-only", "", "true"))
    'cpuManagerPolicyOptions.full-pcpus-only: true'
    >>> change_words(VariantChangePart("cpuManagerPolicyOptions.full-pcpus-only", "true", ""))
    'without cpuManagerPolicyOptions.full-pcpus-only: true'
    """
    if not change.after:
        return f"without {change.field}: {change.before}"
    return f"{change.field}: {change.after}" + (f" instead of {change.before}" if change.before else "")


@dataclass(frozen=True, slots=True)
class Row:
    """One entry of the answer."""

    rank: int
    result: Result
    others: int = 0
    """How many more decide the same."""
    given: tuple[str, ...] = ()
    """Names of the configurations as given that this entry stands for."""

    @property
    def is_given(self) -> bool:
        """Tell whether a configuration as given is in it."""
        return bool(self.given)


def rows_of(comparison: Comparison, *, grouped: bool) -> list[Row]:
    """Return the entries in order: one a group, or one a variant."""
    if grouped:
        return [
            Row(rank, group.first, len(group.results) - 1, _given(group.results))
            for rank, group in enumerate(comparison.groups, 1)
        ]
    return [Row(rank, result, 0, _given([result])) for rank, result in enumerate(comparison.results, 1)]


def _given(results: Sequence[Result]) -> tuple[str, ...]:
    return tuple(result.variant.name for result in results if result.variant.is_given)


def not_started(result: Result) -> bool:
    """Tell whether the kubelet would not start."""
    return result.outcome.refusal is not None


def machines_of(rows: Sequence[Row]) -> list[Machine]:
    """Return the machines that are compared, each once."""
    return list({id(row.result.variant.machine): row.result.variant.machine for row in rows}.values())


def variant_name(row: Row, rows: Sequence[Row]) -> str:
    """Return the machine and the configuration of an entry, where there are several; empty where there is one.

    Args:
        row: the entry.
        rows: all entries.
    """
    variant = row.result.variant
    parts = [variant.machine.name] if len(machines_of(rows)) > 1 else []
    if row.given:
        parts.append(f"{', '.join(row.given)} as given")
    elif len({other.result.variant.name for other in rows}) > 1:
        parts.append(f"{variant.name} changed")
    return " · ".join(parts)


def variant_words(row: Row, rows: Sequence[Row]) -> str:
    """Return what an entry is: machine and name, where there are several, and settings.

    Args:
        row: the entry.
        rows: all entries.
    """
    return " · ".join(part for part in (variant_name(row, rows), settings_words(row.result.variant.config)) if part)
