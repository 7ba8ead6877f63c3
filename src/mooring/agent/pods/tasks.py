"""What waits to be written to the API server: the write itself, its account, and its name in reports."""

from __future__ import annotations

from dataclasses import dataclass

from mooring.agent.pods.accounts import AgentAccount
from mooring.agent.pods.events import EventSubject, EventWrite


@dataclass(frozen=True, slots=True)
class EvictionWrite:
    """A pod is to be evicted."""

    about: EventSubject
    message: str
    """Why."""


@dataclass(frozen=True, slots=True)
class TaintWrite:
    """The node is to have the agent's taint, or not to have it."""

    present: bool


@dataclass(frozen=True, slots=True)
class Task:
    """A write that waits."""

    what: EventWrite | EvictionWrite | TaintWrite
    tries: int = 0
    """That have failed."""
    due: float = 0.0
    """When it is tried, by the writer's clock."""

    @property
    def account(self) -> AgentAccount:
        """The account that may write it."""
        if isinstance(self.what, EventWrite):
            return AgentAccount.EVENTS
        return AgentAccount.EVICT if isinstance(self.what, EvictionWrite) else AgentAccount.TAINT

    @property
    def failure(self) -> str:
        """What it means when it fails, in words."""
        what = self.what
        if isinstance(what, EventWrite):
            return f"an event about {what.event.about.name} could not be written"
        if isinstance(what, EvictionWrite):
            return f"{what.about.namespace}/{what.about.name} is not evicted and stays held back"
        return f"the node's taint could not be {'set' if what.present else 'removed'}"
