from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest
from tests.e2e.guest import inside, sight
from tests.e2e.guest.groups import Driver
from tests.e2e.guest.node import Wanted
from tests.e2e.guest.report import read_lines
from tests.e2e.guest.runner import BIG, Ran, Shape, command, steps_of

from mooring.agent.cgroups.locate import group_path
from mooring.engine.core.cpuset import CPUSet

GUEST = SimpleNamespace(qemu=("qemu",), kernel=Path("vmlinuz"))


def words_of(shape: Shape) -> list[str]:
    return list(command(GUEST, Path("initrd"), shape, Path("reports"), "tcg"))


def nodes_of(shape: Shape) -> list[str]:
    return [word for word in words_of(shape) if word.startswith("node,")]


def distances_of(shape: Shape) -> set[str]:
    return {word.rpartition("=")[2] for word in words_of(shape) if word.startswith("dist,")}


def test_a_line_that_was_cut_is_no_report() -> None:
    text = '{"kind": "step", "step": "a", "ok": true, "told": ""}\nnoise\n{"kind": "seen"}\n{"kind": "step", "st'
    ran = Ran(list(read_lines(text)), "", ended=False)
    assert list(ran.steps) == ["a"]
    assert ran.told("seen") == [{"kind": "seen"}]


def test_the_big_guest_has_64_cpus_on_8_nodes_at_two_distances() -> None:
    nodes = nodes_of(BIG)
    assert nodes[0] == "node,nodeid=0,cpus=0-7,memdev=m0"
    assert nodes[7] == "node,nodeid=7,cpus=56-63,memdev=m7"
    assert distances_of(BIG) == {"12", "32"}
    assert "64,sockets=2,cores=16,threads=2" in words_of(BIG)


def test_a_guest_of_another_shape_has_its_own_nodes_and_memory() -> None:
    shape = Shape(sockets=1, cores=8, threads=2, nodes=2, node_memory=512)
    assert nodes_of(shape) == ["node,nodeid=0,cpus=0-7,memdev=m0", "node,nodeid=1,cpus=8-15,memdev=m1"]
    assert distances_of(shape) == {"12"}
    assert "1024M" in words_of(shape)


def test_steps_keep_the_order_of_the_file() -> None:
    assert next(iter(steps_of("cgroups"))) == "the_kernel_is_found_as_it_is"


@pytest.mark.parametrize(
    ("wanted", "exclusive", "cgroup"),
    [
        (Wanted("a", "2", 1), 2, "/kubepods/poduid-a"),
        (Wanted("a", "1500m", 1), 0, "/kubepods/poduid-a"),
        (Wanted("a", "2", 1, limited=False), 0, "/kubepods/burstable/poduid-a"),
        (Wanted("a"), 0, "/kubepods/besteffort/poduid-a"),
    ],
    ids=lambda value: str(value) if isinstance(value, int | str) else "",
)
def test_only_whole_cpus_of_a_guaranteed_pod_are_exclusive(wanted: Wanted, exclusive: int, cgroup: str) -> None:
    assert (wanted.exclusive, wanted.cgroup) == (exclusive, cgroup)
    assert ("cpu_quota" in wanted.resources()) == (cgroup == "/kubepods/poduid-a")


@pytest.mark.parametrize(
    ("quality", "pod"),
    [
        ("guaranteed", "/kubepods.slice/kubepods-poda_b.slice"),
        ("burstable", "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-poda_b.slice"),
    ],
)
def test_systemd_s_groups_are_where_the_agent_looks_for_them(quality: str, pod: str) -> None:
    driver = Driver(systemd=True)
    assert driver.pod("a-b", quality) == pod
    scope = driver.container(pod, "c3", "crio")
    assert str(scope) == f"/sys/fs/cgroup/{group_path(f'{Path(pod).name}:crio:c3')}"


def test_what_a_witness_wrote_down_is_read() -> None:
    text = (
        "Cpus_allowed_list: 4-5\nMems_allowed_list: 2\ncpuset.cpus.effective: 4-5\ncpuset.mems.effective: 2\n"
        "cpu.max: max 100000\nmap: 7f00 default anon=3 dirty=3 N2=3 kernelpagesize_kB=4\n"
        "map: 7f10 default anon=257 dirty=257 N2=250 N3=7 kernelpagesize_kB=4\nend: \n"
    )
    told = sight.told_by(text)
    assert (str(told.cpus), str(told.mems), told.cpu_max) == ("4-5", "2", "max 100000")
    assert told.pages == {2: 250, 3: 7}


def test_name_and_cpu_of_a_thread_are_read_whatever_its_name_is(tmp_path: Path) -> None:
    numbers = ["S", *(str(number) for number in range(4, 39)), "7", "0"]
    (tmp_path / "stat").write_text(f"12 (a) b (c)) {' '.join(numbers)}\n")
    assert inside.name_and_processor(tmp_path) == ("a) b (c)", 7)


def test_a_process_is_seen_to_run_where_it_may() -> None:
    name, processor = inside.name_and_processor(Path("/proc/self"))
    assert name == Path("/proc/self/comm").read_text().strip()
    assert processor in CPUSet.parse(inside.allowed_of(Path("/proc/self")))


def found_one_after_another(monkeypatch: pytest.MonkeyPatch, *looks: tuple[str, str]) -> list[str]:
    """Return the overlaps that are seen when looks at the groups ``own`` and ``other`` find these CPUs."""
    left = list(looks)

    def allowed(group: Path) -> sight.Allowed:
        name, cpus = left.pop(0)
        assert name == group.name
        return sight.Allowed(1, CPUSet.parse(cpus), CPUSet())

    monkeypatch.setattr(sight, "allowed", allowed)
    return [str(cpus) for _, _, cpus in sight.overlaps([Path("own")], [Path("other")])]


def test_an_overlap_counts_when_the_exclusive_group_stayed_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    looks = [("own", "2-3"), ("own", "2-3"), ("other", "0-2"), ("own", "2-3")]
    assert found_one_after_another(monkeypatch, *looks) == ["2"]


def test_an_exclusive_group_that_moved_meanwhile_overlaps_with_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    looks = [("own", "2-3"), ("own", "2-3"), ("other", "0-2"), ("own", "4-5")]
    assert found_one_after_another(monkeypatch, *looks) == []
