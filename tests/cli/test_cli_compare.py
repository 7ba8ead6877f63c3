"""``mooring compare``: what is compared, what is said, exit codes, bad input."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest
import yaml
from tests.cli.command import CORPORA, EXAMPLES, NODE, PODS, mooring
from tests.cli.given import SIXTEEN_CORES, STATIC, given, pod, written
from tests.values import cases

from mooring.answers.compare.measures import MEASURES
from mooring.answers.compare.variant import Dimension
from mooring.inputs.archive.reader import ALLOCATABLE

SVG = "{http://www.w3.org/2000/svg}"
VARIED = (*PODS, *NODE, "--vary", "topology-policy")


@pytest.fixture
def loose(tmp_path: Path) -> Path:
    """Return a configuration under which every pod of the example fits."""
    node = given(tmp_path, kubelet=STATIC | {"reservedSystemCPUs": "0,64,128,192"})
    return Path(node[-1]).rename(tmp_path / "loose.yaml")


def test_the_names_on_the_command_line_are_those_of_the_planner() -> None:
    for option, values in (("--vary", [one.value for one in Dimension]), ("--by", [*MEASURES])):
        told = mooring("compare", *PODS, *NODE, option, "colour", code=2).complaint
        named = told.partition(" is not one of ")[2].partition(";")[0].replace("'", "")
        assert named == ", ".join(values)


def test_the_best_stands_first_and_the_given_one_is_shown_below(loose: Path) -> None:
    answered = mooring("compare", *PODS, *NODE, "--with", loose, "--top", "1", "--by", "admitted", code=0)
    lines = answered.out.splitlines()
    assert lines[1] == "11 pods under 2 variants."
    assert [line.split()[:4] for line in lines if line.strip()[:2] in ("1.", "2.")] == [
        ["1.", "11", "of", "11"],
        ["2.", "8", "of", "11"],
    ]
    assert "      loose.yaml as given · CPU manager static · topology manager none" in lines
    assert "and 1 more (--top 0 shows all)" in lines


def test_a_configuration_alone_is_compared_with_the_other_topology_policies() -> None:
    alone, varied = mooring("compare", *PODS, *NODE), mooring("compare", *PODS, *NODE, "--vary", "topology-policy")
    assert "11 pods under 4 variants." in alone.out
    assert (alone.code, alone.out) == (varied.code, varied.out)


def test_without_a_variant_that_admits_all_the_answer_is_no() -> None:
    answered = mooring("compare", *VARIED, "--by", "admitted", code=1)
    assert "Admitted by none: core/timekeeper." in answered.out
    assert "What makes the best of kubelet.yaml:" in answered.out
    assert "  topologyManagerPolicy: best-effort instead of single-numa-node" in answered.out
    assert "The best guarantees no alignment (policy best-effort)" in answered.out


def test_narrow_terminals_keep_what_matters() -> None:
    lines = mooring("compare", *VARIED, columns=30).out.splitlines()
    assert any(line.split()[:2] == ["admitted", "NUMA"] for line in lines)


def test_left_out_combinations_are_counted_and_reported() -> None:
    vary = (*PODS, *NODE, "--vary", "cpu-options")
    answered = mooring("compare", *vary)
    assert "50 combinations left out, because the kubelet would not start with them" in answered.out.replace("\n", " ")
    wide = mooring("compare", *vary, "-o", "wide").out
    told = [line for line in wide.splitlines() if line.startswith("left out ")]
    assert sum(int(line.split()[2].rstrip(":")) for line in told) == 50
    assert any("can not be used at the same time" in line for line in told)


def test_the_document_has_every_variant_with_the_same_keys() -> None:
    document = mooring("compare", *VARIED, "-o", "json").document
    assert (document["apiVersion"], document["kind"], document["pods"]) == ("mooring/v1alpha1", "Comparison", 11)
    assert len(document["variants"]) == 4
    assert len({tuple(variant) for variant in document["variants"]}) == 1
    given = [variant for variant in document["variants"] if variant["asGiven"]]
    assert [(variant["name"], variant["changes"], variant["admitted"]) for variant in given] == [
        ("kubelet.yaml", [], 8)
    ]
    assert [variant["group"] for variant in document["variants"]] == [1, 2, 3, 4]
    assert [one["alignmentPromise"] for one in document["variants"]] == ["guarantee", "guarantee", "attempt", "nothing"]
    assert document["neverAdmitted"] == ["core/timekeeper"]


def test_the_picture_is_always_the_same_with_a_mark_for_each_setting_and_bars_as_long_as_their_counts() -> None:
    first, second = (mooring("compare", *VARIED, "-o", "svg").out for _ in range(2))
    assert first == second
    root = ET.fromstring(first)  # noqa: S314 - our own text
    words = " ".join(root.itertext())
    assert "kubelet.yaml as given" in words
    assert "rejected: TopologyAffinityError" in words
    titled = [(group.findtext(f"{SVG}title", ""), group.find(f"{SVG}rect")) for group in root.iter(f"{SVG}g")]
    drawn = [(title, rect.attrib) for title, rect in titled if title and rect is not None]
    # A bar is one pixel shorter than its place.
    scales = [(float(at["width"]) + 1) / int(title.split()[0]) for title, at in drawn if at["height"] == "19"]
    assert len(scales) == 10, "a count of nothing has no bar"
    assert max(scales) - min(scales) < 0.3
    ends = [float(at["x"]) + float(at["width"]) for _, at in drawn if at["height"] == "19"]
    assert max(ends) < min(float(at["x"]) for _, at in drawn if at["class"] == "bar")
    marks = [(title, at["class"]) for title, at in drawn if title.endswith("topology manager single-numa-node")]
    assert [title.startswith("not ") for title, _ in marks] == [True, False, True, True]
    assert [ground for _, ground in marks] == ["free", "contested", "free", "free"]
    for at in (rect.attrib for rect in root.iter(f"{SVG}rect") if "x" in rect.attrib):
        assert float(at["x"]) + float(at["width"]) <= float(root.attrib["width"])
        assert float(at["y"]) + float(at["height"]) <= float(root.attrib["height"])


def test_what_users_write_is_text_in_the_picture_and_no_markup(loose: Path) -> None:
    odd = loose.rename(loose.with_name("<b>&.yaml"))
    root = ET.fromstring(mooring("compare", *PODS, *NODE, "--with", odd, "-o", "svg").out)  # noqa: S314 - our own text
    assert "<b>&.yaml" in "".join(root.itertext())
    assert root.find(f".//{SVG}b") is None


def test_machines_are_compared_too() -> None:
    config = ("--config", str(EXAMPLES / "kubelet.yaml"))
    machines = ("--machine", "epyc-7763-2s-nps4", "--machine", "small-1s8")
    document = mooring("compare", *PODS, *config, *machines, "-o", "json").document
    assert [(one["machine"], one["starts"]) for one in document["variants"]] == [
        ("epyc-7763-2s-nps4", True),
        ("small-1s8", False),
    ]
    assert document["variants"][1]["startErrorCode"].startswith("MOOR-2")


def test_devices_of_the_configuration_are_on_every_machine() -> None:
    options = ("-f", str(EXAMPLES / "ai-pods.yaml"), "--config", str(EXAMPLES / "ai-kubelet.yaml"))
    machine = "sockets=2 numa=4 cores=64 threads=2 memory=256Gi hugepages-2Mi=2048"
    answered = mooring(
        "compare", *options, "--machine", machine, "--vary", "topology-scope,memory-policy", "-o", "json"
    )
    told = {finding["subject"] for finding in answered.document["findings"]}
    assert "vendor.example/gpu" not in told, "the devices are declared"
    assert len(answered.document["variants"]) == 4


def test_a_running_pod_is_not_counted_among_the_asked(loose: Path) -> None:
    path = written(loose.with_name("running.yaml"), pod("old", 8, uid="old"))
    document = mooring("compare", *PODS, *NODE, "--active", path, "--with", loose, "-o", "json").document
    assert document["pods"] == 11


def test_a_recorded_trace_warns_of_a_release_that_is_not_known() -> None:
    source = f"{CORPORA / 'admission-lifecycle-restart.jsonl.gz'}#lifecycle-restart-0004"
    newer = mooring("compare", "--trace", source, "--kubelet-version", "1.99", "-o", "json")
    assert "MOOR-580" in {finding["code"] for finding in newer.document["findings"]}
    assert "warning[MOOR-580]: kubelet 1.99" in mooring("compare", "--trace", source, "--kubelet-version", "1.99").err
    assert "MOOR-580" not in mooring("compare", "--trace", source, "--kubelet-version", "1.34").err


def test_a_trace_takes_another_machine_and_configuration(tmp_path: Path, loose: Path) -> None:
    pod = {"metadata": {"name": "a", "uid": "a"}, "spec": {"containers": [{"name": "c"}]}}
    scenario = {"machine": "cores=4", "kubelet": {}, "steps": [{"admit": pod}, {"remove": "a"}]}
    path = tmp_path / "day.yaml"
    path.write_text(yaml.safe_dump(scenario))
    other = ("--config", loose, *NODE[:2])
    answered = mooring("compare", "--trace", path, *other, "--vary", "topology-scope", code=0)
    assert answered.out.startswith("epyc-7763-2s-nps4: ")


@pytest.mark.parametrize(
    ("lines", "name", "complaint"), cases(__file__, "refused-traces.yaml", "lines", "name", "says")
)
def test_an_unrunnable_trace_is_refused(
    lines: list[dict[str, object]], name: str, complaint: str, tmp_path: Path
) -> None:
    file = tmp_path / "day.jsonl"
    file.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    assert complaint in mooring("compare", "--trace", f"{file}{name}", "--all-options", code=2).complaint


def test_alternatives_alone_are_compared_with_one_another(loose: Path) -> None:
    answered = mooring(
        "compare", *PODS, *NODE[:2], "--with", loose, "--with", str(EXAMPLES / "kubelet.yaml"), "-o", "json"
    )
    assert (answered.code, answered.err) == (0, "")
    assert [variant["name"] for variant in answered.document["variants"]] == ["kubelet.yaml", "loose.yaml"]


def test_what_guarantees_alignment_comes_before_what_admits_most_and_columns_are_explained() -> None:
    told = " ".join(mooring("compare", *PODS, *NODE, "--top", "1").out.split())
    assert (
        "Best that guarantees alignment: 1. Admits most: 3 (10 of 11), and guarantees no alignment (policy best-effort)"
    ) in told
    assert "3. 10 of 11" in told, "it is shown although only the best are"
    assert "stranded: CPUs that no more pod like these can use" in told


def test_rows_that_differ_in_nothing_shown_are_one(tmp_path: Path) -> None:
    node = given(tmp_path, pod("a", 2), machine=SIXTEEN_CORES)
    told = mooring("compare", *node, "--vary", "cpu-options", "--top", "0").out
    assert "      the same figures also with: strict-cpu-reservation" in told
    rows = [line.split() for line in told.splitlines() if line.strip()[:2].rstrip(".").isdigit()]
    assert len({tuple(row[1:]) for row in rows}) == len(rows)


@pytest.mark.parametrize("is_packed", [False, True])
def test_a_node_archive_is_a_machine_with_its_devices(is_packed: bool, tmp_path: Path) -> None:
    node = tmp_path / "node"
    shutil.copytree(EXAMPLES / "node", node)
    offered = [{"id": f"vf{number}", "numa": [0]} for number in range(2)]
    devices = {"apiVersion": "mooring/v1alpha1", "kind": "NodeDevices", "devices": {"example.com/vf": offered}}
    (node / ALLOCATABLE).parent.mkdir(exist_ok=True)
    (node / ALLOCATABLE).write_text(yaml.safe_dump(devices))
    (tmp_path / "other.yaml").write_text(yaml.safe_dump({**devices, "devices": {"example.com/vf": offered[:1]}}))
    pod = "{{apiVersion: v1, kind: Pod, metadata: {{name: p{}}}, spec: {{containers: [{}]}}}}"
    container = "{name: c, resources: {limits: {cpu: 1, memory: 1Mi, example.com/vf: 1}}}"
    (tmp_path / "pods.yaml").write_text("\n---\n".join(pod.format(number, container) for number in range(4)))
    archive = Path(shutil.make_archive(str(tmp_path / "packed"), "gztar", node)) if is_packed else node
    asked = ("compare", "-f", tmp_path / "pods.yaml", "-o", "json")
    pairs = ("--pair", archive, "--pair", f"cores=8 memory=8Gi,{tmp_path / 'other.yaml'}")
    for order in (pairs, (*pairs[2:], *pairs[:2])):
        found = mooring(*asked, *order).document["variants"]
        assert sorted(one["admitted"] for one in found) == [1, 2]


def test_a_machine_and_its_devices_are_one_pair(tmp_path: Path) -> None:
    """Virtual functions of one card, under NPS1 and NPS4: the NUMA nodes of the one are not those of the other."""
    (tmp_path / "kubelet.yaml").write_text(
        "{kind: KubeletConfiguration, cpuManagerPolicy: static, topologyManagerPolicy: single-numa-node, "
        "reservedSystemCPUs: '0'}"
    )
    for name, nodes in (("nps1", (0, 1)), ("nps4", (1, 5))):
        offered = [{"id": f"vf{number}", "numa": [nodes[number % 2]]} for number in range(4)]
        devices = {"apiVersion": "mooring/v1alpha1", "kind": "NodeDevices", "devices": {"example.com/vf": offered}}
        (tmp_path / f"{name}.yaml").write_text(yaml.safe_dump(devices))
    pod = "{{apiVersion: v1, kind: Pod, metadata: {{name: p{}}}, spec: {{containers: [{}]}}}}"
    container = "{name: c, resources: {limits: {cpu: 20, memory: 1Gi, example.com/vf: 1}}}"
    (tmp_path / "pods.yaml").write_text("\n---\n".join(pod.format(number, container) for number in range(4)))
    asked = ("compare", "-f", tmp_path / "pods.yaml", "--config", tmp_path / "kubelet.yaml", "-o", "json")
    pairs = [f"epyc-7763-2s-{name},{tmp_path / name}.yaml" for name in ("nps4", "nps1")]
    found = mooring(*asked, "--pair", pairs[0], "--pair", pairs[1]).document["variants"]
    assert [(one["machine"], one["admitted"]) for one in found] == [("epyc-7763-2s-nps1", 4), ("epyc-7763-2s-nps4", 2)]
    assert mooring(*asked, "--pair", "epyc-7763-2s-nps1").code == 2
    assert mooring(*asked, "--pair", tmp_path / "nps1.yaml").code == 2
    assert mooring(*asked, "--pair", pairs[0], "--machine", "small-1s8").code == 2


# ``mooring compare --kubelet-version A,B``: several releases side by side, and the rules that separate them.


MACHINE = ("--machine", "sockets=1 numa=2 cores=8 threads=2 memory=64Gi")
CONFIG = """\
kind: KubeletConfiguration
cpuManagerPolicy: static
reservedSystemCPUs: "0"
"""
POD_LEVEL = """\
kind: Pod
metadata: {name: whole}
spec:
  resources: {limits: {cpu: "4", memory: 1Gi}}
  containers: [{name: c, resources: {limits: {cpu: "4", memory: 1Gi}}}]
