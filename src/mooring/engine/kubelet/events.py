"""What happens to a node one thing after another: pods arrive and end, the kubelet restarts, CPUs go offline.

Every event gives another kubelet and what came of it. A plan, a search, a trial and a recording are sequences of
events; they differ in the order and in how they ask (:class:`~mooring.engine.kubelet.admit.AdmitMode`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TypeAlias

from mooring.engine.core.bits import list_text
from mooring.engine.core.config import KubeletConfig
from mooring.engine.core.cpuset import CPUSet
from mooring.engine.core.decision import StartRefusal
from mooring.engine.core.errors import InputError, KubeletCrashError
from mooring.engine.core.observer import Observer
from mooring.engine.core.pod import Pod, ResourceList
from mooring.engine.core.release import Release
from mooring.engine.kubelet.admit import AdmitMode, AdmitResult, admit, readmit, without
from mooring.engine.kubelet.kubelet import Kubelet
from mooring.engine.kubelet.start import NotStarted, restart_kubelet
from mooring.engine.node import Node
from mooring.lazy import dataclass, field, lazily

with lazily():
    from mooring.engine.node import hotplug


@dataclass(frozen=True, slots=True)
class Admit:
    """A pod arrives."""

    pod: Pod


@dataclass(frozen=True, slots=True)
class Remove:
    """A pod ends and is gone."""

    uid: str


@dataclass(frozen=True, slots=True)
class Restart:
    """The kubelet stops and starts again on its checkpoint files."""

    kubelet: KubeletConfig | None = None
    """The configuration from here on; None leaves it as it was."""
    release: Release | None = None
    """The kubelet's release from here on; None leaves it as it was."""


@dataclass(frozen=True, slots=True)
class Reboot:
    """The machine starts again: everything as for a restart, and another boot."""


@dataclass(frozen=True, slots=True)
class Advance:
    """Time goes by."""

    nanoseconds: int


@dataclass(frozen=True, slots=True)
class Amounts:
    """Requests and limits that are named; all others stay."""

    requests: ResourceList = field(default_factory=dict)
    limits: ResourceList = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Resizing:
    """A pod is to have other resources."""

    uid: str
    containers: Mapping[str, Amounts]
    resources: Amounts | None = None
    """Of the pod as a whole."""


@dataclass(frozen=True, slots=True)
class ResizeTo:
    """A running pod is to have the resources of this one; only the check of what is feasible and managers are asked."""

    pod: Pod


@dataclass(frozen=True, slots=True)
class Offline:
    """CPUs go offline."""

    cpus: CPUSet


@dataclass(frozen=True, slots=True)
class Online:
    """CPUs come back."""

    cpus: CPUSet


@dataclass(frozen=True, slots=True)
class Readmit:
    """A pod that runs already is admitted again, after the start of the kubelet."""

    pod: Pod


Event: TypeAlias = Admit | Readmit | Remove | Restart | Offline | Online
"""What changes a kubelet at once."""
Step: TypeAlias = Admit | Remove | Restart | Reboot | Advance | Resizing | ResizeTo | Offline | Online
"""What happens to a node."""


@dataclass(frozen=True, slots=True)
class EventResult:
    """What came of an event."""

    admissions: tuple[AdmitResult, ...] = ()
    """The answer about the pod; after a restart the answers about the running pods."""
    refusal: StartRefusal | None = None
    """Set when the kubelet does not start again."""
    cpus: hotplug.CPUsChanged | None = None
    """Set when CPUs went offline or came online."""
    crash: str = ""
    """Why the kubelet would crash, outside of an admission."""

    @property
    def is_last(self) -> bool:
        """Tell whether no event can follow: a crash outside of an admission, an endless admission, a refused start.

        After a crash on an admission the kubelet is as before, and the next event can follow without the pod.
        """
        endless = any(one.decision.endless is not None for one in self.admissions)
        return bool(self.crash) or self.refusal is not None or endless

    @property
    def crashed(self) -> bool:
        """Tell whether the kubelet crashes on an admission."""
        return any(one.crash for one in self.admissions)


@dataclass(frozen=True, slots=True)
class Happened:
    """An event that has happened."""

    event: Event
    before: Kubelet
    after: Kubelet
    result: EventResult


def run(
    kubelet: Kubelet, events: Iterable[Event], mode: AdmitMode = AdmitMode.ADMISSION, observer: Observer | None = None
) -> Iterator[Happened]:
    """Let events happen one after another, to the first that none can follow; arguments as of :func:`after_event`."""
    for event in events:
        after, result = after_event(kubelet, event, mode, observer)
        yield Happened(event, kubelet, after, result)
        if result.is_last:
            return
        kubelet = after


def after_event(
    kubelet: Kubelet, event: Event, mode: AdmitMode = AdmitMode.ADMISSION, observer: Observer | None = None
) -> tuple[Kubelet, EventResult]:
    """Let one thing happen to a node.

    Args:
        kubelet: before.
        event: what happens.
        mode: how the kubelet is asked about pods.
        observer: receives what the engine found.

    Raises:
        InputError: CPUs go offline or come online without the extension cpu-hotplug.
    """
    try:
        match event:
            case Admit(pod) | Readmit(pod):
                kubelet, result = admit(kubelet, pod, mode, running=isinstance(event, Readmit), observer=observer)
                return kubelet, EventResult((result,))
            case Remove(uid):
                return ended(kubelet, uid, observer), EventResult()
            case Restart():
                return _restarted(kubelet, event, mode, observer)
            case Offline(cpus):
                kubelet, change = kubelet.offline(cpus.mask, observer)
                return kubelet, EventResult(cpus=change)
            case Online(cpus):
                kubelet, change = kubelet.online(cpus.mask, observer)
                return kubelet, EventResult(cpus=change)
    except KubeletCrashError as error:
        return kubelet, EventResult(crash=str(error))


def ended(kubelet: Kubelet, uid: str, observer: Observer | None = None) -> Kubelet:
    """Return the kubelet after a pod has ended; CPUs that it releases may replace offline ones.

    What no active pod holds is released as well, also where the pod itself is not active.

    Raises:
        KubeletCrashError: the kubelet itself would crash.
    """
    used = without(kubelet.used, kubelet.node.active.get(uid))
    after, _ = kubelet.remove(uid, observer)
    return after.counting(used).replanned(observer)


def _restarted(
    kubelet: Kubelet, event: Restart, mode: AdmitMode, observer: Observer | None
) -> tuple[Kubelet, EventResult]:
    start = restart_kubelet(kubelet, event.kubelet, release=event.release)
    if isinstance(start, NotStarted):
        return kubelet, EventResult(refusal=start.refusal)
    after, results = readmit(start, kubelet.node.active.values(), mode, observer)
    return after, EventResult(results)


def ordered(kubelet: Kubelet, pods: Sequence[Pod], observer: Observer | None = None) -> tuple[Pod, ...]:
    """Return pods that wait together in the order in which they are asked about: as given, or as plugins say."""
    plugins = kubelet.settings.plugins
    return tuple(pods) if plugins is None else tuple(plugins.ordered(pods, observer))


def check_known(node: Node, cpus: CPUSet, field: str) -> None:
    """Check that the machine has some CPUs.

    Raises:
        InputError: it does not.
    """
    if not cpus:
        return
    known = hotplug.known_cpus(node)
    if cpus.mask & ~known:
        unknown = list_text(cpus.mask & ~known)
        raise InputError(f"the machine has no CPU {unknown}", field=field, remedy=f"it has {list_text(known)}")
