"""A comparison as a plot: its entries ranked, bars of admitted and rejected pods, alignment beside them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from string import ascii_lowercase

from mooring.answers.base.picture import machine_view
from mooring.answers.compare.answer import Comparison
from mooring.answers.compare.measures import VariantPart, VariantSettingsPart
from mooring.answers.compare.variant import VariantChangePart
from mooring.engine.core.config import with_defaults
from mooring.engine.core.errors import clean
from mooring.engine.core.machine import Machine
from mooring.engine.topologymanager.merge import NONE
from mooring.explanations.phrases import plural
from mooring.views.svg.plot import Kind, Plot, PlotRow


def settings_words(config: VariantSettingsPart) -> str:
    """Return policies and options in one line, in the words of a plan.

    >>> settings_words(VariantSettingsPart("static", {}, "None", "restricted", "container", {}, {}))
    'CPU manager static · topology manager restricted, scope container'
    """
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
    return [name if text == "true" else f"{name} {text}" for name, text in options.items()]


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
    part: VariantPart
    machine: Machine
    others: int = 0
    """How many more decide the same."""
    given: tuple[str, ...] = ()
    """Names of the configurations as given that this entry stands for."""
    alike: tuple[str, ...] = ()
    """Options with which the same policies have the same figures, although they decide otherwise."""

    @property
    def is_given(self) -> bool:
        """Tell whether a configuration as given is in it."""
        return bool(self.given)


def rows_of(comparison: Comparison, *, grouped: bool) -> list[Row]:
    """Return the entries in order: one a group, or one a variant."""
    rows: list[Row] = []
    before: object = None
    every = list(zip(comparison.document.variants, comparison.variants, strict=True))
    for _, found in groupby(every, key=lambda one: one[0].group if grouped else id(one[0])):
        group = list(found)
        part, variant = group[0]
        given = tuple(one.name for one, _ in group if one.as_given)
        # What is shown of it, but for its CPU manager's options.
        config = replace(with_defaults(variant.config), cpu_manager_policy_options={}, feature_gates={})
        shown = (id(variant.machine), part.figures, repr(config))
        if grouped and not given and shown == before:
            own = option_words(part.settings.cpu_manager_policy_options)
            rows[-1] = replace(rows[-1], alike=(*rows[-1].alike, " + ".join(own) or "no option"))
        else:
            rows.append(Row(len(rows) + 1, part, variant.machine, len(group) - 1, given))
            before = shown
    return rows


def machines_of(rows: Sequence[Row]) -> list[Machine]:
    """Return the machines that are compared, each once."""
    return list({id(row.machine): row.machine for row in rows}.values())


def variant_name(row: Row, rows: Sequence[Row]) -> str:
    """Return the machine and the configuration of an entry, where there are several; empty where there is one.

    Args:
        row: the entry.
        rows: all entries.
    """
    parts = [row.part.machine] if len(machines_of(rows)) > 1 else []
    if row.given:
        parts.append(f"{', '.join(row.given)} as given")
    elif len({other.part.name for other in rows}) > 1:
        parts.append(f"{row.part.name} changed")
    return " · ".join(parts)


def variant_words(row: Row, rows: Sequence[Row]) -> str:
    """Return what an entry is: machine and name, where there are several, and settings.

    Args:
        row: the entry.
        rows: all entries.
    """
    return " · ".join(part for part in (variant_name(row, rows), settings_words(row.part.settings)) if part)


ADMITTED = Kind("admitted", "exclusive-0", "")
NO_START = Kind("not asked, the kubelet would not start", "reserved", "")

LEVELS = ("NUMA", "socket", "L3", "core")
MORE_LEVELS = ("memory", "devices")
"""Shown where a container has memory bound to NUMA nodes, or devices near them."""

ALIGNED_NOTE = (
    "Beside the bars: of the containers with exclusive CPUs, how many lie on the fewest NUMA nodes, sockets and L3 "
    "caches that can hold them, and how many have their cores to themselves."
)
LUCK_NOTE = (
    "By luck: only topology manager policies restricted and single-numa-node guarantee alignment to NUMA nodes. Other "
    "pods, or another order, can end unaligned, so luck does not count in the ranking."
)
WASTE_NOTE = (
    "Stranded CPUs are of no use to more pods like these, or held for init containers that have ended. Spread is the "
    "mean number of NUMA nodes of a container with exclusive CPUs. Alike: how many more variants decide the same."
)

REASON_COLOURS = (1, 5, 3, 6, 4, 2)
"""Colours of reasons: the warm ones first, the green one, which looks like a yes, last."""


def comparison_plot(comparison: Comparison, top: int, *, grouped: bool) -> Plot:
    """Return the plot of the best entries, and of those as given.

    Args:
        comparison: what was compared.
        top: how many of the best to show; 0 for all.
        grouped: whether variants that decide alike are one entry.
    """
    rows = rows_of(comparison, grouped=grouped)
    best = rows[:top] if top else rows
    shown = [*best, *(row for row in rows[len(best) :] if row.is_given)]
    # The reasons of rejections, the most frequent first
    totals = Counter[str]()
    for row in shown:
        totals.update(row.part.rejected if row.part.starts else {})
    reasons = sorted(totals, key=lambda reason: (-totals[reason], reason))
    more = [name for name in MORE_LEVELS if any(_share_of(row.part, name)[1] for row in shown)]
    rejected = [
        Kind(
            f"rejected: {reason}",
            f"exclusive-{REASON_COLOURS[number % len(REASON_COLOURS)]}",
            ascii_lowercase[number % 26],
        )
        for number, reason in enumerate(reasons)
    ]
    # The settings that some rows have and others have not, those of one manager side by side
    every = [_settings_of(row) for row in shown]
    uses = Counter(name for one in every for name in one)
    manager = {name: place for one in every for name, place in one.items()}
    differing = [name for name in uses if uses[name] < len(shown)]
    settings = tuple(sorted(differing, key=lambda name: (manager[name], " manager " not in name, name)))
    common = [name for name in uses if uses[name] == len(shown)]
    common_line = [f"All: {' · '.join(common)}"] if common else []
    kinds = (ADMITTED, *rejected, *([NO_START] if not all(row.part.starts for row in shown) else []))
    return Plot(
        title=f"{plural(comparison.document.pods, 'pod')} under {plural(len(comparison.variants), 'variant')}",
        settings=settings,
        lines=(*(f"{view.name}: {view.title}" for view in map(machine_view, machines_of(rows))), *common_line),
        noun="pod",
        kinds=kinds,
        share_headings=(*LEVELS, *more),
        figure_headings=("stranded", "spread", "alike"),
        rows=tuple(_row(row, rows, settings, reasons, more) for row in shown),
        notes=(ALIGNED_NOTE, *([LUCK_NOTE] if any(row.part.is_luck for row in shown) else []), WASTE_NOTE),
    )


def _settings_of(row: Row) -> dict[str, int]:
    """Return the names of a row's policies, scope and options, each with the number of its manager."""
    config = row.part.settings
    cpu = [f"CPU manager {config.cpu_manager_policy}", *option_words(config.cpu_manager_policy_options)]
    topology = [f"topology manager {config.topology_manager_policy}"]
    if config.topology_manager_policy != NONE:
        topology += [f"scope {config.topology_manager_scope}", *option_words(config.topology_manager_policy_options)]
    managers = (cpu, topology, [f"memory manager {config.memory_manager_policy}"])
    return {name: place for place, names in enumerate(managers) for name in names}


