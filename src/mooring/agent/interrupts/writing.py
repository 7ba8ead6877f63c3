"""Carrying out what was decided: first the journal, then the kernel, then the journal again."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from mooring.agent.interrupts.files import InterruptTrouble, IRQFiles
from mooring.agent.interrupts.journal import InterruptJournal
from mooring.core.cpuset import CPUSet
from mooring.extensions.interrupts import Interrupt
from mooring.extensions.steering import Memory, Steering, Step, written

Told = Callable[[Step, InterruptTrouble | None], object]
"""Is told what came of each write."""


class InterruptWriter:
    """Writes affinities, and does not repeat what the kernel refuses."""

    def __init__(self, files: IRQFiles, journal: InterruptJournal, told: Told) -> None:
        """Begin without refusals.

        Args:
            files: of the kernel.
            journal: is written before them.
            told: receives every write.
        """
        self._files, self._journal, self._told = files, journal, told
        self._refused: dict[tuple[int, str], CPUSet | None] = {}
        """Sets that the kernel does not take; None where it takes none at all."""
        self.unwritable = False
        """Whether the newest write found the files read-only."""

    def known(self, found: tuple[Interrupt, ...]) -> tuple[Interrupt, ...]:
        """Return interrupts with what their refusals have told; refusals of those that are gone are forgotten."""
        keys = {(one.number, one.name) for one in found}
        self._refused = {key: cpus for key, cpus in self._refused.items() if key in keys}
        return tuple(
            replace(one, managed=True) if self._refused.get((one.number, one.name), CPUSet()) is None else one
            for one in found
        )

    def carry_out(self, steering: Steering) -> tuple[Steering, Memory]:
        """Write what is to be written; nothing of it when the journal cannot be.

        Returns:
            The steps as they stand now, and what is remembered.
        """
        if not self._journal.write(steering.memory):
            # Nothing was written, and what the last check wrote is in the older journal.
            return steering, _unwritten(steering)
        self.unwritable = False
        shown: dict[int, CPUSet] = {}
        steps: list[Step] = []
        for step in steering.steps:
            after = self._written(step)
            if step.write is not None:
                shown[step.interrupt.number] = after
            steps.append(replace(step, interrupt=replace(step.interrupt, allowed=after)))
        memory = written(steering.memory, shown)
        self._journal.write(memory)
        return Steering(tuple(steps), memory), memory

    def _written(self, step: Step) -> CPUSet:
        """Write one affinity where it is to be written, and return what is in force then."""
        one, wanted = step.interrupt, step.write
        key = (one.number, one.name)
        if wanted is None or self.unwritable or self._refused.get(key) == wanted:
            return one.allowed
        trouble = self._files.write(one.number, wanted)
        self.unwritable = trouble is InterruptTrouble.UNWRITABLE
        if trouble in (InterruptTrouble.MANAGED, InterruptTrouble.REFUSED):
            self._refused[key] = None if trouble is InterruptTrouble.MANAGED else wanted
        self._told(step, trouble)
        if trouble is not None:
            return one.allowed
        shown = self._files.shown(one.number) or wanted
        if shown != wanted:
            # The interrupt's chip has made something else of it, and would again.
            self._refused[key] = wanted
        return shown


def _unwritten(steering: Steering) -> Memory:
    """Return what is remembered when no write follows."""
    still = {step.interrupt.number: step.interrupt.allowed for step in steering.writes}
    return written(steering.memory, still)
