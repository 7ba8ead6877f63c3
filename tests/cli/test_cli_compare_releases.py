"""``mooring compare --kubelet-version A,B``: several releases side by side, and the rules that separate them."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.cli.command import NODE, PODS, mooring

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
    answered = mooring(*asked, "--kubelet-version", "v1.33.5,1.34", "--kubelet-version", "1.37", "-o", "json")
    assert answered.code == 1
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


def test_one_release_decides_for_all_variants(asked: tuple[str | Path, ...]) -> None:
    varied = (*asked, "--vary", "topology-policy", "--jobs", "1", "-o", "json")
    assert mooring(*varied, "--kubelet-version", "1.34").document["kubelet"] == "v1.34.4"
    assert mooring(*varied).document["kubelet"] == "v1.37.2"


@pytest.mark.parametrize(
    ("more", "told"),
    [
        (("1.34,1.34.2",), "--kubelet-version: names one release"),
        (("1.34,1.30",), "older than all known releases"),
        (("1.34,x",), "'x' is not a kubelet version"),
        (("1.34,1.37", "--all-options"), "on one node with one configuration"),
        (("1.34,1.37", "-o", "svg"), "is text, markdown or json"),
        (("1.34,1.37", "--active", "-"), "can be read only once"),
    ],
)
def test_what_cannot_be_compared_is_bad_usage(more: tuple[str, ...], told: str, asked: tuple[str | Path, ...]) -> None:
    answered = mooring(*asked, "--kubelet-version", *more)
    assert answered.code == 2
    assert told in answered.err


def test_every_kubelet_that_would_not_start_is_named(tmp_path: Path, asked: tuple[str | Path, ...]) -> None:
    (tmp_path / "kubelet.yaml").write_text(f"{CONFIG}featureGates: {{PodLevelResources: false}}\n", encoding="utf-8")
    out = mooring(*asked, "--kubelet-version", "1.36,1.37").out
    assert "Kubelet v1.36.3 would not start: " in out
    assert "Kubelet v1.37.2 would not start: " in out
