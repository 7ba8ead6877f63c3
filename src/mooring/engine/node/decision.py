"""What the node answers when it is asked to admit, remove or restart."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from mooring.engine.core.cpuset import CPUSet
from mooring.engine.core.decision import Endless, Placement, Rejection
from mooring.engine.devicemanager.state import Device
from mooring.engine.topologymanager.hints import Hint
from mooring.engine.topologymanager.wide import ResourceHints
from mooring.lazy import dataclass, field

if TYPE_CHECKING:
    from mooring.engine.node.scores import HintsAsked
    from mooring.engine.plugins.facts import PluginFailed

NO_AFFINITY = Hint(None, preferred=False)
"""What the topology manager's store answers for a container that it does not know."""


@dataclass(frozen=True, slots=True)
class Decision:
    """The answer for one pod."""

    uid: str
    namespace: str
    name: str
    admitted: bool
    rejection: Rejection | None
    """The kubelet's reason and message; None for an admitted pod and when the kubelet would not return."""
    endless: Endless | None
    """Set when the kubelet's admission would never end; then nothing was decided and nothing changed."""
    containers: Mapping[str, Placement]
    """What each container holds afterwards, in the order of the specification."""
    pod: Placement
    """What the pod holds as a whole (KEP-5526)."""
    affinity: Mapping[str, Hint]
    """What the topology manager has stored for each container."""
    shared_pool: CPUSet
    """The default set afterwards."""
    devices: Mapping[str, Mapping[str, tuple[Device, ...]]] = field(default_factory=dict)
    """Container -> resource -> devices, ascending by id; containers without devices are absent."""
    hints: Mapping[str, ResourceHints] | None = None
    """Container -> resource -> hints, as handed to the topology manager in container scope; containers not reached are
    absent."""
    pod_hints: ResourceHints | None = None
    """Resource -> hints in pod scope."""
    asked: Mapping[str, HintsAsked] | None = field(default=None, compare=False, repr=False)
    """Container, or an empty text for the pod -> what its hints were made of; None for kubelets without scores."""
    plugin_failures: tuple[PluginFailed, ...] = ()
    """Plugins whose answers were left out (extension plugins)."""
    hidden: Mapping[str, CPUSet] = field(default_factory=dict)
    """Container -> threads of its cores that are not assigned as long as it runs (extension plugins)."""

    @property
    def reason(self) -> str:
        """The kubelet's reason; empty for an admitted pod."""
        return self.rejection.reason if self.rejection else ""

    @property
    def message(self) -> str:
        """The kubelet's message; empty for an admitted pod."""
        return self.rejection.message if self.rejection else ""


@dataclass(frozen=True, slots=True)
class Removal:
    """What came back when a pod was removed."""

    uid: str
    released: CPUSet
    """CPUs that returned to the shared pool, also those of stale leftovers."""
    shared_pool: CPUSet


@dataclass(frozen=True, slots=True)
class Readmission:
    """What a restart of the kubelet did to the running pods, in the order in which they were admitted again."""

    decisions: tuple[Decision, ...] = field(default=())

    @property
    def refused(self) -> tuple[Decision, ...]:
        """Running pods that the kubelet did not admit again."""
        return tuple(decision for decision in self.decisions if not decision.admitted)
