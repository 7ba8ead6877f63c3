"""Where a machine has its control groups, and where a group of a name is."""

from __future__ import annotations

import tempfile
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.agent.cgroups.made_up_tree import HYBRID, V1, V2, MadeUpMachine, made_up_machine
from tests.agent.small_node import cpuset_write, setting

from mooring.agent.cgroups.files import GroupError, find_layout
from mooring.agent.cgroups.protocol import UnseenCGroups
from mooring.agent.effects import LiftQuota, QuotaOf
from mooring.engine.core.errors import InputError

UID = "0a1b2c3d-0000-1111-2222-333344445555"


@pytest.mark.parametrize(("version", "mounts"), [(1, V1), (1, HYBRID), (2, V2)])
def test_version_and_mount_points_come_from_the_mounts(tmp_path: Path, version: int, mounts: str) -> None:
    machine = made_up_machine(tmp_path, version, mounts)
    layout = find_layout(tmp_path)
    assert (layout.cpuset.version, layout.cpuset.mount) == (version, str(machine.folder("cpuset")).rstrip("/"))
    assert layout.cpu is not None
    assert layout.cpu.mount == str(machine.folder("cpu")).rstrip("/")


def test_the_hosts_groups_in_a_container_with_its_own_namespace_are_named_from_the_true_top(tmp_path: Path) -> None:
    made_up_machine(tmp_path, 1, V1.replace(" / /sys/fs", " /../../.. /sys/fs"))
    layout = find_layout(tmp_path)
    assert layout.cpuset.top == "/"
    assert layout.cpuset.folder("kubepods/podb2") == f"{layout.cpuset.mount}/kubepods/podb2"


def test_a_mount_point_with_a_space_is_found(tmp_path: Path) -> None:
    (tmp_path / "proc/self").mkdir(parents=True)
    (tmp_path / "proc/self/mountinfo").write_text("1 2 0:1 / /the\\040groups rw - cgroup cgroup rw,cpuset\n")
    layout = find_layout(tmp_path)
    assert layout.cpuset.mount == f"{tmp_path}/the groups"
    assert layout.cpu is None


@pytest.mark.parametrize(
    "mounts", ["", "garbage\n", "1 2 0:1 / /x rw - cgroup\n", V2], ids=["none", "bad", "cut", "v2"]
)
def test_a_machine_without_cpusets_is_refused_with_a_remedy(tmp_path: Path, mounts: str) -> None:
    (tmp_path / "proc/self").mkdir(parents=True)
    (tmp_path / "proc/self/mountinfo").write_text(mounts)
    with pytest.raises(InputError, match="no cpuset controller is mounted") as caught:
        find_layout(tmp_path)
    assert caught.value.remedy


def test_unreadable_mounts_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="the mounts cannot be read"):
        find_layout(tmp_path)


@pytest.mark.parametrize("text", ["0::/elsewhere/c4\n", "0::/../c3\n", "0::/gone/c3 (deleted)\n", "", "nonsense\n"])
def test_a_process_of_somebody_else_is_not_believed(tmp_path: Path, text: str) -> None:
    machine = made_up_machine(tmp_path, 2)
    machine.group("elsewhere/c4")
    machine.process(77, text)
    assert machine.cgroups.in_effect(cpuset_write("c3", 77, "/kubepods/podb2/c3", "", "")) is None
    assert not machine.cgroups.has_group("/kubepods/podb2/c3", 77)


def test_each_hierarchy_of_version_1_has_its_own_path_of_a_process(tmp_path: Path) -> None:
    machine = made_up_machine(tmp_path, 1)
    machine.process(5, "4:cpuset:/a/c3\n3:cpuacct,cpu:/b/c3\n0::/c\n")
    machine.group("a/c3", cpuset_cpus="2-3")
    machine.group("b/c3", cpu_cfs_quota_us="150000")
    cgroups, lift = machine.cgroups, LiftQuota(QuotaOf.CONTAINER, "1", "c3", 5, "/pods/c3")
    assert cgroups.in_effect(cpuset_write("c3", 5, "/pods/c3", "", "")) == setting("2-3", "0-1")
    assert [found.microseconds for _, found in cgroups.quotas([lift])] == [150_000]
    assert cgroups.quotas([replace(lift, pid=6)]) == ()


@pytest.mark.parametrize(
    ("above", "of_pod"),
    [
        ("kubepods/burstable", f"pod{UID}"),
        ("kubepods.slice", f"kubepods-pod{UID.replace('-', '_')}.slice"),
        ("kubepods", f"pod{UID}/c3"),
        ("kubepods/burstable", ""),
        ("system.slice/cron.service", ""),
    ],
)
def test_only_groups_of_the_pod_are_widened(tmp_path: Path, above: str, of_pod: str) -> None:
    machine = made_up_machine(tmp_path, 2)
    parts = f"{above}/{of_pod}".strip("/").split("/")
    groups = ["/".join(parts[: size + 1]) for size in range(len(parts))]
    for group in (*groups, f"{groups[-1]}/inner"):
        machine.group(group, cpuset_cpus="0")
    machine.cgroups.write_cpuset(cpuset_write("c3", 0, f"/{groups[-1]}/inner", "0,2", ""))
    wider = [group for group in groups if machine.text("cpuset", group, "cpuset.cpus") == "0,2"]
    assert wider == [group for group in groups if len(group) > len(above)]


# The group of a container: its path from the runtime's name, and whether something runs in it, in both versions.


