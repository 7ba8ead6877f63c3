"""The SVG: safe, self-contained, small, legible."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.render.sample_machines import SampleShape, hybrid, occupied, regular

from mooring.engine.core.cpuset import CPUSet
from mooring.views.build import CPUOwner, build_view
from mooring.views.devices import DeviceView
from mooring.views.svg.elements import escape, fitting, style_sheet, text_width
from mooring.views.svg.picture import svg_text
from mooring.views.view import RejectedPod

SVG = "{http://www.w3.org/2000/svg}"
BIG = SampleShape(sockets=2, nodes=1, caches=16, cores=8)


def parsed(text: str) -> ET.Element:
    return ET.fromstring(text)  # noqa: S314 - our own text, and being well-formed is what is tested


@given(st.text(max_size=40), st.text(max_size=40), st.text(max_size=40))
@settings(max_examples=60, deadline=None)
def test_hostile_names_cannot_break_the_document(machine: str, owner: str, why: str) -> None:
    hostile = f"<script>alert(\"&amp;'\x1b[31m\x00\ud800]]>{owner}"
    view = build_view(
        regular(SampleShape(), machine),
        owners=[CPUOwner(hostile, "u", CPUSet.parse("1-3"))],
        rejected=[RejectedPod(owner, why, hostile)],
        subtitle=why,
        caption=[owner],
    )
    root = parsed(svg_text(view))
    assert not list(root.iter(f"{SVG}script"))
    assert len([node for node in root.iter() if node.attrib.get("class", "").startswith("cpu")]) == 8


def test_every_cell_tells_cpu_owner_and_place_when_pointed_at() -> None:
    view = build_view(regular(SampleShape(sockets=2, cores=2)), owners=[CPUOwner("ns/pod/c", "u", CPUSet.parse("3"))])
    titles = {node.text for node in parsed(svg_text(view)).iter(f"{SVG}title")}
    assert "CPU 3 · ns/pod/c · core of CPU 3 · L3 1 · NUMA node 1 · socket 1" in titles


def test_512_cpus_stay_below_500_kb_and_256_within_1200_pixels() -> None:
    assert len(svg_text(occupied(regular(BIG))).encode()) < 500_000
    text = svg_text(occupied(regular(SampleShape(sockets=2, nodes=4, caches=2, cores=8))))
    assert int(parsed(text).attrib["width"]) <= 1200


def test_4096_cpus_are_drawn_one_by_one_or_as_free_blocks() -> None:
    view = occupied(regular(SampleShape(sockets=16, caches=16, cores=8)))
    texts = list(parsed(svg_text(view)).iter(f"{SVG}text"))
    numbers = [node for node in texts if node.attrib["class"].startswith("cpu")]
    folded = [int(found[1]) for node in texts if (found := re.search(r"^L3 \d+ · (\d+) free", node.text or ""))]
    assert len(numbers) + sum(folded) == 4096
    assert folded


def test_the_document_refers_to_nothing_outside_itself() -> None:
    text = svg_text(occupied(hybrid()))
    assert re.findall(r"https?://[^\"]+", text) == ["http://www.w3.org/2000/svg"]
    assert set(re.findall(r"url\((.*?)\)", text)) <= {
        f"#mooring-{name}" for name in ("crosses", "dots", "stripes", "hatch-light", "hatch-dark")
    }


def test_light_and_dark_are_both_styled_and_bound_to_the_picture() -> None:
    sheet = style_sheet()
    light, _, dark = sheet.partition("@media (prefers-color-scheme:dark)")
    assert dark
    for name in ("page", "socket", "node", "free", "offline", "reserved", "shared", "quiet"):
        assert f".mooring .{name}" in light
        assert f".mooring .{name}" in dark
    rules = re.findall(r"([^{}]+)\{[^{}]*\}", light.removeprefix("<style>"))
    assert all(selector.startswith(".mooring ") for rule in rules for selector in rule.split(","))


def test_every_class_in_use_is_defined_or_inherits_on_purpose() -> None:
    root = parsed(svg_text(occupied(hybrid())))
    defined = set(re.findall(r"\.([a-z][a-z0-9-]*)", style_sheet()))
    used = {name for node in root.iter() for name in node.attrib.get("class", "").split()}
    assert {name for name in used - defined if not name.startswith("on-")} == set()


@pytest.mark.parametrize("name", ["a" * 300, "ns/" + "p" * 63 + "/c", "名前" * 40])
def test_long_names_are_cut_in_the_picture_and_whole_in_the_tooltip(name: str) -> None:
    view = build_view(regular(SampleShape()), owners=[CPUOwner(name, "u", CPUSet.parse("1,5"))])
    root = parsed(svg_text(view))
    shown = [node.text or "" for node in root.iter(f"{SVG}text")]
    assert name not in shown
    assert any(name in (node.text or "") for node in root.iter(f"{SVG}title"))


@given(st.text(max_size=60), st.integers(0, 300))
def test_fitted_text_is_never_wider_than_its_room(text: str, room: int) -> None:
    assert text_width(fitting(text, room, 11), 11) <= room or fitting(text, room, 11) == ""


def test_no_text_runs_out_of_the_page() -> None:
    view = replace(occupied(regular(BIG)), name="n" * 400, subtitle="s" * 900)
    root = parsed(svg_text(view))
    width = int(root.attrib["width"])
    for node in root.findall(f"{SVG}text"):
        if "text-anchor" not in node.attrib:
            size = 20 if node.attrib["class"] == "name" else 12
            assert float(node.attrib["x"]) + text_width(node.text or "", size) <= width


@given(st.text(max_size=40))
def test_escaped_text_is_safe_wherever_it_comes_from(text: str) -> None:
    hostile = f"<a b=\"'&\x00\x1b\ud800\ufffe{text}"
    root = parsed(f'<x y="{escape(hostile)}">{escape(hostile)}</x>')
    assert root.text == root.attrib["y"]
    assert "<a b=\"'&" in (root.text or "")


@pytest.mark.parametrize("with_cpus", [True, False])
def test_the_legend_has_every_device_and_the_cpus_of_an_owner_and_no_text_over_another(with_cpus: bool) -> None:
    names = [
        "example.com/a-rather-long-device-name-of-a-vendor",
        "example.com/sriov-netdevice-dpdk-fast",
        "nvidia.com/gpu",
    ]
    devices = [DeviceView(name, "d", (0,)) for name in names]
    cpus = CPUSet.parse("1-4") if with_cpus else CPUSet()
    first = CPUOwner("ns/one/c", "u", cpus, (0,), devices=frozenset((name, "d") for name in names))
    second = CPUOwner("ns/two/c", "v", CPUSet.parse("5"))
    root = parsed(svg_text(build_view(regular(SampleShape()), owners=[first, second], devices=devices)))
    texts = [(node, node.text or "") for node in root.iter(f"{SVG}text")]
    start = next(index for index, (_, words) in enumerate(texts) if words == "ns/one/c" and index > 20)
    legend = texts[start:]
    for words in ("1 gpu", "fast", *(["4 CPUs: 1-4"] if with_cpus else [])):
        assert any(words in text for _, text in legend)
    for node, text in legend:
        x, y = float(node.attrib["x"]), node.attrib["y"]
        right = [
            float(other.attrib["x"]) for other, _ in legend if other.attrib["y"] == y and float(other.attrib["x"]) > x
        ]
        assert x + text_width(text, 12) <= min(right, default=float(root.attrib["width"]))
    rows = [float(node.attrib["y"]) for node, text in legend if text in ("ns/one/c", "ns/two/c")]
    assert rows[1] > max(float(node.attrib["y"]) for node, text in legend if "gpu" in text)
