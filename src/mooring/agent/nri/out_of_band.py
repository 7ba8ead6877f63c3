"""Updates between events, over a second connection that lives for a moment.

UpdateContainers exists for that, and locks containerd up when it meets a creation or removal (containerd issue 13733,
NRI before 0.12.1). The answer to Synchronize carries updates too, and every new connection is synchronized.

It has a cost and a danger of its own: containerd lets no call of the kubelet through while a plugin connects, and one
that connects in the middle of a RemovePodSandbox with containers left locks it up (2.1.9 and 2.4.2). So a running agent
does not use it, and tells the runtime with the next reply; an agent that leaves the node does.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from mooring.agent.nri.session import PluginOptions, Session
from mooring.agent.nri.types import (
    ConnectionLostError,
    ContainerAdjustment,
    ContainerUpdate,
    Event,
    LinuxResources,
    PodSandbox,
    RuntimeContainer,
    SessionObserver,
)

Updates = Callable[[Sequence[PodSandbox], Sequence[RuntimeContainer]], Sequence[ContainerUpdate]]
"""Decides about updates, knowing what the runtime has now."""

_MOST_EVENTS = 20
"""Events that are waited out at most while the second connection lingers."""


def update_by_synchronizing(
    connect: Callable[[], socket.socket],
    updates: Updates,
    options: PluginOptions,
    observer: SessionObserver | None = None,
    *,
    linger: float = 0.25,
) -> None:
    """Update containers by a second connection whose Synchronize is answered with the updates.

    The runtime applies them under its lock for plugins; a container that is being created or started may still miss its
    update, which only its cgroup shows. Returns when the runtime has read the answer; the updates take effect within
    about 5 ms each after that, so look at the cgroups.

    Args:
        connect: makes a connection.
        updates: decides; called in this thread.
        options: of the plugin, which may be connected itself; this connection adds ``-update`` to its name.
        observer: receives what happens on the second connection.
        linger: seconds to stay after the answer, so that the runtime does not find the connection closed before it has
            taken the answer in.

    Raises:
        NRIError: when the runtime was not reached or did not synchronize.
    """
    session = Session(connect(), _UpdatesOnly(updates), replace(options, name=f"{options.name}-update"), observer)
    try:
        session.register()
        while not session.synchronized:
            if not session.step(options.call_timeout):
                raise ConnectionLostError(f"no Synchronize within {options.call_timeout:g} s")
        session.ping()
        for _ in range(_MOST_EVENTS):
            if not session.step(linger):
                break
    finally:
        session.close()


@dataclass(frozen=True, slots=True)
class _UpdatesOnly:
    """A handler that answers Synchronize with updates and lets everything else pass."""

    updates: Updates

    def configure(self, _config: str, _runtime: str, _version: str) -> frozenset[Event]:
        # Something must be asked for: none means all. This event is rare and asks for no answer.
        return frozenset({Event.REMOVE_POD_SANDBOX})

    def synchronize(
        self, pods: Sequence[PodSandbox], containers: Sequence[RuntimeContainer]
    ) -> Sequence[ContainerUpdate]:
        return self.updates(pods, containers)

    def create_container(
        self, _pod: PodSandbox, _container: RuntimeContainer
    ) -> tuple[ContainerAdjustment, Sequence[ContainerUpdate]]:
        return ContainerAdjustment(), ()

    def update_container(
        self, _pod: PodSandbox, _container: RuntimeContainer, _resources: LinuxResources
    ) -> Sequence[ContainerUpdate]:
        return ()

    def stop_container(self, _pod: PodSandbox, _container: RuntimeContainer) -> Sequence[ContainerUpdate]:
        return ()

    def state_change(self, _event: Event, _pod: PodSandbox | None, _container: RuntimeContainer | None) -> None:
        return