ID = "3f" * 32


@pytest.mark.parametrize(
    ("name", "path"),
    [
        (f"/kubepods/podb2/{ID}", f"kubepods/podb2/{ID}"),
        (f"kubepods-podb2.slice:cri-containerd:{ID}", f"kubepods.slice/kubepods-podb2.slice/cri-containerd-{ID}.scope"),
        (f":runc:{ID}", f"system.slice/runc-{ID}.scope"),
        (f"-.slice:crio:{ID}", f"crio-{ID}.scope"),
        ("a.slice:crio:b.slice", "a.slice/b.slice"),
        ("/kubepods.slice/kubepods-podb2.slice", "kubepods.slice/kubepods-podb2.slice"),
        ("kubepods-podb2.slice", "kubepods.slice/kubepods-podb2.slice"),
        ("-.slice", None),
        ("not a slice:crio:b", None),
        ("a.slice:crio:", None),
        ("", None),
        ("/", None),
        ("../../init", None),
    ],
)
def test_both_forms_of_names_lead_to_the_group_and_no_name_out_of_the_hierarchy(
    tmp_path: Path, name: str, path: str | None
) -> None:
    machine = made_up_machine(tmp_path, 2)
    machine.group("init")
    assert not machine.cgroups.has_group(name, 0)
    if path is not None:
        machine.group(path)
        assert machine.cgroups.has_group(name, 0)


def show(machine: MadeUpMachine, path: str, processes: str) -> None:
    """Let a group have processes, as the kernel shows it."""
    if machine.version == 1:
        machine.put("cpuset", path, "cgroup.procs", processes)
        return
    while path:
        machine.put("cpuset", path, "cgroup.events", f"populated {int(bool(processes))}\nfrozen 0")
        path = path.rpartition("/")[0]


@pytest.mark.parametrize("version", [1, 2])
def test_a_group_runs_while_there_is_a_process_in_it_or_below_it(tmp_path: Path, version: int) -> None:
    machine = made_up_machine(tmp_path, version)
    for path in ("/pods/p", "/pods/p/c", "/pods/p/c/init"):
        machine.group(path)
        show(machine, path, "")
    cgroups = machine.cgroups
    assert not cgroups.has_processes("/pods/p/c", 0)
    assert cgroups.has_group("/pods/p/c", 0), "an empty group is still one"
    show(machine, "/pods/p/c/init", "12\n14")
    assert cgroups.has_processes("/pods/p/c", 0)
    show(machine, "/pods/p/c/init", "")
    show(machine, "/pods/p/c", "12")
    assert cgroups.has_processes("/pods/p/c", 0)
    machine.remove("/pods/p/c")
    assert not cgroups.has_processes("/pods/p/c", 0)
    assert not cgroups.has_processes("", 0)


@pytest.mark.parametrize("version", [1, 2])
def test_a_group_that_cannot_be_looked_into_counts_as_running(tmp_path: Path, version: int) -> None:
    machine = made_up_machine(tmp_path, version)
    machine.group("/pods/p")
    assert machine.cgroups.has_processes("/pods/p", 0)


def test_on_a_simulated_machine_nothing_is_seen_to_run() -> None:
    assert not UnseenCGroups().has_processes("/pods/p", 1)


# Texts of the kernel that are not what they should be end in a value or in an error of ours, never in another.


LINES = st.lists(st.sampled_from([*HYBRID.splitlines(), *V1.splitlines(), *V2.splitlines()]), max_size=6)
GARBAGE = st.text(st.characters(codec="utf-8"), max_size=40)


@st.composite
def broken_mounts(draw: st.DrawFn) -> str:
    text = "\n".join(draw(LINES))
    place = draw(st.integers(0, len(text)))
    return text[:place] + draw(GARBAGE) + text[place + draw(st.integers(0, 9)) :]


@settings(deadline=None, max_examples=40)
@given(broken_mounts())
@example("41 31 0:40 / \0/sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw")
@example("41 31 0:40 / \\000/sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw")
def test_broken_mounts_give_a_layout_or_a_plain_no(text: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "proc/self").mkdir(parents=True)
        (Path(folder) / "proc/self/mountinfo").write_text(text, encoding="utf-8")
        with suppress(InputError):
            assert find_layout(Path(folder)).cpuset.controller == "cpuset"


@settings(deadline=None, max_examples=30)
@given(text=st.text(st.characters(codec="ascii"), max_size=20), version=st.sampled_from([1, 2]))
def test_garbage_in_a_group_is_a_value_of_the_agent(text: str, version: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        machine = made_up_machine(Path(folder), version)
        names = {"cpuset_cpus": text, "cpuset_mems": text, "cpu_max": text, "cpu_cfs_quota_us": text}
        machine.group("pod1/c3", **names)
        machine.process(77, f"0::{text}\n4:cpuset:{text}\n{text}")
        machine.cgroups.has_group("/pod1/c4", 77)
        wanted = cpuset_write("c3", 0, "/pod1/c3", "0-1", "0")
        (found,) = machine.cgroups.deviations([wanted]) or (None,)
        assert found is None or found.trouble or found.after is not None
        machine.cgroups.write_cpuset(wanted)
        lift = LiftQuota(QuotaOf.CONTAINER, "1", "c3", 0, "/pod1/c3")
        machine.cgroups.quotas([lift])
        with suppress(GroupError):
            machine.cgroups.lift_quota(lift)
