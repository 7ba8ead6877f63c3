"""What else may run on a CPU, as far as the files of a machine tell: kernel, interrupts, services, control groups.

Every part is None where the tree does not tell it, as in a snapshot of sysfs alone. Source of the CPU lists on the
kernel's command line: kernel Documentation/admin-guide/kernel-parameters.rst (cpu lists, isolcpus, nohz_full,
rcu_nocbs).

Which control groups may run on which CPUs.

Source: kernel Documentation/admin-guide/cgroup-v2.rst (cpuset), cgroup-v1/cpusets.rst; names of pod groups: kubelet
v1.37.1, cgroup manager with both drivers.

Source of interrupts: kernel Documentation/core-api/irq/irq-affinity.rst, Documentation/ABI/testing/sysfs-kernel-irq;
kernel/irq/proc.c and debugfs.c.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from typing import Final

from mooring.engine.core.bits import CPUMask
from mooring.engine.core.cpuset import HIGHEST_CPU, CPUSet
from mooring.engine.extensions.interrupts import Interrupt
from mooring.inputs.machines.kernelfiles import cpu_list, cpus_of_mask, parse_mask
from mooring.inputs.machines.tree import PCI_DEVICES, Tree, processes
from mooring.lazy import dataclass, field

IRQ: Final = "proc/irq"
DEFAULT: Final = f"{IRQ}/default_smp_affinity"
"""Where interrupts begin that are set up later."""
_LINES: Final = "sys/kernel/irq"
_DEBUG: Final = "sys/kernel/debug/irq/irqs"
"""Only where debugfs is mounted and the kernel has CONFIG_GENERIC_IRQ_DEBUGFS."""
_CHIP_ADDRESS: Final = re.compile(r"PCI-MSIX?-([0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7])")
"""How newer kernels name the chip of a device's interrupts."""

ROOT: Final = "sys/fs/cgroup"
_MOST_GROUPS: Final = 20_000
"""Groups that are read; a node with 250 pods has about 2,000."""
_POD: Final = re.compile(r"(?:^|-|/)pod(?P<uid>[0-9a-f]{8}[-_][0-9a-f-_]{27}|[0-9a-f]{32})(?:\.slice)?(?:/|$)")


@dataclass(frozen=True, slots=True)
class ControlGroup:
    """One group that has processes of its own."""

    path: str
    """Below the root of the hierarchy, such as ``system.slice/sshd.service``."""
    cpus: CPUSet
    """Where its processes may run."""

    @property
    def pod(self) -> str:
        """The uid of the pod whose group this is or lies in; empty outside of pods.

        >>> ControlGroup("kubepods.slice/kubepods-pod0a1b2c3d_0000_1111_2222_333344445555.slice", CPUSet()).pod
        '0a1b2c3d-0000-1111-2222-333344445555'
        """
        found = _POD.search(self.path)
        return found["uid"].replace("_", "-") if found is not None else ""


def group_folders(tree: Tree, enters: Callable[[str], bool] = lambda _path: True) -> Iterator[str]:
    """Yield the folders of control groups, parents first: of version 2, or of version 1's cpusets.

    Args:
        tree: of the machine.
        enters: tells whether what is in a group is wanted, by its path below the root of the hierarchy.
    """
    root = ROOT if tree.exists(f"{ROOT}/cgroup.controllers") else f"{ROOT}/cpuset"
    pending = [root] if tree.is_dir(root) else []
    for _ in range(_MOST_GROUPS):
        if not pending:
            return
        folder = pending.pop()
        yield folder
        if enters(folder[len(root) + 1 :]):
            inner = (f"{folder}/{name}" for name in reversed(tree.names(folder)))
            pending.extend(path for path in inner if tree.is_dir(path))


def read_control_groups(tree: Tree) -> tuple[ControlGroup, ...] | None:
    """Return the groups with processes, in the order of their paths; None where no cpusets can be read."""
    is_newer = tree.exists(f"{ROOT}/cgroup.controllers")
    names = ("cpuset.cpus.effective",) if is_newer else ("cpuset.effective_cpus", "cpuset.cpus")
    root = ""
    cpus_of: dict[str, CPUSet | None] = {}
    found = []
    for folder in group_folders(tree):
        root = root or folder
        # A group without the controller has no file of its own and follows its parent.
        text = next((text for name in names if (text := tree.read(f"{folder}/{name}")) is not None), None)
        own = cpu_list(text)
        cpus = cpus_of[folder] = cpus_of.get(folder.rpartition("/")[0]) if own is None else own
        # A snapshot that does not tell of processes in the group itself is taken for yes.
        processes = tree.read(f"{folder}/cgroup.procs")
        if folder != root and cpus is not None and (processes is None or processes.strip()):
            found.append(ControlGroup(folder.removeprefix(f"{root}/"), cpus))
    return tuple(found) if root else None


