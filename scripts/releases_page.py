"""The tables of docs/reference/kubelet-releases.md, made from the data that the engine decides by.

Run by ``make docs`` it writes the tables into the page; with ``--check``, as in ``make check``, it only reports a page
that has others.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from mooring.engine.core.release import MANAGER_GATES, NEWEST, Gate
from mooring.engine.releases.catalog import RELEASES, FileFormats, state_file_rules
from mooring.engine.releases.config_fields import DEFAULT_HISTORY, FIELDS_SINCE
from mooring.engine.releases.gates import (
    CPU_OPTION_HISTORY,
    METRIC_HISTORY,
    TOPOLOGY_OPTION_HISTORY,
    known_gates,
    metric_name,
)
from mooring.engine.releases.rule import RELEASE_NAMES, standing
from mooring.engine.releases.rules import RULES

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "reference" / "kubelet-releases.md"
MORE_GATES = ("CPUManager", "MemoryManager", "NodeDeclaredFeatures", "SidecarContainers")
"""Gates beside those of the managers today: removed ones, and one that others need."""
UNKNOWN = "–"


def rules_table() -> list[str]:
    """Return the named rules below the releases that have them, with options that their text does not name."""
    rows: dict[str, list[str]] = {}
    for rule in RULES:
        unnamed = ", ".join(f"`{option}`" for option in rule.options if option not in rule.says)
        options = f" With {unnamed}." if unnamed else ""
        rows.setdefault(rule.span, ["", f"**{rule.span}**", ""]).append(f"* `{rule.name}`: {rule.says}.{options}")
    return [row for of_span in rows.values() for row in of_span]


def gates_table() -> list[str]:
    """Return the gates that the managers read, by release."""
    return _by_release(sorted({*MANAGER_GATES, *MORE_GATES}), _gate_of)


def _gate_of(name: str, release: str) -> str:
    gate = known_gates(release).get(name)
    return UNKNOWN if gate is None else _gate_words(gate)


def _gate_words(gate: Gate) -> str:
    return f"{gate.stage.value} {'on' if gate.default else 'off'}{', locked' if gate.locked else ''}"


def options_table() -> list[str]:
    """Return the policy options of both managers, by release."""
    histories = {**CPU_OPTION_HISTORY, **TOPOLOGY_OPTION_HISTORY}
    return _by_release(histories, lambda name, release: standing(histories[name], release) or UNKNOWN)


def formats_table() -> list[str]:
    """Return the formats of the state files that each release writes and reads."""
    files = [f"`{manager}_manager_state` {verb}" for manager in ("cpu", "memory") for verb in ("written", "read")]
    spans: dict[tuple[str, ...], list[str]] = {}
    for name in RELEASE_NAMES:
        for pod_level, title in ((False, name), (True, f"{name} with `PodLevelResourceManagers`")):
            rules = state_file_rules(name, pod_level=pod_level)
            titles = spans.setdefault((*_formats(rules.cpu), *_formats(rules.memory)), [])
            if name not in titles:
                titles.append(title)
    return [*_head("release", *files), *(_row(_span(titles), *cells) for cells, titles in spans.items())]


def _span(titles: list[str]) -> str:
    return titles[0] if len(titles) == 1 else f"{titles[0]} to {titles[-1]}"


def _formats(formats: FileFormats) -> tuple[str, str]:
    return formats.written, ", ".join(formats.read)


def metrics_table() -> list[str]:
    """Return the metrics that not all releases have, by release."""

    def shown(name: str, release: str) -> str:
        own = metric_name(name, release)
        return UNKNOWN if not own else "" if own == name else f"named `{own}`"

    return [line.rstrip(" :") for line in _by_release(METRIC_HISTORY, shown)]


def fields_table() -> list[str]:
    """Return the fields of the configuration that differ, by release: whether they exist, and their defaults."""

    def known(name: str, release: str) -> str:
        if RELEASE_NAMES.index(FIELDS_SINCE.get(name, RELEASE_NAMES[0])) > RELEASE_NAMES.index(release):
            return UNKNOWN
        default = standing(DEFAULT_HISTORY.get(name, ""), release)
        return f"default {default}" if default and default != "none" else "known"

    return _by_release(sorted({*FIELDS_SINCE, *DEFAULT_HISTORY}), known)


def patches_line() -> list[str]:
    """Return which patch releases were read and recorded, and which one decides."""
    return [
        f"Mooring decides as {NEWEST} unless a release is named.",
        f"Read and recorded: {', '.join(str(release) for release in RELEASES.values())}.",
    ]


def _by_release(names: Iterable[str], cell: Callable[[str, str], str]) -> list[str]:
    """Return what each name is in the first release, and the releases in which that changes; equal ones on one line."""
    alike: dict[str, list[str]] = {}
    for name in names:
        states = [cell(name, release) for release in RELEASE_NAMES]
        changes = [states[0]] if states[0] != UNKNOWN else []
        for release, before, now in zip(RELEASE_NAMES[1:], states, states[1:], strict=False):
            if now != before:
                changes.append(f"{release} {now if now != UNKNOWN else 'removed'}")
        alike.setdefault("; ".join(changes), []).append(f"`{name}`")
    return [f"* {', '.join(names)}: {changes}" for changes, names in alike.items()]


def _head(*titles: str) -> list[str]:
    return [_row(*titles), "|" + "---|" * len(titles)]


def _row(*cells: str) -> str:
    return f"| {' | '.join(cells)} |"


TABLES: Mapping[str, Callable[[], list[str]]] = {
    "patches": patches_line,
    "rules": rules_table,
    "gates": gates_table,
    "options": options_table,
    "formats": formats_table,
    "fields": fields_table,
    "metrics": metrics_table,
}
"""Name of a place in the page -> what stands there."""


def with_tables(text: str) -> str:
    """Return the text of the page with its tables as the data have them now."""
    for name, table in TABLES.items():
        begin, end = f"<!-- {name}: written by scripts/releases_page.py -->\n", f"\n<!-- end of {name} -->"
        before, found, rest = text.partition(begin)
        _, closed, after = rest.partition(end)
        if not (found and closed):
            raise SystemExit(f"{PAGE.name}: no place for {name}")
        text = before + begin + "\n".join(table()) + end + after
    return text


def main() -> int:
    """Write the tables into the page, or check them."""
    text = PAGE.read_text(encoding="utf-8")
    made = with_tables(text)
    if made == text:
        return 0
    if "--check" in sys.argv[1:]:
        print(f"{PAGE.relative_to(ROOT)}: tables are out of date (make docs writes them)")
        return 1
    PAGE.write_text(made, encoding="utf-8")
    print(f"{PAGE.relative_to(ROOT)}: tables written")
    return 0


if __name__ == "__main__":
    sys.exit(main())
