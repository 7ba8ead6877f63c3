"""Plugins that keep no promise: what each answers is drawn by lot, the same for the same question."""

from __future__ import annotations

import math
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from random import Random
from typing import Any

from hypothesis import strategies as st

from mooring.engine.core.bits import CPUMask
from mooring.engine.core.config import ChosenPlugin, OutOfTimeError, PluginPlacement
from mooring.engine.core.cpuset import CPUSet
from mooring.engine.plugins import Room, Selected, Withheld

RAISED: tuple[type[BaseException], ...] = (
    ValueError,
    RecursionError,
    MemoryError,
    SystemExit,
    GeneratorExit,
    StopIteration,
    OutOfTimeError,
)
WRONG_KINDS = (
    0,
    True,
    -1,
    "0-3",
    b"",
    3.5,
    object(),
    [0, 1],
    (0,),
    {0, 1},
    frozenset({"a"}),
    frozenset({-1}),
    frozenset({99}),
    frozenset({10**9}),
    {"0": 1.0},
    {0: "1"},
    {True: 1.0},
    CPUSet(CPUMask(-1)),
    Selected(CPUSet(CPUMask(-1))),
    Selected(CPUSet(3), 1),  # type: ignore[arg-type]  # that is the point
    Withheld(CPUSet(1), "", 2),  # type: ignore[arg-type]  # that is the point
    Withheld(CPUSet(1), 5),  # type: ignore[arg-type]  # that is the point
    Room({1}),  # type: ignore[arg-type]  # that is the point
)
SCORES = (0.0, 1.0, -1.0, 0.5, math.nan, math.inf, -math.inf, 1.7e308, -1.7e308, 10**400, 2.0**53)


@dataclass(frozen=True)
class Hostile:
    """One function of a hostile plugin; a picklable value."""

    seed: int
    point: str
    lies: bool
    """Whether the same question gets different answers."""
    asked: list[int] = field(default_factory=lambda: [0], compare=False)

    def __call__(self, **given: Any) -> object:
        """Answer anything, or raise."""
        self.asked[0] += 1
        salt = self.asked[0] if self.lies else 0
        request = given.get("request")
        lot = Random(f"{self.seed} {self.point} {salt} {_told(request)} {given.get('candidate')}")  # noqa: S311
        _meddle(given)
        if lot.random() < 0.1:
            raise lot.choice(RAISED)(f"{self.point}\nsecond line")
        if lot.random() < 0.1:
            return lot.choice(WRONG_KINDS)
        if lot.random() < 0.1:
            return None
        return _ANSWERS[self.point](lot, given)


def _told(request: Any) -> str:
    names = ("purpose", "container", "need", "available", "near", "merged", "of_cpus")
    return " ".join(str(getattr(request, name, "")) for name in names)


def _meddle(given: Mapping[str, Any]) -> None:
    """Change whatever lets itself be changed without force."""
    request = given.get("request")
    pod = getattr(request, "pod", None)
    for mapping in (given.get("scores"), getattr(pod, "annotations", None), getattr(request, "machine", None)):
        with suppress(TypeError, AttributeError):
            mapping.clear()  # type: ignore[union-attr]  # that is the point
        with suppress(TypeError, AttributeError):
            mapping[0] = 10.0**9  # type: ignore[index]  # that is the point
    machine = getattr(request, "machine", None)
    if machine is not None:
        for mapping in (machine.numa, machine.cores, machine.topology.numa, machine.topology.cores):
            with suppress(TypeError):
                mapping[0] = CPUSet()
    with suppress(AttributeError, TypeError):
        request.need = 0  # type: ignore[union-attr]  # that is the point


def _some(lot: Random, cpus: CPUSet) -> CPUSet:
    return CPUSet.from_ids(cpu for cpu in cpus if lot.random() < 0.4)


def _so_many(lot: Random, cpus: CPUSet, count: int) -> CPUSet:
    known = list(cpus)
    return CPUSet.from_ids(lot.sample(known, max(0, min(count, len(known)))))


