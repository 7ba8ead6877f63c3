"""Who else may run on a CPU, as far as the files of a machine tell: kernel, interrupts, services, control groups.

Every part is None where the tree does not tell it, as in a snapshot of sysfs alone.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from mooring.core.cpuset import CPUSet, CPUSetSyntaxError
from mooring.discovery.cgroups import ControlGroup, read_control_groups
from mooring.discovery.kernelfiles import parse_mask, read_mask
from mooring.discovery.kernelwords import KernelWords, kernel_words
from mooring.discovery.tree import Tree

IRQ: Final = "proc/irq"
_SYSTEMD: Final = ("usr/lib/systemd", "run/systemd", "etc/systemd")
"""Folders of systemd's configuration; later ones count more."""
_BANNED: Final = re.compile(r"^\s*(?:export\s+)?IRQBALANCE_BANNED_(CPULIST|CPUS)=[\"']?([^\"'\s#]*)", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Interrupt:
    """One interrupt line."""

    number: int
    name: str
    """The devices that use it; empty when nobody told."""
    allowed: CPUSet
    """``smp_affinity_list``."""
    effective: CPUSet | None
    """Where it is really delivered, on kernels that tell."""


@dataclass(frozen=True, slots=True)
class IRQBalance:
    """The service that moves interrupts."""

    running: bool
    banned: CPUSet | None
    """CPUs that it leaves alone; None when it is not told any: then it leaves out the isolated and tickless ones."""


@dataclass(frozen=True, slots=True)
class IsolationFacts:
    """What a machine tells about who may run where."""

    words: KernelWords | None = None
    interrupts: tuple[Interrupt, ...] | None = None
    new_interrupts: CPUSet | None = None
    """``default_smp_affinity``: where interrupts begin that are set up later."""
    workqueues: CPUSet | None = None
    """Where unbound kernel work may run."""
    services: CPUSet | None = None
    """``CPUAffinity`` of systemd; None when it is not set or systemd's files are not there."""
    groups: tuple[ControlGroup, ...] | None = None
    balance: IRQBalance | None = None


def read_isolation(tree: Tree, online: CPUSet) -> IsolationFacts:
    """Read the facts from a machine's files."""
    line = tree.read("proc/cmdline")
    return IsolationFacts(
        words=kernel_words(line, online) if line is not None else None,
        interrupts=tuple(_interrupts(tree)) if tree.is_dir(IRQ) else None,
        new_interrupts=_mask(tree, f"{IRQ}/default_smp_affinity"),
        workqueues=_mask(tree, "sys/devices/virtual/workqueue/cpumask"),
        services=_service_affinity(tree),
        groups=read_control_groups(tree),
        balance=_balance(tree),
    )


def _interrupts(tree: Tree) -> Iterator[Interrupt]:
    names = _interrupt_names(tree.read("proc/interrupts") or "")
    for entry in sorted((name for name in tree.names(IRQ) if name.isdecimal()), key=int):
        allowed = _list(tree.read(f"{IRQ}/{entry}/smp_affinity_list"))
        if allowed is None:
            continue
        effective = _list(tree.read(f"{IRQ}/{entry}/effective_affinity_list"))
        yield Interrupt(int(entry), names.get(int(entry), ""), allowed, effective or None)


def _interrupt_names(table: str) -> dict[int, str]:
    """Return what stands behind the counts of ``/proc/interrupts``: chip, edge or level, devices."""
    lines = table.splitlines()
    columns = len(lines[0].split()) if lines else 0
    found = {}
    for line in lines[1:]:
        number, _, rest = line.partition(":")
        if number.strip().isdecimal():
            words = rest.split()[columns:]
            found[int(number)] = words[-1] if words else ""
    return found


def _service_affinity(tree: Tree) -> CPUSet | None:
    """Return ``CPUAffinity``: assignments add up, an empty one begins anew; a drop-in of the same name is replaced."""
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
    for text in [main or "", *(drop_ins[name] for name in sorted(drop_ins))]:
        for value in _values_of(text, "CPUAffinity"):
            cpus = _list(value.replace(" ", ",").strip(","))
            affinity = None if not value else affinity if cpus is None else (affinity or CPUSet()) | cpus
    return affinity


def _values_of(text: str, wanted: str) -> Iterator[str]:
    for line in text.splitlines():
        name, sign, value = line.partition("=")
        if sign and name.strip() == wanted:
            yield " ".join(value.split())


def _balance(tree: Tree) -> IRQBalance | None:
    texts = [tree.read(path) for path in ("etc/default/irqbalance", "etc/sysconfig/irqbalance")]
    told = [text for text in texts if text is not None]
    running = any(
        (tree.read(f"proc/{entry}/comm") or "").strip() == "irqbalance"
        for entry in tree.names("proc")
        if entry.isdecimal()
    )
    if not told and not running:
        return None
    banned = None
    for kind, value in _BANNED.findall("\n".join(told)):
        banned = _list(value) if kind == "CPULIST" else CPUSet(parse_mask(value) or 0)
    return IRQBalance(running, banned)


def _mask(tree: Tree, path: str) -> CPUSet | None:
    mask = read_mask(tree, path)
    return None if mask is None else CPUSet(mask)


def _list(text: str | None) -> CPUSet | None:
    if text is None:
        return None
    try:
        return CPUSet.parse(text.strip())
    except CPUSetSyntaxError:
        return None
