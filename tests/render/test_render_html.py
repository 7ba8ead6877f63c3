"""The HTML report without a browser: well nested, whole, safe, small."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from base64 import b64encode
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from hashlib import sha256
from itertools import chain

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.render.html_page import Page
from tests.render.report_pages import report_on
from tests.render.report_steps import cpu_states
from tests.render.sample_machines import SampleShape, hybrid, occupied, regular
from tests.values import not_none

from mooring.engine.core.cpuset import CPUSet
from mooring.engine.core.machine import Finding
from mooring.engine.memorymanager.state import MemoryTable, NUMANodeState
from mooring.views.build import CPUOwner, Pools, build_view
from mooring.views.devices import DeviceView, cut, short_names, unique_names
from mooring.views.html import HEATS, html_text, style_text
from mooring.views.report import (
    ReportPod,
    ReportStep,
    ReportView,
    changes_between,
    report_data,
)
from mooring.views.svg.elements import escape, fitting, style_sheet, text_width
from mooring.views.svg.picture import svg_text
from mooring.views.view import CPUUse, CPUView, PlacementRow, RejectedPod, contrast
from mooring.views.wording import owner_marks

BIG = SampleShape(sockets=2, nodes=4, caches=4, cores=8)


def cells_of(page: Page) -> Counter[int]:
    """Return the CPUs that are drawn, and how often: once on each of two maps."""
    return Counter(int(cell["data-cpu"] or "") for cell in page.named("g") if cell.get("class") == "cell")


def pod_with(label: str, held: str, uid: str = "u") -> CPUOwner:
    return CPUOwner(label, uid, CPUSet.parse(held))


def test_every_cpu_is_in_the_data_and_once_on_each_map() -> None:
    for machine in (regular(SampleShape(sockets=2, cores=2)), hybrid()):
        report = report_on(occupied(machine))
        page = Page(html_text(report))
        cpus = {cpu.cpu for cpu in report.node.cpus()}
        assert {cpu["id"] for cpu in page.data()["cpus"]} == cpus
        assert cells_of(page) == dict.fromkeys(cpus, 2)


def test_an_l3_of_512_cpus_that_no_step_changes_is_one_block_and_all_else_are_cells() -> None:
    pools = Pools(CPUSet.parse("4"), CPUSet.parse("4-511"))
    view = build_view(regular(BIG), owners=[pod_with("ns/pod/main", "0-3")], pools=pools)
    passing = ReportStep(0, ((CPUView(40, CPUUse.FREE),),))
    page = Page(html_text(report_on(view, steps=(ReportStep(None), passing))))
    cells = set(cells_of(page))
    l3s = {cpu.cpu: cpu.l3 for cpu in view.cpus()}
    assert cells == {cpu for cpu, l3 in l3s.items() if l3 in {l3s[held] for held in (0, 4, 40)}}
    blocks = [CPUSet.parse(found) for found in re.findall(r"<title>CPUs ([^<]+)</title>", page.text)]
    assert sorted(chain(cells, *blocks[: len(blocks) // 2])) == sorted(l3s)


def test_the_data_in_the_page_is_the_data_of_the_report() -> None:
    report = report_on(
        occupied(regular(SampleShape())),
        accounts={0: NUMANodeState(0, {"memory": MemoryTable(64, 2, 60, 0, 60)}, (0,))},
        devices=(DeviceView("x/gpu", "gpu-0", (0,)),),
        steps=(
            ReportStep(None),
            ReportStep(
                0,
                memory={0: NUMANodeState(1, {"memory": MemoryTable(64, 2, 60, 5, 55)}, (0,))},
                devices=((0, "ns/pod/c"),),
            ),
        ),
    )
    data = Page(html_text(report)).data()
    assert data == report_data(report)
    assert (data["apiVersion"], data["kind"]) == ("mooring/v1alpha1", "Report")
    assert data["steps"][1]["devices"] == [{"device": 0, "holder": "ns/pod/c"}]
    assert data["steps"][1]["accounts"] == [{"account": 0, "assigned": 5, "free": 55, "group": [0]}]


@given(st.text(max_size=30), st.text(max_size=30))
@settings(max_examples=20, deadline=None)
def test_no_text_from_outside_becomes_markup(one: str, two: str) -> None:
    hostile = f"</script></style><!-- ]]><img src=x onerror=alert(1)>\"'`&lt;\u2028\ud800\x00{one}"
    plain = html_text(_filled("name", "other"))
    text = html_text(_filled(hostile, hostile + two))
    page = Page(text)
    assert "\x00" not in text
    assert text.encode()
    assert [tag for tag, _ in page.elements] == [tag for tag, _ in Page(plain).elements]
    named = {name for _, attributes in page.elements for name in attributes}
    assert named == {name for _, attributes in Page(plain).elements for name in attributes}
    assert page.data()["pods"][0]["name"].startswith("</script></style>")


def _filled(one: str, two: str) -> ReportView:
    """Return a report with a text from outside in every place that takes one."""
    owners, pools = [pod_with(one, "1-2", "uid"), pod_with(two, "3", "other")], Pools(CPUSet.parse("0"))
    view = build_view(regular(SampleShape(), one), owners=owners, pools=pools, subtitle=one, caption=[two])
    row = PlacementRow(one, one, two, True, CPUSet.parse("1-2"), (0,), (0,), one)
    rejected = ReportPod(one, "uid", two, False, 1, two, one, two, one, two, (row,))
    return report_on(
        view,
        pods=(rejected,),
        refusal=one,
        refusal_code=two,
        accounts={0: NUMANodeState(0, {one: MemoryTable(64, 0, 0, 0, 0)}, ())},
        devices=(DeviceView(one, two, ()),),
        findings=(Finding("warning", one, f"{one} {two}", "MOOR-401"), Finding("warning", one, two, two)),
        facts=((one, two),),
        distances={0: (10, 20), 1: (20, 10)},
    )


def test_the_policy_admits_the_own_script_and_styles_and_nothing_else() -> None:
    text = html_text(report_on(occupied(hybrid())))
    page = Page(text)
    policy = not_none(next(meta["content"] for meta in page.named("meta") if "http-equiv" in meta))
    elements = ("script-src", r'<script type="module">(.*?)</script>'), ("style-src", r"<style>(.*?)</style>")
    for kind, element in elements:
        content = not_none(re.search(element, text, re.DOTALL))[1]
        digest = b64encode(sha256(content.encode()).digest()).decode()
        assert f"{kind} 'sha256-{digest}';" in policy
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert not [name for _, attributes in page.elements for name in attributes if name == "style" or name[:2] == "on"]


@pytest.mark.parametrize("make", [lambda: html_text(_filled("name", "other")), lambda: svg_text(occupied(hybrid()))])
def test_page_and_picture_refer_to_nothing_outside_themselves(make: Callable[[], str]) -> None:
    text = make()
    assert set(re.findall(r"https?://[^\s\"'`]+", text)) == {"http://www.w3.org/2000/svg"}
    patterns = {f"#mooring-{name}" for name in ("crosses", "dots", "stripes", "hatch-light", "hatch-dark")}
    assert set(re.findall(r"url\((.*?)\)", text)) <= patterns


def test_the_page_loads_and_links_nothing() -> None:
    page = Page(html_text(_filled("name", "other")))
    names = {name for _, attributes in page.elements for name in attributes}
    assert not names & {"src", "srcset", "action", "data", "poster"}
    assert [link.get("href") for link in page.named("a")] == ["#map-title"]


def test_the_table_of_pods_has_the_letters_of_the_map_and_folds_advice_about_admitted_pods() -> None:
    owners = [pod_with("ns/one/main", "1", "u1"), pod_with("ns/two/main", "2", "u2")]
    view = build_view(regular(SampleShape()), owners=owners)
    rows = (PlacementRow("ns/one", "main", "exclusive", admitted=True, cpus=CPUSet.parse("1"), cpu_nodes=(0,)),)
    pods = (
        ReportPod("ns/one", "u1", "admitted", admitted=True, step=1, remedy="ask for more", containers=rows),
        ReportPod("ns/three", "u3", "rejected", admitted=False, step=2, remedy="ask for less"),
    )
    table = html_text(replace(report_on(view), pods=pods)).partition('<table id="pods">')[2].partition("</table>")[0]
    [first, second] = table.partition("<tbody>")[2].split("</tr>")[:2]
    assert first.count('aria-label="owner a"') == 2
    assert "<summary>Advice</summary>ask for more</details>" in first
    assert "details" not in second
    assert "ask for less" in second


def test_ids_are_unique_and_labels_name_things_that_exist() -> None:
    page = Page(html_text(_filled("name", "other")))
    ids, labels = (
        Counter(attributes[name] for _, attributes in page.elements if name in attributes)
        for name in ("id", "aria-labelledby")
    )
    # The script makes the controls of the steps and of the differences.
    assert [name for name, count in ids.items() if count > 1] == []
    assert labels.keys() <= ids.keys()


def test_sections_without_content_are_left_out() -> None:
    view = build_view(hybrid())
    state = {cpu.cpu: cpu for cpu in view.cpus()}
    page = Page(html_text(ReportView("v1.37.1", view, (ReportStep(None, changes_between({}, state)),))))
    assert [text for tag, text in page.texts if tag == "h2"] == ["Machine"]
    assert html_text(_filled("name", "other")) == html_text(_filled("name", "other")), "the same report, the same bytes"


def test_512_cpus_with_200_owners_stay_small() -> None:
    owners = [
        CPUOwner(f"team-{n % 7}/workload-{n:03}-7f9c8d5b6-x2x4z/main", f"uid-{n}", CPUSet.of(2 + n * 2, 3 + n * 2))
        for n in range(200)
    ]
    view = build_view(regular(BIG), owners=owners, pools=Pools(CPUSet.parse("0-1"), CPUSet.parse("0-1")))
    assert len(list(view.cpus())) == 512
    assert len(html_text(report_on(view)).encode()) < 1_000_000
    assert len(svg_text(view).encode()) < 500_000


def test_the_distance_matrix_reads_on_every_shade_light_and_dark() -> None:
    text = style_text()
    found = re.findall(r"--(on-)?heat-(\d):(#[0-9a-f]{6})", text)
    grounds = [colour for on, _, colour in found if not on]
    words = [colour for on, _, colour in found if on]
    assert len(grounds) == len(words) == 3 * HEATS
    assert min(contrast(one, two) for one, two in zip(grounds, words, strict=True)) >= 4.5


CPU_STATES = st.lists(
    st.builds(CPUView, st.integers(0, 80), st.sampled_from(CPUUse), st.none() | st.integers(0, 3)),
    min_size=1,
    max_size=12,
    unique_by=lambda view: view.cpu,
).map(lambda views: {view.cpu: view for view in views})


@given(st.lists(CPU_STATES, min_size=1, max_size=4))
@settings(max_examples=30, deadline=None)
def test_changes_added_up_are_the_states_that_they_came_from(drawn: list[dict[int, CPUView]]) -> None:
    cpus = {cpu for states in drawn for cpu in states}
    frames = [{cpu: states.get(cpu, CPUView(cpu, CPUUse.OFFLINE)) for cpu in sorted(cpus)} for states in drawn]
    steps = tuple(
        ReportStep(None, changes_between(frames[index - 1] if index else {}, frame))
        for index, frame in enumerate(frames)
    )
    report = ReportView("v1.37.1", build_view(hybrid()), steps)
    for index, frame in enumerate(frames):
        assert cpu_states(report, index) == frame


# The SVG: safe, self-contained, small, legible.


SVG = "{http://www.w3.org/2000/svg}"
BIG_SVG = SampleShape(sockets=2, nodes=1, caches=16, cores=8)


def parsed(text: str) -> ET.Element:
    return ET.fromstring(text)  # noqa: S314 - our own text, and being well-formed is what is tested


@given(st.text(max_size=40), st.text(max_size=40), st.text(max_size=40))
@settings(max_examples=60, deadline=None)
def test_hostile_names_cannot_break_the_document(machine: str, owner: str, why: str) -> None:
    hostile = f"<script>alert(\"&amp;'\x1b[31m\x00\ud800]]>{owner}"
    view = build_view(
        regular(SampleShape(), machine),
        owners=[pod_with(hostile, "1-3")],
        rejected=[RejectedPod(owner, why, hostile)],
        subtitle=why,
        caption=[owner],
    )
    root = parsed(svg_text(view))
    assert not list(root.iter(f"{SVG}script"))
    assert len([node for node in root.iter() if node.attrib.get("class", "").startswith("cpu")]) == 8


def test_every_cell_tells_cpu_owner_and_place_when_pointed_at() -> None:
    view = build_view(regular(SampleShape(sockets=2, cores=2)), owners=[pod_with("ns/pod/c", "3")])
    titles = {node.text for node in parsed(svg_text(view)).iter(f"{SVG}title")}
    assert "CPU 3 · ns/pod/c · core of CPU 3 · L3 1 · NUMA node 1 · socket 1" in titles


def test_512_cpus_stay_below_500_kb_and_256_within_1200_pixels() -> None:
    assert len(svg_text(occupied(regular(BIG_SVG))).encode()) < 500_000
    text = svg_text(occupied(regular(SampleShape(sockets=2, nodes=4, caches=2, cores=8))))
    assert int(parsed(text).attrib["width"]) <= 1200


def test_4096_cpus_are_drawn_one_by_one_or_as_free_blocks() -> None:
    view = occupied(regular(SampleShape(sockets=16, caches=16, cores=8)))
    texts = list(parsed(svg_text(view)).iter(f"{SVG}text"))
    numbers = [node for node in texts if node.attrib["class"].startswith("cpu")]
    folded = [int(found[1]) for node in texts if (found := re.search(r"^L3 \d+ · (\d+) free", node.text or ""))]
    assert len(numbers) + sum(folded) == 4096
    assert folded


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
    view = build_view(regular(SampleShape()), owners=[pod_with(name, "1,5")])
    root = parsed(svg_text(view))
    shown = [node.text or "" for node in root.iter(f"{SVG}text")]
    assert name not in shown
    assert any(name in (node.text or "") for node in root.iter(f"{SVG}title"))


@given(st.text(max_size=60), st.integers(0, 300))
def test_fitted_text_is_never_wider_than_its_room(text: str, room: int) -> None:
    assert text_width(fitting(text, room, 11), 11) <= room or fitting(text, room, 11) == ""


def test_no_text_runs_out_of_the_page() -> None:
    view = replace(occupied(regular(BIG_SVG)), name="n" * 400, subtitle="s" * 900)
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
    long_names = "a-rather-long-device-name-of-a-vendor", "sriov-netdevice-dpdk-fast"
    names = [*(f"example.com/{name}" for name in long_names), "nvidia.com/gpu"]
    devices = [DeviceView(name, "d", (0,)) for name in names]
    cpus = CPUSet.parse("1-4") if with_cpus else CPUSet()
    first = CPUOwner("ns/one/c", "u", cpus, (0,), devices=frozenset((name, "d") for name in names))
    owners = [first, pod_with("ns/two/c", "5", "v")]
    root = parsed(svg_text(build_view(regular(SampleShape()), owners=owners, devices=devices)))
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


# Names of owners where there is little room: unique, complete, and cut where nothing that tells them apart is.


WORD = st.text("ab", min_size=1, max_size=4) | st.sampled_from(["a" * 63, "a" * 62 + "b", "kube-system"])
POD = st.builds(
    "{}-{}".format, WORD | st.just("p" * 240), st.integers(0, 3) | st.sampled_from(["x2x4z", "7f9c8d5b6-a"])
)
NAME = st.builds("{}/{}/{}".format, WORD, POD, WORD) | st.builds("{}/{}".format, WORD, POD)
OWNERS = st.lists(st.tuples(NAME, st.sampled_from(["u1", "u2", "u3"])), min_size=1, max_size=14)


@given(OWNERS)
@example([("a/b-0/c", "u1"), ("a/b-0/c", "u1"), ("a/b-0/c", "u2")])
def test_no_two_owners_have_a_form_of_their_names_in_common(owners: list[tuple[str, str]]) -> None:
    names = unique_names([label for label, _ in owners], [uid for _, uid in owners])
    assert len(set(names)) == len(owners)
    found = short_names(names, owner_marks(len(owners)))
    every = list(chain.from_iterable(found))
    assert len(set(every)) == len(every)
    assert [forms[0] for forms in found] == list(names)
    for forms in found:
        assert [len(form) for form in forms] == sorted((len(form) for form in forms), reverse=True)


@given(WORD, st.integers(0, 20), st.integers(0, 300))
def test_a_cut_name_keeps_its_ordinal(name: str, ordinal: int, room: int) -> None:
    short = cut(f"{name}-{ordinal}", room)
    assert short.endswith(f"-{ordinal}") or not short
    assert len(short) <= room


@given(OWNERS, st.sampled_from([2, 8, 24]))
@example([*[("a/a-0/a", "u1")] * 3, *[("a/a-0", "u1")] * 3, ("a" * 63 + "/a-0", "u1"), ("a/a-0/a", "u1")], 24)
@settings(max_examples=40, deadline=None)
def test_the_picture_lists_every_owner_once_and_never_two_alike(owners: list[tuple[str, str]], cores: int) -> None:
    machine = regular(SampleShape(nodes=2, cores=cores))
    total = machine.info.num_cores
    held = [
        CPUOwner(label, uid, CPUSet.from_ids([index, index + total // 2] if index < total // 2 else []))
        for index, (label, uid) in enumerate(owners)
    ]
    view = build_view(machine, owners=held)
    texts = [node.text or "" for node in parsed(svg_text(view)).iter(f"{SVG}text")]
    for owner in view.owners:
        listed = [text for text in texts if text in owner.forms]
        assert listed
        others = {form for other in view.owners if other is not owner for form in other.forms}
        assert not others & set(listed)


def test_a_name_over_one_core_runs_on_over_cores_without_a_name() -> None:
    view = build_view(regular(SampleShape(cores=8)), owners=[pod_with("data/database-0/db", "0,8")])
    assert svg_text(view).count(">data/database-0/db</text>") == 2


def test_a_form_that_two_owners_would_share_is_left_out() -> None:
    found = short_names(["a/database-0/x", "a/dashbase-0/x"], ["a", "b"])
    assert [forms[-1] for forms in found] == ["dat…-0", "das…-0"]
