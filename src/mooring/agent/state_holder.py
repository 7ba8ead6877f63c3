"""The state of a running agent: changed in one place, under one lock, with everything that a change brings along.

An event for the reactor goes through :meth:`StateHolder.apply`: from the plugin's thread for the runtime, from others
for reconciliation and reload. What the answer waits for is done before it returns. Where calls are traced, each call
of the runtime is a span, with what was decided and how long engine and writing took.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import replace
from threading import RLock
from typing import Any, TypeAlias

from mooring.agent.cgroups.protocol import written_of
from mooring.agent.effects import Effect, Persist
from mooring.agent.executor import Executor
from mooring.agent.reactor.lifecycle import WriteOutcome, writes_done
from mooring.agent.reactor.response import Adjusted, EventOutcome, Refused, unwritten
from mooring.agent.state import LIVE, AgentState, Setting
from mooring.agent.status import Published
from mooring.agent.store import Store
from mooring.documents.status import PluginFailurePart
from mooring.engine.core.decision import Observer
from mooring.engine.node.facts import AdmissionBegun
from mooring.engine.node.metrics import fold, observe_duration
from mooring.engine.plugins.asking import changes_between, notify
from mooring.engine.plugins.facts import failures
from mooring.service.logs import Attribute, CompletedSpan, Traces

SETTLING = 1.0
"""Seconds after an answer in which its updates may not have reached the cgroups yet."""
SETTLING_EACH = 0.02
"""Seconds more for each of them; measured are 5 ms, and the runtime does one after the other."""

Decide: TypeAlias = Callable[[AgentState, Observer], EventOutcome]
"""An event for the reactor: the present state and the receiver of the engine's facts -> the outcome."""


