"""Pictures that strangers found wrong: each says its answer above, and no label of it is cut, decayed or covered."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

import pytest
from playwright.sync_api import Browser
from tests.browser.test_browser_edges import TROUBLES
from tests.cli.command import mooring

KUBELET = """\
apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
cpuManagerPolicy: static
memoryManagerPolicy: Static
topologyManagerPolicy: {policy}
reservedSystemCPUs: "0"
kubeReserved: {{memory: 924Mi}}
reservedMemory: [{{numaNode: 0, limits: {{memory: 1Gi}}}}]
"""
POD = """\
apiVersion: v1
kind: Pod
metadata: {{name: {name}, namespace: team-a}}
spec: {{containers: [{{name: main, resources: {{limits: {{cpu: {cpus}, memory: 2Gi{more}}}}}}}]}}
---
"""
DPDK = ', hugepages-1Gi: 8Gi, "intel.com/intel_sriov_dpdk": 2'
GPUS = ', "nvidia.com/gpu": 2, "nvidia.com/hostdev": 2'
SOCKETS = "sockets=2 numa=8 cores=256 threads=2 l3=32 memory=1Ti"
FOUR = "sockets=4 numa=16 cores=512 threads=2 l3=64 memory=2Ti"

PICTURES: Mapping[str, tuple[tuple[str, ...], str, tuple[int, str], str]] = {
    "conflict": (("explain", "team-a/pod-5"), "epyc-telco-2s-nps4", (7, DPDK), "MOOR-108 · team-a/pod-5 is rejected"),
    "lack": (("explain", "team-a/pod-5"), "sockets=1 cores=32 memory=64Gi", (7, ""), "team-a/pod-5 is rejected"),
    "too-large": (("explain", "team-a/pod-5"), "hgx-8gpu", (26, GPUS), "MOOR-131 · team-a/pod-5 is rejected"),
    "capacity": (("capacity", "team-a/pod-0", "--alone"), "small-1s8", (2, ""), "fit"),
    "gpus": (("show",), "hgx-8gpu", (26, GPUS), "4 pods admitted, 2 rejected."),
    "telco": (("show",), "epyc-telco-2s-nps4", (7, DPDK), "4 pods admitted, 2 rejected."),
    "512-cpus": (("show",), SOCKETS, (5, ""), "6 pods admitted, 0 rejected."),
    "1024-cpus": (("show",), FOUR, (9, ""), "6 pods admitted, 0 rejected."),
    "2-cpus": (("show",), "cores=2 memory=16Gi", (1, ""), "1 pod admitted, 5 rejected."),
}
"""Name -> verb, machine, CPUs and other requests of six pods, and what the headline says."""


@pytest.fixture(scope="module")
def drawn(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, str]:
    folder = tmp_path_factory.mktemp("pictures")
    return {name: picture(folder, name) for name in PICTURES}


def picture(folder: Path, name: str) -> str:
    verb, machine, (cpus, more), _ = PICTURES[name]
    policy = "none" if name in ("lack", "1024-cpus") else "single-numa-node"
    pods, kubelet = folder / f"{name}.yaml", folder / f"{name}-kubelet.yaml"
    pods.write_text("".join(POD.format(name=f"pod-{one}", cpus=cpus, more=more) for one in range(6)), "utf-8")
    text = KUBELET.format(policy=policy)
    kubelet.write_text(
        text if name != "1024-cpus" else re.sub("(?m)^(memory|kube|reservedMemory).*\n", "", text), "utf-8"
    )
    asked = verb if verb[0] != "capacity" else verb[:2]
    answer = mooring(*asked, "-f", pods, "--machine", machine, "--config", kubelet, "-o", "svg")
    assert answer.code in (0, 1), answer.err
    return answer.out


def texts(svg: str) -> list[str]:
    return re.findall(r"<text[^>]*>([^<]*)", svg)


@pytest.mark.parametrize("name", PICTURES)
def test_the_answer_is_the_headline_and_no_line_of_amounts_is_a_title(drawn: Mapping[str, str], name: str) -> None:
    first, second, *_ = texts(drawn[name])
    assert PICTURES[name][3] in first
    assert "=" not in first + second


@pytest.mark.parametrize("name", PICTURES)
def test_labels_are_whole_or_not_there(drawn: Mapping[str, str], name: str) -> None:
    assert [words for words in texts(drawn[name]) if "…" in words and not words.endswith(",…")] == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 1280, 1920])
def test_no_text_lies_on_another_or_leaves_its_box(
    chromium: Browser, drawn: Mapping[str, str], width: int, scheme: Literal["light", "dark"]
) -> None:
    context = chromium.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme)
    page, found = context.new_page(), {}
    for name, svg in drawn.items():
        page.set_content(f"<body style='margin:0'>{svg}</body>")
        found[name] = page.eval_on_selector("svg", TROUBLES)
    context.close()
    assert {name: told for name, told in found.items() if told} == {}


def test_a_conflict_is_where_requests_do_not_meet(drawn: Mapping[str, str]) -> None:
    svg = drawn["conflict"]
    orange = re.findall(r"<title>NUMA node (\d): ([^;<]*)[^<]*</title><rect class=\"exclusive-5\"", svg)
    assert [node for node, free in orange if free.startswith("2 free")] == ["1", "5"]
    assert [node for node, free in orange if free.startswith("0 free")] == ["0", "2", "3", "4", "6", "7"]
    assert [words for words in texts(svg) if words.startswith("no ")] == [
        *("no devices", "no CPUs", "no devices", "no devices", "no devices", "no CPUs", "no devices", "no devices")
    ]


def test_a_plain_lack_is_a_bar(drawn: Mapping[str, str]) -> None:
    assert "3 of 32 CPUs free, 7 requested, 4 missing" in texts(drawn["lack"])
    widths = {
        style: float(width)
        for style, width in re.findall(r'<rect class="([^"]+)"[^>]* width="([\d.]+)"[^>]* height="24"', drawn["lack"])
    }
    assert widths["used"] > widths["exclusive-5"] > widths["exclusive-4"]


@pytest.mark.parametrize(("name", "cpus"), [("512-cpus", 512), ("1024-cpus", 1024)])
def test_a_free_l3_of_a_large_machine_is_one_block_and_the_page_is_landscape(
    drawn: Mapping[str, str], name: str, cpus: int
) -> None:
    svg = drawn[name]
    blocks = [int(found[1]) for words in texts(svg) if (found := re.match(r"L3 \d+ · (\d+) free", words))]
    cells = svg.count('class="cpu ')
    assert cells + sum(blocks) == cpus
    assert cells <= 64
    width, height = map(int, re.findall(r'<svg[^>]* width="(\d+)" height="(\d+)"', svg)[0])
    assert width > height


def test_an_l3_without_owners_keeps_no_room_for_names(drawn: Mapping[str, str]) -> None:
    heights = [float(high) for high in re.findall(r'<rect class="cache"[^>]* height="([\d.]+)"', drawn["telco"])]
    assert min(heights) <= max(heights) - 16
