"""``mooring explain``: names, formats, exit codes, and texts as agreed.

The golden files are written anew by ``MOORING_GOLDEN=write pytest tests/cli/test_cli_explain.py``.
"""

from __future__ import annotations

import os
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest
from rich.cells import cell_len
from tests.cli.command import EXAMPLES, NODE, PODS, ROOT, SMALL, mooring

from mooring.explanations.codes import all_codes

GOLDEN = Path(__file__).parent / "golden"
AI = (
    "--machine",
    "sockets=2 numa=4 cores=64 threads=2 memory=256Gi hugepages-2Mi=2048 distances=10,12,32",
    "--config",
    str(EXAMPLES / "ai-kubelet.yaml"),
    "-f",
    str(EXAMPLES / "ai-pods.yaml"),
)
ONE = """
apiVersion: v1
kind: Pod
metadata: {name: web, namespace: NAMESPACE}
spec:
  containers:
    - {name: app, resources: {limits: {cpu: CPU, memory: 1Gi}}}
"""
TEXTS: dict[str, tuple[tuple[str, ...], int, int]] = {
    "explain-60": (("explain", "hpc/solver", *PODS, *NODE), 60, 1),
    "explain-80": (("explain", *PODS, *NODE), 80, 1),
    "explain-wordy": (("explain", "upf-0/forwarder", *PODS, *NODE, "-v"), 120, 0),
    "explain-devices": (("explain", "finetune", *AI, "-v"), 100, 1),
    "explain-partition": (("explain", "gateway", *AI), 100, 0),
    "explain-shared": (("explain", "logs", *PODS, *NODE), 80, 0),
    "explain-refused": (
        ("explain", "solver", *PODS, *NODE[:2], "--config", str(GOLDEN / "refused.yaml"), "--nearest", "0"),
        80,
        1,
    ),
    "explain-code": (("explain", "MOOR-103"), 80, 0),
    "help-explain": (("explain", "--help"), 100, 0),
}
"""Name -> command, columns, exit code."""


