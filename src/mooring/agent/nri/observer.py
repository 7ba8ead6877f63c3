"""What a plugin tells about itself while it works: to metrics, logs and whoever must repair a lost answer."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from mooring.agent.nri.errors import NRIError


@dataclass(frozen=True, slots=True)
class Runtime:
    """The runtime at the other end, as it introduced itself."""

    name: str
    version: str
    nri_version: str = ""
    """Empty before NRI 0.12."""
    request_timeout: float = 0.0
    """Seconds after which the runtime gives a plugin up; 0 when it did not say."""


class Loss(Enum):
    """Why an answer did not reach the runtime."""

    LATE = "late"
    """The budget was over, and the runtime had been answered without it."""
    CLOSED = "closed"
    """The connection was gone."""
    OVERSIZED = "oversized"
    """It was larger than a runtime takes."""


@dataclass(frozen=True, slots=True)
class LostAnswer:
    """A handler has decided, and the runtime does not know: what it was told instead is in ``refused``."""

    method: str
    pod_id: str
    container_id: str
    seconds: float
    """From the arrival of the request to the handler's return."""
    loss: Loss
    refused: bool
    """Whether the runtime was told an error; otherwise it was told nothing, or that all is well without changes."""


class SessionObserver:
    """Does nothing about anything; a subclass or a look-alike overrides what it wants.

    Calls come from the plugin's own thread, never two at once.
    """

    def connected(self, runtime: Runtime) -> None:
        """Learn that the runtime has configured the plugin."""

    def synchronized(self, pods: int, containers: int) -> None:
        """Learn that Synchronize was answered: from now on events come."""

    def answered(self, method: str, seconds: float, *, refused: bool) -> None:
        """Learn how long a request took from its arrival to its answer."""

    def lost(self, answer: LostAnswer) -> None:
        """Learn that what a handler decided did not reach the runtime."""

    def failed(self, method: str, error: Exception) -> None:
        """Learn that a handler broke; the runtime was refused."""

    def disconnected(self, why: NRIError, retry_in: float) -> None:
        """Learn that the connection is gone or was not had, and when the next try is, in seconds."""
