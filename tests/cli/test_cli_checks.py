"""``-o sarif`` and ``-o junit``: do these pods fit on these node types? With the files for continuous integration."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest
import yaml
from tests.cli.command import EXAMPLES, NODE, PODS, ROOT, SMALL, Answered, mooring
from tests.cli.given import given, pod

from mooring.explanations.codes import page

EXAMPLE = EXAMPLES / "ci-check"
CHECK = ("compare", "-f", str(EXAMPLE / "manifests"), "--cluster", str(EXAMPLE / "node-types.yaml"), "--alone")
STATIC = "{kind: KubeletConfiguration, cpuManagerPolicy: static, reservedSystemCPUs: '0'}"


def results(answered: Answered) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = answered.document["runs"][0]["results"]
    return found


def region(result: dict[str, Any]) -> tuple[int, int]:
    place = result["locations"][0]["physicalLocation"]["region"]
    return place["startLine"], place["startColumn"]


def field_at(text: str, place: tuple[int, int]) -> str:
    return re.split(r"[:\s]", text.splitlines()[place[0] - 1][place[1] - 1 :])[0]


def suites(answered: Answered) -> ET.Element:
    return ET.fromstring(answered.out)  # noqa: S314 - written by the test's own process


def test_a_rejected_pod_is_an_error_at_the_field_that_decided() -> None:
    answered = mooring(*CHECK, "-o", "sarif")
    [error] = results(answered)
    assert (answered.code, error["level"], error["ruleId"]) == (1, "error", "MOOR-102")
    location = error["locations"][0]
    assert location["physicalLocation"]["artifactLocation"]["uri"].endswith("/ci-check/manifests/solver.yaml")
    text = (EXAMPLE / "manifests" / "solver.yaml").read_text("utf-8")
    assert region(error) == (14, 13)
    assert field_at(text, region(error)) == "cpu"
    assert location["logicalLocations"][0]["fullyQualifiedName"] == "default/solver-0"


@pytest.mark.parametrize("command", [CHECK, ("plan", *PODS, *NODE), ("plan", *PODS, *NODE, "--alone")])
def test_sarif_has_what_its_schema_and_code_scanning_demand(command: tuple[str, ...]) -> None:
    document = mooring(*command, "-o", "sarif").document
    assert (document["version"], len(document["runs"])) == ("2.1.0", 1)
    run = document["runs"][0]
    rules = run["tool"]["driver"]["rules"]
    assert run["tool"]["driver"]["name"] == "mooring"
    assert len({rule["id"] for rule in rules}) == len(rules)
    for rule in rules:
        assert rule["shortDescription"]["text"] == page(rule["id"]).title
        assert rule["fullDescription"]["text"]
        assert rule["help"]["markdown"].startswith(f"# {rule['id']}: ")
    assert run["results"]
    for result in run["results"]:
        assert rules[result["ruleIndex"]]["id"] == result["ruleId"]
        assert result["level"] in ("error", "warning")
        assert result["message"]["text"]
        assert all(number >= 1 for number in region(result))
        assert re.fullmatch("[0-9a-f]{32}", result["partialFingerprints"]["mooring/v1"])


def test_a_fingerprint_stays_when_lines_are_added_above(tmp_path: Path) -> None:
    pods, text = tmp_path / "pods.yaml", (EXAMPLE / "manifests" / "solver.yaml").read_text("utf-8")
    found = []
    for lines in (0, 3):
        pods.write_text("#\n" * lines + text, "utf-8")
        config = str(EXAMPLE / "kubelet.yaml")
        [result] = results(mooring("plan", "-f", pods, *NODE[:2], "--config", config, "-o", "sarif"))
        found.append((region(result), result["partialFingerprints"]))
    (before, one), (after, other) = found
    assert one == other
    assert (after[0] - before[0], after[1] - before[1]) == (3, 0)


NO_MEMORY = ("MOOR-111", "memory", "{cpu: 1, memory: 900Gi}")
OUT_OF_CPU = ("MOOR-141", "cpu", "{cpu: 8500m, memory: 1Gi}")
NUMA_MEMORY = ("MOOR-114", "memory", "{cpu: 1, memory: 5Gi}")
DEVICES = ("MOOR-131", "example.com/nic", "{cpu: 1, memory: 1Gi, example.com/nic: 3}")


@pytest.mark.parametrize(("code", "field", "limits"), [NO_MEMORY, OUT_OF_CPU, NUMA_MEMORY, DEVICES])
def test_the_place_is_that_of_the_resource_that_decided(tmp_path: Path, code: str, field: str, limits: str) -> None:
    configuration = """