@dataclass(frozen=True, slots=True)
class PinnedContainer:
    """A container that runs on CPUs, or in memory, of its own, as its control group says."""

    uid: str
    """Of its pod."""
    name: str
    cpus: CPUSet
    """Empty where it has none of its own."""
    nodes: tuple[int, ...]
    """NUMA nodes of its memory."""
    memory: tuple[tuple[str, int], ...]
    """Resource and bytes that are its own: its limits of memory and of huge pages."""


_CONTAINER: Final = re.compile(r"^(?P<group>.*[-/](?P<id>[0-9a-f]{64})(?:\.scope)?)(?:/|$)")
_LOG: Final = re.compile(r"_(?P<name>[^_]+)-(?P<id>[0-9a-f]{64})\.log$")
_HUGEPAGES: Final = {"2MB": "2Mi", "1GB": "1Gi", "64KB": "64Ki", "32MB": "32Mi", "512MB": "512Mi", "16GB": "16Gi"}


def pinned_containers(tree: Tree) -> tuple[PinnedContainer, ...]:
    """Return what the running containers of Guaranteed pods have of their own, by the control groups of version 2.

    CPUs are a container's own where its quota is that of all of them, or there is none, and no container of another pod
    may run on them. A container is known by the name of its log, which the kubelet gives.

    Source: kernel Documentation/admin-guide/cgroup-v2.rst (cpu.max, cpuset, memory.max, hugetlb); kubelet v1.37.1,
    pkg/kubelet/kuberuntime (names of logs).
    """
    logs = (_LOG.search(name) for name in tree.names("var/log/containers"))
    names = {found["id"]: found["name"] for found in logs if found is not None}
    found: dict[tuple[str, str], ControlGroup] = {}
    for group in read_control_groups(tree) or ():
        place = _CONTAINER.match(group.path)
        if place is not None and place["id"] in names and group.pod:
            found.setdefault((group.pod, names[place["id"]]), ControlGroup(place["group"], group.cpus))
    pinned = []
    for (uid, name), group in sorted(found.items()):
        if "burstable" in group.path or "besteffort" in group.path:
            continue
        folder = f"{ROOT}/{group.path}"
        quota, _, period = (tree.read(f"{folder}/cpu.max") or "").strip().partition(" ")
        whole = quota == "max" or (period.isdecimal() and quota == str(len(group.cpus) * int(period)))
        own = whole and not any(group.cpus & one.cpus for (other, _), one in found.items() if other != uid)
        limits = {"memory": tree.read(f"{folder}/memory.max")}
        limits |= {f"hugepages-{of}": tree.read(f"{folder}/hugetlb.{size}.max") for size, of in _HUGEPAGES.items()}
        amounts = ((resource, (text or "").strip()) for resource, text in limits.items())
        nodes = cpu_list((tree.read(f"{folder}/cpuset.mems.effective") or "").strip()) or CPUSet()
        memory = tuple((resource, int(text)) for resource, text in amounts if text.isdecimal() and int(text))
        pinned.append(PinnedContainer(uid, name, group.cpus if own else CPUSet(), tuple(nodes), memory))
    return tuple(pinned)


def read_interrupts(tree: Tree, root: str = "") -> tuple[Interrupt, ...] | None:
    """Return the interrupts of a machine by number; None when its files do not tell.

    Args:
        tree: of the machine.
        root: where its kernel shows files whose modes tell what takes no write; empty where none does.
    """
    if not tree.is_dir(IRQ):
        return None
    # The table has a column for every CPU: large machines pay dearly for what small files tell as well.
    text = "" if tree.is_dir(_LINES) else tree.read("proc/interrupts") or ""
    table = {int(number): (" ".join(words[:-1]), words[-1] if words else "") for number, words in numbered_lines(text)}
    # Of message-signalled interrupts: lines of older devices are shared and say nothing.
    devices = {
        int(number): address
        for address in tree.names(PCI_DEVICES)
        for number in tree.names(f"{PCI_DEVICES}/{address}/msi_irqs")
        if number.isdecimal()
    }
    shows_state = tree.is_dir(_DEBUG)
    found = []
    for entry in sorted((name for name in tree.names(IRQ) if name.isdecimal()), key=int):
        path, number = f"{IRQ}/{entry}/smp_affinity_list", int(entry)
        allowed = cpu_list(tree.read(path))
        if not allowed:
            continue
        told = ((tree.read(f"{_LINES}/{entry}/{file}") or "").strip() for file in ("chip_name", "actions"))
        chip, name = table.get(number) or told
        on_chip = _CHIP_ADDRESS.search(chip)
        managed = (bool(root) and _takes_no_write(f"{root.rstrip('/')}/{path}")) or (
            shows_state and "IRQD_AFFINITY_MANAGED" in (tree.read(f"{_DEBUG}/{entry}") or "")
        )
        effective = cpu_list(tree.read(f"{IRQ}/{entry}/effective_affinity_list"))
        device = devices.get(number) or (on_chip[1] if on_chip else "")
        found.append(Interrupt(number, name, allowed, effective or None, device, managed))
    return tuple(found)


