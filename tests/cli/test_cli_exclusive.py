"""Why a pod shares, what gives it exclusive CPUs, and what an option or a device lacks to have an effect."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.cli.command import Answered, mooring

M8 = "sockets=2 cores=16 threads=2 memory=64Gi"


def container(name: str, limits: Any = None, requests: Any = None, **more: Any) -> dict[str, Any]:
    return {"name": name, "image": "demo", "resources": {"limits": limits or {}, "requests": requests or {}}, **more}


def given(folder: Path, *containers: Any, config: Any = None, machine: Any = M8, **spec: Any) -> tuple[str, ...]:
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "app"}, "spec": {"containers": containers, **spec}}
    kubelet = {"cpuManagerPolicy": "static", "topologyManagerPolicy": "single-numa-node", "reservedSystemCPUs": "0"}
    document = {"apiVersion": "kubelet.config.k8s.io/v1beta1", "kind": "KubeletConfiguration", **kubelet}
    (folder / "pod.json").write_text(json.dumps(pod))
    (folder / "kubelet.json").write_text(json.dumps({**document, **(config or {})}))
    return "-f", str(folder / "pod.json"), "--machine", machine, "--config", str(folder / "kubelet.json")


def explained(*options: str) -> Answered:
    return mooring("explain", "app", *options, columns=500)


BIG = container("engine", {"cpu": "2", "memory": "1Gi"})
CASES: dict[str, tuple[tuple[Any, ...], dict[str, Any], str, list[str]]] = {
    "init containers and apps without limits": (
        (container("exporter"), BIG),
        {"initContainers": [container("probe")]},
        "(probe and exporter have no cpu and memory limits)",
        [
            "app/probe:limits.cpu=100m",
            "app/probe:limits.memory=128Mi",
            "app/exporter:limits.cpu=100m",
            "app/exporter:limits.memory=128Mi",
        ],
    ),
    "a sidecar without memory": (
        (BIG,),
        {"initContainers": [container("proxy", {"cpu": "1"}, restartPolicy="Always")]},
        "(proxy has no memory limit)",
        ["app/proxy:limits.memory=128Mi"],
    ),
    "a request without a limit": (
        (container("main", {"memory": "8Gi"}, {"cpu": "4", "memory": "8Gi"}),),
        {},
        "(main has no cpu limit)",
        ["app/main:limits.cpu=4"],
    ),
    "a request below its limit": (
        (
            container("a", {"cpu": "2", "memory": "1Gi"}, {"cpu": "2", "memory": "512Mi"}),
            container("b", {"cpu": "1500m", "memory": "1Gi"}),
        ),
        {},
        "(a has a memory request of 512Mi below the limit of 1Gi)",
        ["app/a:limits.memory=1Gi"],
    ),
    "both below their limits": (
        (container("a", {"cpu": "2", "memory": "1Gi"}, {"cpu": "1", "memory": "512Mi"}),),
        {},
        "(a has a cpu request of 1 below the limit of 2 and a memory request of 512Mi below the limit of 1Gi)",
        ["app/a:limits.cpu=2", "app/a:limits.memory=1Gi"],
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_containers_and_fields_that_cost_the_class_are_named_with_a_change_that_was_run(
    name: str, tmp_path: Path
) -> None:
    containers, spec, culprits, asks = CASES[name]
    options = given(tmp_path, *containers, **spec)
    text = explained(*options).out
    assert f"its QoS class is Burstable {culprits}, and only Guaranteed pods get exclusive CPUs." in text
    assert "not run" not in text
    document = mooring("explain", "app", *options, "-o", "json").document
    assert culprits in document["why"]
    changes = [change["value"] for change in document["proposals"][0]["changes"]]
    assert changes == [f"default/{ask}" for ask in asks]
    words = [word for value in changes for word in ("--ask", value)]
    after = mooring("whatif", *options, *words, "-o", "json").document["after"]["pods"][0]
    assert after["code"] == "MOOR-161"
    assert any(place["cpus"] for place in after["containers"].values())


def test_pod_level_resources_are_named_as_what_decides(tmp_path: Path) -> None:
    pod_level = {"resources": {"limits": {"cpu": "2"}, "requests": {"cpu": "2", "memory": "1Gi"}}}
    options = given(tmp_path, container("a"), **pod_level, config={"featureGates": {"PodLevelResourceManagers": True}})
    assert "(spec.resources has no memory limit)" in explained(*options).out
    assert "--set topologyManagerScope=pod --ask default/app:limits.memory=1Gi" in explained(*options).out


def test_a_pod_that_wants_no_whole_cpu_gets_general_advice_only(tmp_path: Path) -> None:
    options = given(tmp_path, container("small", None, {"cpu": "100m"}))
    assert "(small has no cpu and memory limits)" in explained(*options).out
    assert "help (general, not run): " in explained(*options).out


def test_the_goal_exclusive_is_searched_for_and_each_command_reaches_it(tmp_path: Path) -> None:
    uneven = container("a", {"cpu": "1500m", "memory": "1Gi"})
    options = given(tmp_path, uneven)
    assert "is admitted: nothing needs to change" in mooring("whatif", "app", *options).out
    assert "--goal exclusive" in mooring("whatif", "app", *options).out
    answer = mooring("whatif", "app", *options, "--goal", "exclusive", columns=300, code=0)
    assert "default/app has no exclusive CPUs [MOOR-165]" in answer.out
    assert "--ask default/app/a:limits.cpu=2" in answer.out
    reached = mooring("whatif", "app", *options, "--goal", "exclusive", "--ask", "app/a:limits.cpu=2")
    assert (reached.code, "nothing needs to change" in reached.out) == (0, True)


@pytest.mark.parametrize("reserved", ["0", ""])
def test_the_goal_may_need_another_configuration(tmp_path: Path, reserved: str) -> None:
    options = given(tmp_path, BIG, config={"cpuManagerPolicy": "none", "reservedSystemCPUs": reserved})
    answer = mooring("whatif", "app", *options, "--goal", "exclusive", columns=300)
    assert "Set cpuManagerPolicy to static" in answer.out
    assert ("set reservedSystemCPUs to 0" in answer.out) == (not reserved)


def test_the_goal_that_no_small_change_reaches_is_no(tmp_path: Path) -> None:
    answer = mooring("whatif", "app", *given(tmp_path, container("none")), "--goal", "exclusive")
    assert (answer.code, "No small change was found that gives it exclusive CPUs" in answer.out) == (1, True)
    assert mooring("whatif", *given(tmp_path, BIG), "--goal", "exclusive").code == 2


ALPHA = {"featureGates": {"CPUManagerPolicyAlphaOptions": True}}
NPS2 = "sockets=2 numa=4 cores=64 threads=2 memory=256Gi"


FLAT = "cores=8 memory=8Gi"
CPU, TOPOLOGY = "cpuManagerPolicyOptions", "topologyManagerPolicyOptions"
CLOSEST, SPREAD = "prefer-closest-numa-nodes", "distribute-cpus-across-numa"


@pytest.mark.parametrize(
    ("machine", "policy", "field", "option", "value", "idle"),
    [
        (NPS2, "none", CPU, "align-by-socket", "true", True),
        (NPS2, "best-effort", CPU, "align-by-socket", "true", False),
        (M8, "best-effort", CPU, "align-by-socket", "true", True),
        (NPS2, "none", TOPOLOGY, CLOSEST, "true", True),
        (NPS2, "none", TOPOLOGY, CLOSEST, "false", False),
        (NPS2, "restricted", TOPOLOGY, CLOSEST, "true", False),
        (M8, "restricted", TOPOLOGY, CLOSEST, "true", True),
        (NPS2, "single-numa-node", TOPOLOGY, CLOSEST, "true", True),
        (NPS2, "none", TOPOLOGY, "max-allowable-numa-nodes", "16", True),
        (NPS2, "none", "topologyManagerScope", "", "pod", True),
        (NPS2, "restricted", "topologyManagerScope", "", "pod", False),
        (NPS2, "single-numa-node", CPU, SPREAD, "true", True),
        (NPS2, "none", CPU, SPREAD, "true", False),
        (FLAT, "none", CPU, SPREAD, "true", True),
        (FLAT, "none", CPU, "full-pcpus-only", "true", True),
        (NPS2, "none", CPU, "full-pcpus-only", "true", False),
        (FLAT, "none", CPU, "distribute-cpus-across-cores", "true", True),
    ],
)
def test_an_option_that_changes_nothing_is_named(
    tmp_path: Path, machine: str, policy: str, field: str, option: str, value: str, idle: bool
) -> None:
    given_option = {field: {option: value} if option else value}
    config = {"topologyManagerPolicy": policy, **ALPHA, **given_option}
    arguments = given(tmp_path, BIG, machine=machine, config=config)
    answer = mooring("plan", *arguments, "-o", "json")
    named = [one["subject"] for one in answer.document["findings"] if one["code"] == "MOOR-543"]
    assert (answer.code, named) == (0, [option or field] if idle else [])
    assert (f"note[MOOR-543]: {option or field}: has no effect: " in mooring("plan", *arguments).err) == idle


def unhealthy(folder: Path, devices: list[dict[str, Any]], asked: int, policy: str = "none") -> tuple[str, ...]:
    name = "example.com/stick"
    declared = {"apiVersion": "mooring/v1alpha1", "kind": "NodeDevices", "devices": {name: devices}}
    (folder / "devices.json").write_text(json.dumps(declared))
    wants = container("main", {"cpu": 1, "memory": "1Gi", name: asked})
    more = "--config", str(folder / "devices.json")
    return (*given(folder, wants, config={"topologyManagerPolicy": policy}), *more)


@pytest.mark.parametrize("policy", ["none", "restricted"])
def test_of_unhealthy_devices_the_plugin_is_the_remedy(tmp_path: Path, policy: str) -> None:
    sick = {"id": "d0", "unhealthy": True, "numa": [0]}
    alone = unhealthy(tmp_path, [sick], 1, policy)
    assert "but none of 1 is healthy" in explained(*alone).out
    for answer in (explained(*alone), mooring("whatif", "app", *alone, columns=500)):
        assert "[MOOR-139]" in answer.out
        assert "Start or repair their device plugin, then create the pod again" in answer.out
        assert "Request fewer" not in answer.out
    some = unhealthy(tmp_path, [sick, {"id": "d1", "numa": [0]}], 2, policy)
    answer = explained(*some)
    assert "but only 1 of 2 is healthy" in answer.out
    first = next(line for line in answer.out.splitlines() if line.startswith("help"))
    assert first.startswith("help: Start or repair their device plugin")
