"""What the runtime is told, and what an event comes to."""

from __future__ import annotations

from dataclasses import dataclass

from mooring.agent.nri.types import ContainerAdjustment, ContainerUpdate
from mooring.agent.reactor.effects import Effect
from mooring.agent.reactor.values import AgentState


@dataclass(frozen=True, slots=True)
class Accepted:
    """Nothing but the updates of containers, where the event's reply can carry any."""

    updates: tuple[ContainerUpdate, ...] = ()


@dataclass(frozen=True, slots=True)
class Adjusted:
    """What becomes of the container that is being created, and updates of others."""

    adjustment: ContainerAdjustment
    updates: tuple[ContainerUpdate, ...] = ()


@dataclass(frozen=True, slots=True)
class Refused:
    """An error for the runtime; the shell raises it as :class:`~mooring.agent.nri.errors.RefusalError`."""

    text: str
    """``REASON: message``, the kubelet's where it is the engine that refuses."""


Answer = Accepted | Adjusted | Refused


@dataclass(frozen=True, slots=True)
class Outcome:
    """A new state, the answer, and what is to be done, in that order of doing."""

    state: AgentState
    answer: Answer = Accepted()
    effects: tuple[Effect, ...] = ()
    starts: str = ""
    """Id of the container whose program runs as soon as this is answered; empty for all other events."""
