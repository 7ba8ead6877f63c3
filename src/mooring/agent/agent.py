"""One agent with all its parts: its construction, its periodic work every half second, and its end."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from mooring.agent.adapter import RuntimeAdapter, SessionListener
from mooring.agent.conflicts import KubeletWatch, NodeLock
from mooring.agent.executor import AssignedFiles, Executor, WorkQueue
from mooring.agent.metrics import AgentMetrics
from mooring.agent.nri.plugin import StopSignal, connect_to, run_given_plugin, run_plugin
from mooring.agent.nri.session import PluginOptions, Session
from mooring.agent.nri.types import ConnectionLostError
from mooring.agent.pods.cluster import announce, open_cluster_access
from mooring.agent.reactor.hotplug import is_watched
from mooring.agent.reactor.response import EventOutcome
from mooring.agent.reconcile import (
    CPUReconciler,
    release,
    update_late_files,
    verify,
    verify_quotas,
    verify_sandboxes,
)
from mooring.agent.reload import ConfigurationReloader
from mooring.agent.startup import Startup, resume_state, serve, start_publisher
from mooring.agent.state_holder import CallTraces, StateHolder
from mooring.agent.status import Published, Snapshot, moment, unready
from mooring.agent.store import INTERRUPT_FILE, Store
from mooring.documents.status import ConfigurationPart
from mooring.engine.core.config import DEVICE_ALIGNMENT, IRQ_AFFINITY
from mooring.engine.core.machine import Finding
from mooring.engine.node.metrics import Metrics, fold
from mooring.service.daemon import Heartbeat, present_moment
from mooring.service.logs import Log, Traces

if TYPE_CHECKING:
    from mooring.agent.devices import DeviceAccess
    from mooring.agent.interrupts.reconcile import InterruptReconciler

VERIFYING = 10.0
"""Seconds between two checks of all control groups."""
LIFTING = 5.0
"""Seconds after a quota was lifted during which every check is for quotas too: the kubelet writes a pod's own after it
has resized its containers, and reports it to no plugin (measured, kubelet v1.37.1)."""
WRITING = 5.0
"""Seconds between two tries to write a folder that cannot be written."""
_TAINTING = 2.0
"""Seconds that the agent waits at its start for a slow API server to set the taint."""
_PATIENCE = 2.0
"""Seconds for what still runs at the end, each part."""
HANGING = 5.0
"""Seconds for which an event may hold the state before the agent counts as hanging."""


class Agent:
    """An agent of this node."""

    def __init__(self, startup: Startup, log: Log, given: Session | None = None) -> None:
        """Take the state folder, start the engine, and open sockets; :meth:`start` begins to talk to the runtime.

        Args:
            startup: configuration and machine.
            log: of the agent.
            given: the session of a plugin that the runtime started, registered.

        Raises:
            InputError: something of the configuration cannot be had. Then nothing stays behind.
        """
        self._log, self._given, self._cgroups, self._root = log, given, startup.cgroups, startup.root
        self.options = options = startup.configuration.options
        self._closing = ExitStack()
        self._stopping = StopSignal()
        self.failure: BaseException | None = None
        """What the plugin's thread died of, or why the agent must not continue."""
        with ExitStack() as opened:
            store = Store(Path(options.state_dir))
            store.check()
            unlockable = self._locked(store, opened)
            facts: list[object] = []
            resumed = resume_state(startup, store.read(), facts.append)
            self._published = Published(
                Snapshot(
                    startup.machine,
                    resumed.state,
                    configuration=ConfigurationPart(list(startup.configuration.files), 1, moment(time.time()), ""),
                    metrics=fold(
                        Metrics.initial(resumed.state.kubelet.settings, resumed.state.kubelet.node.cpu), facts
                    ),
                    node=startup.node,
                    started=time.time(),
                    taken=time.time(),
                )
            )
            self.metrics = AgentMetrics(self._published, per_container=options.per_container_metrics)
            self.work = work = WorkQueue(lambda error: log.error("internal error", exc_info=error))
            gates = startup.configuration.gates
            self.pods, self.outward = open_cluster_access(
                options, gates, startup.node, self._report, self.metrics.evictions.inc
            )
            opened.callback(self.pods.stop, _PATIENCE)
            opened.callback(self.outward.stop, _PATIENCE)
            plugin = PluginOptions(
                index=options.plugin_index, budget=options.reply_budget_ns / 1e9, fail_request=options.fail_closed
            )
            files = AssignedFiles(Path(options.assigned_dir))
            announced = partial(announce, self.outward, report=self._report)
            self.executor = Executor(startup.cgroups, self.metrics, work, log, self._verify, announced, files)
            self.holder = StateHolder(resumed.state, self._published, store, self.executor)
            self._moved_before = (Path(options.state_dir) / INTERRUPT_FILE).exists()
            if unlockable:
                log.warning("the state folder cannot be locked", problem=unlockable)
                self.holder.problem(unlockable)
            self.holder.apply(lambda state, _observer: EventOutcome(state, effects=resumed.effects))
            self._cpus = self._cpu_reconciler(startup, opened)
            self.devices = self._device_access(startup, opened)
            adapter = RuntimeAdapter(
                self.holder, self.pods, gates, devices=self.devices.lookup if self.devices else None
            )
            self.listener = SessionListener(self.holder, adapter, self.metrics, log)
            self.heartbeat = Heartbeat(time.monotonic)
            self.metrics_address = serve(
                options, self._published, self.holder, self.metrics, self.heartbeat, opened, log
            )
            if options.publish:
                publisher = start_publisher(
                    startup, self._published, self._report, self.devices.offered if self.devices else None
                )
                opened.callback(publisher.stop, _PATIENCE)
                self.metrics.beside = publisher.metrics
            # Until the agent stops; over a given connection until that ends
            self._run_plugin: Callable[[], object] = (
                partial(run_plugin, self._connect, adapter, plugin, self.listener, self._stopping)
                if given is None
                else partial(run_given_plugin, given, adapter, plugin, self.listener)
            )
            self._reloading = ConfigurationReloader(startup, self.holder, self._published, self.metrics, log)
            self._kubelet = (
                None
                if startup.beside is None
                else KubeletWatch(startup.beside, self.outward, startup.node, log, self._reloading.ask)
            )
            self._closing = opened.pop_all()
        self._thread = threading.Thread(target=self._talk, name="mooring-plugin", daemon=True)
        self._verified = self._written = time.monotonic()
        self._settled: frozenset[str] = frozenset()
        self._missed_sandboxes: frozenset[str] = frozenset()
        self._has_seen_groups = False
        self._tainted: bool | None = None

    interrupts: InterruptReconciler | None = None

    @property
    def snapshot(self) -> Snapshot:
        """The newest snapshot."""
        return self._published.snapshot()

    @property
    def is_over(self) -> bool:
        """Whether the connection to the runtime has ended for good, or the agent must not continue."""
        return self.failure is not None or (self._thread.ident is not None and not self._thread.is_alive())

    def trace_calls(self, traces: Traces) -> None:
        """Record a span of each call of the runtime, until the end; to be called before :meth:`start`."""
        self.holder.calls = CallTraces(traces)
        self._closing.callback(traces.close)

    def start(self) -> None:
        """Begin to talk to the runtime; where the node is to be tainted meanwhile, the taint comes first."""
        self.work.start()
        if self._cpus is not None:
            self._cpus.start()
        if self.options.marks_node:
            self._taint(present=True)
            self.outward.wait_until_tried(_TAINTING)
        self._thread.start()

    def reload(self) -> None:
        """Read the configuration at the next check, whether its files have changed or not."""
        self._reloading.ask()
        if self._kubelet is not None:
            self._kubelet.ask()

    def reconcile(self) -> None:
        """Do what is due; to be called every half second or so, from one thread."""
        now = time.monotonic()
        if self.holder.is_free(HANGING):
            self.heartbeat.beat()
        self.listener.check()
        if (conflict := self._lock.conflict()) != self.snapshot.conflict:
            self.holder.show(conflict=conflict)
            if conflict:
                self._log.warning("another agent runs on this node", problem=conflict)
            else:
                self._log.info("the other agent has ended")
        if self._kubelet is not None:
            self._kubelet.check(now, self._reloading.options)
            self.failure = self._kubelet.conflict or self.failure
        self._reloading.check()
        release(self.holder, self._cgroups, present_moment())
        flying = self.holder.state.unverified
        if not self.holder.in_flight():
            update_late_files(self.holder)
        if flying != self._settled and not self.holder.in_flight():
            # No event came that would have had the last answer verified.
            self._settled = flying
            self.work.put(partial(self._verify, tuple(flying)))
        if now - self.executor.lifted < LIFTING:
            self.work.put(partial(verify_quotas, self.holder, self._cgroups))
        if now - self._verified >= VERIFYING:
            self._verified = now
            self.work.put(self.verify_all)
        self._reconcile_interrupts()
        if self.devices is not None:
            self.devices.reconcile()
        self.holder.write_files()
        if now - self._written >= WRITING:
            self._written = now
            self.holder.write_again()
        if self.options.marks_node:
            self._taint(present=bool(unready(self.snapshot)))

    def verify_all(self) -> None:
        """Check every control group."""
        self.pods.refresh()
        if self._cpus is not None:
            self._cpus.check()
        self._verify()
        verify_quotas(self.holder, self._cgroups)
        self._missed_sandboxes, self._has_seen_groups = verify_sandboxes(
            self.holder, self._cgroups, self._missed_sandboxes, has_seen=self._has_seen_groups
        )

    def close(self) -> None:
        """Stop talking to the runtime and end everything; nothing stays behind."""
        self._stopping.set()
        if self._given is not None:
            self._given.close()
        if self._thread.is_alive():
            self._thread.join(_PATIENCE)
        self.work.finish(_PATIENCE)
        if self.interrupts is not None:
            self.interrupts.close(_PATIENCE)
        if self.options.marks_node:
            self._taint(present=True)
        self._closing.close()

    def _locked(self, store: Store, opened: ExitStack) -> str:
        """Take the locks of the state folder and the node; return why the folder has none."""
        unlockable = store.lock()
        opened.callback(store.unlock)
        opened.callback(store.finish)
        self._lock = NodeLock(self.options.nri_socket)
        opened.callback(self._lock.close)
        return unlockable

    def _cpu_reconciler(self, startup: Startup, opened: ExitStack) -> CPUReconciler | None:
        if not startup.root or not is_watched(self.holder.state):
            return None
        made = CPUReconciler(startup.root, startup.machine, self.holder, self.options, self._log)
        opened.callback(made.stop, _PATIENCE)
        return made

    def _device_access(self, startup: Startup, opened: ExitStack) -> DeviceAccess | None:
        if DEVICE_ALIGNMENT not in startup.configuration.mooring.extensions:
            return None
        # Late: gRPC is a good part of the agent's memory.
        from mooring.agent.devices import open_device_access  # noqa: PLC0415 - as said above

        made = open_device_access(
            self.options.kubeconfig,
            startup.node,
            startup.machine,
            lambda: self._reloading.options.kubelet_pod_resources,
            self._report,
            self.holder,
            self._log,
        )
        opened.callback(made.close, _PATIENCE)
        return made

    def _verify(self, container_ids: tuple[str, ...] | None = None) -> None:
        verify(self.holder, self._cgroups, container_ids, None if self._cpus is None else self._cpus.online)

    def _connect(self) -> socket.socket:
        if why := self._lock.must_wait():
            raise ConnectionLostError(why)
        return connect_to(self.options.nri_socket)

    def _talk(self) -> None:
        try:
            self._run_plugin()
        except BaseException as error:  # noqa: BLE001 - reported by the thread that waits for this one
            self.failure = error

    def _reconcile_interrupts(self) -> None:
        # Late: most nodes leave interrupts alone, and the words for findings come with it.
        if self.interrupts is None and self._root:
            if not self._moved_before and IRQ_AFFINITY not in self.holder.state.kubelet.mooring.extensions:
                return
            from mooring.agent.interrupts.reconcile import InterruptReconciler  # noqa: PLC0415 - as said above

            folder, address = Path(self.options.state_dir), self.devices.address if self.devices else None
            self.interrupts = InterruptReconciler(self._root, folder, self.holder, self.metrics, self._log, address)
        if self.interrupts is not None:
            self.interrupts.reconcile(self._reloading.options)

    def _taint(self, *, present: bool) -> None:
        if self._tainted is not present:
            self._tainted = present
            self.outward.taint(present=present)

    def _report(self, finding: Finding) -> None:
        tell = self._log.warning if finding.severity == "warning" else self._log.info
        tell(finding.message, about=finding.subject)


def ready_fields(snapshot: Snapshot) -> Mapping[str, str]:
    """Return the agent's condition for the service manager."""
    reasons = unready(snapshot)
    return {"STATUS": f"not ready: {'; '.join(reasons)}" if reasons else "ready"}