def _takes_no_write(path: str) -> bool:
    """Tell whether a file is for reading only, as kernels since 6.13 show it of interrupts that stay where they are."""
    try:
        return not os.stat(path).st_mode & 0o222  # noqa: PTH116 - called for every interrupt
    except OSError:
        return False


def numbered_lines(text: str) -> Iterator[tuple[str, list[str]]]:
    r"""Yield the numbers of ``/proc/interrupts`` with what is behind the counts: the chip, its words, and the devices.

    >>> list(numbered_lines("     CPU0\n 24:   17  PCI-MSI 1-edge  nvme0q1\nNMI:   0  Non-maskable\n"))
    [('24', ['PCI-MSI', '1-edge', 'nvme0q1'])]
    """
    heading, _, rest = text.partition("\n")
    for line in rest.splitlines():
        number, _, told = line.partition(":")
        if number.strip().isdecimal():
            yield number.strip(), told.split()[len(heading.split()) :]


_SYSTEMD: Final = ("usr/lib/systemd", "run/systemd", "etc/systemd")
"""Folders of systemd's configuration; later ones count more."""
_BANNED: Final = re.compile(r"^\s*(?:export\s+)?IRQBALANCE_BANNED_(CPULIST|CPUS)=[\"']?([^\"'\s#]*)", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class IsolationFacts:
    """What a machine shows about what may run where."""

    words: KernelWords | None = None
    interrupts: tuple[Interrupt, ...] | None = None
    new_interrupts: CPUSet | None = None
    """``default_smp_affinity``: where interrupts begin that are set up later."""
    workqueues: CPUSet | None = None
    """Where unbound kernel work may run."""
    services: CPUSet | None = None
    """``CPUAffinity`` of systemd; None when it is not set or systemd's files are not there."""
    groups: tuple[ControlGroup, ...] | None = None
    spared: CPUSet | None = None
    """What irqbalance leaves alone; None when it does not run."""


def read_isolation(tree: Tree, online: CPUSet, root: str = "") -> IsolationFacts:
    """Read the facts from a machine's files.

    Args:
        tree: of the machine.
        online: its CPUs.
        root: as of :func:`read_interrupts`.
    """
    words = read_words(tree, online)
    return IsolationFacts(
        words=words,
        interrupts=read_interrupts(tree, root),
        new_interrupts=cpus_of_mask(tree, DEFAULT),
        workqueues=cpus_of_mask(tree, "sys/devices/virtual/workqueue/cpumask"),
        services=_service_affinity(tree),
        groups=read_control_groups(tree),
        spared=spared_by_irqbalance(tree, words),
    )


def _service_affinity(tree: Tree) -> CPUSet | None:
    """Return ``CPUAffinity``: assignments add up, an empty one starts again; a drop-in of the same name is replaced."""
    texts = [tree.read(f"{folder}/system.conf") for folder in _SYSTEMD]
    # The main file of the most important folder alone counts; then all drop-ins in the order of their names.
    main = next((text for text in reversed(texts) if text is not None), None)
    drop_ins: dict[str, str] = {}
    for folder in _SYSTEMD:
        for name in tree.names(f"{folder}/system.conf.d"):
            text = tree.read(f"{folder}/system.conf.d/{name}") if name.endswith(".conf") else None
            if text is not None:
                drop_ins[name] = text
    affinity: CPUSet | None = None
    for line in "\n".join([main or "", *(drop_ins[name] for name in sorted(drop_ins))]).splitlines():
        name, sign, value = line.partition("=")
        if sign and name.strip() == "CPUAffinity":
            cpus = cpu_list(",".join(value.split()).strip(","))
            affinity = None if not value.strip() else affinity if cpus is None else (affinity or CPUSet()) | cpus
    return affinity


def spared_by_irqbalance(tree: Tree, words: KernelWords | None) -> CPUSet | None:
    """Return the CPUs that irqbalance leaves alone; None when it does not run. Reads every process.

    Where it is not told any, it leaves out those that the kernel's command line isolates or keeps free of ticks.
    """
    if not any(True for _ in processes(tree, ("irqbalance",))):
        return None
    texts = [tree.read(path) or "" for path in ("etc/default/irqbalance", "etc/sysconfig/irqbalance")]
    spared = None
    for kind, value in _BANNED.findall("\n".join(texts)):
        spared = cpu_list(value) if kind == "CPULIST" else CPUSet(CPUMask(parse_mask(value) or 0))
    if spared is None:
        return words.isolated | words.tickless if words is not None else CPUSet()
    return spared


_FLAGS: Final = frozenset({"nohz", "domain", "managed_irq"})
_PART: Final = re.compile(r"(?P<first>\d{1,7}|N)(?:-(?P<last>\d{1,7}|N)(?::(?P<used>\d{1,7})/(?P<group>\d{1,7}))?)?")


@dataclass(frozen=True, slots=True)
class KernelWords:
    """What the command line says about CPUs that the kernel keeps quiet."""

    isolated: CPUSet = field(default_factory=CPUSet)
    """``isolcpus``: left out of the load balancing, unless its flags say less."""
    flags: tuple[str, ...] = ()
    """Flags of ``isolcpus``; without any, ``domain`` is meant."""
    tickless: CPUSet = field(default_factory=CPUSet)
    """``nohz_full``: no scheduler tick while one thread runs."""
    callbacks_elsewhere: CPUSet = field(default_factory=CPUSet)
    """``rcu_nocbs``, and the CPUs of ``nohz_full``, which imply it."""
    misunderstood: tuple[str, ...] = ()
    """Words whose list cannot be understood."""


def words_of(line: str) -> list[str]:
    """Return the words of a command line; what stands behind ``--`` is for the first program, not for the kernel."""
    words = line.split()
    return words[: words.index("--")] if "--" in words else words


def read_words(tree: Tree, online: CPUSet) -> KernelWords | None:
    """Return what the command line of a machine says; None when its files do not tell."""
    line = tree.read("proc/cmdline")
    return None if line is None else kernel_words(line, online)


def kernel_words(line: str, online: CPUSet) -> KernelWords:
    """Read a command line; of a word that is repeated the last one counts, as in the kernel.

    >>> words = kernel_words("quiet isolcpus=domain,managed_irq,2-3 nohz_full=2-N rcu_nocbs=1", CPUSet.parse("0-3"))
    >>> str(words.isolated), words.flags, str(words.tickless), str(words.callbacks_elsewhere)
    ('2-3', ('domain', 'managed_irq'), '2-3', '1-3')
    """
    given = {name: value.strip('"') for name, sign, value in (word.partition("=") for word in words_of(line)) if sign}
    misunderstood: list[str] = []

    def cpus(name: str, text: str) -> CPUSet:
        found = parse_kernel_list(text, online) if text else CPUSet()
        if found is None:
            misunderstood.append(f"{name}={given[name]}")
        return found or CPUSet()

    # The flags of ``isolcpus`` and the list behind them
    parts = given.get("isolcpus", "").split(",")
    count = next((position for position, part in enumerate(parts) if part not in _FLAGS), len(parts))
    flags, isolated = tuple(parts[:count]), ",".join(parts[count:])
    tickless = cpus("nohz_full", given.get("nohz_full", ""))
    return KernelWords(
        cpus("isolcpus", isolated),
        flags,
        tickless,
        cpus("rcu_nocbs", given.get("rcu_nocbs", "")) | tickless,
        tuple(misunderstood),
    )


def parse_kernel_list(text: str, online: CPUSet) -> CPUSet | None:
    """Return the CPUs of a list of the command line; None when it cannot be understood.

    ``N`` is the highest CPU, ``all`` is every CPU, ``0-7:2/4`` the first two of every four.

    >>> machine = CPUSet.parse("0-15")
    >>> [str(parse_kernel_list(text, machine)) for text in ("1,4-6", "12-N", "0-15:1/4", "all", "x")]
    ['1,4-6', '12-15', '0,4,8,12', '0-15', 'None']
    """
    highest = max(online, default=0)
    if text == "all":
        return CPUSet.from_ids(range(highest + 1))
    found: set[int] = set()
    for part in text.split(","):
        match = _PART.fullmatch(part)
        if match is None:
            return None
        first, last = (highest if end == "N" else int(end) for end in (match["first"], match["last"] or match["first"]))
        used, group = int(match["used"] or 1), int(match["group"] or 1)
        if last < first or last > HIGHEST_CPU or not 0 < used <= group:
            return None
        found.update(cpu for cpu in range(first, last + 1) if (cpu - first) % group < used)
    return CPUSet.from_ids(found)
