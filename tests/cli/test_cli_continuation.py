"""``--save-state`` and ``--state``: plans that go on where others stopped, and files that stay untouched."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.cli.command import CORPORA, EXAMPLES, NODE, PODS, mooring
from tests.planner.recordings import recorded

FILES = ("cpu_manager_state", "memory_manager_state")
GOLDEN = Path(__file__).parent / "golden"


def contents(folder: Path) -> dict[str, str]:
    return {path.name: path.read_text() for path in folder.iterdir()}


def test_saved_files_are_those_of_the_last_answer(tmp_path: Path) -> None:
    answered = mooring("plan", *PODS, *NODE, "-o", "json", "--save-state", tmp_path / "new" / "root")
    last = answered.document["pods"][-1]
    assert contents(tmp_path / "new" / "root") == {
        "cpu_manager_state": last["cpuManagerState"],
        "memory_manager_state": last["memoryManagerState"],
    }


def test_nothing_is_saved_of_a_kubelet_that_does_not_start(tmp_path: Path) -> None:
    answered = mooring("plan", *PODS, *NODE[:2], "--config", GOLDEN / "refused.yaml", "--save-state", tmp_path / "root")
    assert answered.code == 1
    assert not (tmp_path / "root").exists()


def test_state_is_read_and_never_written(tmp_path: Path) -> None:
    mooring("plan", *PODS, *NODE, "--save-state", tmp_path / "before")
    saved = contents(tmp_path / "before")
    (tmp_path / "pod.yaml").write_text(yaml.safe_dump(pod("late", "4")))
    answered = mooring(
        "plan", "-f", tmp_path / "pod.yaml", *NODE, "--state", tmp_path / "before", "--save-state", tmp_path / "after"
    )
    assert answered.code == 0
    assert contents(tmp_path / "before") == saved
    assert "default_late" in contents(tmp_path / "after")["cpu_manager_state"]


def test_a_link_to_the_state_is_not_written_either(tmp_path: Path) -> None:
    (tmp_path / "root").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "root")
    answered = mooring("plan", *PODS, *NODE, "--state", tmp_path / "root", "--save-state", tmp_path / "link")
    assert answered.code == 2
    assert "whose files are never written" in answered.complaint
    assert contents(tmp_path / "root") == {}


def test_an_answer_is_given_only_when_the_state_was_saved(tmp_path: Path) -> None:
    (tmp_path / "cpu_manager_state").mkdir()
    answered = mooring("plan", *PODS, *NODE, "--save-state", tmp_path)
    assert (answered.code, answered.out) == (2, "")
    assert "cpu_manager_state: cannot be written: " in answered.complaint
    assert [path.name for path in tmp_path.iterdir()] == ["cpu_manager_state"]


def test_strangers_are_named_in_a_warning(tmp_path: Path) -> None:
    mooring("plan", *PODS, *NODE, "--save-state", tmp_path)
    (tmp_path / "pod.yaml").write_text(yaml.safe_dump(pod("late", "4")))
    answered = mooring("plan", "-f", tmp_path / "pod.yaml", *NODE, "--state", tmp_path)
    assert answered.err == (
        "warning[MOOR-505]: state files: hold entries of 7 pods that no --active file describes (core_upf-0, "
        "core_upf-1, core_upf-2, ...); they count as running and keep what they have, but their requests are not "
        "counted\n"
    )


def pod(name: str, cpu: str, init: str = "", memory: str = "1Gi") -> dict[str, object]:
    def container(called: str, amount: str) -> dict[str, object]:
        return {"name": called, "resources": {"limits": {"cpu": amount, "memory": memory}}}

    spec: dict[str, object] = {"containers": [container("app", cpu)]}
    if init:
        spec["initContainers"] = [container("init", init)]
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}


amounts = st.sampled_from(["2", "1", "4", "6", "500m", "16", "33", "3"])


@settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
@given(
    given=st.lists(st.tuples(amounts, st.sampled_from(["", "", "2", "8"])), min_size=2, max_size=7),
    cut=st.integers(1, 6),
    policy=st.sampled_from(["single-numa-node", "restricted", "best-effort", "none"]),
)
def test_a_plan_in_two_parts_is_the_plan_in_one(
    given: list[tuple[str, str]], cut: int, policy: str, tmp_path: Path
) -> None:
    config = yaml.safe_load((EXAMPLES / "kubelet.yaml").read_text())
    (tmp_path / "kubelet.yaml").write_text(yaml.safe_dump({**config, "topologyManagerPolicy": policy}))
    node = (*NODE[:2], "--config", tmp_path / "kubelet.yaml")
    arriving = [pod(f"p{number}", cpu, init) for number, (cpu, init) in enumerate(given)]
    write(tmp_path / "all.yaml", arriving)
    whole = mooring("plan", "-f", tmp_path / "all.yaml", *node, "-o", "json", "--save-state", tmp_path / "whole")
    cut = min(cut, len(arriving) - 1)
    write(tmp_path / "first.yaml", arriving[:cut])
    write(tmp_path / "second.yaml", arriving[cut:])
    first = mooring("plan", "-f", tmp_path / "first.yaml", *node, "-o", "json", "--save-state", tmp_path / "half")
    admitted = [told["name"] for told in first.document["pods"] if told["admitted"]]
    running = [item for item in arriving if item["metadata"]["name"] in admitted]  # type: ignore[index]
    write(tmp_path / "running.yaml", running or [{"apiVersion": "v1", "kind": "List", "items": []}])
    second = mooring(
        *("plan", "-f", tmp_path / "second.yaml", "--active", tmp_path / "running.yaml", *node, "-o", "json"),
        *("--state", tmp_path / "half", "--save-state", tmp_path / "rest"),
    )
    new = [told for told in second.document["pods"] if "running" not in told]
    assert first.document["pods"] + new == whole.document["pods"]
    assert contents(tmp_path / "rest") == contents(tmp_path / "whole")


def write(path: Path, documents: list[dict[str, object]]) -> None:
    path.write_text(yaml.safe_dump_all(documents))


@pytest.mark.parametrize("name", ["admission-topology", "admission-memory"])
def test_saved_files_equal_those_of_the_recorded_kubelet(name: str, tmp_path: Path) -> None:
    compared = 0
    for scenario in list(recorded(f"{name}.jsonl.gz"))[:60]:
        steps = scenario["expect"].get("steps", [])
        if not steps or scenario.get("active") or any("admit" not in step for step in scenario["steps"]):
            continue
        if not steps[-1]["admitted"] or scenario["expect"].get("nondeterministic") or scenario["expect"].get("endless"):
            continue
        (tmp_path / "kubelet.json").write_text(json.dumps({"kind": "KubeletConfiguration", **scenario["kubelet"]}))
        items = [{"kind": "Pod", "apiVersion": "v1", **step["admit"]} for step in scenario["steps"]]
        (tmp_path / "pods.json").write_text(json.dumps({"kind": "List", "apiVersion": "v1", "items": items}))
        root = tmp_path / scenario["id"]
        answered = mooring(
            *("plan", "-f", tmp_path / "pods.json", "--config", tmp_path / "kubelet.json", "-o", "json"),
            *("--machine", f"{CORPORA / 'machines.jsonl'}#{scenario['machine']}", "--save-state", root),
        )
        if any(told["reason"].startswith("OutOf") for told in answered.document["pods"]):
            continue
        assert contents(root) == {
            "cpu_manager_state": steps[-1]["cpuManagerState"],
            "memory_manager_state": steps[-1]["memoryManagerState"],
        }
        compared += 1
    assert compared >= 3
