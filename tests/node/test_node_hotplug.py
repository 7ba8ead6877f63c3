"""CPUs that go offline and come back: who is given what, who gets what back."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.cpumanager.pods import container as quantified
from tests.node.hotpluggable import (
    EXCLUSIVE_RESIZE,
    config,
    cpus,
    hotpluggable,
    machine,
    offline,
    online,
    pod,
    reusing,
    set_of,
    told,
    with_pods,
)
from tests.node.nodes import node as plain_node
from tests.node.podlevel_nodes import managed, shared, whole
from tests.node.resizable import resized

from mooring.engine.core.bits import NO_CPUS, list_text
from mooring.engine.core.config import ANYWHERE, NEVER
from mooring.engine.core.errors import InputError
from mooring.engine.core.pod import Pod
from mooring.engine.node import Node
from mooring.engine.node.claims import Claim, Share, claim, claimable
from mooring.engine.node.hotplug import (
    came_online,
    hotplug_findings,
    remembered,
    replanned,
    went_offline,
)
from mooring.engine.node.metrics import Metrics, fold


def left_in_pool(node: Node) -> str:
    return list_text(node.cpu.default & ~node.cpu.offline)


PARTED = whole("3", quantified("a", cpu="2"), shared("rest"))
SIX = machine(1, 8, threads=1)
ALONE = "1 needed, 0 free on NUMA node 0"


@pytest.mark.parametrize(
    ("node", "asked", "lost", "changes"),
    [
        (hotpluggable(), pod(3), "2", [("a", "1-3", "1,3-4")]),
        (hotpluggable(config("single-numa-node"), rule=ANYWHERE), pod(5), "1-4", [("a", "1-5", "5-9")]),
        (
            hotpluggable(config(options={"full-pcpus-only": "true"}, reserved="0,4"), machine(1, 4)),
            *(pod(2), "5", [("a", "1,5", "2,6")]),
        ),
        (
            hotpluggable(managed("best-effort", "pod"), SIX),
            *(PARTED, "2-3", [("", "1-3", "1,4-5"), ("a", "1-2", "1,4"), ("rest", "3", "5")]),
        ),
        (
            hotpluggable(managed("best-effort", "pod"), machine(1, 4, threads=1)),
            *(PARTED, "2", [("", "2", ALONE), ("a", "2", ALONE)]),
        ),
        (
            hotpluggable(config(options={"strict-cpu-reservation": "true"}), machine(1, 4, threads=1)),
            *(pod(2), "1", [("a", "1", "they would be the last CPUs of the shared pool")]),
        ),
    ],
    ids=[
        *("others of its node", "anywhere: its own node first", "whole cores (0, 4) to (3, 7)"),
        *("a partition and what is inside", "a partition without room, as a whole", "the pool keeps a CPU"),
    ],
)
def test_what_stands_in_until_the_cpus_are_back(
    node: Node, asked: Pod, lost: str, changes: list[tuple[str, str, str]]
) -> None:
    before = with_pods(node, asked)
    after, change = offline(before, lost)
    assert told(change) == changes
    again, change = online(after, lost)
    assert again == before
    assert [name for name, _, _ in told(change)] == [name for name, _, _ in changes]


def test_without_room_on_its_nodes_a_set_stays_broken_until_there_is_some() -> None:
    full = with_pods(hotpluggable(config("single-numa-node")), pod(4, uid="p"), pod(3, uid="q"))
    node, change = offline(full, "2")
    assert told(change) == [("a", "2", ALONE)]
    assert set_of(node, "p") == "1-4"
    assert replanned(node)[0] is not None
    assert replanned(node)[1].broken == ()
    node, _ = node.remove("q")
    node, change = replanned(node)
    assert told(change) == [("a", "1-4", "1,3-5")]


def test_a_stand_in_that_is_lost_is_replaced_itself_and_forgotten() -> None:
    node = with_pods(hotpluggable(), pod(2))
    lost, _ = offline(offline(node, "1")[0], "3")
    assert (set_of(lost, "p"), dict(lost.cpu.displaced["p"])) == ("2,4", {1: 4})
    lost, _ = online(lost, "3")
    assert set_of(lost, "p") == "2,4"
    assert online(lost, "1")[0] == node


def test_whole_cores_are_given_up_and_stand_in() -> None:
    """Cores (0, 4) to (3, 7)."""
    kubelet = config(options={"full-pcpus-only": "true"}, reserved="0,4")
    lost, _ = offline(with_pods(hotpluggable(kubelet, machine(1, 4)), pod(2)), "5")
    assert left_in_pool(lost) == "0-1,3-4,7"
    assert not lost.admit(pod(4, uid="q"))[1].admitted
    lost, change = offline(with_pods(lost, pod(2, uid="q")), "2")
    assert told(change) == [("a", "2", "2 needed, 0 free on NUMA node 0")]
    assert set_of(online(lost, "5")[0], "p") == "1,5"


def test_a_claim_is_marked_and_keeps_what_it_has() -> None:
    asked = Claim("c", "shop", "cpus", (Share("fast", "numa0", 2, cpus("0-7")),))
    node, _ = claim(hotpluggable(), asked)
    lost, change = offline(node, "1,3-4")
    kept = "a claim keeps the CPUs of its device, which its containers know"
    assert told(change) == [("shop/cpus/numa0/fast", "1", kept)]
    assert list_text(claimable(lost)) == "5-15"
    other = Claim("d", "shop", "more", (Share("fast", "numa0", 4, cpus("0-7")),))
    refused = claim(lost, other)[1]
    assert refused is not None
    assert "3 free CPUs of the 4" in refused.message
    assert "claim shop/cpus (fast)" in hotplug_findings(lost)[0].subject
    assert online(lost, "1,3-4")[0] == node


def test_a_claim_leaves_the_pool_a_cpu_that_is_online() -> None:
    node = hotpluggable(config(options={"strict-cpu-reservation": "true"}), machine(1, 4, threads=1))
    node, _ = offline(node, "3")
    refused = claim(node, Claim("c", "shop", "cpus", (Share("fast", "numa0", 2, cpus("0-3")),)))[1]
    assert refused is not None
    assert refused.reason == "EmptySharedPool"


def test_a_pod_that_shrinks_gives_up_what_is_offline() -> None:
    kubelet = config(gates={"InPlacePodVerticalScalingExclusiveCPUs": True})
    node = with_pods(hotpluggable(kubelet, machine(1, 8, threads=1), NEVER, EXCLUSIVE_RESIZE), pod(2))
    node, _ = resized(node, pod(5))
    node, _ = offline(node, "3")
    node, _ = resized(node, pod(3))
    assert set_of(node, "p") == "1-2,4"


def test_a_restart_keeps_what_is_broken_and_remembers_the_rest() -> None:
    node, _ = offline(with_pods(hotpluggable(config("single-numa-node")), pod(4), pod(2, uid="q")), "2,6-7")
    found = node.restart()
    assert isinstance(found, tuple)
    again, readmission = found
    assert not readmission.refused
    assert again.cpu == node.cpu
    forgetful = replace(
        again, providers=replace(again.providers, cpu=replace(again.cpu, offline=NO_CPUS, displaced={}))
    )
    assert remembered(forgetful, node.cpu.offline, node.cpu.displaced).cpu == node.cpu
    odd = {"p": {8: 1, 1: 3}, "nobody": {8: 9}}
    assert remembered(forgetful, 0, odd).cpu.displaced == {"p": {8: 1}}


def test_cpus_that_the_machine_lacks_or_that_are_there_change_nothing() -> None:
    node = with_pods(hotpluggable(), pod(3))
    assert offline(node, "99")[0] == online(node, "5")[0] == node


@pytest.mark.parametrize("change", [went_offline, came_online])
def test_without_the_extension_it_is_bad_input(change: object) -> None:
    with pytest.raises(InputError, match=r"extensions: .*cpu-hotplug.*add cpu-hotplug"):
        change(plain_node(), 0b10)  # type: ignore[operator]


def test_under_policy_none_there_is_nobody_to_lose_anything() -> None:
    node = hotpluggable(replace(config(), cpu_manager_policy="none", cpu_manager_policy_options={}))
    node, change = offline(with_pods(node, pod(2)), "1")
    assert (node.cpu.offline, change.broken) == (cpus("1"), ())


def test_facts_and_metrics_tell_what_was_done() -> None:
    facts: list[object] = []
    node = with_pods(hotpluggable(), pod(7), pod(2, uid="q"))
    metrics = Metrics.initial(node.settings, node.cpu)
    after, _ = went_offline(node, cpus("2,8"), facts.append)
    assert [type(fact).__name__ for fact in facts] == ["CPUsWentOffline", "CPUsBroken", "CPUsReplaced"]
    assert fold(metrics, facts).values == Metrics.initial(after.settings, after.cpu).values
    came_online(after, cpus("2,8"), facts.append)
    assert [type(fact).__name__ for fact in facts[4:]] == ["CPUsRestored", "CPUsRestored"]


def codes(node: Node) -> list[tuple[str, str]]:
    return [(one.code, one.subject) for one in hotplug_findings(node)]


def test_findings_name_what_is_broken_displaced_and_missing() -> None:
    assert codes(hotpluggable()) == []
    node = with_pods(hotpluggable(), pod(7), pod(2, uid="q"))
    lost, _ = offline(node, "0,2,8")
    assert codes(lost) == [("MOOR-521", "default/p/a"), ("MOOR-522", "default/q/a"), ("MOOR-523", "CPU 0")]
    strict = hotpluggable(config(options={"strict-cpu-reservation": "true"}), machine(1, 4, threads=1))
    empty, _ = offline(with_pods(strict, pod(2)), "3")
    assert codes(empty) == [("MOOR-524", "shared pool")]
    gone, _ = offline(with_pods(hotpluggable(rule=NEVER), pod(2)), "1-2")
    assert "all that it has" in hotplug_findings(gone)[0].message


def test_some_of_a_set_that_are_back_are_told_while_others_are_not() -> None:
    node = with_pods(hotpluggable(None, machine(1, 5, threads=1)), pod(3))
    lost, _ = offline(node, "1")
    assert set_of(lost, "p") == "2-4"
    lost, change = offline(lost, "2")
    assert told(change) == [("a", "2", ALONE)]
    half, change = online(lost, "1")
    assert set_of(half, "p") == "1,3-4"
    assert told(change) == [("a", "1-3", "1,3-4")]
    full = with_pods(hotpluggable(None, machine(1, 5, threads=1), NEVER), pod(3))
    settings = replace(full.settings, replace_offline="same-nodes")
    lost, _ = offline(replace(full, settings=settings), "1")
    lost, _ = offline(replace(lost, settings=full.settings), "2")
    half, change = online(lost, "1")
    assert set_of(half, "p") == "1-3"
    assert told(change) == [("a", "2", "cpuHotplug.replace is never")]


def test_what_init_containers_left_is_not_given_while_it_is_offline() -> None:
    node = with_pods(hotpluggable(rule=NEVER), reusing())
    assert node.providers.reusable_cpus.cpus == 0
    left = replace(node.providers.reusable_cpus, cpus=cpus("1-2"))
    without_app = replace(
        node.cpu,
        assignments={"p": {"init": cpus("1-2")}},
        default=cpus("0,3-15"),
        baselines={"p": {"init": cpus("1-2")}},
    )
    begun = replace(node, providers=replace(node.providers, cpu=without_app, reusable_cpus=left), active={})
    begun, _ = offline(begun, "2")
    after, readmission = begun.readmit([reusing()])
    assert not readmission.refused
    assert set_of(after, "p") == "1,3-4"
