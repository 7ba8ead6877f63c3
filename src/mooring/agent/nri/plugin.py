"""A plugin that stays: connect, serve, and when the runtime goes away come back.

Source for the environment of a plugin that a runtime starts: containerd/nri v0.12.5 pkg/api/plugin.go.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Mapping
from dataclasses import replace

from mooring.agent.nri.session import PluginOptions, Session
from mooring.agent.nri.types import ConnectionLostError, Handler, MisuseError, NRIError, SessionObserver

_FIRST_DELAY = 0.1
_LONGEST_DELAY = 5.0
_CONNECT_SECONDS = 5.0
QUIET_SECONDS = 30.0
"""How long a runtime may say nothing before it is asked whether it is there."""
PATIENCE_SECONDS = 10.0
"""How long its answer to that may take."""


class StopSignal:
    """Ends a plugin, whatever its thread waits for."""

    def __init__(self) -> None:
        self._event = threading.Event()
        self._wake: Callable[[], None] | None = None

    def set(self) -> None:
        """End it; from any thread."""
        self._event.set()
        wake = self._wake
        if wake is not None:
            wake()

    def is_set(self) -> bool:
        """Return whether it is to end."""
        return self._event.is_set()

    def wait(self, seconds: float) -> bool:
        """Wait for some seconds or until it is to end; return whether it is."""
        return self._event.wait(seconds)

    def wakes(self, call: Callable[[], None]) -> None:
        """Name what is called when it is to end, in place of what was named before."""
        self._wake = call


def connect_to(path: str) -> socket.socket:
    """Return a socket connected to a runtime.

    Raises:
        ConnectionLostError: when nobody listens there.
    """
    trunk = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        trunk.settimeout(_CONNECT_SECONDS)
        trunk.connect(path)
        trunk.settimeout(None)
    except OSError as error:
        trunk.close()
        raise ConnectionLostError(f"cannot connect to {path}: {error.strerror or error}") from error
    return trunk


def given_by(environment: Mapping[str, str], options: PluginOptions | None = None) -> Session | None:
    """Return the session of a plugin that a runtime started, registered; None when no runtime did.

    A runtime waits for the registration for seconds only, from the start of the program, and never starts it again. So
    this comes before anything that takes time; requests wait until a handler is attached.

    Args:
        environment: of the process.
        options: of the plugin; name and index are the runtime's where it says them.

    Raises:
        MisuseError: when the environment names a socket that is none.
        NRIError: when the runtime does not take the plugin.
    """
    number = environment.get("NRI_PLUGIN_SOCKET", "")
    if not number:
        return None
    try:
        trunk = socket.socket(fileno=int(number))
    except (ValueError, OverflowError, OSError) as error:
        raise MisuseError(f"NRI_PLUGIN_SOCKET={number} is no socket") from error
    options = options or PluginOptions()
    name, index = environment.get("NRI_PLUGIN_NAME", ""), environment.get("NRI_PLUGIN_IDX", "")
    session = Session(trunk, None, replace(options, name=name or options.name, index=index or options.index))
    try:
        session.register()
    except NRIError:
        session.close()
        raise
    return session


def serve(session: Session, stop: StopSignal, *, may_ask: bool = False) -> None:
    """Register and answer requests until the connection is lost or ``stop`` is set; closes the session.

    Args:
        session: registered here unless it is already.
        stop: ends it.
        may_ask: whether a runtime that says nothing for long is asked whether it is there, and given up when it does
            not answer. Without that, a plugin that was dropped and did not hear of it would wait for ever while
            containers are created without it.

    Raises:
        NRIError: why the connection ended; not when it was stopped.
    """
    try:
        if not session.registered:
            session.register()
        stop.wakes(session.wake)
        while not stop.is_set():
            if not session.step(QUIET_SECONDS) and may_ask and not stop.is_set():
                session.ping(PATIENCE_SECONDS)
    finally:
        session.close()


def run_plugin(
    connect: Callable[[], socket.socket],
    handler: Handler,
    options: PluginOptions,
    observer: SessionObserver,
    stop: StopSignal,
    *,
    wait: Callable[[float], object] | None = None,
) -> None:
    """Serve, and after each loss connect again, with growing pauses, until ``stop`` is set.

    The pause begins anew at a tenth of a second whenever a Synchronize was answered. While no connection is there,
    runtimes create containers without the plugin; the next Synchronize shows them.

    Args:
        connect: makes a connection; raises ConnectionLostError when it cannot.
        handler: what the plugin does; called in this thread only.
        options: see there.
        observer: receives what happens.
        stop: ends everything when set.
        wait: waits for the given seconds or until stopped; default ``stop.wait``.
    """
    pause = wait or stop.wait
    delay = _FIRST_DELAY
    while not stop.is_set():
        session: Session | None = None
        try:
            session = Session(connect(), handler, options, observer)
            serve(session, stop, may_ask=True)
        except NRIError as why:
            if session is not None and session.synchronized:
                delay = _FIRST_DELAY
            if not stop.is_set():
                observer.disconnected(why, delay)
                pause(delay)
            delay = min(2 * delay, _LONGEST_DELAY)


def run_given_plugin(session: Session, handler: Handler, options: PluginOptions, observer: SessionObserver) -> NRIError:
    """Serve on the connection that the runtime gave, once; return why it ended. The runtime does not start it again."""
    session.attach(handler, options, observer)
    try:
        serve(session, StopSignal())
    except NRIError as why:
        observer.disconnected(why, 0.0)
        return why
    return ConnectionLostError("stopped")