kind: KubeletConfiguration
cpuManagerPolicy: static
memoryManagerPolicy: Static
topologyManagerPolicy: single-numa-node
reservedSystemCPUs: "0"
reservedMemory: [{numaNode: 0, limits: {memory: 100Mi}}]
---
apiVersion: mooring/v1alpha1
kind: NodeDevices
devices: {example.com/nic: [{id: a, numa: [0]}]}
"""
    pods = f"""
kind: Pod
metadata: {{name: other}}
spec: {{containers: [{{name: c}}]}}
---
kind: List
items:
- kind: Pod
  metadata: {{name: web}}
  spec:
    initContainers:
    - {{name: small, resources: {{limits: {{cpu: 1, memory: 1Mi}}}}}}
    containers:
    - name: app
      resources:
        limits: {limits}
"""
    (tmp_path / "kubelet.yaml").write_text(configuration, "utf-8")
    (tmp_path / "pods.yaml").write_text(pods, "utf-8")
    machine = "sockets=1 numa=2 cores=4 threads=2 memory=8Gi"
    given = ("-f", str(tmp_path / "pods.yaml"), "--machine", machine, "--config", str(tmp_path / "kubelet.yaml"))
    [error] = [one for one in results(mooring("plan", *given, "-o", "sarif")) if one["level"] == "error"]
    assert (error["ruleId"], field_at(pods, region(error))) == (code, field)
    assert region(error)[0] == len(pods.splitlines())


def test_pods_from_standard_input_have_no_place_and_a_name() -> None:
    text = (EXAMPLE / "manifests" / "solver.yaml").read_bytes()
    config = ("--config", str(EXAMPLE / "kubelet.yaml"))
    [error] = results(mooring("plan", "-f", "-", *NODE[:2], *config, "-o", "sarif", stdin=text))
    assert "physicalLocation" not in error["locations"][0]
    assert error["locations"][0]["logicalLocations"][0]["fullyQualifiedName"] == "default/solver-0"


def test_warnings_with_a_place_are_results_there(tmp_path: Path) -> None:
    pods = tmp_path / "pods.yaml"
    pods.write_text(
        "kind: Pod\nmetadata: {name: web}\nspec:\n  containers:\n  - name: app\n    resource: {}\n", "utf-8"
    )
    answered = mooring("plan", "-f", pods, *SMALL, "-o", "sarif")
    [found] = [one for one in results(answered) if one["ruleId"] == "MOOR-512"]
    assert (answered.code, found["level"], region(found)) == (0, "warning", (6, 5))


SUITE = {"name", "tests", "failures", "errors", "skipped", "time"}
CASE = {"classname", "name", "time", "file"}


@pytest.mark.parametrize("command", [CHECK, ("plan", *PODS, *NODE)])
def test_junit_has_the_elements_that_readers_know_and_counts_that_add_up(command: tuple[str, ...]) -> None:
    answered = mooring(*command, "-o", "junit")
    top = suites(answered)
    assert (top.tag, set(top.keys())) == ("testsuites", {"name", "tests", "failures", "errors"})
    for suite in top:
        assert (suite.tag, set(suite.keys())) == ("testsuite", SUITE)
        assert int(suite.get("tests", "")) == len(suite)
        for tag, count in (("failure", "failures"), ("error", "errors"), ("skipped", "skipped")):
            assert int(suite.get(count, "")) == len(suite.findall(f"testcase/{tag}"))
        for case in suite:
            assert (case.tag, set(case.keys())) == ("testcase", CASE)
            assert case.get("classname") == suite.get("name")
            assert all(set(one.keys()) <= {"type", "message"} for one in case)
    for count in ("tests", "failures", "errors"):
        assert int(top.get(count, "")) == sum(int(suite.get(count, "")) for suite in top)
    assert (answered.code == 1) is (top.get("failures") != "0")


def test_a_pod_and_a_node_type_are_a_case() -> None:
    outcomes = {
        (str(case.get("classname")), str(case.get("name"))): next((one.tag for one in case), "admitted")
        for case in suites(mooring(*CHECK, "-o", "junit")).iter("testcase")
    }
    gateways = [f"default/gateway-{number}" for number in range(3)]
    assert outcomes == {
        **{("general", name): "admitted" for name in gateways},
        **{("gpu", name): "skipped" for name in gateways},
        ("general", "default/solver-0"): "failure",
        ("gpu", "default/solver-0"): "skipped",
        ("general", "default/training"): "skipped",
        ("gpu", "default/training"): "admitted",
    }


@pytest.mark.parametrize(
    ("command", "code"),
    [
        (CHECK, 1),
        (("compare", *PODS, "--cluster", str(EXAMPLE / "node-types.yaml"), "--alone"), 1),
        (("compare", "-f", str(EXAMPLE / "manifests" / "gateway.yaml"), *CHECK[3:]), 0),
        (("plan", *PODS, *NODE), 1),
        (("plan", *PODS, *SMALL), 1),
        (("compare", *PODS, *NODE, "--machine", "small-1s8"), 1),
    ],
)
def test_every_format_has_the_same_exit_code(command: tuple[str, ...], code: int) -> None:
    assert [mooring(*command, "-o", form).code for form in ("text", "sarif", "junit")] == [code] * 3


LARGE = (
    "kind: Pod\nmetadata: {name: NAME}\nspec: {containers: [{name: c, resources: {limits: {cpu: 6, memory: 1Mi}}}]}\n"
)


def test_pods_that_do_not_fit_together_fit_alone(tmp_path: Path) -> None:
    asked = given(tmp_path, *(pod(name, 6, "1Mi") for name in "abc"))
    together, alone = mooring("plan", *asked), mooring("plan", *asked, "--alone", "-o", "json")
    assert (together.code, alone.code) == (1, 0)
    assert len({pod["containers"]["app"]["cpus"] for pod in alone.document["pods"]}) == 1
    assert all(pod["left"] for pod in alone.document["pods"])
    verdicts = [line.split()[1] for line in mooring("plan", *asked, "--alone").out.splitlines() if line[:5] == "  app"]
    assert verdicts == ["exclusive"] * 3
    both = [mooring("compare", *asked, *flag, "-o", "json").document for flag in ((), ("--alone",))]
    assert [found["variants"][0]["admitted"] for found in both] == [1, 3]


def test_pods_alone_need_no_node_type_that_admits_all(tmp_path: Path) -> None:
    types, pods = tmp_path / "types.yaml", tmp_path / "pods.yaml"
    group = "- {name: NAME, machine: MACHINE, kubelet: {cpuManagerPolicy: static, reservedSystemCPUs: '0'}}\n"
    one = group.replace("NAME", "large").replace("MACHINE", "sockets=1 cores=16 threads=1 memory=1Gi")
    other = group.replace("NAME", "fat").replace("MACHINE", "sockets=1 cores=4 threads=1 memory=64Gi")
    types.write_text(f"apiVersion: mooring/v1alpha1\nkind: Cluster\ngroups:\n{one}{other}", "utf-8")
    wide = LARGE.replace("NAME", "wide")
    pods.write_text(
        f"{wide}---\n{wide.replace('wide', 'deep').replace('cpu: 6, memory: 1Mi', 'memory: 32Gi')}", "utf-8"
    )
    given = ("compare", "-f", str(pods), "--cluster", str(types))
    assert mooring(*given).code == 1
    answered = mooring(*given, "--alone", "-o", "sarif", code=0)
    assert {result["level"] for result in results(answered)} == {"warning"}


def test_a_pod_that_may_run_on_no_node_type_fails_everywhere(tmp_path: Path) -> None:
    pods = tmp_path / "pods.yaml"
    pods.write_text(
        "kind: Pod\nmetadata: {name: web}\nspec: {nodeSelector: {pool: arm}, containers: [{name: c}]}", "utf-8"
    )
    given = ("compare", "-f", str(pods), *CHECK[3:])
    answered = mooring(*given, code=1)
    lines = [line for line in answered.err.splitlines() if line.startswith("error")]
    assert [line.partition(": default/web")[0] for line in lines] == [f"error[MOOR-724]: {pods}:2:12"] * 2
    assert suites(mooring(*given, "-o", "junit")).get("failures") == "2"


def test_a_node_type_without_the_devices_of_another_is_passed_over() -> None:
    pods = ("-f", str(EXAMPLE / "manifests" / "training.yaml"))
    answered = mooring("compare", *pods, *CHECK[3:])
    assert (answered.code, answered.err) == (0, "")


def test_a_kubelet_that_does_not_start_is_an_error_at_its_configuration(tmp_path: Path) -> None:
    config = tmp_path / "kubelet.yaml"
    config.write_text("kind: KubeletConfiguration\ncpuManagerPolicy: static\n", "utf-8")
    given = ("plan", *PODS, *SMALL, "--config", str(config))
    answered = mooring(*given, "-o", "sarif")
    [error] = results(answered)
    assert (answered.code, error["level"], error["ruleId"]) == (1, "error", "MOOR-231")
    assert error["locations"][0]["physicalLocation"]["artifactLocation"]["uri"] == config.as_uri()
    top = suites(mooring(*given, "-o", "junit"))
    assert top.get("errors") == top.get("tests") != "0"


def test_a_broken_selector_is_one_line_with_its_place(tmp_path: Path) -> None:
    pods = tmp_path / "pods.yaml"
    pods.write_text(
        "kind: Pod\nmetadata: {name: web}\nspec:\n  nodeSelector: {pool: 1}\n  containers: [{name: c}]", "utf-8"
    )
    answered = mooring("compare", "-f", pods, *CHECK[3:], "-o", "junit", code=2)
    assert answered.complaint.startswith(f"mooring: {pods}:4:18: spec.nodeSelector.pool: must be a string")


def test_what_xml_cannot_hold_is_replaced(tmp_path: Path) -> None:
    odd = tmp_path / "a\x01<b>&.yaml"
    odd.write_text("kind: Pod\nmetadata: {name: web}\nspec: {containers: [{name: c}]}", "utf-8")
    [case] = suites(mooring("plan", "-f", odd, *SMALL, "-o", "junit")).iter("testcase")
    assert case.get("file") == str(odd).replace("\x01", "\ufffd")


def clone(folder: Path) -> dict[str, str]:
    """Make what a job finds: the example's repository, and a mooring on the path."""
    programs = folder / "programs" / "mooring" / "bin"
    programs.mkdir(parents=True)
    for name, words in (("mooring", " -m mooring"), ("python", "")):
        (programs / name).write_text(f'#!/bin/sh\nexec "{sys.executable}"{words} "$@"\n', "utf-8")
        (programs / name).chmod(0o755)
    for name in ("manifests", "node-types.yaml", "kubelet.yaml"):
        (folder / name).symlink_to(EXAMPLE / name)
    return {**os.environ, "PATH": f"{programs}:{os.environ['PATH']}", "RUNNER_TEMP": str(folder / "programs")}


