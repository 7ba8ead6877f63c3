"""Which device ties a pod to which NUMA node, and why CPUs and memory could not follow it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tests.explain.situations import STATIC, TWO_NODES, policy, simple, told
from tests.plans import started_plan

from mooring.answers.base.plan import Question
from mooring.engine.core.config import DEVICE_ALIGNMENT, DeviceAlignment, DeviceAlignments, KubeletConfig, MooringConfig
from mooring.engine.core.machine import Machine
from mooring.engine.core.pod import Pod
from mooring.engine.devicemanager.state import Device
from mooring.explanations.lines import story_lines
from mooring.explanations.story import Story

NIC = "example.com/nic"
FOLLOW, REQUIRE = DeviceAlignment.FOLLOW, DeviceAlignment.REQUIRE


def story(
    config: KubeletConfig,
    pods: Sequence[Pod],
    *nodes: int,
    default: DeviceAlignment = FOLLOW,
    machine: Machine = TWO_NODES,
) -> Story:
    """Tell the story of the last pod on a node whose NICs are on these NUMA nodes."""
    mooring = MooringConfig(frozenset({DEVICE_ALIGNMENT}), device_alignments=DeviceAlignments(default))
    nics = tuple(Device(f"nic-{number}", (node,)) for number, node in enumerate(nodes))
    return told(started_plan(Question(machine, config, mooring, tuple(pods), devices={NIC: nics})))


def lines(found: Story) -> list[str]:
    return [line.text for one in story_lines(found, None) for line in (one, *one.children) if not line.detail]


def test_an_admitted_pod_says_which_device_it_followed() -> None:
    found = story(policy("restricted"), [simple("a", "4", nics="1")], 1)
    assert found.why.sentence == (
        "Its 4 exclusive CPUs come from NUMA node 1. It gets nic-0 of example.com/nic on NUMA node 1, which CPUs and "
        "memory follow."
    )
    assert f"{NIC}: nic-0 on NUMA node 1, which CPUs and memory follow" in lines(found)


def test_cpus_are_not_free_where_the_device_is() -> None:
    found = story(policy("single-numa-node"), [simple("big", "6"), simple("a", "4", nics="1")], 0)
    assert found.why.code == "MOOR-136"
    assert found.why.sentence == (
        "Container app holds example.com/nic nic-0 on NUMA node 0, but can get 4 exclusive CPUs only on node 1; "
        "single-numa-node requires one place for all of them."
    )
    assert "topologyManagerPolicy best-effort" in found.why.remedy


def test_what_requires_alignment_is_refused_under_none_in_the_words_of_restricted() -> None:
    found = story(STATIC, [simple("big", "6"), simple("a", "4", nics="1")], 0, default=REQUIRE)
    assert (found.why.code, found.verdict) == ("MOOR-136", "rejected")
    assert "restricted requires one place" in found.why.sentence
    assert found.why.remedy.endswith("(deviceAlignment follow instead of require).")


def test_what_follows_is_admitted_elsewhere_under_none_and_says_so() -> None:
    found = story(STATIC, [simple("big", "6"), simple("a", "4", nics="1")], 0)
    assert found.verdict == "admitted"
    assert found.why.sentence.endswith(
        "on NUMA node 0, which CPUs and memory cannot all follow; best-effort admits that."
    )


def test_too_few_cpus_on_any_node_are_no_matter_of_devices() -> None:
    found = story(policy("single-numa-node"), [simple("big", "6"), simple("a", "8", nics="1")], 1)
    assert found.why.code != "MOOR-136"


def test_held_devices_without_a_common_node_are_named_with_their_nodes() -> None:
    drivers = {"gpu.example.org": (Device("pool/0", (0,)),), "nic.example.org": (Device("pool/7", (1,)),)}
    claimed = {"a": {"app": {driver: frozenset({found[0].id}) for driver, found in drivers.items()}}}
    mooring = MooringConfig(frozenset({DEVICE_ALIGNMENT}))
    question = Question(TWO_NODES, policy("single-numa-node"), mooring, (simple("a", "2"),), devices=drivers)
    found = told(started_plan(replace(question, claimed=claimed)))
    assert found.why.code == "MOOR-137"
    assert found.why.sentence == (
        "Container app holds gpu.example.org pool/0 on NUMA node 0 and nic.example.org pool/7 on NUMA node 1: no set "
        "of NUMA nodes suits all of them, which single-numa-node requires."
    )
    assert told(started_plan(replace(question, mooring=MooringConfig(), claimed=claimed))).verdict == "admitted"


def test_cpus_away_from_a_device_are_remarked_with_what_helps() -> None:
    drivers = {"gpu.example.org": (Device("pool/1", (1,)),)}
    claimed = {"a": {"app": {"gpu.example.org": frozenset({"pool/1"})}}}
    asked = Question(TWO_NODES, STATIC, MooringConfig(), (simple("a", "2"),), devices=drivers, claimed=claimed)
    kubelet = told(started_plan(asked))
    [remark] = [one for one in kubelet.remarks if one.code == "MOOR-190"]
    assert remark.sentence == "app is not beside pool/1 on NUMA node 1 (gpu.example.org)"
    assert "--devices follow" in remark.remedy
    follows = told(started_plan(replace(asked, mooring=MooringConfig(frozenset({DEVICE_ALIGNMENT})))))
    assert [one.code for one in follows.remarks if one.code == "MOOR-190"] == []
