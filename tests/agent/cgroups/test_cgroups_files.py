from __future__ import annotations

from pathlib import Path

import pytest
from tests.agent.cgroups.made_up_tree import HYBRID, V1, V2, made_up_machine

from mooring.agent.cgroups.files import CGroupTrouble, GroupError, find_layout
from mooring.agent.cgroups.locate import group_folder, groups_of_pod_above, process_path
from mooring.engine.core.errors import InputError

UID = "0a1b2c3d-0000-1111-2222-333344445555"


@pytest.mark.parametrize(("version", "mounts"), [(1, V1), (1, HYBRID), (2, V2)])
def test_version_and_mount_points_come_from_the_mounts(tmp_path: Path, version: int, mounts: str) -> None:
    machine = made_up_machine(tmp_path, version, mounts)
    layout = find_layout(tmp_path)
    assert (layout.cpuset.version, layout.cpuset.mount) == (version, str(machine.folder("cpuset")).rstrip("/"))
    assert layout.cpu is not None
    assert layout.cpu.mount == str(machine.folder("cpu")).rstrip("/")


def test_a_controller_of_version_1_counts_although_version_2_is_mounted_first(tmp_path: Path) -> None:
    made_up_machine(tmp_path, 1, "40 31 0:40 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n" + V1)
    assert find_layout(tmp_path).cpuset.version == 1


def test_the_hosts_groups_in_a_container_with_a_namespace_of_its_own_are_named_from_the_true_top(
    tmp_path: Path,
) -> None:
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


def test_where_the_runtime_lives_in_a_group_itself_a_process_tells_where_the_name_hangs(tmp_path: Path) -> None:
    machine = made_up_machine(tmp_path, 2)
    machine.group("nested/kubepods/podb2/c3")
    machine.process(77, "0::/nested/kubepods/podb2/c3/own/child\n")
    layout = find_layout(tmp_path)
    right = str(machine.folder("cpuset", "nested/kubepods/podb2/c3"))
    assert group_folder(layout, layout.cpuset, "/kubepods/podb2/c3", 77) == right
    assert group_folder(layout, layout.cpuset, "/kubepods/podb2", 77) == right.removesuffix("/c3")


@pytest.mark.parametrize("text", ["0::/elsewhere/c4\n", "0::/../c3\n", "0::/gone/c3 (deleted)\n", "", "nonsense\n"])
def test_a_process_of_somebody_else_is_not_believed(tmp_path: Path, text: str) -> None:
    machine = made_up_machine(tmp_path, 2)
    machine.group("elsewhere/c4")
    machine.process(77, text)
    layout = find_layout(tmp_path)
    with pytest.raises(GroupError) as caught:
        group_folder(layout, layout.cpuset, "/kubepods/podb2/c3", 77)
    assert caught.value.trouble is CGroupTrouble.GONE


def test_each_hierarchy_of_version_1_has_its_own_path_of_a_process(tmp_path: Path) -> None:
    machine = made_up_machine(tmp_path, 1)
    machine.process(5, "4:cpuset:/a\n3:cpuacct,cpu:/b\n0::/c\n")
    layout = find_layout(tmp_path)
    assert layout.cpu is not None
    assert (process_path(layout, layout.cpuset, 5), process_path(layout, layout.cpu, 5)) == ("/a", "/b")
    assert process_path(layout, layout.cpuset, 6) is None


@pytest.mark.parametrize(
    ("path", "above"),
    [
        (f"kubepods/burstable/pod{UID}/c3", [f"kubepods/burstable/pod{UID}"]),
        (
            f"kubepods.slice/kubepods-pod{UID.replace('-', '_')}.slice/cri-containerd-c3.scope",
            [f"kubepods.slice/kubepods-pod{UID.replace('-', '_')}.slice"],
        ),
        (f"kubepods/pod{UID}/c3/inner", [f"kubepods/pod{UID}", f"kubepods/pod{UID}/c3"]),
        ("kubepods/burstable", []),
        ("system.slice/cron.service", []),
    ],
)
def test_only_groups_of_the_pod_count_as_above(tmp_path: Path, path: str, above: list[str]) -> None:
    made_up_machine(tmp_path, 1)
    cpuset = find_layout(tmp_path).cpuset
    assert list(groups_of_pod_above(cpuset, f"{cpuset.mount}/{path}")) == [f"{cpuset.mount}/{one}" for one in above]