class StateHolder:
    """Holds the state, and the snapshot that others see of it."""

    def __init__(self, state: AgentState, published: Published, store: Store, executor: Executor) -> None:
        """Begin with a state that was not written yet.

        Args:
            state: to begin with.
            published: holds a snapshot with everything but the state.
            store: keeps the state.
            executor: executes the effects.
        """
        self.state = state
        """The newest; read from any thread, changed by :meth:`apply` only."""
        self.calls: CallTraces | None = None
        """Receives what events came to, where calls are traced."""
        self._published = published
        self._store, self._executor = store, executor
        self._lock = RLock()
        self._answered = 0.0
        self._effective: dict[str, Setting] = {}
        self._unwritable = self._files_unwritable = ""
        self._troubled: Mapping[str, tuple[int, PluginFailurePart]] = {}
        self._publish()

    def apply(self, decide: Decide, uid: str = "") -> EventOutcome:
        """Let an event change the state, and return what came of it once the effects before the reply are done.

        Args:
            decide: a function of the reactor with its event; called under the lock.
            uid: of the event's pod, where there is one.
        """
        with self._lock:
            facts: list[object] = []
            began = time.monotonic()
            before = self.state
            decided = decide(before, facts.append)
            ended = time.monotonic()
            outcome = decided
            if any(isinstance(effect, Persist) for effect in decided.effects):
                self._unwritable = self._store.write(decided.state)
                # What is done instead when that fails
                outcome = unwritten(before, decided, uid, self._unwritable) if self._unwritable else decided
            if self.calls is not None:
                self.calls.applied(uid, before, outcome, (began, ended, time.monotonic()))
            metrics = self._published.snapshot().metrics
            if outcome.answer is decided.answer and metrics is not None and facts:
                metrics = fold(metrics, facts)
                if any(isinstance(fact, AdmissionBegun) for fact in facts):
                    metrics = observe_duration(metrics, int((ended - began) * 1000))
                self._published.publish(replace(self._published.snapshot(), metrics=metrics))
            self._plugins_failed(facts)
            self.state = outcome.state
            self._notify_plugins(before, outcome.state)
            # Forget what the kernel showed of containers that are about to change, or that are gone
            told = {one.container_id for one in outcome.answer.updates}
            if told:
                self._answered = time.monotonic()
            live = {one.id for one in outcome.state.containers.values() if one.phase in LIVE}
            self._effective = {one: found for one, found in self._effective.items() if one in live and one not in told}
            written = [done for effect in outcome.effects if (done := self._do(effect)) is not None]
            if written:
                # Take up what the cgroups were found to be; the answer may be another one than was decided.
                conclusion = writes_done(outcome, written)
                self.state = conclusion.state
                for effect in conclusion.effects:
                    self._do(effect)
                outcome = replace(outcome, state=conclusion.state, answer=conclusion.answer)
            self._publish()
            return outcome

    def in_flight(self) -> frozenset[str]:
        """Return the containers whose updates the runtime may be busy with."""
        flying = self.state.unverified
        settled = self._answered + SETTLING + SETTLING_EACH * len(flying)
        return flying if time.monotonic() < settled else frozenset()

    def saw(self, state: AgentState, effective: Mapping[str, Setting]) -> None:
        """Learn what the kernel showed while a state was in force; of another state it says nothing."""
        with self._lock:
            if self.state.kubelet is state.kubelet:
                flying = self.in_flight()
                self._effective.update({one: found for one, found in effective.items() if one not in flying})
                self._publish()

    def confirm(self) -> None:
        """Return once every container is verified that must be after earlier events."""
        self._executor.checks.run_all()

    def show(self, **changes: Any) -> None:
        """Publish a snapshot with other fields changed."""
        with self._lock:
            self._published.publish(replace(self._published.snapshot(), **changes))
            self._publish()

    def write_again(self) -> None:
        """Try to write the state that could not be written."""
        with self._lock:
            if self._unwritable:
                self._unwritable = self._store.write(self.state)
                if not self._unwritable:
                    self._executor.log.info("state written again")
                self._publish()
        if self._files_unwritable:
            self._write_files()

    def write_files(self) -> None:
        """Let the state files follow the journal, unless that failed; :meth:`write_again` tries it again."""
        if not self._files_unwritable:
            self._write_files()

    def _write_files(self) -> None:
        # Without the lock: no reply waits for them.
        if (problem := self._store.write_files()) != self._files_unwritable:
            with self._lock:
                self._files_unwritable = problem
                self._publish()
            self.complain("state files", problem)

    def problem(self, problem: str) -> None:
        """Record that the state folder cannot be written."""
        with self._lock:
            self._unwritable = problem
            self._publish()

    def is_running(self, cgroup: str, pid: int) -> bool:
        """Tell whether a container or sandbox runs, as its control group says."""
        return self._executor.cgroups.has_processes(cgroup, pid)

    def is_free(self, patience: float) -> bool:
        """Tell whether the lock is available within some seconds: in an agent that hangs it is not."""
        if not self._lock.acquire(timeout=patience):
            return False
        self._lock.release()
        return True

    def complain(self, about: str, problem: str) -> None:
        """Log a problem, once for each thing that it is about."""
        self._executor.complain(about, problem)

    def _plugins_failed(self, facts: Collection[object]) -> None:
        """Let the outside know of plugins whose answers were left out: each way to fail is logged once."""
        for failed in failures(facts):
            self._executor.metrics.plugin_failures.labels(failed.plugin, failed.point).inc()
            times, _ = self._troubled.get(failed.plugin, (0, None))
            self._troubled = {**self._troubled, failed.plugin: (times + 1, PluginFailurePart(failed.point, failed.why))}
            self.complain(f"plugin {failed.plugin}", f"{failed.point}: {failed.why}; the answer was ignored")

    def _notify_plugins(self, before: AgentState, after: AgentState) -> None:
        """Notify plugins of what was decided and stored; no answer waits for that."""
        plugins = after.kubelet.settings.plugins
        if plugins is None or not (plugins.has_point("allocated") or plugins.has_point("deallocated")):
            return
        changes = changes_between(before.kubelet.node.cpu, after.kubelet.node.cpu)

        def tell() -> None:
            facts: list[object] = []
            notify(plugins.choice, changes, facts.append)
            if facts:
                with self._lock:
                    self._plugins_failed(facts)
                    self._publish()

        if changes:
            self._executor.work.put(tell)

    def _do(self, effect: Effect) -> WriteOutcome | None:
        done = self._executor.execute(effect)
        if done is None:
            return None
        container = done.wanted.container_id
        self._effective.pop(container, None)
        if done.after is not None:
            self._effective[container] = done.after
        return written_of(done)

    def _publish(self) -> None:
        self._published.publish(
            replace(
                self._published.snapshot(),
                state=self.state,
                effective=dict(self._effective),
                unwritable=self._unwritable or self._files_unwritable,
                troubled_plugins=self._troubled,
                taken=time.time(),
            )
        )