def _withheld(lot: Random, given: Mapping[str, Any]) -> object:
    request = given["request"]
    found = lot.choice(
        [
            _some(lot, request.available),
            _some(lot, request.available),
            request.available,
            request.machine.cpus,
            CPUSet.of(5000),
            CPUSet(),
        ]
    )
    if lot.random() < 0.3:
        # One thread of each core, as whoever hides siblings would.
        firsts = CPUSet.from_ids(min(core) for core in request.machine.cores.values())
        return Withheld(request.available - firsts, "siblings", as_siblings=True)
    return Withheld(found, "x" * lot.choice([0, 5000]), lot.choice([True, False])) if lot.random() < 0.5 else found


def _room(lot: Random, given: Mapping[str, Any]) -> object:
    found = lot.choice([given["withheld"], _some(lot, given["withheld"]), given["request"].machine.cpus])
    return Room(found, "room") if lot.random() < 0.5 else found


def _scores(lot: Random, given: Mapping[str, Any]) -> object:
    request = given["request"]
    levels = (0.0, 1.0, 2.0) if lot.random() < 0.7 else SCORES
    scored = _some(lot, lot.choice([request.available, request.machine.cpus])) | CPUSet.of(77)
    return {cpu: lot.choice(levels) for cpu in scored}


def _selected(lot: Random, given: Mapping[str, Any]) -> object:
    request = given["request"]
    machine, need = request.machine, request.need
    held = CPUSet()
    for holder in request.holders():
        held |= holder.cpus
    cores = [core for core in machine.cores.values() if core <= request.available]
    lot.shuffle(cores)
    whole = CPUSet()
    threads = CPUSet()
    for core in cores:
        if len(whole) + len(core) <= need:
            whole |= core
        if len(threads) < need:
            threads |= CPUSet.of(min(core))
    siblings = CPUSet()
    for core in machine.cores.values():
        siblings |= core - threads if core & threads else CPUSet()
    right = _so_many(lot, request.available, need)
    hiding = [
        Selected(threads, siblings),
        Selected(right, right),
        Selected(right, _some(lot, request.available - right)),
        Selected(right, _some(lot, machine.cpus)),
        Selected(right, held - right),
        Selected(whole, machine.reserved),
    ]
    wrong = [
        _so_many(lot, request.available, need - 1),
        _so_many(lot, request.available, need + 1),
        _so_many(lot, held, need),
        _so_many(lot, machine.reserved | right, need),
        _so_many(lot, machine.cpus, need),
        CPUSet.of(*range(4000, 4000 + need)),
    ]
    plain: list[object] = [right, whole, _so_many(lot, request.near, need)]
    groups: list[list[object]] = [plain, [*hiding], [*wrong]]
    return lot.choice(lot.choice(groups))


def _score(lot: Random, _given: Mapping[str, Any]) -> object:
    return lot.choice(SCORES)


def _nodes(lot: Random, given: Mapping[str, Any]) -> object:
    request = given["request"]
    return lot.choice([request.of_cpus.nodes, request.of_cpus.nodes, request.merged.nodes, frozenset({0})])


def _order(lot: Random, given: Mapping[str, Any]) -> object:
    uids = [pod.uid for pod in given["pods"]]
    lot.shuffle(uids)
    return lot.choice([uids, tuple(uids), uids[1:], [*uids, *uids[:1]], [*uids[1:], "nobody"]])


def _nothing(_lot: Random, _given: Mapping[str, Any]) -> object:
    return None


_ANSWERS = {
    "sort_pods": _order,
    "filter_cpus": _withheld,
    "post_filter": _room,
    "pre_score": _scores,
    "select_cpus": _selected,
    "score_set": _score,
    "allocated": _nothing,
    "deallocated": _nothing,
    "choose_affinity": _nodes,
}


@st.composite
def hostile_plugins(draw: st.DrawFn, *, lies: bool) -> tuple[ChosenPlugin, ...]:
    """Draw one to three plugins."""
    found = []
    for number in range(draw(st.integers(1, 3))):
        points = draw(st.sets(st.sampled_from([*_ANSWERS, "select_cpus", "select_cpus"]), min_size=1))
        placement = draw(st.sampled_from([PluginPlacement.CPU_MANAGER, *PluginPlacement]))
        seed = draw(st.integers(0, 2**16))
        made = {point: Hostile(seed, point, lies) for point in _ANSWERS if point in points}
        found.append(ChosenPlugin(f"hostile-{number}", {}, made, placement, draw(st.sampled_from([1, 7, 100]))))
    return tuple(found)
