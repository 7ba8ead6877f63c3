"""irqbalance against exclusive CPUs: it would undo what somebody else has done about interrupts.

Source: irqbalance(1).
"""

from __future__ import annotations

from mooring.core.cpuset import CPUSet
from mooring.core.machine import Finding
from mooring.discovery.isolation import IRQBalance
from mooring.discovery.kernelwords import KernelWords
from mooring.planner.isolation.phrases import cpus_text


def balance_finding(balance: IRQBalance | None, words: KernelWords | None, exclusive: CPUSet) -> Finding | None:
    """Return what irqbalance may do to CPUs that somebody owns, with the setting that keeps it from that.

    Args:
        balance: the service; None where there is no trace of it.
        words: of the kernel's command line; untold, irqbalance leaves out the isolated and tickless CPUs.
        exclusive: CPUs that interrupts should avoid.
    """
    if balance is None or not balance.running:
        return None
    spared = balance.banned
    if spared is None:
        spared = words.isolated | words.tickless if words is not None else CPUSet()
    open_to_it = exclusive - spared
    if not open_to_it:
        return None
    message = (
        f"irqbalance is running and may move interrupts to {cpus_text(open_to_it)}; "
        f"IRQBALANCE_BANNED_CPULIST={spared | exclusive} keeps it away from them."
    )
    return Finding("warning", str(open_to_it), message, "MOOR-604")
