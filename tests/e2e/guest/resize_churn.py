"""A scenario: a program with one thread on each CPU is resized again and again, while other pods come and go.

From outside every thread is looked at all the time. One that is called after a CPU runs there; on a kernel that undoes
pins (before 6.2) it may be anywhere in its container for a moment, and never outside. When the program has left CPUs,
no thread is on them. From inside the program tells what the kernel refused, and threads that ran elsewhere.

Values: ``delay`` in seconds, ``resizes`` and ``looks`` as numbers, which must be reached.
"""

from __future__ import annotations

import os
import random
import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from functools import partial

from tests.e2e.guest import inside
from tests.e2e.guest.inside import Inside
from tests.e2e.guest.node import Running, Wanted
from tests.e2e.guest.report import tell, values
from tests.e2e.guest.resizing import MIB, NO_ROOM, SECOND, Play, delay, refusal, until, wait_until

SIZES = range(2, 14)
"""CPUs of the program; with the others there is not always room for the largest."""
OTHERS = 2
"""Pods beside it, of which one goes and another comes, again and again."""
KEEPS_PINS = tuple(int(part) for part in os.uname().release.split(".")[:2]) >= (6, 2)
"""Whether the kernel lets threads keep their pins when the cpuset changes."""
PLAY = Play()
CHANCE = random.Random(7)  # noqa: S311 - the same sizes in every run


@dataclass(slots=True)
class Watch:
    """Looks at threads and other pods until it is over."""

    found: list[str] = field(default_factory=list)
    looks: int = 0
    threads: int = 0
    """Looks at one thread."""
    loose: int = 0
    """How many of them found a thread that was not pinned."""
    over: threading.Event = field(default_factory=threading.Event)

    def run(self) -> None:
        within = PLAY.inside("main")
        while not self.over.wait(0.1):
            self.look(within)
            self.looks += 1

    def look(self, within: Inside) -> None:
        before, left = within.cpus(), within.last("left")
        threads = [one for one in within.threads() if one[0].startswith("cpu")]
        after, still = within.cpus(), within.last("left")
        has = inside.ids(before) | inside.ids(after)
        uses = inside.ids(left) if left == still else has
        for name, processor, allowed in threads:
            self.threads += 1
            own = int(name.removeprefix("cpu"))
            self.loose += allowed != str(own)
            is_odd = (allowed == str(own) != str(processor)) or not inside.ids(allowed) <= has
            if processor not in has or own not in uses or (is_odd and (KEEPS_PINS or not comes_back(within, name))):
                self.found.append(f"{name} ran on {processor} and may run on {allowed}, of {before}, left {left}")
        self.found += PLAY.overlaps()


