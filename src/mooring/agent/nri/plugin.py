"""Connections of a plugin to a runtime: one that stays and comes back, and one that lives for a moment.

Source for the environment of a plugin that a runtime starts: containerd/nri v0.12.5 pkg/api/plugin.go.

The second kind updates containers between events. UpdateContainers exists for that, and locks containerd up when it
meets a creation or removal (containerd issue 13733, NRI before 0.12.1). The answer to Synchronize carries updates too,
and every new connection is synchronized. It has a cost and a danger of its own: containerd lets no call of the kubelet
through while a plugin connects, and one that connects in the middle of a RemovePodSandbox with containers left locks it
up (2.1.9 and 2.4.2). So a running agent does not use it, and sends updates with the next reply; an agent that leaves
the node does.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from mooring.agent.nri import types
from mooring.agent.nri.session import PluginOptions, Session

_FIRST_DELAY = 0.1
_LONGEST_DELAY = 5.0
_CONNECT_SECONDS = 5.0
QUIET_SECONDS = 30.0
"""How long a runtime may say nothing before it is asked whether it is there."""
PATIENCE_SECONDS = 10.0
"""How long its answer to that may take."""
Updates = Callable[[Sequence[types.PodSandbox], Sequence[types.RuntimeContainer]], Sequence[types.ContainerUpdate]]
"""Decides about updates, knowing what the runtime has now."""
_MOST_EVENTS = 20
"""Events that are waited out at most while the second connection lingers."""


class StopSignal(threading.Event):
    """Ends a plugin, whatever its thread waits for."""

    _wake: Callable[[], None] | None = None

    def set(self) -> None:
        """End it; from any thread."""
        super().set()
        wake = self._wake
        if wake is not None:
            wake()

    def wakes(self, call: Callable[[], None]) -> None:
        """Name what is called when it is to end, in place of what was named before."""
        self._wake = call


def connect_to(path: str) -> socket.socket:
    """Return a socket connected to a runtime.

    Raises:
        ConnectionLostError: when no process listens there.
    """
    trunk = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        trunk.settimeout(_CONNECT_SECONDS)
        trunk.connect(path)
        trunk.settimeout(None)
    except OSError as error:
        trunk.close()
        raise types.ConnectionLostError(f"cannot connect to {path}: {error.strerror or error}") from error
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
        raise types.MisuseError(f"NRI_PLUGIN_SOCKET={number} is not a socket") from error
    options = options or PluginOptions()
    name, index = environment.get("NRI_PLUGIN_NAME", ""), environment.get("NRI_PLUGIN_IDX", "")
    session = Session(trunk, None, replace(options, name=name or options.name, index=index or options.index))
    try:
        session.register()
    except types.NRIError:
        session.close()
        raise
    return session


def serve(session: Session, stop: StopSignal, *, may_ask: bool = False) -> None:
    """Register and answer requests until the connection is lost or ``stop`` is set; closes the session.

    Args:
        session: registered here unless it is already.
        stop: ends it.
        may_ask: whether a runtime that says nothing for long is asked whether it is there, and given up when it does
            not answer. Without that, a plugin that was dropped without notice would wait for ever while
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
    handler: types.Handler,
    options: PluginOptions,
    observer: types.SessionObserver,
    stop: StopSignal,
    *,
    wait: Callable[[float], object] | None = None,
) -> None:
    """Serve, and after each loss connect again, with growing pauses, until ``stop`` is set.

    The pause starts again at a tenth of a second whenever a Synchronize was answered. While no connection is there,
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
        except types.NRIError as why:
            if session is not None and session.synchronized:
                delay = _FIRST_DELAY
            if not stop.is_set():
                observer.disconnected(why, delay)
                pause(delay)
            delay = min(2 * delay, _LONGEST_DELAY)


def run_given_plugin(
    session: Session, handler: types.Handler, options: PluginOptions, observer: types.SessionObserver
) -> types.NRIError:
    """Serve on the connection that the runtime gave, once; return why it ended. The runtime does not start it again."""
    session.attach(handler, options, observer)
    try:
        serve(session, StopSignal())
    except types.NRIError as why:
        observer.disconnected(why, 0.0)
        return why
    return types.ConnectionLostError("stopped")


def update_by_synchronizing(
    connect: Callable[[], socket.socket], updates: Updates, options: PluginOptions, *, linger: float = 0.25
) -> None:
    """Update containers by a second connection whose Synchronize is answered with the updates.

    The runtime applies them under its lock for plugins; a container that is being created or started may still miss its
    update, which only its cgroup shows. Returns when the runtime has read the answer; the updates take effect within
    about 5 ms each after that, so look at the cgroups.

    Args:
        connect: makes a connection.
        updates: decides; called in this thread.
        options: of the plugin, which may be connected itself; this connection adds ``-update`` to its name.
        linger: seconds to stay after the answer, so that the runtime does not find the connection closed before it has
            taken the answer in.

    Raises:
        NRIError: when the runtime was not reached or did not synchronize.
    """
    session = Session(connect(), _UpdatesOnly(updates), replace(options, name=f"{options.name}-update"))
    try:
        session.register()
        while not session.synchronized:
            if not session.step(options.call_timeout):
                raise types.ConnectionLostError(f"no Synchronize within {options.call_timeout:g} s")
        session.ping()
        for _ in range(_MOST_EVENTS):
            if not session.step(linger):
                break
    finally:
        session.close()


class _UpdatesOnly(types.Handler):
    """A handler that answers Synchronize with updates and lets everything else pass."""

    def __init__(self, updates: Updates) -> None:
        self._updates = updates

    def synchronize(
        self, pods: Sequence[types.PodSandbox], containers: Sequence[types.RuntimeContainer]
    ) -> Sequence[types.ContainerUpdate]:
        return self._updates(pods, containers)
