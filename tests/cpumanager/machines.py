"""The machines of the kubelet's own CPU tests, with the counts that they declare, and random ones.

The counts are kept even where they contradict the CPUs: they decide averages and whether NUMA nodes or sockets come
first (spec: vectors.md section 1).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

from hypothesis import strategies as st

from mooring.engine.core.bits import CPUMask
from mooring.engine.core.cpuset import CPUSet
from mooring.engine.core.topology import CPUPlace, Topology, build_topology

Level = Callable[[int], int]


def laid_out(
    cpus: int,
    *,
    core: Level,
    counts: tuple[int, int, int, int, int],
    socket: Level = lambda _: 0,
    numa: Level = lambda _: 0,
    uncore: Level = lambda _: 0,
) -> Topology:
    """Return a topology of CPUs 0 to n-1; ``counts`` are the declared CPUs, cores, sockets, NUMA nodes, uncores."""
    firsts: dict[int, int] = {}
    for cpu in range(cpus):
        firsts.setdefault(core(cpu), cpu)
    places = {cpu: CPUPlace(numa(cpu), socket(cpu), firsts[core(cpu)], uncore(cpu)) for cpu in range(cpus)}
    declared = dict(zip(("num_cpus", "num_cores", "num_sockets", "num_numa_nodes", "num_uncores"), counts, strict=True))
    return build_topology(places, **declared)


def modulo(count: int) -> Level:
    return lambda cpu: cpu % count


def runs(size: int, cores: int | None = None) -> Level:
    """Number the runs of ``size`` CPUs; with ``cores``, sibling threads (i, i + cores) count as the first one."""
    return lambda cpu: (cpu if cores is None else cpu % cores) // size


def same(cpu: int) -> int:
    return cpu


def performance_core(cpu: int) -> int:
    """Number the cores of PE24: 0-7 have one thread, then (8, 16) to (15, 23)."""
    return cpu - 8 if cpu >= 16 else cpu


FIXTURES: dict[str, Callable[[], Topology]] = {
    "1S8": lambda: laid_out(8, core=modulo(4), counts=(8, 4, 1, 0, 0)),
    "2S12": lambda: laid_out(12, core=modulo(6), socket=modulo(2), numa=modulo(2), counts=(12, 6, 2, 0, 1)),
    "2S8": lambda: laid_out(8, core=same, socket=runs(4), numa=runs(4), counts=(8, 8, 2, 0, 0)),
    "3S18": lambda: laid_out(
        18,
        core=runs(2),
        socket=lambda cpu: (1, 0, 2)[cpu // 6],
        numa=lambda cpu: (1, 0, 2)[cpu // 6],
        counts=(18, 9, 3, 0, 0),
    ),
    "2S4N80": lambda: laid_out(80, core=modulo(40), socket=runs(20, 40), numa=runs(10, 40), counts=(80, 40, 2, 4, 0)),
    "2S4N80b": lambda: laid_out(80, core=modulo(40), socket=modulo(2), numa=modulo(4), counts=(80, 40, 2, 4, 0)),
    "2S8N256": lambda: laid_out(
        256, core=modulo(128), socket=runs(64, 128), numa=runs(16, 128), counts=(256, 128, 2, 8, 0)
    ),
    "U1": lambda: laid_out(16, core=same, uncore=runs(4), counts=(16, 16, 1, 0, 4)),
    "U2": lambda: laid_out(16, core=same, socket=runs(8), uncore=runs(4), counts=(16, 16, 2, 0, 4)),
    "UM": lambda: laid_out(16, core=same, numa=runs(8), uncore=runs(4), counts=(16, 16, 1, 0, 4)),
    "US": lambda: laid_out(16, core=modulo(8), uncore=runs(4, 8), counts=(16, 8, 1, 0, 2)),
    "S384": lambda: laid_out(
        384,
        core=modulo(192),
        socket=runs(96, 192),
        numa=runs(96, 192),
        uncore=runs(8, 192),
        counts=(384, 192, 2, 2, 24),
    ),
    "S128": lambda: laid_out(128, core=modulo(64), uncore=runs(4, 64), counts=(128, 64, 1, 1, 16)),
    "N128": lambda: laid_out(64, core=same, uncore=runs(4), counts=(128, 64, 1, 1, 16)),
    "N64": lambda: laid_out(64, core=same, socket=runs(32), numa=runs(32), uncore=runs(8), counts=(64, 64, 2, 2, 8)),
    "N32": lambda: laid_out(32, core=same, uncore=runs(8), counts=(32, 32, 1, 1, 4)),
    "S256": lambda: laid_out(256, core=modulo(128), uncore=runs(8, 128), counts=(256, 128, 1, 1, 16)),
    "M192": lambda: laid_out(
        192, core=modulo(96), socket=runs(96), numa=runs(48), uncore=runs(8), counts=(192, 192, 2, 4, 24)
    ),
    "SNC240": lambda: laid_out(
        240,
        core=modulo(120),
        socket=runs(60, 120),
        numa=runs(30, 120),
        uncore=runs(60, 120),
        counts=(240, 120, 2, 4, 2),
    ),
    "PE24": lambda: laid_out(24, core=performance_core, counts=(24, 16, 1, 1, 1)),
    "L128": lambda: laid_out(128, core=same, uncore=runs(8), counts=(128, 128, 1, 1, 16)),
    "L64": lambda: laid_out(64, core=same, counts=(64, 64, 1, 1, 1)),
}
"""Short name of vectors.md -> the fixture. 4S288 is missing: its table of ids is not in the specification."""


@lru_cache(maxsize=len(FIXTURES))
def fixture(name: str) -> Topology:
    return FIXTURES[name]()


def mask(text: str) -> CPUMask:
    """Return the mask of a CPU list."""
    return CPUSet.parse(text).mask


def text(cpus: object) -> object:
    """Return a mask as a CPU list, and anything else as it is."""
    return str(CPUSet(CPUMask(cpus))) if isinstance(cpus, int) else cpus


@st.composite
def topologies(draw: st.DrawFn, *, most_cpus: int = 16, most_nodes: int = 4) -> Topology:
    """Return a random machine: uneven cores, nodes over sockets, uncores over nodes, counts that lie."""
    threads = draw(st.lists(st.integers(1, 3), min_size=1, max_size=most_cpus // 2))
    ids = shuffled(draw, sum(threads))
    nodes = draw(st.integers(0, most_nodes - 1))
    places: dict[int, CPUPlace] = {}
    for count in threads:
        own, ids = ids[:count], ids[count:]
        place = (draw(st.integers(0, nodes)), draw(st.integers(0, 2)), min(own), draw(st.integers(0, 3)))
        places.update(dict.fromkeys(own, CPUPlace(*place)))
    counts = true_counts(places)
    if draw(st.booleans()):
        name = draw(st.sampled_from([*counts]))
        counts[name] = draw(st.integers(1 if name == "num_cores" else 0, len(places)))
        # The kubelet divides by the average size of a core.
        counts["num_cpus"] = max(counts["num_cpus"], counts["num_cores"])
    return build_topology(dict(sorted(places.items())), **counts)


@st.composite
def nested_topologies(draw: st.DrawFn, *, most_cpus: int = 16) -> Topology:
    """Return a random machine as hardware is: cores in uncores in nodes in sockets, and counts that are true."""
    sizes = draw(st.lists(st.integers(1, 2), min_size=1, max_size=most_cpus // 2))
    ids = shuffled(draw, sum(sizes))
    sockets = draw(st.integers(1, 3))
    places: dict[int, CPUPlace] = {}
    for count in sizes:
        own, ids = ids[:count], ids[count:]
        node = draw(st.integers(0, 5))
        uncore = node + 10 * draw(st.integers(0, 1))
        places.update(dict.fromkeys(own, CPUPlace(node, node % sockets, min(own), uncore)))
    return build_topology(dict(sorted(places.items())), **true_counts(places))


def shuffled(draw: st.DrawFn, count: int) -> list[int]:
    ids = list(range(count))
    mixed: list[int] = draw(st.one_of(st.just(ids), st.permutations(ids)))
    return mixed


def true_counts(places: dict[int, CPUPlace]) -> dict[str, int]:
    return {
        "num_cpus": len(places),
        "num_cores": len({place.core for place in places.values()}),
        "num_sockets": len({place.socket for place in places.values()}),
        "num_numa_nodes": len({place.numa for place in places.values()}),
        "num_uncores": len({place.uncore for place in places.values()}),
    }


def subsets_of(cpus: CPUMask) -> st.SearchStrategy[CPUMask]:
    """Draw part of a CPU set, often most of it."""
    pattern = st.integers(0, (1 << cpus.bit_length()) - 1)
    return st.one_of(
        pattern.map(lambda drawn: drawn & cpus),
        st.tuples(pattern, pattern, pattern).map(lambda drawn: (drawn[0] | drawn[1] | drawn[2]) & cpus),
        st.just(cpus),
    )