def comes_back(within: Inside, name: str) -> bool:
    """Tell whether a thread is soon where it belongs, or is no more.

    A thread that sleeps while it is pinned again is on its CPU when it has run again. And a kernel that undoes pins
    goes from thread to thread, so that a look can find the first with the new cpuset and another with the old one.
    """
    for _ in range(50):
        found = [one for one in within.threads() if one[0] == name]
        if not found or (f"cpu{found[0][1]}" == name and inside.within(found[0][2], within.cpus())):
            return True
        wait_until(time.monotonic_ns() + SECOND // 10)
    return False


WATCH = Watch()


@dataclass(slots=True)
class Churn:
    """Lets other pods come and go until it is over."""

    lives: int = 0
    refused: int = 0
    over: threading.Event = field(default_factory=threading.Event)
    problem: BaseException | None = None

    def run(self) -> None:
        chance = random.Random(8)  # noqa: S311 - the same pods in every run
        try:
            while not self.over.is_set():
                self.turn(f"other{self.lives}", chance.choice((1, 2)))
        except BaseException as error:  # noqa: BLE001 - told by the step
            self.problem = error

    def turn(self, name: str, cpus: int) -> None:
        mine = [name for name in PLAY.pods if name != "main"]
        if len(mine) >= OTHERS:
            PLAY.remove(mine[0])
        running = PLAY.node.run_sandbox(Wanted(name, str(cpus), 24 * MIB))
        self.lives += 1
        if is_there(running):
            PLAY.pods = {**PLAY.pods, name: running}
        else:
            self.refused += 1
            PLAY.node.stop(running)
            PLAY.node.remove(running)


def is_there(running: Running) -> bool:
    """Create and start a container, unless there is no room for it now."""
    said = refusal(lambda: PLAY.node.create(running, ("sleep", "1000000")))
    assert not said or is_for_want_of_room(said), said
    if not said:
        PLAY.node.cri.start(running.container)
    return not said


def is_for_want_of_room(said: str) -> bool:
    """Tell whether a refusal says that CPUs are not free, or that the node is asked for more than it has."""
    return NO_ROOM in said or "Node didn't have enough resource: cpu" in said


def has_threads(within: Inside, number: int) -> bool:
    """Tell whether the program has a thread on each of so many CPUs."""
    return inside.size_of(within.last("pinned")) == number


CHURN = Churn()


def step_the_program_has_a_thread_on_each_cpu() -> str:
    PLAY.come_up()
    within = PLAY.run("main", SIZES[0])
    until(lambda: within.last("pinned") == within.file(), "all threads are there")
    names = {name for name, _, _ in within.threads() if name.startswith("cpu")}
    assert names == {f"cpu{cpu}" for cpu in inside.ids(within.cpus())}
    threading.Thread(target=WATCH.run, daemon=True).start()
    threading.Thread(target=CHURN.run, daemon=True).start()
    return f"{sorted(names)}"


def step_it_is_resized_again_and_again_and_follows_in_time() -> str:
    within, answers = PLAY.inside("main"), Counter[str]()
    size = SIZES[0]
    for _ in range(values()["resizes"]):
        wanted = CHANCE.choice([one for one in SIZES if one != size])
        before, file, sent = within.cpus(), within.file(), time.monotonic_ns()
        said = PLAY.refusal("main", wanted)
        if said:
            assert is_for_want_of_room(said), said
            # A release that was pending may be over meanwhile; nothing else changes.
            assert within.file() == file
            assert within.cpus() in (before, file)
            answers["refused"] += 1
            continue
        size = wanted
        until(partial(has_threads, within, wanted), f"it has {wanted} threads")
        grows = wanted >= inside.size_of(before)
        answers["growth" if grows else "shrink"] += 1
        told = within.when("file", within.file(), since=sent)
        PLAY.measured(f"{'growth' if grows else 'shrink'}, request to file", told - sent)
        # Some come while CPUs are still to be given back.
        wait_until(sent + CHANCE.choice((0, 0, delay() + 1)) * SECOND)
    tell("figures", milliseconds=PLAY.figures)
    return f"{dict(answers)}, {CHURN.lives} other pods meanwhile, {CHURN.refused} without room"


def step_no_thread_ran_on_a_cpu_that_was_taken_and_the_kernel_refused_none() -> str:
    # On a busy machine few come in the time of all resizes.
    until(lambda: CHURN.lives > OTHERS or CHURN.problem is not None, "other pods have come and gone")
    CHURN.over.set()
    within = PLAY.inside("main")
    until(lambda: within.cpus() == within.file() == within.last("cpus"), "everything is given back")
    WATCH.over.set()
    assert CHURN.problem is None, CHURN.problem
    assert not WATCH.found, WATCH.found[:5]
    assert not within.complaints(), within.complaints()[:5]
    until(within.is_pinned, "all threads are pinned")
    if KEEPS_PINS:
        assert not within.lines("loose")
        assert not WATCH.loose
    for line in within.lines("cpus")[1:]:
        left = [one for one in within.lines("left") if one.at < line.at]
        assert inside.within(left[-1].text, line.text), (line, left[-1])
    assert WATCH.looks >= values()["looks"], WATCH.looks
    tell("seen", threads=WATCH.threads, loose=WATCH.loose, looks=WATCH.looks)
    return f"{WATCH.threads} looks at threads, {len(within.lines('cpus'))} cpusets, {len(within.lines('file'))} texts"