def run_script(script: str, folder: Path, environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
    command = ["bash", "-eo", "pipefail", "-c", script]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)


@pytest.mark.long
def test_the_github_action_annotates_the_line_and_fails(tmp_path: Path) -> None:
    action = yaml.safe_load((ROOT / "action.yml").read_text("utf-8"))
    [step] = [one for one in action["runs"]["steps"] if one.get("name") == "Check"]
    defaults = {name: one["default"] for name, one in action["inputs"].items()}
    given = {name: defaults[re.sub(r".*inputs\.([a-z-]+).*", r"\1", value)] for name, value in step["env"].items()}
    summary, outputs = tmp_path / "summary.md", tmp_path / "outputs"
    environment = {**clone(tmp_path), **given, "GITHUB_ACTION_PATH": str(ROOT)}
    environment |= {"GITHUB_STEP_SUMMARY": str(summary), "GITHUB_OUTPUT": str(outputs)}
    done = run_script(step["run"], tmp_path, environment)
    assert done.returncode == 1
    assert "Admitted by none: default/solver-0." in summary.read_text("utf-8")
    assert outputs.read_text("utf-8") == "fits=false\n"
    matcher = json.loads((ROOT / "packaging" / "ci" / "problem-matcher.json").read_text("utf-8"))
    pattern = matcher["problemMatcher"][0]["pattern"][0]
    [found] = filter(None, (re.search(pattern["regexp"], line) for line in done.stderr.splitlines()))
    assert found.group(pattern["severity"], pattern["code"], pattern["file"], pattern["line"], pattern["column"]) == (
        ("error", "MOOR-102", "manifests/solver.yaml", "14", "13")
    )
    [result] = json.loads((tmp_path / given["SARIF"]).read_text("utf-8"))["runs"][0]["results"]
    assert result["locations"][0]["physicalLocation"]["artifactLocation"]["uri"] == "manifests/solver.yaml"
    assert ET.parse(tmp_path / given["JUNIT"]).getroot().get("failures") == "1"  # noqa: S314 - written just now


@pytest.mark.long
def test_the_gitlab_job_leaves_its_report_and_fails(tmp_path: Path) -> None:
    job = yaml.safe_load((ROOT / "packaging" / "ci" / "gitlab.yml").read_text("utf-8"))["pods-fit-on-node-types"]
    install, *script = job["script"]
    assert install == 'pip install --quiet --require-hashes -r "$MOORING_LOCK"'
    assert run_script("\n".join(script), tmp_path, {**clone(tmp_path), **job["variables"]}).returncode == 1
    assert ET.parse(tmp_path / job["artifacts"]["reports"]["junit"]).getroot().get("failures") == "1"  # noqa: S314 - as above


def test_the_hook_runs_the_check() -> None:
    [hook] = yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text("utf-8"))
    program, *words = hook["entry"].split()
    assert program == "mooring"
    config = yaml.safe_load((EXAMPLE / ".pre-commit-config.yaml").read_text("utf-8"))
    assert [one["id"] for one in config["repos"][0]["hooks"]] == [hook["id"]]
    arguments = [str(EXAMPLE / word) if (EXAMPLE / word).exists() else word for word in hook["args"]]
    assert mooring(*words, *arguments).code == 1
