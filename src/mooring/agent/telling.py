"""Bringing the runtime's record up to date between events, by a second connection in a thread of its own."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

from mooring.agent.holder import Holder, told_by
from mooring.agent.nri.errors import NRIError
from mooring.agent.nri.out_of_band import update_by_synchronizing
from mooring.agent.nri.session import PluginOptions
from mooring.agent.nri.types import Container, ContainerUpdate, PodSandbox
from mooring.agent.reactor.lost import answer_lost
from mooring.agent.reactor.updates import pending

_GATHERING = 0.1
"""Seconds to wait for more of the same: pods end together."""
_FIRST_PAUSE = 1.0
_LONGEST_PAUSE = 30.0


class Teller:
    """Tells the runtime what it does not know yet, whenever it is woken."""

    def __init__(self, connect: Callable[[], socket.socket], options: PluginOptions, log: Any) -> None:
        """Do nothing yet; :meth:`start` does.

        Args:
            connect: makes a connection to the runtime.
            options: of the plugin's own connection.
            log: of the agent.
        """
        self._connect, self._options, self._log = connect, options, log
        self._woken, self._stopping = threading.Event(), threading.Event()
        self._holder: Holder | None = None
        self._thread = threading.Thread(target=self._run, name="mooring-telling", daemon=True)
        self._is_up = False
        self._trunk: socket.socket | None = None

    def start(self, holder: Holder) -> None:
        """Begin to tell what a holder's state says."""
        self._holder = holder
        self._thread.start()

    def wake(self) -> None:
        """Tell the runtime soon."""
        self._woken.set()

    def runtime_is(self, *, up: bool) -> None:
        """Learn whether the plugin's own connection is synchronized; without it this one waits."""
        self._is_up = up
        if up:
            self._woken.set()

    def finish(self, patience: float) -> None:
        """End, in the middle of a connection too."""
        self._stopping.set()
        self._woken.set()
        if (trunk := self._trunk) is not None:
            with suppress(OSError):
                trunk.shutdown(socket.SHUT_RDWR)
        if self._thread.is_alive():
            self._thread.join(patience)

    def _run(self) -> None:
        pause = _FIRST_PAUSE
        while not self._stopping.is_set():
            self._woken.wait()
            self._stopping.wait(_GATHERING)
            self._woken.clear()
            if self._stopping.is_set() or not self._is_up or self._holder is None or not _is_behind(self._holder):
                continue
            if self._told(self._holder):
                pause = _FIRST_PAUSE
            else:
                self._stopping.wait(pause)
                pause = min(2 * pause, _LONGEST_PAUSE)
                self._woken.set()

    def _told(self, holder: Holder) -> bool:
        told: list[str] = []

        def updates(_pods: Sequence[PodSandbox], _containers: Sequence[Container]) -> Sequence[ContainerUpdate]:
            found: Sequence[ContainerUpdate] = told_by(holder.apply(lambda state, _hear: pending(state)))
            told.extend(one.container_id for one in found)
            return found

        try:
            update_by_synchronizing(self._opened, updates, self._options)
        except NRIError as error:
            if self._stopping.is_set():
                return False
            self._log.info("the runtime was not told between events", problem=str(error))
            if told:
                holder.apply(lambda state, _hear: answer_lost(state, told))
            return False
        finally:
            self._trunk = None
        return True

    def _opened(self) -> socket.socket:
        self._trunk = trunk = self._connect()
        return trunk


def _is_behind(holder: Holder) -> bool:
    return bool(told_by(pending(holder.state)))
