"""The linter of isolation: each rule on facts that should and should not be told."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from mooring.answers.doctor.lint import Assignments, lint
from mooring.engine.core.cpuset import CPUSet
from mooring.engine.core.machineinfo import Core, MachineInfo, NUMANode
from mooring.engine.core.topology import Topology, discover_topology
from mooring.engine.extensions.interrupts import Interrupt, Owner, Wish
from mooring.inputs.machines.isolation import ControlGroup, IsolationFacts, KernelWords

WEB = "0a1b2c3d-0000-4111-8222-333344445555"
OTHER = "1a1b2c3d-0000-4111-8222-333344445555"
QUIET = KernelWords(isolated=CPUSet.parse("2-3"), tickless=CPUSet.parse("2-3"), callbacks_elsewhere=CPUSet.parse("2-3"))
"""A command line that keeps the exclusive CPUs of :data:`HELD` quiet."""


def cpus(text: str) -> CPUSet:
    return CPUSet.parse(text)


HELD = Assignments(
    holders=((WEB, Owner("default/web/app", cpus("2-3"))),),
    shared=cpus("0-1,4-7"),
    reserved=cpus("0"),
    pods={WEB: "default/web", OTHER: "default/other"},
)
CALM = IsolationFacts(words=QUIET, interrupts=(), new_interrupts=cpus("0"), workqueues=cpus("0-1"), groups=())


def codes(facts: IsolationFacts, assignments: Assignments = HELD) -> list[str]:
    return [finding.code for finding in lint(facts, assignments)]


def threads(*cores: tuple[int, ...]) -> Topology:
    node = NUMANode(0, 2**30, cores=tuple(Core(number, core, 0) for number, core in enumerate(cores)))
    return discover_topology(MachineInfo(sum(map(len, cores)), 1, 2**30, (node,)))


def test_what_the_files_do_not_tell_is_named() -> None:
    told = lint(IsolationFacts(), HELD)
    assert [finding.code for finding in told] == ["MOOR-616"] * 3
    assert {finding.subject for finding in told} == {"sys/fs/cgroup", "proc/irq", "proc/cmdline"}


def with_facts(**changed: Any) -> IsolationFacts:
    return replace(CALM, **changed)


LOUD = replace(QUIET, isolated=CPUSet())


@pytest.mark.parametrize(
    ("changed", "found"),
    [
        pytest.param({}, [], id="quiet"),
        pytest.param({"new_interrupts": cpus("0-2")}, ["MOOR-603", "MOOR-617"], id="new interrupts"),
        pytest.param({"words": LOUD}, ["MOOR-605"], id="services where neither systemd nor the kernel keeps them off"),
        pytest.param({"words": LOUD, "services": cpus("0-1")}, [], id="services elsewhere"),
        pytest.param({"services": cpus("0-2")}, ["MOOR-605"], id="services on a CPU"),
        pytest.param(
            {"words": replace(QUIET, isolated=cpus("0-3"))}, ["MOOR-609", "MOOR-610"], id="isolated and in a pool"
        ),
        pytest.param(
            {"words": replace(QUIET, isolated=cpus("0-3"), flags=("managed_irq",))}, [], id="isolated from interrupts"
        ),
        pytest.param({"words": replace(QUIET, misunderstood=("isolcpus=two",))}, ["MOOR-614"], id="no list"),
    ],
)
def test_each_rule_is_told_where_it_applies(changed: dict[str, Any], found: list[str]) -> None:
    assert codes(with_facts(**changed)) == found


def test_nothing_is_exclusive_where_nobody_holds_cpus() -> None:
    assert codes(with_facts(words=KernelWords()), Assignments(shared=cpus("0-7"))) == ["MOOR-615"]


def test_interrupts_count_by_where_they_are_delivered() -> None:
    elsewhere = Interrupt(24, "eth0", cpus("0-7"), cpus("1"))
    here = Interrupt(25, "eth1", cpus("0-7"), cpus("3"))
    untold = Interrupt(26, "", cpus("2"), None)
    assert codes(with_facts(interrupts=(elsewhere,))) == []
    finding, remedy = lint(with_facts(interrupts=(elsewhere, here, untold)), HELD)
    assert remedy.code == "MOOR-617"
    assert (finding.code, finding.subject) == ("MOOR-602", "2-3")
    assert "2 interrupts" in finding.message
    assert "25 (eth1) and 26" in finding.message
    assert "default/web/app" in finding.message


def test_the_remedy_is_what_the_extension_would_write_and_what_it_could_not() -> None:
    movable = Interrupt(24, "eth0", cpus("2-4"), None)
    managed = Interrupt(25, "nvme0q1", cpus("3"), None, managed=True)
    told = {one.code: one.message for one in lint(with_facts(interrupts=(movable, managed)), HELD)}
    assert told["MOOR-617"] == "The agent's extension irq-affinity would move 24 (eth0) to CPU 4."
    assert told["MOOR-623"] == "The kernel places 25 (nvme0q1) itself; it cannot be moved."
    everything = Assignments(holders=((WEB, Owner("default/web/app", cpus("2-3"))),))
    alone = replace(movable, allowed=cpus("2-3"))
    told = {one.code: one.message for one in lint(with_facts(interrupts=(alone,)), everything)}
    assert "MOOR-617" not in told
    assert told["MOOR-618"] == "Every CPU is exclusive, so nothing can be done about 24 (eth0)."


@pytest.mark.parametrize(
    ("wish", "device", "found"),
    [
        (Wish.AVOID, "0000:03:00.1", ["MOOR-602", "MOOR-617"]),
        (Wish.IGNORE, "", []),
        (Wish.OWN, "0000:03:00.1", []),
        (Wish.OWN, "0000:04:00.0", ["MOOR-602", "MOOR-617"]),
    ],
)
def test_interrupts_that_a_pod_wants_or_does_not_mind_are_no_finding(wish: Wish, device: str, found: list[str]) -> None:
    mine = Interrupt(24, "eth0", cpus("2-3"), None, "0000:03:00.1")
    devices = frozenset({device} if device else ())
    wishing = replace(HELD, wishes=(Owner("default/web", cpus("2-3"), wish, devices),))
    assert codes(with_facts(interrupts=(mine,)), wishing) == found


def test_irqbalance_is_told_a_setting_that_keeps_what_it_spares_already() -> None:
    (finding,) = [one for one in lint(with_facts(spared=cpus("7")), HELD) if one.code == "MOOR-604"]
    assert "IRQBALANCE_BANNED_CPULIST=2-3,7 " in finding.message


@pytest.mark.parametrize(("spared", "matters"), [(None, False), ("", True), ("2", True), ("2-3", False)])
def test_irqbalance_matters_while_it_runs_and_does_not_leave_the_cpus_alone(spared: str | None, matters: bool) -> None:
    facts = with_facts(spared=None if spared is None else cpus(spared))
    assert ("MOOR-604" in codes(facts)) is matters


def test_ticks_callbacks_and_kernel_work_are_information() -> None:
    loud = KernelWords(isolated=cpus("2-3"))
    told = lint(with_facts(words=loud, workqueues=cpus("0-7")), HELD)
    assert [finding.code for finding in told] == ["MOOR-606", "MOOR-607", "MOOR-608"]
    assert {finding.severity for finding in told} == {"info"}


def divided(shared: str, *holders: tuple[str, str, str]) -> list[str]:
    """Return what is told of the cores 0-1 and 2-3 with these holders: name, uid and CPUs of each."""
    held = tuple((uid, Owner(name, cpus(own))) for name, uid, own in holders)
    assignments = Assignments(held, cpus(shared), topology=threads((0, 1), (2, 3)))
    return [one.message for one in lint(CALM, assignments) if one.code == "MOOR-601"]


def test_a_core_that_is_divided_is_reported_with_the_other_owner() -> None:
    assert divided("0-1", ("default/a/c", WEB, "2"), ("default/b/c", OTHER, "3")) == [
        "default/a/c has CPU 2 on cores whose other threads belong to default/b/c.",
        "default/b/c has CPU 3 on cores whose other threads belong to default/a/c.",
    ]
    [half] = divided("0-1,3", ("default/a/c", WEB, "2"))
    assert "the shared pool" in half
    assert divided("0-1", ("default/a/c", WEB, "2-3")) == []
    assert divided("0-1", ("default/a/c", WEB, "2"), ("default/a/d", WEB, "3")) == [], "containers of one pod"


def group(path: str, where: str) -> ControlGroup:
    return ControlGroup(path, cpus(where))


def test_host_processes_reach_exclusive_cpus_unless_these_are_isolated() -> None:
    ssh = group("system.slice/ssh.service", "0-7")
    assert codes(with_facts(groups=(ssh,))) == []
    (finding,) = lint(with_facts(groups=(ssh,), words=LOUD, services=cpus("0-1")), HELD)
    assert (finding.code, finding.subject) == ("MOOR-611", "2-3")
    assert finding.message.startswith("Processes of system.slice (1 control group) may run on CPUs 2-3")


def test_containers_of_other_pods_and_misplaced_ones_are_reported() -> None:
    mine = group(f"kubepods/pod{WEB}/app", "2-3")
    foreign = group(f"kubepods/pod{OTHER}/app", "1-2")
    assert codes(with_facts(groups=(mine, group(f"kubepods/pod{OTHER}/app", "0-1")))) == []
    (finding,) = lint(with_facts(groups=(mine, foreign)), HELD)
    assert (finding.code, finding.subject) == ("MOOR-612", "2")
    assert "default/other" in finding.message
    (moved,) = lint(with_facts(groups=(group(f"kubepods/pod{WEB}/app", "0-7"),)), HELD)
    assert moved.code == "MOOR-613"
    assert "found: 0-7" in moved.message


def test_warnings_come_first() -> None:
    told = lint(with_facts(new_interrupts=cpus("2"), interrupts=(Interrupt(9, "", cpus("2"), None),)), HELD)
    assert [finding.severity for finding in told] == ["warning", "info", "info"]