@pytest.mark.parametrize("name", TEXTS)
def test_the_text_is_the_agreed_one(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    command, columns, code = TEXTS[name]
    # Printed commands repeat the paths as they were typed.
    monkeypatch.chdir(ROOT)
    answered = mooring(*(str(word).removeprefix(f"{ROOT}/") for word in command), columns=columns)
    file = GOLDEN / f"{name}.txt"
    if os.environ.get("MOORING_GOLDEN") == "write":
        file.write_text(answered.out, "utf-8")
    assert answered.out == file.read_text("utf-8")
    assert answered.code == code


@pytest.mark.parametrize("columns", [40, 60, 80, 120])
def test_no_line_is_wider_than_the_terminal(columns: int) -> None:
    for name in ("core/upf-0", "ai/inference"):
        lines = mooring("explain", name, *PODS, *NODE, "-v", "--nearest", "0", columns=columns).out.splitlines()
        assert max(cell_len(line) for line in lines) <= columns


def pods_file(folder: Path, *pods: tuple[str, str]) -> str:
    texts = [ONE.replace("NAMESPACE", namespace).replace("CPU", cpu) for namespace, cpu in pods]
    (folder / "pods.yaml").write_text("\n---\n".join(texts), "utf-8")
    return str(folder / "pods.yaml")


def test_a_container_is_explained_and_not_its_pod(tmp_path: Path) -> None:
    more = "".join(
        f"    - {{name: {name}, resources: {{limits: {{cpu: {cpu}, memory: 1Gi}}}}}}\n"
        for name, cpu in (("other", "3"), ("log", "500m"))
    )
    (tmp_path / "pod.yaml").write_text(ONE.replace("NAMESPACE", "a").replace("CPU", "2") + more, "utf-8")
    (tmp_path / "kubelet.yaml").write_text(
        "kind: KubeletConfiguration\napiVersion: kubelet.config.k8s.io/v1beta1\ncpuManagerPolicy: static\n"
        'reservedSystemCPUs: "0"\nmemoryManagerPolicy: None\n'
    )
    node = ("-f", tmp_path / "pod.yaml", "--machine", "sockets=2 cores=16", "--config", tmp_path / "kubelet.yaml")

    def said(name: str) -> tuple[str, str, list[str]]:
        found = mooring("explain", name, *node, "-o", "json").document
        return found["code"], found["why"], [one["code"] for one in found["remarks"]]

    of_pod = "Its 5 exclusive CPUs come from NUMA node 0; 1 other container runs in the shared pool."
    assert said("web") == ("MOOR-161", of_pod, ["MOOR-176"])
    assert said("web/app") == ("MOOR-161", "Its 2 exclusive CPUs come from NUMA node 0.", [])
    assert said("web/other") == ("MOOR-161", "Its 3 exclusive CPUs come from NUMA node 0.", [])
    assert said("web/log") == ("MOOR-165", "It runs in the shared pool: 500m is not a whole number of CPUs.", [])
    text = mooring("explain", "web/log", *node).out
    assert text.startswith("ok[MOOR-165]: a/web/log is admitted\n  It runs in the shared pool: 500m is not a whole")
    assert "exclusive CPUs come" not in text


def test_without_a_name_the_first_refused_pod_is_explained() -> None:
    answered = mooring("explain", *PODS, *NODE, "-o", "json", "--nearest", "0")
    assert (answered.code, answered.document["name"], answered.document["code"]) == (1, "inference", "MOOR-105")


def test_when_every_pod_runs_they_are_listed(tmp_path: Path) -> None:
    manifest = pods_file(tmp_path, ("a", "2"), ("b", "100m"))
    answered = mooring("explain", "-f", manifest, *NODE, "-o", "json")
    assert (answered.code, answered.document["kind"]) == (0, "ExplanationList")
    assert [one["code"] for one in answered.document["pods"]] == ["MOOR-161", "MOOR-165"]
    assert "a/web  [MOOR-161]" in mooring("explain", "-f", manifest, *NODE).out
    assert mooring("explain", "-f", manifest, *NODE, "-o", "svg").code == 2


@pytest.mark.parametrize(
    ("name", "named"),
    [
        ("core/upf-0", ("core", "upf-0", "")),
        ("upf-0", ("core", "upf-0", "")),
        ("upf-0/mesh", ("core", "upf-0", "mesh")),
        ("core/upf-0/mesh", ("core", "upf-0", "mesh")),
    ],
)
def test_a_pod_and_a_container_are_named_with_or_without_the_namespace(name: str, named: tuple[str, ...]) -> None:
    found = mooring("explain", name, *PODS, *NODE, "-o", "json").document
    assert (found["namespace"], found["name"], found["container"]) == named


@pytest.mark.parametrize(
    ("name", "complaint"),
    [
        ("upf-0/db", "core/upf-0 has no container 'db'; it has mesh, forwarder"),
        ("upf", "there is no pod 'upf'; did you mean core/upf-0, core/upf-1, core/upf-2"),
        ("inferense", "there is no pod 'inferense'; did you mean ai/inference?"),
        ("nobody/upf-0", "there is no pod 'nobody/upf-0'; did you mean core/upf-0?"),
        ("MOOR-998", "MOOR-998: no such code"),
    ],
)
def test_a_name_that_means_nothing_is_reported_with_what_could_be_meant(name: str, complaint: str) -> None:
    answered = mooring("explain", name, *PODS, *NODE)
    assert answered.code == 2
    assert answered.complaint.startswith(f"mooring: {complaint}")


def test_a_name_that_means_several_pods_is_reported_with_all_of_them(tmp_path: Path) -> None:
    manifest = pods_file(tmp_path, ("a", "2"), ("b", "2"))
    answered = mooring("explain", "web", "-f", manifest, *NODE)
    assert answered.code == 2
    assert answered.complaint == "mooring: 'web' means 2 pods: a/web, b/web; name one of them"
    container = mooring("explain", "web/app", "-f", manifest, *NODE)
    assert container.complaint == "mooring: 'web/app' means 2 containers: a/web/app, b/web/app; name one of them"


@pytest.mark.parametrize("arguments", [(), ("web",), ("--machine", "small-1s8")])
def test_without_pods_and_kubectl_there_is_nothing_to_explain(
    arguments: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "")
    answered = mooring("explain", *arguments)
    assert answered.code == 2
    assert "there is no pod to explain" in answered.complaint


def test_the_document_has_the_story_the_facts_and_the_nearest_change() -> None:
    found = mooring("explain", "solver", *PODS, *NODE, "-o", "json").document
    assert (found["apiVersion"], found["kind"], found["verdict"]) == ("mooring/v1alpha1", "Explanation", "rejected")
    assert [fact["fact"] for fact in found["facts"]][:2] == ["AdmissionBegun", "CPUHintsAsked"]
    merged = next(fact for fact in found["facts"] if fact["fact"] == "HintsMerged")
    assert (merged["rule"], merged["admitted"]) == ("filtered", False)
    assert found["proposals"][0]["changes"][0]["option"] == "--ask"
    assert any(line["mark"] == "no" for line in found["story"][0]["below"])


def test_the_nearest_changes_are_as_many_as_asked_for() -> None:
    many = mooring("explain", "solver", *PODS, *NODE, "-o", "json", "--nearest", "3").document["proposals"]
    none = mooring("explain", "solver", *PODS, *NODE, "-o", "json", "--nearest", "0").document["proposals"]
    assert (len(many) > 1, none) == (True, [])


@pytest.mark.parametrize("name", ["solver", "upf-0", "logs", "timekeeper"])
def test_the_picture_is_well_formed_and_goes_to_a_file(name: str, tmp_path: Path) -> None:
    to = tmp_path / "why.svg"
    answered = mooring("explain", name, *PODS, *NODE, "-o", "svg", "--to", to, "--nearest", "0")
    root = ET.fromstring(to.read_text("utf-8"))  # noqa: S314 - our own picture
    assert answered.out == ""
    assert root.tag.endswith("svg")
    assert name in (root.findtext("{http://www.w3.org/2000/svg}title") or "")


def test_a_pod_after_one_on_which_the_kubelet_crashes_is_asked_unless_the_plan_stops_there(tmp_path: Path) -> None:
    config = tmp_path / "kubelet.yaml"
    config.write_text(
        "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\ncpuManagerPolicy: static\n"
        "memoryManagerPolicy: Static\nreservedSystemCPUs: '0'\nkubeReserved: {memory: 1Gi}\n"
        "reservedMemory: [{numaNode: 0, limits: {memory: 1124Mi}}]\n",
        "utf-8",
    )
    crashing = ONE.replace("NAMESPACE", "a").replace("memory: 1Gi", "memory: 1Gi, hugepages-2Mi: 2Mi")
    manifest = tmp_path / "pods.yaml"
    manifest.write_text(
        crashing.replace("CPU", "1") + "---" + ONE.replace("NAMESPACE", "b").replace("CPU", "1"), "utf-8"
    )
    node = ("-f", str(manifest), *SMALL, "--config", str(config), "-o", "json", "--nearest", "0")
    crash, asked = mooring("explain", "a/web", *node), mooring("explain", "b/web", *node)
    unasked = mooring("explain", "b/web", *node, "--stop-at-crash")
    assert (crash.code, crash.document["verdict"], crash.document["code"]) == (1, "crash", "MOOR-152")
    assert (asked.code, asked.document["verdict"]) == (0, "admitted")
    assert (unasked.code, unasked.document["verdict"]) == (1, "not asked")


@pytest.mark.parametrize("code", [one for one in all_codes() if one.startswith("MOOR-1")])
def test_every_code_of_a_pod_is_explained_by_its_page(code: str) -> None:
    answered = mooring("explain", code.lower(), "-o", "json")
    assert (answered.code, answered.document["code"], answered.document["kind"]) == (0, code, "CodePage")
    assert mooring("explain", code).out == answered.document["text"]


def test_a_code_has_no_picture() -> None:
    assert mooring("explain", "MOOR-103", "-o", "svg").code == 2


def test_the_beginning_of_a_code_lists_the_codes_with_their_titles() -> None:
    listed = [line.partition("  ") for line in mooring("explain", "MOOR-").out.splitlines()]
    assert [code for code, _, _ in listed] == all_codes()
    assert all(mooring("explain", code).out.startswith(f"# {code}: {title}\n") for code, _, title in listed[::20])


@pytest.mark.parametrize("wrong", [("MOOR-9",), ("MOOR-1", "-o", "json")])
def test_what_is_no_list_of_codes_is_bad_input(wrong: tuple[str, ...]) -> None:
    assert mooring("explain", *wrong).code == 2
