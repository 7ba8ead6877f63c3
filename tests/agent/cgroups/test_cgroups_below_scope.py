"""The group ``container`` that crun makes below the scope of systemd: the processes are there."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.agent.cgroups.made_up_tree import MadeUpMachine, made_up_machine
from tests.agent.small_node import cpuset_write
from tests.values import not_none

from mooring.agent.cgroups.files import CGroupTrouble
from mooring.agent.cgroups.protocol import Quota
from mooring.agent.effects import LiftQuota, QuotaOf, WriteCPUSet
from mooring.engine.core.cpuset import CPUSet

SLICE = "kubepods-pod0a1b2c3d_0000_1111_2222_333344445555.slice"
NAME = f"{SLICE}:crio:c3"
SCOPE = f"kubepods.slice/{SLICE}/crio-c3.scope"
LEAF = f"{SCOPE}/container"
LIFT = LiftQuota(QuotaOf.CONTAINER, "b2", "c3", 0, NAME)


@pytest.fixture
def machine(tmp_path: Path) -> MadeUpMachine:
    """Return a machine on which crun has started a container on the CPUs 2-3 with a quota."""
    made = made_up_machine(tmp_path, 2)
    for path in ("kubepods.slice", f"kubepods.slice/{SLICE}"):
        made.group(path)
    for path in (SCOPE, LEAF):
        made.group(path, cpuset_cpus="2-3", cpuset_mems="0", cpu_max="150000 100000")
    return made


def wanted(cpus: str, mems: str = "") -> WriteCPUSet:
    return cpuset_write("c3", 0, NAME, cpus, mems)


def cpus_of(machine: MadeUpMachine, *paths: str) -> list[str]:
    return [machine.text("cpuset", path, "cpuset.cpus") for path in paths]


def test_a_cpuset_is_written_into_the_scope_and_below_it(machine: MadeUpMachine) -> None:
    assert machine.cgroups.write_cpuset(wanted("2-6", "0-1")).is_right
    assert cpus_of(machine, SCOPE, LEAF) == ["2-6", "2-6"]
    assert machine.text("cpuset", LEAF, "cpuset.mems") == "0-1"
    assert not machine.cgroups.write_cpuset(wanted("2-6", "0-1")).wrote


@pytest.mark.parametrize("found", ["2", "2-7", "4"])
def test_processes_that_have_other_cpus_than_their_scope_are_a_deviation(machine: MadeUpMachine, found: str) -> None:
    machine.put("cpuset", LEAF, "cpuset.cpus", found)
    [differing] = machine.cgroups.deviations([wanted("2-3")])
    assert not_none(differing.after).cpus == CPUSet.parse(found)
    assert differing.trouble is None
    assert not_none(machine.cgroups.in_effect(wanted("2-3"))).cpus == CPUSet.parse(found)
    assert machine.cgroups.write_cpuset(wanted("2-3")).is_right
    assert machine.cgroups.deviations([wanted("2-3")]) == ()


def test_a_scope_that_holds_its_processes_back_can_be_repaired(machine: MadeUpMachine) -> None:
    """After ``systemctl daemon-reload`` the scope has what systemd has on record, and the group below what it had."""
    machine.put("cpuset", LEAF, "cpuset.cpus", "2-6")
    effective = machine.folder("cpuset", LEAF) / "cpuset.cpus.effective"
    effective.unlink()
    effective.write_text("2-3\n")
    [differing] = machine.cgroups.deviations([wanted("2-6")])
    assert differing.trouble is None
    machine.put("cpuset", SCOPE, "cpuset.cpus", "2-6")
    [offline] = machine.cgroups.deviations([wanted("2-6")])
    assert offline.trouble is CGroupTrouble.NOT_TAKEN, "everything is configured, and still not in effect"


def test_a_quota_is_lifted_found_and_given_back_in_both(machine: MadeUpMachine) -> None:
    quota = Quota(150000, 100000)
    assert machine.cgroups.lift_quota(LIFT) == quota
    assert [machine.text("cpu", path, "cpu.max") for path in (SCOPE, LEAF)] == ["max 100000"] * 2
    machine.put("cpu", LEAF, "cpu.max", "150000 100000")
    assert machine.cgroups.quotas([LIFT]) == ((LIFT, quota),)
    assert machine.cgroups.lift_quota(LIFT) == quota
    assert machine.cgroups.restore_quota(LIFT, quota) is None
    assert [machine.text("cpu", path, "cpu.max") for path in (SCOPE, LEAF)] == ["150000 100000"] * 2


def test_a_group_below_without_the_controller_is_none_of_the_runtime_s(machine: MadeUpMachine) -> None:
    for file in machine.folder("cpuset", LEAF).iterdir():
        file.unlink()
    assert machine.cgroups.write_cpuset(wanted("4")).is_right
    assert cpus_of(machine, SCOPE) == ["4"]
    assert machine.cgroups.lift_quota(LIFT) is not None


def test_without_systemd_a_group_of_that_name_is_the_container_s_own(tmp_path: Path) -> None:
    machine = made_up_machine(tmp_path, 2)
    pod = "kubepods/pod0a1b2c3d-0000-1111-2222-333344445555"
    path = f"{pod}/c3"
    machine.group(pod)
    for group in (path, f"{path}/container"):
        machine.group(group, cpuset_cpus="2-3")
    assert machine.cgroups.write_cpuset(cpuset_write("c3", 0, f"/{path}", "2-6", "")).is_right
    assert cpus_of(machine, path, f"{path}/container") == ["2-6", "2-3"]
