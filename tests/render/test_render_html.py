"""The HTML report without a browser: well nested, whole, safe, small."""

from __future__ import annotations

import re
from base64 import b64encode
from collections import Counter
from dataclasses import replace
from hashlib import sha256

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.render.html_page import Page
from tests.render.report_pages import report_on
from tests.render.report_steps import cpu_states
from tests.render.sample_machines import SampleShape, hybrid, occupied, regular

from mooring.engine.core.cpuset import CPUSet
from mooring.engine.core.machine import Finding
from mooring.views.build import CPUOwner, Pools, build_view
from mooring.views.devices import DeviceView
from mooring.views.html.document import HEATS, html_text, style_text
from mooring.views.report import (
    Account,
    AccountState,
    ReportCPU,
    ReportDistances,
    ReportPod,
    ReportStep,
    ReportView,
    changes_between,
    report_data,
)
from mooring.views.svg.picture import svg_text
from mooring.views.view import CPUUse, PlacementRow, contrast

BIG = SampleShape(sockets=2, nodes=4, caches=4, cores=8)


def test_every_cpu_is_in_the_data_and_once_on_each_map() -> None:
    for machine in (regular(SampleShape(sockets=2, cores=2)), hybrid()):
        report = report_on(occupied(machine))
        page = Page(html_text(report))
        cpus = {cpu.cpu for cpu in report.node.cpus()}
        assert {cpu["id"] for cpu in page.data()["cpus"]} == cpus
        drawn = Counter(int(cell["data-cpu"] or "") for cell in page.named("g") if cell.get("class") == "cell")
        assert drawn == dict.fromkeys(cpus, 2)


