"""Tables: nothing cut, lists broken at commas, bars that add up."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.render.sample_machines import SampleShape, hybrid, occupied, regular

from mooring.engine.core.cpuset import CPUSet
from mooring.views.console import Breaking, bar, plain
from mooring.views.tables import numa_table, owners_table, placements_table
from mooring.views.view import PlacementRow

ODD = CPUSet.from_ids(range(1, 200, 2))
ROWS = [
    PlacementRow("ml/trainer-7f9c8d5b6-x2x4z", "worker", "exclusive", True, ODD, (0, 1), (0, 1), "whole cores"),
    PlacementRow("ml/trainer-7f9c8d5b6-x2x4z", "feeder", "shared", admitted=True),
    PlacementRow("ns/one", "c", "exclusive", True, CPUSet.parse("2-3"), (0,), alignment="whole cores, one L3"),
    PlacementRow("ns/no", "", "TopologyAffinityError", admitted=False, why="40 CPUs are free in no NUMA node."),
]


@pytest.mark.parametrize("width", [40, 60, 80, 120, 200])
def test_a_plan_keeps_every_cpu_and_every_word_at_any_width(width: int) -> None:
    text = plain(placements_table(ROWS), width)
    assert max(len(line) for line in text.splitlines()) <= width
    assert "…" not in text
    assert str(ODD) in "".join(text.split())
    for word in ("worker", "feeder", "exclusive", "shared", "TopologyAffinityError", "NUMA node."):
        assert word in text


def test_the_wide_form_is_one_line_per_container_with_everything_in_it() -> None:
    lines = plain(placements_table(ROWS, wide=True), 80).splitlines()
    assert len(lines) == 1 + len(ROWS)
    assert all(row.pod in line for row, line in zip(ROWS, lines[1:], strict=True))
    assert str(ODD) in lines[1]
    assert lines[4].endswith("40 CPUs are free in no NUMA node.")
    assert lines[0].split() == [
        "POD",
        "CONTAINER",
        "VERDICT",
        "CPUS",
        "NUMA",
        "MEMORY",
        "HUGEPAGES",
        "DEVICES",
        "ALIGNMENT",
        "CPU",
        "LIST",
        "WHY",
    ]


@pytest.mark.parametrize("wide", [False, True])
def test_what_a_pod_holds_as_a_whole_has_a_row_of_its_own(wide: bool) -> None:
    sets = {"": "1-4", "c": "1-2"}
    rows = [PlacementRow("ns/pl", name, "exclusive", True, CPUSet.parse(cpus)) for name, cpus in sets.items()]
    lines = plain(placements_table(rows, wide=wide), 100).splitlines()
    assert [line.split() for line in lines if "as a whole" in line and " 4 " in line and " 1-4" in line]
    assert [line.split() for line in lines if " c " in line and " 2 " in line and " 1-2" in line]


def test_a_plan_without_rows_is_empty() -> None:
    assert plain(placements_table([]), 80) == ""


def test_a_pod_is_named_once() -> None:
    assert plain(placements_table(ROWS), 100).count("ml/trainer-7f9c8d5b6-x2x4z") == 1


@given(st.frozensets(st.integers(0, 4095), max_size=60).map(CPUSet.from_ids), st.integers(1, 60))
def test_a_list_breaks_after_commas_and_loses_nothing(cpus: CPUSet, width: int) -> None:
    lines = plain(Breaking(str(cpus)), width).splitlines()
    assert "".join(lines) == str(cpus)
    longest = max((len(part) for part in str(cpus).split(",")), default=0) + 1
    assert all(len(line) <= width for line in lines)
    if width >= longest:
        assert all(line.endswith(",") for line in lines[:-1])


@given(st.lists(st.integers(0, 5000), min_size=1, max_size=6), st.integers(0, 3000), st.integers(1, 60))
def test_bars_are_as_long_as_their_share_and_show_the_small(amounts: list[int], rest: int, width: int) -> None:
    total = sum(amounts) + rest
    signs = "abcdef"[: len(amounts)]
    drawn = bar([(amount, sign, "") for amount, sign in zip(amounts, signs, strict=True)], total, width).plain
    shown = [sign for sign, amount in zip(signs, amounts, strict=True) if amount]
    assert len(drawn) == (max(round(sum(amounts) * width / total), len(shown)) if total else 0)
    assert all(sign in drawn for sign in shown)
    assert list(drawn) == sorted(drawn)


@pytest.mark.parametrize("width", [60, 80, 100, 160])
def test_the_numa_table_shows_every_node_and_fits(width: int) -> None:
    view = occupied(regular(SampleShape(sockets=2, nodes=2, memory_only=1)))
    lines = plain(numa_table(view, width), width).splitlines()
    assert max(len(line) for line in lines) <= width
    assert [line.split()[0] for line in lines[1:7]] == ["0", "1", "2", "3", "4", "5"]
    assert "…" not in "".join(lines)


@pytest.mark.parametrize("width", [50, 80, 120])
def test_the_owners_table_names_every_owner_with_its_cpus(width: int) -> None:
    view = occupied(hybrid())
    text = plain(owners_table(view), width)
    packed = "".join(text.split())
    for owner in view.owners:
        assert str(owner.cpus) in packed
        assert owner.label.rpartition("/")[2] in packed