class CallTraces:
    """Makes a span of each call; :meth:`applied` may be called from any thread, the others from the plugin's."""

    def __init__(self, traces: Traces, clock: Callable[[], float] = time.monotonic) -> None:
        """Begin with no call.

        Args:
            traces: where spans go.
            clock: seconds that only go forward.
        """
        self._traces, self._clock = traces, clock
        self._thread = 0
        self._events: list[tuple[str, AgentState, EventOutcome, tuple[float, float, float]]] = []

    def begun(self) -> None:
        """Learn that a call goes to the handler."""
        self._thread = threading.get_ident()
        self._events.clear()

    def applied(self, uid: str, before: AgentState, outcome: EventOutcome, times: tuple[float, float, float]) -> None:
        """Learn what an event came to; events of other threads belong to no call.

        Args:
            uid: of its pod; empty if it has none.
            before: the state before it.
            outcome: what it came to.
            times: when it began, when the engine had decided, and when the state was written, by the monotonic clock.
        """
        if threading.get_ident() == self._thread:
            self._events.append((uid, before, outcome, times))

    def answered(self, method: str, seconds: float, problem: str = "") -> None:
        """Record a call.

        Args:
            method: of the Node Resource Interface.
            seconds: from its arrival to the answer.
            problem: why the answer did not reach the runtime.
        """
        ended = self._clock()
        attributes: dict[str, Attribute] = {"rpc.system": "ttrpc", "rpc.method": method}
        parts: list[CompletedSpan] = []
        for uid, before, outcome, (began, decided, stored) in self._events:
            attributes.update(_attributes(uid, before, outcome))
            problem = problem or (outcome.answer.text if isinstance(outcome.answer, Refused) else "")
            parts += CompletedSpan("engine", began, decided), CompletedSpan("write state", decided, stored)
        self._events.clear()
        self._traces.record(CompletedSpan(f"NRI {method}", ended - seconds, ended, attributes, problem, tuple(parts)))


def _attributes(uid: str, before: AgentState, outcome: EventOutcome) -> Iterator[tuple[str, Attribute]]:
    state, settings = outcome.state, outcome.state.kubelet.settings
    yield "mooring.cpu_manager_policy", settings.config.cpu_manager_policy or "none"
    yield "mooring.topology_manager_policy", settings.topology_policy
    words = {"Adjusted": "placed", "Refused": "refused"}
    yield "mooring.decision", words.get(type(outcome.answer).__name__, "accepted")
    pod = state.kubelet.node.active.get(uid) or before.kubelet.node.active.get(uid)
    if uid:
        yield "k8s.pod.uid", uid
    if pod is not None:
        yield "k8s.namespace.name", pod.namespace
        yield "k8s.pod.name", pod.name
    created = [one for key, one in state.containers.items() if key not in before.containers]
    if len(created) == 1:
        yield "k8s.container.name", created[0].name
    if isinstance(outcome.answer, Refused):
        yield "mooring.reason", outcome.answer.text.partition(":")[0]
        return
    if isinstance(outcome.answer, Adjusted):
        yield "mooring.cpus", outcome.answer.adjustment.resources.cpus or ""
    yield "mooring.updates", len(outcome.answer.updates)
