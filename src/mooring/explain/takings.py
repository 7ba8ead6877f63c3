"""From the facts of taking to what was taken, run by run and rule by rule."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from mooring.cpumanager.facts import (
    CPUPinningFailed,
    CPUsPicked,
    CPUsTaken,
    DistributionChosen,
    ExistingCPUsKept,
    PodShareCut,
    SharePicked,
    TakeBegun,
    WholeCoresChecked,
)
from mooring.devicemanager.facts import DevicesTaken
from mooring.explain.story import Pick, PluginStep, Run, Step, Taking, failed
from mooring.memorymanager.facts import MemoryAssigned, MemoryPinningFailed


def steps_of(facts: Iterable[object]) -> Iterator[Step]:
    """Yield what was done, in order; the facts of one taking become one step, and one refusal is told once."""
    told = False
    for step in _all_steps(facts):
        if not (told and isinstance(step, CPUPinningFailed | MemoryPinningFailed)):
            yield step
        told = failed(step)


def _all_steps(facts: Iterable[object]) -> Iterator[Step]:
    open_run: list[object] = []
    told: list[object] = []
    for fact in facts:
        match fact:
            case TakeBegun() | CPUsPicked() | DistributionChosen() | SharePicked():
                open_run.append(fact)
            case CPUsTaken():
                runs = tuple(_runs(open_run))
                yield Taking(fact.container, fact.need, fact.reusable, fact.affinity, runs, fact.taken, fact.error)
                open_run = []
            case PodShareCut():
                yield from _cut(open_run, fact.cpus, "")
                yield fact
                open_run = []
            case CPUPinningFailed():
                yield from _cut(open_run, 0, fact.error)
                yield fact
                open_run = []
            case _ if isinstance(fact, PluginStep):
                # A plugin that is asked for hints and for the choice says the same twice.
                if fact not in told:
                    yield fact
                told.append(fact)
            case WholeCoresChecked() | ExistingCPUsKept() | MemoryAssigned() | MemoryPinningFailed() | DevicesTaken():
                yield fact


def _cut(facts: list[object], taken: int, error: str) -> Iterator[Taking]:
    """Yield the taking from the CPUs of the pod, whose end no fact of its own tells."""
    begun = next((fact for fact in facts if isinstance(fact, TakeBegun)), None)
    if begun is not None:
        yield Taking(begun.container, begun.need, 0, None, tuple(_runs(facts)), taken, error)


def _runs(facts: list[object]) -> Iterator[Run]:
    starts = [position for position, fact in enumerate(facts) if isinstance(fact, TakeBegun)]
    # Plugins choose without a run of the kubelet's rules.
    for start, end in zip(starts, [*starts[1:], len(facts)] if starts else [], strict=True):
        begun, *rest = facts[start:end]
        if not isinstance(begun, TakeBegun):
            continue
        chosen = next((fact for fact in rest if isinstance(fact, DistributionChosen)), None)
        yield Run(begun.place, begun.need, begun.candidates, chosen, tuple(_picks(rest)))


def _picks(facts: Iterable[object]) -> Iterator[Pick]:
    for fact in facts:
        if isinstance(fact, CPUsPicked):
            yield Pick(fact.rule, fact.cpus)
        elif isinstance(fact, SharePicked):
            yield Pick("rest" if fact.is_rest else "share", fact.cpus, fact.node)