def _share_of(found: VariantPart, name: str) -> tuple[int, int]:
    if name == "memory":
        return found.aligned.memory, found.memory_containers
    return found.aligned.devices, found.device_containers


def _row(
    row: Row, rows: Sequence[Row], settings: Sequence[str], reasons: Sequence[str], more: Sequence[str]
) -> PlotRow:
    found, own = row.part, _settings_of(row)
    marks = tuple(name in own for name in settings)
    words = [clean(name) for name in (variant_name(row, rows),) if name]
    if not found.starts:
        words.append(f"the kubelet would not start: {clean(found.start_error)}")
        return PlotRow(f"{row.rank}.", tuple(words), row.is_given, marks, (0, *(0 for _ in reasons), found.asked))
    if found.is_luck:
        words.append("aligned by luck")
    aligned = (found.aligned.numa, found.aligned.socket, found.aligned.l3, found.aligned.core)
    return PlotRow(
        rank=f"{row.rank}.",
        lines=tuple(words),
        is_strong=row.is_given,
        settings=marks,
        counts=(found.admitted, *(found.rejected.get(reason, 0) for reason in reasons)),
        shares=(
            *((part, found.exclusive_containers) for part in aligned),
            *(_share_of(found, name) for name in more),
        ),
        figures=(
            str(found.stranded.total),
            f"{float(found.exact_spread):.2f}" if found.exclusive_containers else "–",
            f"+{row.others}" if row.others else "–",
        ),
    )
