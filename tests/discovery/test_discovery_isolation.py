"""Facts about isolation, read from made-up file trees as kernel, systemd and irqbalance write them."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st
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


def test_interrupts_have_their_names_and_where_they_really_go() -> None:
    facts = read(
        {
            "proc/interrupts": "   CPU0 CPU1\n  9:  1  2  IO-APIC 9-fasteoi acpi\n 24: 0 5  PCI-MSI 1-edge  eth0-rx\n",
            "proc/irq/24/smp_affinity_list": "0-3\n",
            "proc/irq/24/effective_affinity_list": "2\n",
            "proc/irq/9/smp_affinity_list": "0-7\n",
            "proc/irq/9/effective_affinity_list": "\n",
            "proc/irq/10/smp_affinity_list": "what\n",
            "proc/irq/default_smp_affinity": "0f\n",
        }
    )
    assert facts.interrupts is not None
    told = [(one.number, one.name, str(one.allowed), one.effective) for one in facts.interrupts]
    assert told == [(9, "acpi", "0-7", None), (24, "eth0-rx", "0-3", cpus("2"))]
    assert facts.new_interrupts == cpus("0-3")


def test_the_device_of_an_interrupt_is_told_by_its_chip_or_by_the_device_itself() -> None:
    facts = read(
        {
            "proc/interrupts": "  CPU0\n 24: 1 PCI-MSIX-0000:00:02.0 1-edge eth0\n 25: 1 IO-APIC 9-edge acpi\n",
            "proc/irq/24/smp_affinity_list": "0-3\n",
            "proc/irq/25/smp_affinity_list": "0-3\n",
            "proc/irq/26/smp_affinity_list": "\n",
            "sys/bus/pci/devices/0000:00:05.0/msi_irqs/25": "msix\n",
        }
    )
    assert facts.interrupts is not None
    assert [(one.number, one.device) for one in facts.interrupts] == [(24, "0000:00:02.0"), (25, "0000:00:05.0")]


def test_small_files_tell_as_much_as_the_table() -> None:
    facts = read(
        {
            "proc/interrupts": "CPU0\n 24: 1 X 1-edge never\n",
            "proc/irq/24/smp_affinity_list": "0-3\n",
            "sys/kernel/irq/24/chip_name": "PCI-MSI-0000:00:02.0\n",
            "sys/kernel/irq/24/actions": "eth0,eth1\n",
        }
    )
    assert facts.interrupts is not None
    assert [(one.name, one.device) for one in facts.interrupts] == [("eth0,eth1", "0000:00:02.0")]


@pytest.mark.parametrize(
    ("files", "found", "name"), cases(__file__, "affinity-of-services.yaml", "files", "cpus", "name")
)
def test_services_start_where_the_files_of_systemd_say(files: dict[str, str], found: str | None, name: str) -> None:
    assert read(files).services == (None if found is None else cpus(found)), name


@pytest.mark.parametrize(
    ("files", "spared"),
    [
        pytest.param({}, "", id="not told"),
        pytest.param({"proc/cmdline": "isolcpus=2-3 nohz_full=3-4"}, "2-4", id="by the kernel"),
        pytest.param(
            {
                "etc/default/irqbalance": '#IRQBALANCE_BANNED_CPULIST=0\nIRQBALANCE_BANNED_CPULIST="4-7"\n',
                "proc/cmdline": "isolcpus=2-3",
            },
            "4-7",
            id="by a list",
        ),
        pytest.param({"etc/sysconfig/irqbalance": "IRQBALANCE_BANNED_CPUS=000000f0\n"}, "4-7", id="by a mask"),
    ],
)
def test_irqbalance_leaves_cpus_alone_while_it_runs(files: dict[str, str], spared: str) -> None:
    assert read({**files, "proc/77/comm": "irqbalance\n"}).spared == cpus(spared)
    assert read(files).spared is None


def test_groups_of_version_2_follow_their_parents_and_count_with_processes_only() -> None:
    pod = f"sys/fs/cgroup/kubepods.slice/kubepods-pod{UID.replace('-', '_')}.slice"
    facts = read(
        {
            "sys/fs/cgroup/cgroup.controllers": "cpuset cpu\n",
            "sys/fs/cgroup/system.slice/cpuset.cpus.effective": "0-7\n",
            "sys/fs/cgroup/system.slice/cgroup.procs": "",
            "sys/fs/cgroup/system.slice/ssh.service/cgroup.procs": "12\n",
            f"{pod}/cpuset.cpus.effective": "0-7\n",
            f"{pod}/cgroup.procs": "",
            f"{pod}/cri-containerd-abc.scope/cpuset.cpus.effective": "2-3\n",
            f"{pod}/cri-containerd-abc.scope/cgroup.procs": "99\n",
        }
    )
    assert facts.groups is not None
    assert [(group.path.rpartition("/")[2], str(group.cpus), group.pod) for group in facts.groups] == [
        ("cri-containerd-abc.scope", "2-3", UID),
        ("ssh.service", "0-7", ""),
    ]


def test_groups_of_version_1() -> None:
    facts = read(
        {
            "sys/fs/cgroup/cpuset/cpuset.cpus": "0-7\n",
            f"sys/fs/cgroup/cpuset/kubepods/pod{UID}/abc/cpuset.effective_cpus": "4\n",
            f"sys/fs/cgroup/cpuset/kubepods/pod{UID}/abc/cpuset.cpus": "4\n",
        }
    )
    assert facts.groups is not None
    assert [(group.path.rpartition("/")[2], str(group.cpus), group.pod) for group in facts.groups] == [
        ("kubepods", "0-7", ""),
        (f"pod{UID}", "0-7", UID),
        ("abc", "4", UID),
    ]


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
