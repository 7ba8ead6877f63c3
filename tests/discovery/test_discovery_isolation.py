"""Facts about isolation, read from made-up file trees as kernel, systemd and irqbalance write them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from tests.discovery.trees import plain
from tests.values import cases

from mooring.engine.core.cpuset import CPUSet
from mooring.inputs.machines.archive import ArchiveTree
from mooring.inputs.machines.isolation import (
    ControlGroup,
    IsolationFacts,
    kernel_words,
    parse_kernel_list,
    read_isolation,
)

ONLINE = CPUSet.parse("0-7")
UID = "0a1b2c3d-0000-4111-8222-333344445555"


def read(files: Mapping[str, str]) -> IsolationFacts:
    return read_isolation(ArchiveTree("made", {path: text.encode() for path, text in files.items()}), ONLINE)


def cpus(text: str) -> CPUSet:
    return CPUSet.parse(text)


def test_a_snapshot_of_sysfs_alone_tells_nothing() -> None:
    assert read({}) == IsolationFacts()


@pytest.mark.parametrize(("found", "text"), cases(__file__, "lists-of-kernels.yaml", "cpus", "text"))
def test_lists_of_the_command_line(found: str | None, text: str) -> None:
    assert parse_kernel_list(text, ONLINE) == (None if found is None else cpus(found))


@given(st.text(max_size=20))
def test_no_list_is_too_odd(text: str) -> None:
    found = parse_kernel_list(text, ONLINE)
    assert found is None or found <= CPUSet.from_ids(range(1 << 20 | 1))


def test_the_last_of_two_words_counts_and_words_behind_two_dashes_do_not() -> None:
    words = kernel_words("isolcpus=1 isolcpus=nohz,domain,2-3 rcu_nocbs=bad -- nohz_full=4", ONLINE)
    assert (words.isolated, words.flags) == (cpus("2-3"), ("nohz", "domain"))
    assert words.tickless == CPUSet()
    assert words.misunderstood == ("rcu_nocbs=bad",)


FACTS = yaml.safe_load((Path(__file__).parent / "isolation-in-files.yaml").read_text(encoding="utf-8"))


@pytest.mark.parametrize("case", FACTS, ids=lambda case: str(case["name"]))
def test_facts_are_read_from_files(case: dict[str, Any]) -> None:
    facts = read(case["files"])
    interrupts = {one.number: one for one in facts.interrupts or ()}
    if "interrupts" in case:
        assert list(interrupts) == list(case["interrupts"])
    for number, told in case.get("interrupts", {}).items():
        assert {member: plain(getattr(interrupts[number], member)) for member in told} == told
    for member in case.keys() & {"new_interrupts", "spared"}:
        assert plain(getattr(facts, member)) == case[member]
    groups = [[one.path.rpartition("/")[2], str(one.cpus), one.pod] for one in facts.groups or ()]
    assert groups == case.get("groups", [])


@pytest.mark.parametrize(
    ("files", "found", "name"), cases(__file__, "affinity-of-services.yaml", "files", "cpus", "name")
)
def test_services_start_where_the_files_of_systemd_say(files: dict[str, str], found: str | None, name: str) -> None:
    assert read(files).services == (None if found is None else cpus(found)), name


@pytest.mark.parametrize(
    ("path", "uid"),
    [
        (f"kubepods/burstable/pod{UID}/x", UID),
        (f"kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{UID.replace('-', '_')}.slice/x.scope", UID),
        ("kubepods/pod0123456789abcdef0123456789abcdef/x", "0123456789abcdef0123456789abcdef"),
        ("system.slice/podman.service", ""),
        ("machine.slice/pod-thing", ""),
    ],
)
def test_the_pod_of_a_group_is_told_by_its_path(path: str, uid: str) -> None:
    assert ControlGroup(path, CPUSet()).pod == uid
