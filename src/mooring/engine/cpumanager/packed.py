"""Taking CPUs packed or spread: whole NUMA nodes and sockets first, then uncore caches, cores and single CPUs.

Source: kubelet v1.37.1, cpumanager cpu_assignment.go (takeByTopologyNUMAPacked); spec: cpu-manager.md section 6.
"""

from __future__ import annotations

from mooring.engine.core.bits import NO_CPUS, CPUMask, lowest
from mooring.engine.core.errors import KubeletCrashError
from mooring.engine.core.observer import Observer
from mooring.engine.core.topology import Topology
from mooring.engine.cpumanager.accumulator import Accumulator, Element
from mooring.engine.cpumanager.facts import CPUsPicked
from mooring.engine.cpumanager.options import TakeError, TakeRules

NO_CORE_SIZE = "the machine declares no cores, or fewer CPUs than cores: the kubelet divides by zero here"


def refused_outright(available: CPUMask, need: int) -> TakeError | None:
    """Return the kubelet's error when more CPUs are wanted than there are."""
    count = available.bit_count()
    if need > count:
        return TakeError(f"not enough cpus available to satisfy request: requested={need}, available={count}")
    return None


def take_packed(
    topology: Topology,
    available: CPUMask,
    need: int,
    rules: TakeRules,
    *,
    uncore: bool,
    kept: CPUMask = NO_CPUS,
    observer: Observer | None = None,
) -> CPUMask | TakeError:
    """Take ``need`` of the ``available`` CPUs.

    Args:
        topology: of the machine.
        available: mask of the CPUs to choose from.
        need: how many.
        kept: mask of CPUs that are held already and stay beside those taken (KEP-5554); none of them is available.
        rules: ``spread`` and ``fixed_defects`` matter here.
        uncore: whether uncore caches are kept whole (never inside a distribution over NUMA nodes).
        observer: receives which rule gave which CPUs.

    Returns:
        The mask of the CPUs taken, or the kubelet's error.
    """
    if need < 1:
        return NO_CPUS
    refusal = refused_outright(available, need)
    if refusal:
        return refusal
    run = Accumulator(topology, available, need, kept=kept, fixed_sizes="average-sizes" in rules.fixed_defects)

    # 1. Whole NUMA nodes and sockets, the larger of the two first.
    large = (("numa-nodes", _claim_numa_nodes), ("sockets", _claim_sockets))
    for rule, step in large if topology.numa_first else reversed(large):
        before = run.taken
        step(run)
        _report(observer, rule, run.taken & ~before)
        if run.need <= 0:
            return run.taken

    # 2. Uncore caches, where they are to be kept whole.
    if uncore:
        _claim_uncores(run, rules, observer)
        if run.need <= 0:
            return run.taken

    # 3. Whole cores, unless CPUs are spread over cores.
    if not rules.spread:
        before = run.taken
        _claim_cores(run)
        _report(observer, "cores", run.taken & ~before)
        if run.need <= 0:
            return run.taken

    # 4. What remains, CPU by CPU.
    before = run.taken
    for cpu in run.cpus_spread() if rules.spread else run.cpus_packed():
        run.claim(CPUMask(1 << cpu))
        if run.need <= 0:
            _report(observer, "cpus-spread" if rules.spread else "cpus", run.taken & ~before)
            return run.taken
    return TakeError("failed to allocate cpus")


def _report(observer: Observer | None, rule: str, cpus: CPUMask) -> None:
    if observer is not None and cpus:
        observer(CPUsPicked(rule, cpus))


def _claim_numa_nodes(run: Accumulator) -> None:
    smallest = min((mask & ~run.kept).bit_count() for mask in run.topology.numa.values())
    if run.need >= smallest:
        run.claim_free([node for node in run.numa_nodes() if run.is_free(node[1])])


def _claim_sockets(run: Accumulator) -> None:
    smallest = min((mask & ~run.kept).bit_count() for mask in run.topology.sockets.values())
    if run.need >= smallest:
        average = run.topology.cpus_per_socket
        run.claim_free([socket for socket in run.sockets() if run.is_free_by_average(socket[1], average)])


def _claim_cores(run: Accumulator) -> None:
    # Judged by the average, a core counts as free with just so many free CPUs: none has fewer.
    is_average = not run.kept and not run.fixed_sizes
    run.claim_free(run.free_cores(), max(run.topology.cpus_per_core, 1) if is_average else 1)


def _claim_uncores(run: Accumulator, rules: TakeRules, observer: Observer | None) -> None:
    """Claim whole uncore caches, then one that can hold the rest (spec: cpu-manager.md section 6.2)."""
    average = run.topology.cpus_per_uncore
    for uncore in run.uncores():
        if run.need + (uncore[1] & run.kept).bit_count() >= average:
            before = run.taken
            # Every uncore that is entirely free is offered, not only the one at hand.
            run.claim_free([candidate for candidate in run.uncores() if run.is_free(candidate[1])])
            _report(observer, "uncore-caches", run.taken & ~before)
        if run.need <= 0:
            return
        part = _part_of_uncore(run, uncore, rules)
        if part:
            run.claim(CPUMask(part))
            _report(observer, "part-of-uncore-cache", CPUMask(part))
            return


def _part_of_uncore(run: Accumulator, uncore: Element, rules: TakeRules) -> int:
    """Return CPUs of the uncore that satisfy the whole need, or 0.

    Defect odd-uncore: the kubelet looks at the first cores of the uncore only, and fails when one of them is partly
    used although the uncore has enough CPUs (kubernetes/kubernetes#131610). Fixed, free cores are used first, then
    what else the uncore has.

    Up to v1.33 the number of cores is rounded down and their CPUs must be the exact number (rule
    partial-uncore-rounds-down; spec: releases.md section 8).
    """
    topology = run.topology
    inside = uncore[1] & run.available
    if not inside:
        return NO_CPUS
    if topology.cpus_per_core == 0:
        raise KubeletCrashError(NO_CORE_SIZE)
    if "odd-uncore" in rules.fixed_defects:
        if inside.bit_count() < run.need:
            return NO_CPUS
        smaller = Accumulator(topology, inside, run.need, kept=run.kept, fixed_sizes=run.fixed_sizes)
        _claim_cores(smaller)
        return smaller.taken | lowest(smaller.available, smaller.need)
    halves = _completing(run, inside)
    need = run.need - halves.bit_count()
    if need <= 0:
        return halves
    rounds_down = rules.older.partial_uncore_rounds_down
    wanted_cores = need // topology.cpus_per_core if rounds_down else -(-need // topology.cpus_per_core)
    cores = 0
    for mask in topology.cores.values():
        if wanted_cores == 0:
            break
        if mask & inside & ~halves:
            cores |= mask
            wanted_cores -= 1
    chosen = cores & run.available & ~halves
    if not rounds_down and need % 2 and topology.cpus_per_core > 1 and chosen.bit_count() > need:
        chosen ^= 1 << (chosen.bit_length() - 1)
    return halves | chosen if chosen.bit_count() == need else 0


def _completing(run: Accumulator, inside: CPUMask) -> int:
    """Return the CPUs beside kept ones on their cores, as many as are needed: those cores come first (KEP-5554)."""
    if not run.kept:
        return NO_CPUS
    beside = NO_CPUS
    for mask in run.topology.cores.values():
        if mask & run.kept:
            beside |= mask & inside
    return lowest(beside, run.need)
