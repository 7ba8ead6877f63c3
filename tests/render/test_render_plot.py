"""The plot: bars as long as their counts, every text escaped, nothing outside the page."""

from __future__ import annotations

from dataclasses import replace
from xml.etree import ElementTree as ET

from hypothesis import given, settings
from hypothesis import strategies as st

from mooring.views.svg.plot import WIDTH, Kind, Plot, PlotRow, plot_svg

SVG = "{http://www.w3.org/2000/svg}"
KINDS = (Kind("admitted", "exclusive-0", ""), Kind("rejected", "exclusive-1", "a"))


def plotted(*rows: PlotRow, title: str = "title") -> ET.Element:
    plot = Plot(title, ("a machine",), "pod", KINDS, ("NUMA node",), ("stranded",), rows, ("a note",))
    return ET.fromstring(plot_svg(plot))  # noqa: S314 - our own text


def row(*counts: int, line: str = "a variant") -> PlotRow:
    return PlotRow("1.", (line,), is_strong=False, counts=counts, shares=((1, 2),), figures=("3",))


def bars(root: ET.Element) -> list[float]:
    """Return the widths of the bars, without those of the legend."""
    found = [one for one in root.iter(f"{SVG}rect") if one.attrib["class"].startswith("exclusive-")]
    return [float(one.attrib["width"]) + 1 for one in found if one.attrib["height"] == "19"]


def test_bars_are_as_long_as_their_counts_and_a_count_of_nothing_has_none() -> None:
    short, long = bars(plotted(row(3, 0), row(6, 6)))[:2]
    assert abs(long - 2 * short) < 0.3
    assert len(bars(plotted(row(3, 0)))) == 1


def test_what_users_write_is_text_and_no_markup() -> None:
    root = plotted(row(1, 1, line='<b a="1">&\x07'), title="<x>&")
    assert '<b a="1">&' in "".join(root.itertext())
    assert root.find(f".//{SVG}b") is None


def test_two_rows_differ_in_the_column_of_the_setting_in_which_they_differ() -> None:
    rows = [replace(row(1), settings=(on, True)) for on in (True, False)]
    names = ("full-pcpus-only", "static")
    plot = Plot("t", (), "pod", KINDS, ("NUMA node",), ("stranded",), tuple(rows), settings=names)
    root = ET.fromstring(plot_svg(plot))  # noqa: S314 - our own text
    titles = [one.text for one in root.iter(f"{SVG}title")]
    assert [one for one in titles if one in ("full-pcpus-only", "not full-pcpus-only")] == [
        "full-pcpus-only",
        "not full-pcpus-only",
    ]
    assert titles.count("static") == 2
    assert "".join(root.itertext()).count("✓") == 3


@given(st.lists(st.tuples(st.integers(0, 500), st.integers(0, 500)), max_size=4), st.text(max_size=200))
@settings(deadline=None, max_examples=60)
def test_nothing_lies_outside_the_page(counts: list[tuple[int, int]], line: str) -> None:
    root = plotted(*(row(*pair, line=line) for pair in counts))
    height = float(root.attrib["height"])
    for one in root.iter(f"{SVG}rect"):
        if "width" in one.attrib and one.attrib["class"] not in {"grey", "ground"}:
            assert 0 <= float(one.attrib["x"]) + float(one.attrib["width"]) <= WIDTH
            assert 0 <= float(one.attrib["y"]) + float(one.attrib["height"]) <= height
