"""One agent with all its parts: put together, looked after every half second, and taken apart again."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mooring.agent.adapter import RuntimeAdapter
from mooring.agent.claims import ClaimsService
from mooring.agent.configuration_watch import ConfigurationReloader
from mooring.agent.cpu_hotplug import CPUReconciler
from mooring.agent.executor import Executor, WorkQueue
from mooring.agent.interrupts.journal import FILE as INTERRUPTS_FILE
from mooring.agent.listening import Listener
from mooring.agent.node_kubelet import KubeletWatch
from mooring.agent.node_lock import NodeLock
from mooring.agent.nri.errors import ConnectionLostError
from mooring.agent.nri.plugin import StopSignal, connect_to, run_given_plugin, run_plugin
from mooring.agent.nri.session import PluginOptions, Session
from mooring.agent.options import choices_of
from mooring.agent.podresources import PodResourcesService
from mooring.agent.pods.cluster import announce, open_cluster_access
from mooring.agent.reactor.effects import EventFor, Evict
from mooring.agent.reactor.hotplug import is_watched
from mooring.agent.reactor.outcomes import EventOutcome
from mooring.agent.reactor.resume import Resumed, resume
from mooring.agent.releasing import release, tell_late
from mooring.agent.startup import RunningPublisher, Startup
from mooring.agent.state_holder import StateHolder
from mooring.agent.status.api import status_pages
from mooring.agent.status.health import health_pages, unready
from mooring.agent.status.metrics import AgentMetrics
from mooring.agent.status.snapshot import Heartbeat, InForce, Published, Snapshot
from mooring.agent.storage.assigned_files import AssignedFiles
from mooring.agent.storage.store import Store
from mooring.agent.verify import SandboxCheck, verify, verify_quotas, verify_sandboxes
from mooring.core.config import IRQ_AFFINITY
from mooring.core.errors import InputError
from mooring.core.machine import Finding
from mooring.kubelet.kubelet import Kubelet
from mooring.manifest.defaults import PodGates
from mooring.node.metrics import Metrics, fold
from mooring.service.clock import present_moment
from mooring.service.http import serve_tcp, serve_unix

if TYPE_CHECKING:
    from mooring.agent.interrupts.reconcile import InterruptReconciler

VERIFYING = 10.0
"""Seconds between two checks of all control groups."""
LIFTING = 5.0
"""Seconds after a quota was lifted for which every look is for quotas too: the kubelet writes a pod's own after it has
resized its containers, and reports it to no plugin (measured, kubelet v1.37.1)."""
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

    def __init__(self, beginning: Startup, log: Any, given: Session | None = None) -> None:
        """Take the state folder, start the engine, and open sockets; :meth:`start` begins to talk to the runtime.

        Args:
            beginning: configuration and machine.
            log: of the agent.
            given: the session of a plugin that the runtime started, registered.

        Raises:
            InputError: something of the configuration cannot be had. Then nothing stays behind.
        """
        self._log, self._given, self._cgroups, self._root = log, given, beginning.cgroups, beginning.root
        self._options = options = beginning.configuration.options
        self._closing = ExitStack()
        self._stopping = StopSignal()
        self.failure: BaseException | None = None
        """What the plugin's thread died of, or why the agent must not go on."""
        with ExitStack() as opened:
            store = Store(Path(options.state_dir))
            store.check()
            unlockable = self._locked(store, opened)
            facts: list[object] = []
            resumed = resume(
                beginning.machine.info,
                beginning.configuration.kubelet,
                beginning.configuration.mooring,
                store.read(),
                choices_of(options),
                facts.append,
                beginning.configuration.source,
            )
            self._published = Published(_first(beginning, resumed, facts))
            self.metrics = AgentMetrics(self._published)
            self.metrics.per_container = options.per_container_metrics
            work = WorkQueue(lambda error: log.error("internal error", exc_info=error))
            gates = PodGates.of(
                beginning.configuration.kubelet.feature_gates, beginning.configuration.mooring.extensions
            )
            around = open_cluster_access(options, gates, beginning.node, self._report, self.metrics.evictions.inc)
            opened.callback(around.stop, _PATIENCE)
            plugin = PluginOptions(
                index=options.plugin_index, budget=options.reply_budget_ns / 1e9, fail_request=options.fail_closed
            )

            def tell_cluster(effect: EventFor | Evict) -> None:
                announce(around.outward, effect, self._report)

            self.executor = Executor(
                beginning.cgroups,
                self.metrics,
                work,
                log,
                self._verify,
                tell_cluster,
                AssignedFiles(Path(options.assigned_dir)),
            )
            self.holder = StateHolder(resumed.state, self._published, store, self.executor)
            self._around, self.work = around, work
            self._interrupts: InterruptReconciler | None = None
            self._moved_before = (Path(options.state_dir) / INTERRUPTS_FILE).exists()
            if unlockable:
                log.warning("the state folder cannot be locked", problem=unlockable)
                self.holder.problem(unlockable)
            self.holder.apply(lambda state, _hear: EventOutcome(state, effects=resumed.reports))
            self._cpus = self._cpu_care(beginning, opened)
            shell = RuntimeAdapter(self.holder, around.pods, gates)
            self.listener = Listener(self.holder, shell, self.metrics, log)
            self.heartbeat = Heartbeat(time.monotonic)
            self._serve(opened)
            if options.publish:
                publisher = self._publish(beginning)
                opened.callback(publisher.stop, _PATIENCE)
                self.metrics.beside = publisher.metrics
            self._run_plugin = _plugin(given, shell, plugin, self.listener, self._connect, self._stopping)
            self._reloading = ConfigurationReloader(beginning, self.holder, self._published, self.metrics, log)
            self._kubelet = self._kubelet_care(beginning)
            self._closing = opened.pop_all()
        self._thread = threading.Thread(target=self._talk, name="mooring-plugin", daemon=True)
        self._verified = self._written = time.monotonic()
        self._settled: frozenset[str] = frozenset()
        self._looked = SandboxCheck()
        self._tainted: bool | None = None

    @property
    def snapshot(self) -> Snapshot:
        """The newest snapshot."""
        return self._published.snapshot()

    @property
    def is_over(self) -> bool:
        """Whether the connection to the runtime has ended for good, or the agent must not go on."""
        return self.failure is not None or (self._thread.ident is not None and not self._thread.is_alive())

    def start(self) -> None:
        """Begin to talk to the runtime; where the node is to be tainted meanwhile, the taint comes first."""
        self.work.start()
        if self._cpus is not None:
            self._cpus.start()
        if self._options.fail_closed:
            self._taint(present=True)
            self._around.outward.wait_until_tried(_TAINTING)
        self._thread.start()

    def reload(self) -> None:
        """Read the configuration at the next look, whether its files have changed or not."""
        self._reloading.ask()
        if self._kubelet is not None:
            self._kubelet.ask()

    def look_after(self) -> None:
        """Do what is due; to be called every half second or so, from one thread."""
        now = time.monotonic()
        if self.holder.is_free(HANGING):
            self.heartbeat.beat()
        self.listener.look()
        self._find_other_agent()
        if self._kubelet is not None:
            self._kubelet.look(now, self._reloading.options)
            self.failure = self._kubelet.conflict or self.failure
        self._reloading.check()
        release(self.holder, self._cgroups, present_moment())
        flying = self.holder.state.unverified
        if not self.holder.in_flight():
            tell_late(self.holder)
        if flying != self._settled and not self.holder.in_flight():
            # No event came that would have had the last answer verified.
            self._settled = flying
            self.work.put(partial(self._verify, tuple(flying)))
        if now - self.executor.lifted < LIFTING:
            self.work.put(partial(verify_quotas, self.holder, self._cgroups))
        if now - self._verified >= VERIFYING:
            self._verified = now
            self.work.put(self.verify_all)
        self._look_after_interrupts()
        if now - self._written >= WRITING:
            self._written = now
            self.holder.write_again()
        if self._options.fail_closed:
            self._taint(present=bool(unready(self.snapshot)))

    def verify_all(self) -> None:
        """Look at every control group."""
        if self._around.static is not None:
            self._around.static.refresh()
        if self._cpus is not None:
            self._cpus.look()
        self._verify()
        verify_quotas(self.holder, self._cgroups)
        self._looked = verify_sandboxes(self.holder, self._cgroups, self._looked)
        if self._looked.is_blind is not self.snapshot.blind:
            self.holder.show(blind=self._looked.is_blind)

    def close(self) -> None:
        """Stop talking to the runtime and end everything; nothing stays behind."""
        self._stopping.set()
        if self._given is not None:
            self._given.close()
        if self._thread.is_alive():
            self._thread.join(_PATIENCE)
        self.work.finish(_PATIENCE)
        if self._interrupts is not None:
            self._interrupts.close(_PATIENCE)
        if self._options.fail_closed:
            self._taint(present=True)
        self._closing.close()

    def _locked(self, store: Store, opened: ExitStack) -> str:
        """Take the locks of the state folder and the node; return why the folder has none."""
        unlockable = store.lock()
        opened.callback(store.unlock)
        self._lock = NodeLock(self._options.nri_socket)
        opened.callback(self._lock.close)
        return unlockable

    def _cpu_care(self, beginning: Startup, opened: ExitStack) -> CPUReconciler | None:
        if not beginning.root or not is_watched(self.holder.state):
            return None
        made = CPUReconciler(beginning.root, beginning.machine, self.holder, self._options, self._log)
        opened.callback(made.stop, _PATIENCE)
        return made

    def _kubelet_care(self, beginning: Startup) -> KubeletWatch | None:
        if beginning.beside is None:
            return None
        return KubeletWatch(beginning.beside, self._around.outward, beginning.node, self._log, self._reloading.ask)

    def _verify(self, container_ids: tuple[str, ...] | None = None) -> None:
        verify(self.holder, self._cgroups, container_ids, None if self._cpus is None else self._cpus.online)

    def _connect(self) -> socket.socket:
        if why := self._lock.must_wait():
            raise ConnectionLostError(why)
        return connect_to(self._options.nri_socket)

    def _find_other_agent(self) -> None:
        conflict = self._lock.conflict()
        if conflict == self.snapshot.conflict:
            return
        self.holder.show(conflict=conflict)
        if conflict:
            self._log.warning("another agent runs on this node", problem=conflict)
        else:
            self._log.info("the other agent has ended")

    def _talk(self) -> None:
        try:
            self._run_plugin()
        except BaseException as error:  # noqa: BLE001 - reported by the thread that waits for this one
            self.failure = error

    def _serve(self, opened: ExitStack) -> None:
        options = self._options
        if options.status_socket:
            opened.callback(serve_unix(options.status_socket, status_pages(self._published, self.metrics.counts)).close)
        if options.metrics_address is not None:
            pages = {**health_pages(self._published, self.heartbeat), "/metrics": self.metrics.page}
            server = serve_tcp(options.metrics_address, pages)
            opened.callback(server.close)
            self.metrics_address = server.address
        if options.pod_resources_socket:
            opened.callback(PodResourcesService(options.pod_resources_socket, self._published, self._log).close)
        if options.claims_socket:
            opened.callback(ClaimsService(options.claims_socket, self._published, self.holder, self._log).close)

    def _look_after_interrupts(self) -> None:
        # Late: most nodes leave interrupts alone, and the words for findings come with it.
        if self._interrupts is None and self._root:
            if not self._moved_before and IRQ_AFFINITY not in self.holder.state.kubelet.mooring.extensions:
                return
            from mooring.agent.interrupts.reconcile import InterruptReconciler  # noqa: PLC0415 - as said above

            folder = Path(self._options.state_dir)
            self._interrupts = InterruptReconciler(self._root, folder, self.holder, self.metrics, self._log)
        if self._interrupts is not None:
            self._interrupts.look_after(self._reloading.options)

    def _publish(self, beginning: Startup) -> RunningPublisher:
        """Start the publisher.

        Raises:
            InputError: there is no kubeconfig, it cannot be used, or this program has no publisher.
        """
        if beginning.publish is None:
            raise InputError("this program has no publisher", field="publish", remedy="run mooring agent")
        if not self._options.kubeconfig:
            raise InputError("needs the API server", field="publish", remedy="write kubeconfig, or publish: false")
        # Needs the client of the API server, half of the agent's memory.
        from mooring.agent.pods.accounts import AgentAccount, connector, own_accounts  # noqa: PLC0415 - as said above

        path = self._options.kubeconfig
        connect = own_accounts(path).get(AgentAccount.PUBLISH) or connector(path)
        return beginning.publish(self._kubelet_now, connect, beginning.node, self._report)

    def _kubelet_now(self) -> Kubelet | None:
        state = self.snapshot.state
        return None if state is None else state.kubelet

    def _taint(self, *, present: bool) -> None:
        if self._tainted is not present:
            self._tainted = present
            self._around.outward.taint(present=present)

    def _report(self, finding: Finding) -> None:
        tell = self._log.warning if finding.severity == "warning" else self._log.info
        tell(finding.message, about=finding.subject)


def _first(beginning: Startup, resumed: Resumed, facts: list[object]) -> Snapshot:
    """Return the snapshot before anything has happened."""
    now = time.time()
    kubelet = resumed.state.kubelet
    return Snapshot(
        beginning.machine,
        resumed.state,
        configuration=InForce(beginning.configuration.files, 1, now),
        metrics=fold(Metrics.initial(kubelet.settings, kubelet.node.cpu), facts),
        node=beginning.node,
        started=now,
        taken=now,
    )


def _plugin(
    given: Session | None,
    shell: RuntimeAdapter,
    options: PluginOptions,
    listener: Listener,
    connect: Callable[[], socket.socket],
    stopping: StopSignal,
) -> Callable[[], object]:
    """Return what talks to the runtime until the agent stops; over a given connection until that ends."""
    if given is not None:
        return partial(run_given_plugin, given, shell, options, listener)
    return partial(run_plugin, connect, shell, options, listener, stopping)


def ready_fields(snapshot: Snapshot) -> Mapping[str, str]:
    """Return the agent's condition for the service manager."""
    reasons = unready(snapshot)
    return {"STATUS": f"not ready: {'; '.join(reasons)}" if reasons else "ready"}
