"""What all lives have: steps that a seed draws, what is said of them, laws that hold, and an end."""

from __future__ import annotations

import random
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from hashlib import sha256
from typing import Any, ClassVar

from tests.world.files import Faults
from tests.world.threads import StuckError, Threads


class BrokenLawError(Exception):
    """A law does not hold."""


@dataclass
class LifeEnd:
    """What became of a life."""

    seed: int
    steps: int
    broken: str
    trace: str
    seconds: float
    faults: tuple[str, ...]
    events: Counter[str]
    lines: tuple[str, ...]
    kinds: frozenset[str]
    """Of events and faults that there can be."""


class Life(ABC):
    """One life."""

    STEPS: ClassVar[int]
    CALM: ClassVar[float]
    """Share of the steps after which everything comes to rest."""
    RATES: ClassVar[Mapping[str, tuple[float, ...]]]
    EVENTS: ClassVar[Mapping[str, tuple[int, Callable[[Any, random.Random], object]]]]
    """By name: how often it comes, and what happens."""

    def __init__(self, seed: int, steps: int, left_out: frozenset[str]) -> None:
        self.seed, self.steps, self.left_out = seed, steps or self.STEPS, left_out
        self.numbers = random.Random(f"{seed}/life")  # noqa: S311 - a life is repeated, not secret
        self.kind = self.drawn_kind()
        rates = {kind: self.numbers.choice((0.0, 0.0, *some)) for kind, some in self.RATES.items()}
        self.threads = Threads(f"{seed}/threads")
        self.faults = Faults(f"{seed}/faults", rates, left_out)
        self.events: Counter[str] = Counter()
        self.hash = sha256()
        self.lines: list[str] = []

    def run(self) -> LifeEnd:
        """Live it."""
        broken = ""
        try:
            self.start()
            for number in range(self.steps):
                self._step(number)
            self.end()
        except BrokenLawError as error:
            broken = str(error)
        except StuckError as error:
            broken = f"nothing can go on: {error}"
        except AssertionError as error:
            broken = f"assertion: {error}"
        finally:
            self._abandon()
        return LifeEnd(
            self.seed,
            self.steps,
            broken,
            self.hash.hexdigest(),
            self.threads.now - 1000.0,
            tuple(self.faults.happened),
            self.events,
            (*self.lines, *(self.last_words() if broken else ())),
            frozenset({*self.RATES, *self.EVENTS}),
        )

    def _step(self, number: int) -> None:
        numbers = random.Random(f"{self.seed}/step/{number}")  # noqa: S311 - as above
        what = numbers.choices([*self.EVENTS], [weight for weight, _ in self.EVENTS.values()])[0]
        if what in self.left_out or f"{what}:{number}" in self.left_out or not self.has(what):
            return
        self.events[what] += 1
        self.say(f"{what}:{number}")
        self.before_step()
        self.EVENTS[what][1](self, numbers)
        self.look()
        if numbers.random() < self.CALM:
            self.settle()

    def say(self, text: str) -> None:
        self.lines.append(f"{self.threads.now:.3f} {text}")
        self.hash.update(f"{self.threads.now!r} {self.threads.switches} {text}\n".encode())

    def jump(self, numbers: random.Random) -> None:
        self.threads.wall += numbers.choice([-86400.0, -3.0, 3.0, 3600.0, 1e8])

    def _abandon(self) -> None:
        """End all threads of this life, whatever they do."""
        self.threads.stuck = ""
        for program in {id(one.program): one.program for one in self.threads.tasks}.values():
            if program is not self.threads.outside:
                program.is_dead = True
        self.leave()
        try:
            self.threads.wait(lambda: len(self.threads.tasks) == 1, 1000.0)
        except StuckError:
            self.lines.append("threads are left")

    @staticmethod
    def hold(is_so: bool, what: str) -> None:
        if not is_so:
            raise BrokenLawError(what)

    def drawn_kind(self) -> str:
        """Return what kind of a life it is."""
        return ""

    def has(self, _what: str) -> bool:
        """Tell whether such a thing happens in this life."""
        return True

    @abstractmethod
    def before_step(self) -> None:
        """Have done what others do by themselves."""

    @abstractmethod
    def start(self) -> None:
        """Bring everything up."""

    @abstractmethod
    def look(self) -> None:
        """Check what holds at every step."""

    @abstractmethod
    def settle(self) -> None:
        """Let everything come to rest without faults, and check that all is as decided."""

    @abstractmethod
    def end(self) -> None:
        """End everything, and check that nothing stays behind."""

    @abstractmethod
    def leave(self) -> None:
        """Let threads end that wait for something."""

    @abstractmethod
    def last_words(self) -> tuple[str, ...]:
        """Return what helps to understand a broken law."""
