"""What happens to a node one thing after another: pods arrive and end, the kubelet restarts, CPUs go offline.

Every event gives another kubelet and what came of it. A plan, a search, a trial and a recording are sequences of
events; they differ in the order and in how they ask (:class:`~mooring.engine.kubelet.admit.AdmitMode`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, TypeAlias

from mooring.engine.core.bits import list_text
from mooring.engine.core.config import KubeletConfig
from mooring.engine.core.cpuset import CPUSet
from mooring.engine.core.decision import Observer, StartRefusal
from mooring.engine.core.errors import InputError, KubeletCrashError
from mooring.engine.core.pod import Pod, ResourceList
from mooring.engine.core.release import Release
from mooring.engine.kubelet.admit import AdmitMode, AdmitResult, admit, readmit, without
from mooring.engine.kubelet.kubelet import Kubelet
from mooring.engine.kubelet.start import NotStarted, restart_kubelet
from mooring.engine.node import Node
from mooring.lazy import dataclass, field, lazily, replace

with lazily():
    from mooring.engine.kubelet import timeline
    from mooring.engine.node import hotplug

if TYPE_CHECKING:
    from mooring.engine.node.resources import Resize


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
    boot: str | None = None
    """Names the machine's next boot, where the machine starts again too; then the pods' containers start again."""


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
class PodUpdate:
    """A running pod wants the resources of this one: it is asked about with all that wait."""

    pod: Pod


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
Living: TypeAlias = Event | Advance | PodUpdate | ResizeTo
"""What happens in the life of a kubelet."""
Step: TypeAlias = Admit | Remove | Restart | Reboot | Advance | Resizing | ResizeTo | Offline | Online
"""What happens to a node."""


@dataclass(frozen=True, slots=True)
class EventResult:
    """What came of an event."""

    admissions: tuple[AdmitResult, ...] = ()
    """The answer about the pod; after a restart the answers about the running pods."""
    not_started: NotStarted | None = None
    """Set when the kubelet does not start again."""
    cpus: hotplug.CPUsChanged | None = None
    """Set when CPUs went offline or came online."""
    crash: str = ""
    """Why the kubelet would crash, outside of an admission."""
    started: Kubelet | None = None
    """The kubelet that has started again, before it knows which pods run."""
    resize: Resize | None = None
    """The answer for a pod that wants other resources."""
    retried: Mapping[str, Resize] = field(default_factory=dict)
    """The answers for pods that had waited for theirs, by uid."""
    infeasible: bool = False
    """Whether the check of what is feasible refused other resources before managers were asked."""

    @property
    def refusal(self) -> StartRefusal | None:
        """Why the kubelet does not start again."""
        return None if self.not_started is None else self.not_started.refusal

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

    event: Living
    before: Kubelet
    at_once: Kubelet
    """The kubelet when it had happened, and had not tried again the resizes that wait."""
    after: Kubelet
    result: EventResult
    wanting: Mapping[str, Pod]
    """The pods that want other resources than they have, by uid."""


def run(
    kubelet: Kubelet, events: Iterable[Living], mode: AdmitMode = AdmitMode.ADMISSION, observer: Observer | None = None
) -> Iterator[Happened]:
    """Let events happen one after another, to the first that none can follow; arguments as of :func:`after_event`.

    An event is taken when the one before has happened. When a pod came or went, the resizes that wait are tried again.
    """
    since, again = kubelet.node.moment.since_boot, dict[str, Pod]()
    for event in events:
        before, at_once, life = kubelet, kubelet, None
        match event:
            case Advance(nanoseconds):
                life, retried = timeline.advanced(timeline.Timeline(kubelet, since, again), nanoseconds, observer)
                result = EventResult(retried=retried)
            case PodUpdate(pod):
                life, answer, retried = timeline.resized(timeline.Timeline(kubelet, since, again), pod, observer)
                result = EventResult(resize=answer, retried=retried)
            case ResizeTo(pod):
                kubelet, decision, infeasible = kubelet.ask_managers(pod)
                result = EventResult((AdmitResult(pod, decision, kubelet),), infeasible=infeasible is not None)
            case Restart():
                kubelet, result = after_event(kubelet, event, mode, observer)
                since, running = kubelet.node.moment.since_boot, kubelet.node.active
                again = {uid: pod for uid, pod in _wanting(before, again).items() if uid in running}
            case _:
                kubelet, result = after_event(kubelet, event, mode, observer)
                at_once = kubelet
                if (again or kubelet.node.waiting) and not result.is_last:
                    life, retried = timeline.retried(timeline.Timeline(kubelet, since, again), observer)
                    result = replace(result, retried=retried)
        if life is not None:
            kubelet, again = life.kubelet, dict(life.again)
        yield Happened(event, before, at_once, kubelet, result, _wanting(kubelet, again))
        if result.is_last:
            return


def _wanting(kubelet: Kubelet, again: Mapping[str, Pod]) -> dict[str, Pod]:
    return {**again, **{uid: one.pod for uid, one in kubelet.node.waiting.items()}}


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
                start = restart_kubelet(kubelet, event.kubelet, event.boot, event.release)
                if isinstance(start, NotStarted):
                    return kubelet, EventResult(not_started=start)
                after, results = readmit(start, kubelet.node.active.values(), mode, observer)
                if event.boot is not None:
                    for uid in after.node.active:
                        after = after.start_containers(uid)
                return after, EventResult(results, started=start)
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