---
kind: Pod
metadata: {name: plain}
spec:
  containers: [{name: c, resources: {limits: {cpu: "2", memory: 1Gi}}}]
"""


@pytest.fixture
def asked(tmp_path: Path) -> tuple[str | Path, ...]:
    """Arguments about a pod with resources of its own, which kubelets up to 1.33 place by its container."""
    config, pods = tmp_path / "kubelet.yaml", tmp_path / "pods.yaml"
    config.write_text(CONFIG, encoding="utf-8")
    pods.write_text(POD_LEVEL, encoding="utf-8")
    return ("compare", "-f", pods, "--config", config, *MACHINE)


def test_a_difference_is_named_by_the_rule_that_alone_makes_it(asked: tuple[str | Path, ...]) -> None:
    answered = mooring(*asked, "--kubelet-version", "v1.33.5,1.34", "--kubelet-version", "1.37", "-o", "json", code=1)
    found = answered.document
    assert found["kubelets"] == ["v1.33.13", "v1.34.4", "v1.37.2"]
    same = {pod["name"]: pod["same"] for pod in found["pods"]}
    assert not same["whole"]
    (difference,) = (one for one in found["differences"] if one["newer"] == "v1.34.4")
    assert difference["older"] == "v1.33.13"
    assert [rule["rule"] for rule in difference["rules"]] == ["pod-level-pods-by-containers"]
    assert difference["unexplained"] == []
    decisions = {one["kubelet"]: one["containers"]["c"]["cpus"] for one in found["pods"][0]["decisions"]}
    assert decisions["v1.33.13"]
    assert not decisions["v1.34.4"]


def test_the_answer_of_one_older_release_names_it(asked: tuple[str | Path, ...]) -> None:
    assert " of kubelet v1.33.13" in " ".join(mooring(*asked, "--kubelet-version", "1.33").out.split())
    assert " of kubelet v" not in mooring(*asked, "--kubelet-version", "1.37").out


def test_the_text_has_a_column_for_neighbours_that_decide_alike(asked: tuple[str | Path, ...]) -> None:
    answered = mooring(*asked, "--kubelet-version", "1.32,1.33,1.34,1.37")
    heading = next(line for line in answered.out.splitlines() if line.startswith(" ") and "v1.33.13" in line)
    assert [part.strip() for part in heading.split("  ")][-2:] == ["v1.32.13 to v1.33.13", "v1.34.4 to v1.37.2"]
    assert "pod-level-pods-by-containers (1.31 to 1.33)" in answered.out


def test_a_kubelet_that_does_not_start_is_named_and_not_compared() -> None:
    answered = mooring("compare", *PODS, *NODE, "--kubelet-version", "1.31,1.36,1.37", "-o", "json")
    found = answered.document
    assert (answered.code, list(found["startErrors"])) == (1, ["v1.31.14"])
    assert found["differences"] == []
    text = mooring("compare", *PODS, *NODE, "--kubelet-version", "1.31,1.36,1.37").out
    assert "Kubelet v1.31.14 would not start: [MOOR-214]" in text
    assert "v1.36.3 to v1.37.2: the same decisions." in text


def test_releases_that_decide_alike_are_a_yes(asked: tuple[str | Path, ...]) -> None:
    assert mooring(*asked, "--kubelet-version", "1.31,1.32").code == 0


def test_every_kubelet_that_would_not_start_is_named(tmp_path: Path, asked: tuple[str | Path, ...]) -> None:
    (tmp_path / "kubelet.yaml").write_text(f"{CONFIG}featureGates: {{PodLevelResources: false}}\n", encoding="utf-8")
    out = mooring(*asked, "--kubelet-version", "1.36,1.37").out
    assert "Kubelet v1.36.3 would not start: " in out
    assert "Kubelet v1.37.2 would not start: " in out
