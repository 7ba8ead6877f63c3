"""The rule of interrupts: what never happens, whoever owns what, and that giving back gives everything back."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mooring.engine.core.bits import CPUMask
from mooring.engine.core.cpuset import CPUSet
from mooring.engine.core.pod import Pod, QoS
from mooring.engine.cpumanager.state import CPUState
from mooring.engine.extensions.interrupts import (
    ANNOTATION,
    NEW,
    Interrupt,
    InterruptCPUs,
    Kept,
    Memory,
    Owner,
    Step,
    Why,
    Wish,
    owners_of,
    place,
    steer,
    union,
    wish_of,
    written,
)
from mooring.engine.extensions.owners import claim_key

CPUS = range(8)
ALL = CPUSet.from_ids(CPUS)
ADDRESSES = ("0000:03:00.0", "0000:03:00.1")
sets = st.frozensets(st.sampled_from(CPUS)).map(CPUSet.from_ids)
filled = st.frozensets(st.sampled_from(CPUS), min_size=1).map(CPUSet.from_ids)


def cpus(text: str) -> CPUSet:
    return CPUSet.parse(text)


@st.composite
def owners(draw: st.DrawFn) -> tuple[Owner, ...]:
    """Owners of disjoint sets."""
    whose = draw(st.lists(st.integers(0, 3), min_size=len(CPUS), max_size=len(CPUS)))
    return tuple(
        Owner(
            f"pod-{number}",
            CPUSet.from_ids(cpu for cpu in CPUS if whose[cpu] == number),
            draw(st.sampled_from(Wish)),
            draw(st.frozensets(st.sampled_from(ADDRESSES))),
        )
        for number in (1, 2, 3)
        if number in whose
    )


@st.composite
def rooms(draw: st.DrawFn) -> InterruptCPUs:
    return InterruptCPUs(draw(filled), draw(sets))


@st.composite
def interrupts(draw: st.DrawFn) -> tuple[Interrupt, ...]:
    count = draw(st.integers(0, 4))
    lines = [
        Interrupt(
            number, f"dev{number}", draw(filled), None, draw(st.sampled_from(("", *ADDRESSES))), draw(st.booleans())
        )
        for number in range(count)
    ]
    return (Interrupt(NEW, "default_smp_affinity", draw(filled), None), *lines)


@given(filled, owners(), rooms(), st.sampled_from(("", *ADDRESSES)), st.booleans())
def test_an_interrupt_keeps_a_cpu_and_none_of_a_pod_that_avoids_it(
    original: CPUSet, held: tuple[Owner, ...], room: InterruptCPUs, device: str, managed: bool
) -> None:
    to, why = place(original, held, room, device=device, managed=managed)
    if managed:
        assert (to, why) == (None, Why.MANAGED)
    if to is None:
        assert why in (Why.MANAGED, Why.NO_ROOM)
        if why is Why.NO_ROOM:
            assert room.online <= union(one.cpus for one in held)
        return
    assert to
    wanting = {one.label for one in held if one.wish is Wish.OWN and device in one.devices}
    for one in held:
        if one.wish is not Wish.IGNORE and one.label not in wanting:
            assert not to & one.cpus
    if why is not Why.ORIGINAL:
        assert to & room.online
    if why is Why.OWN:
        assert to <= union(one.cpus for one in held if one.label in wanting)
    if why is Why.KEPT_AWAY:
        assert to & room.online - union(one.cpus for one in held)


@given(filled, rooms(), st.sampled_from(("", *ADDRESSES)))
def test_without_owners_everything_is_where_it_was(original: CPUSet, room: InterruptCPUs, device: str) -> None:
    assert place(original, (), room, device=device) == (original, Why.ORIGINAL)


def writes(steps: tuple[Step, ...]) -> set[int]:
    return {step.interrupt.number for step in steps if step.write is not None}


def carried_out(
    found: tuple[Interrupt, ...], looked: tuple[tuple[Step, ...], Memory]
) -> tuple[tuple[Interrupt, ...], Memory]:
    """Write as a kernel takes it."""
    steps, memory = looked
    wanted = {step.interrupt.number: step.write for step in steps}
    after = tuple(replace(one, allowed=wanted.get(one.number) or one.allowed) for one in found)
    shown = {one.number: one.allowed for one in after if one.number in writes(steps)}
    return after, written(memory, shown)


@given(interrupts(), st.lists(owners(), max_size=4), rooms())
def test_what_was_moved_any_number_of_times_comes_back_as_it_was(
    first: tuple[Interrupt, ...], courses: list[tuple[Owner, ...]], room: InterruptCPUs
) -> None:
    found, memory = first, Memory()
    for held in courses:
        steps, seen = steer(found, memory, held, room)
        assert not seen.alone
        assert writes(steps).isdisjoint(one.number for one in found if one.managed)
        found, memory = carried_out(found, (steps, seen))
        assert not writes(steer(found, memory, held, room)[0])
    found, memory = carried_out(found, steer(found, memory, (), room))
    assert found == first
    assert memory == Memory()


@given(interrupts(), owners(), owners(), rooms(), st.sets(st.integers(-1, 4)))
def test_whoever_is_killed_between_two_writes_is_made_up_for(
    first: tuple[Interrupt, ...],
    before: tuple[Owner, ...],
    held: tuple[Owner, ...],
    room: InterruptCPUs,
    done: set[int],
) -> None:
    """Only some of the writes happen, and the memory is the one from before them."""
    found, memory = carried_out(first, steer(first, Memory(), before, room))
    steps, memory = steer(found, memory, held, room)
    written_first = {step.interrupt.number: step.write for step in steps if step.interrupt.number in done}
    found = tuple(replace(one, allowed=written_first.get(one.number) or one.allowed) for one in found)
    back = steer(found, memory, (), room)
    assert not back[1].alone
    found, memory = carried_out(found, back)
    assert found == first
    assert memory == Memory()


@given(interrupts(), owners(), owners(), rooms(), filled)
def test_what_somebody_else_has_moved_is_left_alone(
    first: tuple[Interrupt, ...], before: tuple[Owner, ...], held: tuple[Owner, ...], room: InterruptCPUs, his: CPUSet
) -> None:
    found, memory = carried_out(first, steer(first, Memory(), before, room))
    beginning = found[0].allowed
    touched = {
        number
        for number, one in memory.kept.items()
        if number != NEW and his not in one.ours and one.ours != (one.original,)
    }
    found = tuple(replace(one, allowed=his) if one.number in touched else one for one in found)
    steps, memory = steer(found, memory, held, room)
    if his == beginning:
        assert not memory.alone
        return
    assert set(memory.alone) == touched
    assert touched.isdisjoint(writes(steps))
    assert touched.isdisjoint(memory.kept)
    assert set(steer(found, memory, held, room)[1].alone) == touched


def test_a_number_that_another_device_has_now_is_another_interrupt() -> None:
    memory = Memory({30: Kept("eth0", cpus("1"), (cpus("0"),))}, {31: "eth1"})
    found = (Interrupt(30, "nvme0", cpus("5"), None), Interrupt(31, "nvme1", cpus("6"), None))
    steps, memory = steer(found, memory, (), InterruptCPUs(ALL, CPUSet()))
    assert memory == Memory()
    assert not writes(steps)


def test_the_first_choice_is_what_is_left_then_reserved_cpus_then_what_nobody_owns() -> None:
    held = (Owner("web", cpus("2-3")), Owner("calm", cpus("4"), Wish.IGNORE))
    assert place(cpus("1-2"), held, InterruptCPUs(ALL, cpus("0"))) == (cpus("1"), Why.KEPT_AWAY)
    assert place(cpus("2-4"), held, InterruptCPUs(ALL, cpus("0"))) == (cpus("0"), Why.KEPT_AWAY)
    assert place(cpus("2"), held, InterruptCPUs(ALL, CPUSet())) == (cpus("0-1,5-7"), Why.KEPT_AWAY)
    assert place(cpus("2"), held, InterruptCPUs(cpus("2-4"), CPUSet())) == (None, Why.NO_ROOM)
    assert place(cpus("4"), held, InterruptCPUs(ALL, CPUSet())) == (cpus("4"), Why.ORIGINAL)


@pytest.mark.parametrize(
    ("text", "wish"), [("own", Wish.OWN), (" Ignore", Wish.IGNORE), ("avoid", Wish.AVOID), ("", None), ("yes", None)]
)
def test_words_of_the_annotation(text: str, wish: Wish | None) -> None:
    assert wish_of({ANNOTATION: text}) is wish


def pod(uid: str, wish: str = "") -> Pod:
    return Pod(uid, uid, "default", (), QoS.GUARANTEED, annotations={ANNOTATION: wish} if wish else {})


def test_owners_are_pods_with_all_their_containers_and_claims_with_the_word_of_their_pods() -> None:
    claim = {"default/cpus/numa0/fast": CPUMask(0b1100_0000)}
    state = CPUState(
        "static",
        CPUMask(0b1),
        {"a": {"x": CPUMask(0b10), "y": CPUMask(0b100)}, "b": {"x": CPUMask(0b1000)}, claim_key("1-2"): claim},
        {"b": CPUMask(0b1_1000)},
    )
    pods = {"a": pod("a", "own"), "b": pod("b", "what")}
    shared = {"a": {"z": frozenset(ADDRESSES)}}
    found = owners_of(state, pods, shared, {"1-2": frozenset({"a"})})
    assert found == (
        Owner("default/b", cpus("3-4"), Wish.AVOID),
        Owner("default/a/x", cpus("1"), Wish.OWN, frozenset(ADDRESSES)),
        Owner("default/a/y", cpus("2"), Wish.OWN, frozenset(ADDRESSES)),
        Owner("claim default/cpus", cpus("6-7"), Wish.OWN, frozenset(ADDRESSES)),
    )
    assert owners_of(state, pods, {})[2].wish is Wish.AVOID


def test_a_container_owns_its_devices_and_its_neighbours_avoid_their_interrupts() -> None:
    state = CPUState("static", CPUMask(0b1), {"a": {"x": CPUMask(0b10), "y": CPUMask(0b100)}})
    pods, nic = {"a": pod("a", "own")}, frozenset({ADDRESSES[0]})
    found = owners_of(state, pods, {"a": {"y": nic}})
    assert found == (Owner("default/a/x", cpus("1"), Wish.AVOID), Owner("default/a/y", cpus("2"), Wish.OWN, nic))
    assert place(cpus("0-7"), found, InterruptCPUs(ALL, cpus("0")), device=ADDRESSES[0])[0] == cpus("2")
    assert owners_of(state, pods, {"a": {"y": frozenset()}}) == (Owner("default/a", cpus("1-2"), Wish.OWN),)
