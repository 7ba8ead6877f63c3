"""Plugins that were chosen, as values: what the configuration names, loaded and understood.

No kubelet has them. Source: CPU Manager Plugin Model (proposal); spec: resize.md section 7. Who loads them is
:mod:`mooring.engine.plugins.loading`, who asks them is :mod:`mooring.engine.plugins`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import Enum
from typing import Protocol

from mooring.lazy import dataclass, field


class PluginPlacement(Enum):
    """Where a plugin takes part; both are discussed by the proposal."""

    CPU_MANAGER = "cpu-manager"
    """Inside the CPU manager: in its hints and in its choice."""
    HINT_PROVIDER = "hint-provider"
    """As one more hint provider of the topology manager; the choice of CPUs stays the kubelet's."""


MILLISECOND = 1_000_000
BUDGET = 50 * MILLISECOND
"""Nanoseconds that all plugins together have for one question."""


class OutOfTimeError(Exception):
    """Plugins did not answer within their budget."""


Work = Callable[[], object]


class Watch(Protocol):
    """Holds plugins to their budget of time."""

    def __call__(self, work: Work, budget: int) -> object:
        """Do some work within a number of nanoseconds, or raise :class:`OutOfTimeError`."""

    def give_up(self, plugin: str) -> None:
        """Note that a plugin did not come back in time: it is not asked again."""

    def has_given_up(self, plugin: str) -> bool:
        """Tell whether a plugin is not to be asked any more."""


class Unwatched:
    """Lets plugins work without a time limit, and gives none up."""

    def __call__(self, work: Work, budget: int) -> object:  # noqa: ARG002 - there is none
        """Do the work."""
        return work()

    def give_up(self, plugin: str) -> None:
        """Ask it again all the same."""

    def has_given_up(self, plugin: str) -> bool:  # noqa: ARG002 - none is
        """Tell that it is asked."""
        return False


UNWATCHED = Unwatched()


@dataclass(frozen=True, slots=True)
class ChosenPlugin:
    """One plugin of the configuration."""

    name: str
    settings: Mapping[str, object]
    points: Mapping[str, Callable[..., object]] = field(compare=False, repr=False)
    """Extension point -> the plugin's function, which takes its arguments by name."""
    placement: PluginPlacement = PluginPlacement.CPU_MANAGER
    weight: int = 1
    """With which its scores count."""
    is_shipped: bool = False
    """Whether it came with Mooring, so that it need not be watched."""


@dataclass(frozen=True, slots=True)
class PluginChoice:
    """The plugins of a node, in the order in which they are asked."""

    plugins: tuple[ChosenPlugin, ...] = ()
    budget: int = BUDGET
    """Nanoseconds for one question."""
    watch: Watch = field(default=UNWATCHED, compare=False, repr=False)
    """Holds plugins to their budget."""
