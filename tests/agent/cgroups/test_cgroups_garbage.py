"""Texts of the kernel that are not what they should be end in a value or in an error of ours, never in another."""

from __future__ import annotations

import tempfile
from contextlib import suppress
from pathlib import Path

from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.agent.cgroups.made_up_tree import HYBRID, V1, V2, made_up_machine
from tests.agent.sets import cpuset_write
from tests.e2e.guest.process_tasks import parse_status

from mooring.agent.cgroups.files import Hierarchy, find_layout
from mooring.agent.cgroups.locate import path_in
from mooring.agent.effects import LiftQuota, QuotaOf
from mooring.engine.core.errors import InputError

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


@settings(deadline=None, max_examples=60)
@given(GARBAGE, st.sampled_from([1, 2]))
def test_what_is_no_path_of_a_process_is_none_or_a_path(text: str, version: int) -> None:
    for before in ("0::", "4:cpuset:", "4:cpuset:/", ""):
        path = path_in(before + text, Hierarchy(version, "/x", "cpuset"))
        assert path is None or (path.startswith("/") and ".." not in path.split("/"))


@settings(deadline=None, max_examples=50)
@given(GARBAGE, GARBAGE)
def test_a_status_that_cannot_be_read_is_none(cpus: str, mems: str) -> None:
    found = parse_status(f"Cpus_allowed_list:\t{cpus}\nMems_allowed_list:\t{mems}\n")
    assert found is None or set(str(found.cpus)) <= set("0123456789-,")


@settings(deadline=None, max_examples=30)
@given(text=st.text(st.characters(codec="ascii"), max_size=20), version=st.sampled_from([1, 2]))
def test_garbage_in_a_group_is_a_value_of_the_agent(text: str, version: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        machine = made_up_machine(Path(folder), version)
        names = {"cpuset_cpus": text, "cpuset_mems": text, "cpu_max": text, "cpu_cfs_quota_us": text}
        machine.group("pod1/c3", **names)
        wanted = cpuset_write("c3", 0, "/pod1/c3", "0-1", "0")
        (found,) = machine.cgroups.deviations([wanted]) or (None,)
        assert found is None or found.trouble or found.found is not None
        machine.cgroups.write_cpuset(wanted)
        lift = LiftQuota(QuotaOf.CONTAINER, "1", "c3", 0, "/pod1/c3")
        machine.cgroups.quotas([lift])
        machine.cgroups.lift_quota(lift)
