"""The group of a container: its path from the runtime's name, and whether something runs in it, in both versions."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.agent.cgroups.made_up_tree import MadeUpMachine, made_up_machine

from mooring.agent.cgroups.locate import expanded_slice, group_path
from mooring.agent.cgroups.protocol import UnseenCGroups

WORDS = st.lists(st.from_regex(r"[a-z0-9_]{1,8}", fullmatch=True), min_size=1, max_size=5)
ID = "3f" * 32


@given(WORDS)
def test_every_slice_lies_in_the_slice_that_its_name_begins_with(words: list[str]) -> None:
    path = expanded_slice("-".join(words) + ".slice")
    assert path is not None
    parts = path.split("/")
    assert len(parts) == len(words)
    assert parts[-1] == "-".join(words) + ".slice"
    assert all(low.startswith(high.removesuffix(".slice") + "-") for high, low in pairwise(parts))


@given(st.text(max_size=60))
def test_no_name_leads_out_of_the_hierarchy(name: str) -> None:
    path = group_path(name)
    assert path is None or (path and not path.startswith("/") and ".." not in path.split("/"))


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
def test_both_forms_of_names_lead_to_the_group(name: str, path: str | None) -> None:
    assert group_path(name) == path


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
