"""The agent as a plugin of the runtime: each call becomes an event of the reactor, and the outcome its answer.

:class:`RuntimeAdapter` answers the calls; :class:`SessionListener` turns what happens to the connection into metrics,
log lines and the snapshot's state of the runtime.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from mooring.agent.metrics import AgentMetrics
from mooring.agent.nri import types as nri
from mooring.agent.pods.cluster import PodSources
from mooring.agent.pods.resolve import Resolved, resolved
from mooring.agent.reactor.containers import as_requested, requested_containers, unlisted
from mooring.agent.reactor.create_container import create_container
from mooring.agent.reactor.devices import without_devices
from mooring.agent.reactor.lifecycle import EVENTS, needs_pod, state_change, stop_container
from mooring.agent.reactor.placing import opted_out
from mooring.agent.reactor.response import Adjusted, EventOutcome, Refused, answer_lost
from mooring.agent.reactor.synchronize import synchronize, unknown_pods
from mooring.agent.reactor.update_container import update_container
from mooring.agent.state import DevicesFound
from mooring.agent.state_holder import Decide, StateHolder
from mooring.agent.status import NO_RUNTIME, REMEDY, SILENCE, moment
from mooring.engine.core.pod import Pod
from mooring.inputs.pods.defaults import PodGates
from mooring.service.daemon import present_moment
from mooring.service.logs import Log

if TYPE_CHECKING:
    from mooring.agent.devices import DeviceLookup

_SHORTEST_LOOK, _LONGEST_LOOK = 0.05, 2.0
"""Seconds that Synchronize waits for what the kubelet tells of all pods."""


class RuntimeAdapter:
    """The :class:`~mooring.agent.nri.types.Handler` of the agent; its calls come from one thread."""

    def __init__(
        self,
        holder: StateHolder,
        pods: PodSources,
        gates: PodGates,
        devices: DeviceLookup | None = None,
    ) -> None:
        """Begin to answer.

        Args:
            holder: has the state.
            pods: knows pods; those that it does not know are derived from their containers.
            gates: of the kubelet, for pods that are derived.
            devices: knows what pods hold; None without the extension device-alignment.
        """
        self._holder = holder
        self._pods = pods
        self._gates = gates
        self._devices = devices
        self.answer_by = math.inf
        """When the request under way is answered without the handler, by the monotonic clock."""
        self._updated: frozenset[str] = frozenset()
        """Containers that the newest answer has updates of."""

    def configure(self, _config: str, _runtime: str, _version: str) -> frozenset[nri.Event]:
        """Subscribe to everything."""
        return EVENTS

    def synchronize(
        self, pods: Sequence[nri.PodSandbox], containers: Sequence[nri.RuntimeContainer]
    ) -> Sequence[nri.ContainerUpdate]:
        """Bring state and runtime together."""
        state = self._holder.state
        running = {one for one, group in unlisted(state, pods, containers).items() if self._holder.is_running(*group)}
        unknown = unknown_pods(state, pods, containers, running)
        known = self._pods.known(unknown)
        found = {}
        for one in unknown:
            its = as_requested(state, [each for each in containers if each.pod_sandbox_id == one.id])
            found[one.uid] = self._found(known.get(one.uid), one, None, its).pod
        # Of one whose containers are not listed there may be nothing at all.
        specs = {uid: self._plain(pod) for uid, pod in found.items() if pod.containers}
        devices: Mapping[str, DevicesFound] = {}
        if self._devices is not None:
            # Also without pods, so that no reply to a creation waits for the first connection
            left = min(max((self.answer_by - time.monotonic()) / 2, _SHORTEST_LOOK), _LONGEST_LOOK)
            devices = self._devices.of_all({**state.kubelet.node.active, **state.remembered, **found}, {}, left)
        now = present_moment()
        outcome = self._decided(
            lambda state, observer: synchronize(state, pods, containers, specs, observer, now, running, devices)
        )
        return outcome.answer.updates

    def create_container(
        self, pod: nri.PodSandbox, container: nri.RuntimeContainer
    ) -> tuple[nri.ContainerAdjustment, Sequence[nri.ContainerUpdate]]:
        """Place a container."""
        found = self._found(self._pods.pod(pod), pod, container, requested_containers(self._holder.state, pod.id))
        spec, devices = self._plain(found.pod), self._devices_of(found)
        now = present_moment()
        outcome = self._decided(
            lambda state, observer: create_container(state, pod, container, spec, observer, now, devices), pod.uid
        )
        assert isinstance(outcome.answer, Adjusted)  # noqa: S101 - a refusal was raised
        return outcome.answer.adjustment, outcome.answer.updates

    def update_container(
        self, pod: nri.PodSandbox, container: nri.RuntimeContainer, resources: nri.LinuxResources
    ) -> Sequence[nri.ContainerUpdate]:
        """Resize a container, or overrule an update where it concerns what the agent decides."""
        target = self._pods.wanted(pod)
        now = present_moment()
        outcome = self._decided(
            lambda state, observer: update_container(state, pod, container, resources, target, now, observer), pod.uid
        )
        return outcome.answer.updates

    def stop_container(self, pod: nri.PodSandbox, container: nri.RuntimeContainer) -> Sequence[nri.ContainerUpdate]:
        """Learn that a container has ended."""
        return self._decided(lambda state, _observer: stop_container(state, container), pod.uid).answer.updates

    def state_change(
        self, event: nri.Event, pod: nri.PodSandbox | None, container: nri.RuntimeContainer | None
    ) -> None:
        """Learn everything else."""
        spec: Pod | None = None
        devices: DevicesFound | None = None
        state = self._holder.state
        is_new = needs_pod(state, event, pod, container)
        starts = event is nri.Event.START_CONTAINER
        if pod is not None and (is_new or (starts and pod.uid in state.without_devices)):
            found = self._found(self._pods.pod(pod), pod, container, requested_containers(state, pod.id))
            spec, devices = self._plain(found.pod) if is_new else None, self._devices_of(found)
        now = present_moment()
        self._decided(
            lambda state, observer: state_change(state, event, pod, container, spec, observer, devices, now),
            "" if pod is None else pod.uid,
        )

    def lost(self, answer: nri.LostAnswer) -> None:
        """Put right what an answer that did not arrive should have made true.

        After a lost connection there is nothing to do: the next Synchronize tells everything again.
        """
        updated, self._updated = self._updated, frozenset()
        if answer.loss is not nri.Loss.CLOSED and updated:
            self._holder.apply(lambda state, _observer: answer_lost(state, updated))

    def _decided(self, decide: Decide, uid: str = "") -> EventOutcome:
        self._updated = frozenset()
        outcome = self._holder.apply(decide, uid)
        if isinstance(outcome.answer, Refused):
            raise nri.RefusalError(outcome.answer.text)
        self._updated = frozenset(one.container_id for one in outcome.answer.updates)
        if outcome.starts:
            # No reply confirms updates: one that failed would leave a container on the CPUs of the new one.
            self._holder.confirm()
        return outcome

    def _plain(self, pod: Pod) -> Pod:
        """Return the pod as the engine is asked about it: devices are given already, where it follows them."""
        return pod if self._devices is None else without_devices(pod)

    def _devices_of(self, found: Resolved) -> DevicesFound | None:
        if self._devices is None or opted_out(self._holder.state, found.pod):
            return None
        return self._devices.of_pod(found.pod, self.answer_by, is_derived=found.is_derived)

    def _found(
        self,
        pod: Pod | None,
        sandbox: nri.PodSandbox,
        container: nri.RuntimeContainer | None,
        others: Sequence[nri.RuntimeContainer],
    ) -> Resolved:
        rest = [one for one in others if container is None or one.id != container.id]
        found = resolved(pod, sandbox, container, rest, self._gates)
        for problem in found.problems:
            self._holder.complain(f"{sandbox.namespace}/{sandbox.name}", problem)
        return found


class SessionListener(nri.SessionObserver):
    """Hears of connections, answers and losses; in the plugin's thread, but for :meth:`check`."""

    def __init__(
        self,
        holder: StateHolder,
        adapter: RuntimeAdapter,
        metrics: AgentMetrics,
        log: Log,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Begin to listen.

        Args:
            holder: publishes.
            adapter: corrects what a lost answer should have made true.
            metrics: count.
            log: of the agent.
            clock: seconds that only go forward.
        """
        self._holder, self._adapter, self._metrics, self._log = holder, adapter, metrics, log
        self._link, self._is_silent = NO_RUNTIME, False
        self._clock = clock
        self._waiting: float | None = None
        """Since when the runtime takes connections and has not told what runs."""
        self._lock = threading.Lock()
        self.synchronized_once = threading.Event()
        """Set when the runtime has told everything for the first time."""

    def connected(self, runtime: nri.Runtime) -> None:
        """Show the runtime."""
        if self._link.name:
            self._metrics.reconnects.inc()
        self._wait()
        self._show(
            name=runtime.name, version=runtime.version, connected=True, synchronized=False, since=moment(time.time())
        )
        self._log.info(
            "runtime connected", runtime=runtime.name, version=runtime.version, timeout=runtime.request_timeout
        )

    def begun(self, deadline: float) -> None:
        """Let the adapter know how long it may ask others."""
        self._adapter.answer_by = deadline
        if self._holder.calls is not None:
            self._holder.calls.begun()

    def synchronized(self, pods: int, containers: int) -> None:
        """Show that everything is known."""
        self._waiting = None
        self._show(synchronized=True, silent=False)
        self._log.info("runtime synchronized", pods=pods, containers=containers)
        self.synchronized_once.set()

    def answered(self, method: str, seconds: float, *, refused: bool) -> None:
        """Count an answer."""
        self._metrics.reply_seconds.labels(method).observe(seconds)
        self._log.debug("answered", method=method, milliseconds=round(seconds * 1000, 3), refused=refused)
        if self._holder.calls is not None:
            self._holder.calls.answered(method, seconds)

    def lost(self, answer: nri.LostAnswer) -> None:
        """Have a lost answer corrected."""
        self._metrics.reply_seconds.labels(answer.method).observe(answer.seconds)
        self._log.warning(
            "reply lost",
            method=answer.method,
            loss=answer.loss.value,
            refused=answer.refused,
            container=answer.container_id,
            milliseconds=round(answer.seconds * 1000, 3),
        )
        if self._holder.calls is not None:
            self._holder.calls.answered(answer.method, answer.seconds, f"reply lost: {answer.loss.value}")
        self._adapter.lost(answer)

    def failed(self, method: str, error: Exception) -> None:
        """Log a defect of the agent."""
        self._log.error("internal error; the request was refused", method=method, exc_info=error)

    def disconnected(self, why: nri.NRIError, retry_in: float) -> None:
        """Show that the runtime is away, or that it takes connections and answers nothing on them."""
        if isinstance(why, nri.CallTimeoutError):
            self._wait()
        else:
            self._waiting = None
            if self._is_silent:
                self._show(silent=False)
        if self._link.connected or not self._link.since:
            self._log.warning("runtime disconnected", why=str(why), retry_in=retry_in)
            self._show(connected=False, synchronized=False, since=moment(time.time()))

    def check(self) -> None:
        """Say once that the runtime lets the agent wait too long; to be called now and then, from one other thread."""
        waiting = self._waiting
        if waiting is None or self._is_silent or self._clock() - waiting < SILENCE:
            return
        if self._show(silent=True, waiting=waiting):
            self._log.warning("runtime silent", seconds=round(self._clock() - waiting), remedy=REMEDY)

    def _wait(self) -> None:
        if self._waiting is None:
            self._waiting = self._clock()

    def _show(self, waiting: float | None = None, **changes: Any) -> bool:
        """Publish what has changed; with ``waiting`` only if that is still so. Return whether it was published."""
        with self._lock:
            if waiting is not None and waiting != self._waiting:
                return False
            self._is_silent = changes.pop("silent", self._is_silent)
            self._link = replace(self._link, **changes)
            self._holder.show(runtime=self._link, is_silent=self._is_silent)
            return True
