"""Advice about a kubelet that does not start is run first: with it the kubelet starts."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.cli.command import EXAMPLES, mooring
from tests.explain.refused_starts import RecordedStart, recorded_starts
from tests.node.nodes import machine
from tests.node.podlevel_nodes import managed
from tests.plans import refused_plan, started_plan
from tests.values import cases

from mooring.answers.base.plan import Plan, Question
from mooring.answers.doctor.diagnosis import diagnose
from mooring.engine.checkpoint.memory_file import memory_state_text
from mooring.engine.core.config import KubeletConfig, MooringConfig, ReservedMemory
from mooring.engine.core.errors import InputError
from mooring.engine.core.machine import Machine
from mooring.engine.core.machineinfo import HugePages, MachineInfo
from mooring.engine.core.pod import Pod
from mooring.engine.core.release import NEWEST
from mooring.engine.kubelet.kubelet import Kubelet, StateTexts
from mooring.engine.kubelet.start import start_kubelet
from mooring.engine.memorymanager.state import Block, MemoryState, charge
from mooring.engine.releases.catalog import KubeletVersion, chosen_release
from mooring.inputs.machines.compact import parse_compact

WITHOUT_TRIED_ADVICE = {
    "MOOR-202",  # a gate is needed by a gate that is on by default
    "MOOR-203",  # a value like none that is known
    "MOOR-204",  # a quantity that cannot be read
    "MOOR-208",
    "MOOR-209",
    "MOOR-233",  # CPUs that the state file does not have in the shared pool
    "MOOR-251",
    "MOOR-253",
}
"""Codes of which some texts leave open what was meant."""

TRIED = ": the kubelet then starts (run here)."


def one_of_each(name: str) -> list[RecordedStart]:
    """Return a refused start for each text, as far as its first words tell texts apart."""
    found: dict[str, RecordedStart] = {}
    for start in recorded_starts(name):
        if start.error:
            found.setdefault(start.error[:60], start)
    return list(found.values())


@pytest.mark.parametrize("name", ["admission-config-errors", "state-files", "admission-numa-large"])
def test_a_kubelet_starts_with_the_advice_about_every_recorded_refusal(name: str) -> None:
    for start in one_of_each(f"{name}.jsonl.gz"):
        remedy = refused_plan(start.question).remedy
        if not remedy.endswith(TRIED):
            assert start.refusal.code in WITHOUT_TRIED_ADVICE, start.error
            assert not remedy or remedy.startswith("In general (not run here): ")


STATIC = KubeletConfig(cpu_manager_policy="static", reserved_system_cpus="0")
SMALL = replace(parse_compact("sockets=2 cores=4 threads=2 memory=64Gi"), findings=())


@pytest.mark.parametrize(
    ("config", "flags", "release", "advice"),
    cases(__file__, "start-advice.yaml", "config", "flags", "release", "advice"),
)
def test_advice_names_every_change_that_it_takes(
    config: dict[str, Any] | None,
    flags: str,
    release: str,
    advice: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("kubelet.json").write_text(json.dumps({"kind": "KubeletConfiguration", **(config or {})}), encoding="utf-8")
    Path("flags.txt").write_text(flags, encoding="utf-8")
    given = ["kubelet.json"] * (config is not None) + ["flags.txt"] * bool(flags)
    words = [word for file in given for word in ("--config", file)]
    machine = ("--machine", "sockets=2 cores=4 threads=2 memory=64Gi", "--kubelet-version", release)
    answered = mooring("plan", "-f", EXAMPLES / "pods.yaml", *machine, *words, "-o", "json", code=1)
    assert answered.document["remedy"] == (f"{advice}{TRIED}" if advice else "")


def test_a_gate_of_another_system_starts() -> None:
    started_plan(Question(SMALL, replace(STATIC, feature_gates={"WinDSR": True})))


# What a plan reports of starts that are left to chance, that crash, and of numbers that wrap around.


CONFIG = managed("best-effort", "container", memory=True)
MEMORY = 1 << 30


def question(info: MachineInfo, blocks: dict[str, Block], *pods: Pod) -> Question:
    """Return what is asked on a memory file whose assignments came in the order of ``blocks``, by pod uid."""
    kubelet = start_kubelet(info, CONFIG, MooringConfig(), StateTexts())
    assert isinstance(kubelet, Kubelet)
    nodes = kubelet.node.memory.nodes
    for block in blocks.values():
        nodes = charge(nodes, block.numa, block.type, block.size)
    state = MemoryState("Static", nodes, {uid: {"c": (block,)} for uid, block in blocks.items()})
    files = replace(kubelet.files, memory=memory_state_text(state, pod_level=True))
    return Question(Machine("two", info), CONFIG, MooringConfig(), tuple(pods), files=files)


def about_the_file(plan: Plan) -> list[str]:
    return [finding.message for finding in plan.findings if finding.subject == "memory_manager_state"]


def test_a_start_that_is_left_to_chance_is_said() -> None:
    group, single = Block((0, 1), "memory", MEMORY), Block((0,), "memory", MEMORY)
    (message,) = about_the_file(started_plan(question(machine(), {"b": group, "a": single})))
    assert message.startswith("the kubelet starts on this file only by chance")
    assert "NUMA node 0 may end in another group" in message
    assert about_the_file(started_plan(question(machine(), {"b": group, "a": group}))) == []


def uneven() -> MachineInfo:
    """Return two nodes of which only the first lists huge pages."""
    info = machine()
    first, second = info.topology
    return replace(info, topology=(replace(first, hugepages=(HugePages(2048, 16),)), second))


def test_a_group_of_uneven_nodes_crashes_the_kubelet() -> None:
    plan = refused_plan(question(uneven(), {"a": Block((0, 1), "memory", MEMORY)}))
    assert plan.refusal.message == (
        "the kubelet crashes: NUMA node 1 does not list hugepages-2Mi and node 0 of its group does: the kubelet "
        "crashes when it starts on such a group"
    )


def test_a_node_with_more_reserved_than_it_has_is_reported_and_the_kubelet_goes_on() -> None:
    first, second = machine().topology
    info = replace(machine(), topology=(first, replace(second, memory=0)))
    config = replace(CONFIG, reserved_memory=(ReservedMemory(1, {"memory": "100Mi"}),))
    asked = Question(Machine("two", info), config, pods=(Pod.of("u", 1, "1Gi"),))
    plan = started_plan(asked)
    assert plan.is_yes
    (found,) = [finding for finding in plan.findings if finding.code == "MOOR-511"]
    assert found.message in [one.message for one in diagnose(asked).findings if one.code == found.code]
    assert found.subject == "NUMA node 1"
    assert found.message.startswith("has 0 bytes of memory, of which 104857600 are reserved and 0 are huge pages: ")


# The release of an answer: the first version that is known, in every form that vendors write.


def versions(*texts: str) -> list[KubeletVersion]:
    return [KubeletVersion(text, f"source {number}") for number, text in enumerate(texts)]


@pytest.mark.parametrize(
    ("version", "name"),
    [
        ("v1.34", "1.34"),
        ("1.34.4", "1.34"),
        ("v1.31.9-eks-1-31-23", "1.31"),
        ("v1.33.3+k3s1", "1.33"),
        ("v1.33.5", "1.33"),
        ("v1.36.3-gke.100", "1.36"),
        (NEWEST.tag, NEWEST.name),
        (f"v{NEWEST.name}.9+rke2r1", NEWEST.name),
    ],
)
def test_a_known_release_is_decided_as_itself_without_a_word(version: str, name: str) -> None:
    chosen = chosen_release(versions(version))
    assert (chosen.release.name, chosen.findings) == (name, ())


def test_the_first_known_version_decides_and_without_any_the_newest() -> None:
    assert chosen_release(versions("", "v1.34.4", "v1.20.0")).release.name == "1.34"
    assert chosen_release(versions("", "")).release == NEWEST


def test_a_release_of_which_a_preview_is_known_is_decided_as_the_preview_with_a_warning() -> None:
    assert [chosen_release(versions(text)).findings for text in ("1.38", "v1.38.0-beta.0")] == [(), ()]
    chosen = chosen_release(versions("v1.38.1"))
    (finding,) = chosen.findings
    assert (chosen.release.name, finding.code) == ("1.38", "MOOR-580")
    assert finding.message.startswith("is known as a preview alone: decided as v1.38.0-beta.0, a preview, ")


def test_an_older_release_is_refused_with_the_list_or_decided_as_the_oldest() -> None:
    with pytest.raises(InputError, match=r"1\.31, 1\.32.*1\.37") as refused:
        chosen_release(versions("v1.30.6-gke.100"))
    assert "--nearest-release" in refused.value.remedy
    chosen = chosen_release(versions("v1.30.6-gke.100"), nearest=True)
    assert (chosen.release.name, [one.code for one in chosen.findings]) == ("1.31", ["MOOR-580"])
