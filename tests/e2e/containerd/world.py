"""What runs where on the large machine that the wrapped runc plays, line by line of its log.

Lines with the verb ``mark`` are the test's own: ``away`` stands before whatever takes agent or runtime down,
``settled`` where both are back and nobody overlaps any more.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from tests.e2e.containerd.wrapper import Asked, Reader, tell

from mooring.engine.core.bits import CPUMask
from mooring.engine.core.cpuset import CPUSet

EVERY = -1
"""All CPUs, as a mask: of containers of which no list was asked."""


@dataclass(slots=True)
class World:
    """Replays a log and notes every moment at which two containers shared an exclusive CPU.

    Somebody who starts while agent or runtime are away may start anywhere: no answer can reach the runtime. Overlaps
    with such a container are excused until it was given its place, and on CPUs that it was given itself then, until
    the test says that all is settled.
    """

    log: Reader
    exclusive: Mapping[str, int]
    """How many CPUs a container has for itself, by id; the others share."""
    cpus: dict[str, int] = field(default_factory=dict)
    """Masks of containers that were created and not deleted."""
    running: set[str] = field(default_factory=set)
    overlaps: list[str] = field(default_factory=list)
    """What must not be, in words."""
    lives: int = 0
    written: int = 0
    """Cpusets that were changed past the runtime."""
    largest: int = 0
    """Most containers at once."""
    _stray: set[str] = field(default_factory=set)
    _late: set[str] = field(default_factory=set)
    _is_away: bool = False
    _lines: int = 0

    def look(self) -> None:
        """Replay the lines that are new."""
        for line in self.log.new():
            self._lines += 1
            self._take(self._lines, line)

    def mark(self, what: str) -> None:
        """Write a mark of the test's own into the log: ``away`` or ``settled``."""
        tell(self.log.folder, "mark", what)

    def sharing(self) -> list[tuple[str, str]]:
        """Return the pairs that share an exclusive CPU now, excused or not: who has it, who else is there."""
        owners = [one for one in self.running if one in self.exclusive]
        return [(owner, other) for owner in owners for other in self._on_cpus_of(owner)]

    def _take(self, number: int, line: Asked) -> None:
        one = line.id
        match line.verb:
            case "mark":
                self._is_away = one == "away"
                if one == "settled":
                    self._stray.clear()
                    self._late.clear()
                    self._judge(number, self.running)
            case "kill":
                self.running.discard(one)
            case "delete":
                self.running.discard(one)
                self.cpus.pop(one, None)
                self._stray.discard(one)
                self._late.discard(one)
            case "start" if one in self.cpus:
                self.lives += 1
                self.running.add(one)
                self.largest = max(self.largest, len(self.running))
                if self._is_away:
                    self._stray.add(one)
                self._judge(number, [one])
            case "create" | "update" | "write":
                self.written += line.verb == "write"
                if line.cpus:
                    self.cpus[one] = CPUSet.parse(line.cpus).mask
                    if one in self._stray:
                        self._stray.remove(one)
                        self._late.add(one)
                elif line.verb == "create":
                    self.cpus[one] = EVERY
                    self._stray.add(one)
                self._judge(number, [one])

    def _judge(self, number: int, changed: Iterable[str]) -> None:
        for one in changed:
            if one not in self.running or one in self._stray:
                continue
            mine = self.cpus[one]
            # Nearly nobody meets anybody, so that the cheapest question comes first.
            met = [other for other in self.running if mine & self.cpus[other] and other != one]
            pairs = [(owner, one) for owner in met if owner in self.exclusive]
            pairs += [(one, other) for other in met if one in self.exclusive]
            for owner, other in pairs:
                if owner not in self._late and not {owner, other} & self._stray:
                    text = (
                        f"line {number}: {other} on {CPUSet(CPUMask(self.cpus[owner] & self.cpus[other]))} of {owner}"
                    )
                    self.overlaps.append(text)

    def _on_cpus_of(self, owner: str) -> list[str]:
        mine = self.cpus[owner]
        return [other for other in self.running if mine & self.cpus[other] and other != owner]
