"""What the plugin tells of itself, as metrics, log and the snapshot's word on the runtime."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from mooring.agent.holder import Holder
from mooring.agent.metrics import AgentMetrics
from mooring.agent.nri.errors import NRIError
from mooring.agent.nri.observer import LostAnswer, Observer, Runtime
from mooring.agent.shell import Shell
from mooring.agent.snapshot import RuntimeLink


class Listener(Observer):
    """Hears of connections, answers and losses; in the plugin's thread."""

    def __init__(
        self, holder: Holder, shell: Shell, metrics: AgentMetrics, log: Any, runtime_is: Callable[[bool], object]
    ) -> None:
        """Begin to listen.

        Args:
            holder: publishes.
            shell: puts lost answers right.
            metrics: count.
            log: of the agent.
            runtime_is: is told when the runtime is there and has told everything, and when it is gone.
        """
        self._holder, self._shell, self._metrics, self._log = holder, shell, metrics, log
        self._runtime_is = runtime_is
        self._link = RuntimeLink()
        self.synchronized_once = threading.Event()
        """Set when the runtime has told everything for the first time."""

    def connected(self, runtime: Runtime) -> None:
        """Show the runtime."""
        if self._link.name:
            self._metrics.reconnects.inc()
        self._show(RuntimeLink(runtime.name, runtime.version, connected=True, since=time.time()))
        self._log.info(
            "the runtime is connected", runtime=runtime.name, version=runtime.version, timeout=runtime.request_timeout
        )

    def synchronized(self, pods: int, containers: int) -> None:
        """Show that everything is known."""
        self._show(replace(self._link, synchronized=True))
        self._log.info("the runtime has told what there is", pods=pods, containers=containers)
        self.synchronized_once.set()
        self._runtime_is(True)

    def answered(self, method: str, seconds: float, *, refused: bool) -> None:
        """Count an answer."""
        self._metrics.reply_seconds.labels(method).observe(seconds)
        self._log.debug("answered", method=method, milliseconds=round(seconds * 1000, 3), refused=refused)

    def lost(self, answer: LostAnswer) -> None:
        """Have a lost answer put right."""
        self._metrics.reply_seconds.labels(answer.method).observe(answer.seconds)
        self._log.warning(
            "an answer did not reach the runtime",
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
        """Show that the runtime is away."""
        self._runtime_is(False)
        if self._link.connected or not self._link.since:
            self._log.warning("the runtime is not connected", why=str(why), retry_in=retry_in)
            self._show(replace(self._link, connected=False, synchronized=False, since=time.time()))

    def _show(self, link: RuntimeLink) -> None:
        self._link = link
        self._holder.show(runtime=link)
