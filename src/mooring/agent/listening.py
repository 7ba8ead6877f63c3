"""What the plugin tells of itself, as metrics, log and the snapshot's word on the runtime."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from mooring.agent.adapter import RuntimeAdapter
from mooring.agent.nri.errors import CallTimeoutError, NRIError
from mooring.agent.nri.observer import LostAnswer, Runtime, SessionObserver
from mooring.agent.state_holder import StateHolder
from mooring.agent.status.health import REMEDY, SILENCE
from mooring.agent.status.metrics import AgentMetrics
from mooring.agent.status.snapshot import RuntimeLink
from mooring.service.logs import Log


class SessionListener(SessionObserver):
    """Hears of connections, answers and losses; in the plugin's thread, but for :meth:`check`."""

    def __init__(
        self,
        holder: StateHolder,
        shell: RuntimeAdapter,
        metrics: AgentMetrics,
        log: Log,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Begin to listen.

        Args:
            holder: publishes.
            shell: puts lost answers right.
            metrics: count.
            log: of the agent.
            clock: seconds that only go forward.
        """
        self._holder, self._shell, self._metrics, self._log = holder, shell, metrics, log
        self._link = RuntimeLink()
        self._clock = clock
        self._waiting: float | None = None
        """Since when the runtime takes connections and has not told what runs."""
        self._lock = threading.Lock()
        self.synchronized_once = threading.Event()
        """Set when the runtime has told everything for the first time."""

    def connected(self, runtime: Runtime) -> None:
        """Show the runtime."""
        if self._link.name:
            self._metrics.reconnects.inc()
        self._wait()
        self._show(name=runtime.name, version=runtime.version, connected=True, synchronized=False, since=time.time())
        self._log.info(
            "runtime connected", runtime=runtime.name, version=runtime.version, timeout=runtime.request_timeout
        )

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

    def lost(self, answer: LostAnswer) -> None:
        """Have a lost answer put right."""
        self._metrics.reply_seconds.labels(answer.method).observe(answer.seconds)
        self._log.warning(
            "reply lost",
            method=answer.method,
            loss=answer.loss.value,
            refused=answer.refused,
            container=answer.container_id,
            milliseconds=round(answer.seconds * 1000, 3),
        )
        self._shell.lost(answer)

    def failed(self, method: str, error: Exception) -> None:
        """Log a defect of the agent."""
        self._log.error("internal error; the request was refused", method=method, exc_info=error)

    def disconnected(self, why: NRIError, retry_in: float) -> None:
        """Show that the runtime is away, or that it takes connections and answers nothing on them."""
        if isinstance(why, CallTimeoutError):
            self._wait()
        else:
            self._waiting = None
            if self._link.silent:
                self._show(silent=False)
        if self._link.connected or not self._link.since:
            self._log.warning("runtime disconnected", why=str(why), retry_in=retry_in)
            self._show(connected=False, synchronized=False, since=time.time())

    def check(self) -> None:
        """Say once that the runtime lets the agent wait too long; to be called now and then, from one other thread."""
        waiting = self._waiting
        if waiting is None or self._link.silent or self._clock() - waiting < SILENCE:
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
            self._link = replace(self._link, **changes)
            self._holder.show(runtime=self._link)
            return True