def test_the_data_in_the_page_is_the_data_of_the_report() -> None:
    report = report_on(
        occupied(regular(SampleShape())),
        accounts=(Account(0, "memory", 64, 2, 60),),
        devices=(DeviceView("x/gpu", "gpu-0", (0,)),),
        steps=(ReportStep(None), ReportStep(0, accounts=((0, AccountState(5, 55, (0,))),), devices=((0, "ns/pod/c"),))),
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
    machine = regular(SampleShape(), one)
    owners = [CPUOwner(one, "uid", CPUSet.parse("1-2")), CPUOwner(two, "other", CPUSet.parse("3"))]
    view = build_view(machine, owners=owners, pools=Pools(CPUSet.parse("0")), subtitle=one, caption=[two])
    return report_on(
        view,
        pods=(
            ReportPod(
                one,
                "uid",
                two,
                admitted=False,
                step=1,
                reason=two,
                message=one,
                why=two,
                remedy=one,
                code=two,
                containers=(PlacementRow(one, one, two, True, CPUSet.parse("1-2"), (0,), (0,), one),),
            ),
        ),
        refusal=one,
        refusal_code=two,
        accounts=(Account(0, one, 64),),
        devices=(DeviceView(one, two, ()),),
        findings=(Finding("warning", one, f"{one} {two}", "MOOR-401"), Finding("warning", one, two, two)),
        facts=((one, two),),
        distances=ReportDistances((0, 1), ((10, 20), (20, 10))),
    )


def test_the_policy_admits_the_own_script_and_styles_and_nothing_else() -> None:
    text = html_text(report_on(occupied(hybrid())))
    page = Page(text)
    policy = next(meta["content"] for meta in page.named("meta") if "http-equiv" in meta)
    assert policy is not None
    script = re.search(r'<script type="module">(.*?)</script>', text, re.DOTALL)
    styles = re.search(r"<style>(.*?)</style>", text, re.DOTALL)
    assert script is not None
    assert styles is not None
    for kind, content in (("script-src", script[1]), ("style-src", styles[1])):
        digest = b64encode(sha256(content.encode()).digest()).decode()
        assert f"{kind} 'sha256-{digest}';" in policy
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert not [name for _, attributes in page.elements for name in attributes if name == "style" or name[:2] == "on"]


def test_the_page_refers_to_nothing_outside_itself() -> None:
    text = html_text(_filled("name", "other"))
    assert set(re.findall(r"https?://[^\s\"'`]+", text)) <= {"http://www.w3.org/2000/svg"}
    assert set(re.findall(r"url\((.*?)\)", text)) <= {
        f"#mooring-{name}" for name in ("crosses", "dots", "stripes", "hatch-light", "hatch-dark")
    }
    page = Page(text)
    names = {name for _, attributes in page.elements for name in attributes}
    assert not names & {"src", "srcset", "action", "data", "poster"}
    assert [link.get("href") for link in page.named("a")] == ["#map-title"]


def test_the_table_of_pods_has_the_letters_of_the_map_and_folds_advice_about_admitted_pods() -> None:
    view = build_view(
        regular(SampleShape()),
        owners=[CPUOwner("ns/one/main", "u1", CPUSet.parse("1")), CPUOwner("ns/two/main", "u2", CPUSet.parse("2"))],
    )
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
    ids = Counter(value for _, attributes in page.elements for name, value in attributes.items() if name == "id")
    # The script makes the controls of the steps and of the differences.
    assert [name for name, count in ids.items() if count > 1] == []
    labels = {
        value for _, attributes in page.elements for name, value in attributes.items() if name == "aria-labelledby"
    }
    assert labels <= set(ids)


def test_sections_without_content_are_left_out() -> None:
    view = build_view(hybrid())
    state = {cpu.cpu: ReportCPU(cpu.use) for cpu in view.cpus()}
    page = Page(html_text(ReportView("v1.37.1", view, (ReportStep(None, changes_between({}, state)),))))
    titles = [text for tag, text in page.texts if tag == "h2"]
    assert titles == ["Machine"]


def test_the_same_report_gives_the_same_bytes() -> None:
    assert html_text(_filled("name", "other")) == html_text(_filled("name", "other"))


def test_512_cpus_with_200_owners_stay_small() -> None:
    machine = regular(BIG)
    everything = list(range(512))
    owners = [
        CPUOwner(f"team-{index % 7}/workload-{index:03}-7f9c8d5b6-x2x4z/main", f"uid-{index}", CPUSet.from_ids(taken))
        for index in range(200)
        if (taken := everything[2 + index * 2 : 4 + index * 2])
    ]
    view = build_view(machine, owners=owners, pools=Pools(CPUSet.parse("0-1"), CPUSet.parse("0-1")))
    assert len(list(view.cpus())) == 512
    report = report_on(view)
    assert len(html_text(report).encode()) < 1_000_000
    assert len(svg_text(view).encode()) < 500_000


def test_the_distance_matrix_reads_on_every_shade_light_and_dark() -> None:
    text = style_text()
    found = re.findall(r"--(on-)?heat-(\d):(#[0-9a-f]{6})", text)
    grounds = [colour for on, _, colour in found if not on]
    words = [colour for on, _, colour in found if on]
    assert len(grounds) == len(words) == 3 * HEATS
    assert min(contrast(one, two) for one, two in zip(grounds, words, strict=True)) >= 4.5


CPU_STATES = st.dictionaries(
    st.integers(0, 80),
    st.builds(ReportCPU, st.sampled_from(CPUUse), st.lists(st.integers(0, 3), max_size=2).map(tuple)),
    min_size=1,
    max_size=12,
)


@given(st.lists(CPU_STATES, min_size=1, max_size=4))
@settings(max_examples=30, deadline=None)
def test_changes_added_up_are_the_states_that_they_came_from(drawn: list[dict[int, ReportCPU]]) -> None:
    cpus = {cpu for states in drawn for cpu in states}
    frames = [{cpu: states.get(cpu, ReportCPU(CPUUse.OFFLINE)) for cpu in sorted(cpus)} for states in drawn]
    steps = tuple(
        ReportStep(None, changes_between(frames[index - 1] if index else {}, frame))
        for index, frame in enumerate(frames)
    )
    report = ReportView("v1.37.1", build_view(hybrid()), steps)
    for index, frame in enumerate(frames):
        assert cpu_states(report, index) == frame
