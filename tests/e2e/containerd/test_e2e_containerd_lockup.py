"""What a plugin's connection can do to containerd, whoever wrote the plugin: nothing here is the agent's.

A connection waits until no call of the kubelet is under way, and from then on until it is synchronized new calls wait
for it (NRI's ``syncLock``, a lock of readers and one writer). Two things follow, in every containerd since 2.1 that was
looked at, and both are told in docs/how-to/run-the-agent.md:

* ``RemovePodSandbox`` of a sandbox that still has containers takes the lock once for itself and once for each of them.
  A connection that comes in between makes it wait for itself: containerd then answers no call for containers until it
  is restarted. A kubelet removes the containers first, always (``evictSandboxes``), so that it never meets this;
  ``crictl rmp`` does.
* While a container takes its time to stop, a plugin that connects waits for it, and all other calls wait with it.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from typing import Any

from tests.e2e.containerd.cri import MESSAGES, CRIError, Pod
from tests.e2e.containerd.hanging import end_hanging, waiting_for_locks
from tests.e2e.containerd.plugin import Noting, Watching, plugged
from tests.e2e.containerd.runtime import Runtime
from tests.patience import until

from mooring.agent.nri.plugin import StopSignal, connect_to, run_plugin
from mooring.agent.nri.session import PluginOptions
from mooring.agent.nri.types import Event, PodSandbox, RuntimeContainer

PATIENCE = 10.0
"""Seconds after which a call that takes milliseconds counts as hanging."""


class SlowAtRemovals(Watching):
    """Answers the first RemoveContainer when ``hold`` is set: what is to happen meanwhile happens for sure."""

    def state_change(self, event: Event, pod: PodSandbox | None, container: RuntimeContainer | None) -> None:
        Watching.state_change(self, event, pod, container)
        if event is Event.REMOVE_CONTAINER:
            assert self.hold.wait(4)


@contextlib.contextmanager
def connecting(node: Runtime) -> Iterator[Noting]:
    """Connect a second plugin, which may or may not be synchronized some day."""
    stop, observer = StopSignal(), Noting()
    options = PluginOptions(name="second", index="60", budget=5.0)
    thread = threading.Thread(
        target=run_plugin, args=(lambda: connect_to(str(node.nri_socket)), Watching(), options, observer, stop)
    )
    thread.start()
    try:
        until(lambda: observer.runtimes, "the second plugin is configured")
        yield observer
    finally:
        stop.set()
        thread.join(30)


def in_thread(call: Any, ends: list[str], name: str) -> threading.Thread:
    """Run something that may fail and note that it has ended."""

    def run() -> None:
        # What hangs fails when containerd is killed: as a refusal, or because its channel is closed.
        with contextlib.suppress(CRIError, ValueError):
            call()
        ends.append(name)

    thread = threading.Thread(target=run)
    thread.start()
    return thread


def pod_of_three(node: Runtime) -> Pod:
    pod = node.cri.run_pod("p", "uid-p", f"{node.cgroup_parent}/pod1")
    for name in "abc":
        node.cri.run(pod, name)
    return pod


def test_a_connection_locks_containerd_up_while_a_sandbox_is_removed_with_its_containers(node: Runtime) -> None:
    """Should this fail one day, a containerd has mended it, and the documentation can say from which version on."""
    pod, handler = pod_of_three(node), SlowAtRemovals()
    ends: list[str] = []
    with plugged(node.nri_socket, handler):
        removing = in_thread(lambda: node.cri.remove_pod_at_once(pod.id), ends, "removed")
        until(lambda: "REMOVE_CONTAINER" in [what for what, _ in handler.seen], "the first removal")
        with connecting(node) as second:
            handler.hold.set()
            removing.join(PATIENCE)
            assert (ends, second.ready) == ([], 0)
            hanging = end_hanging(node, "RemovePodSandbox")
            dump = (node.folder / "stacks").read_text(encoding="utf-8")
            node.start()
            until(lambda: second.ready, "the second plugin is synchronized by a containerd that was restarted")
    removing.join()
    itself = [one for one in waiting_for_locks(dump) if "RemoveContainer" in one and "RemovePodSandbox" in one]
    assert itself, str(hanging)
    assert itself[0].startswith("sync.RWMutex.RLock")


def test_a_connection_locks_nothing_up_where_containers_are_removed_before_their_sandbox(node: Runtime) -> None:
    pod, handler = pod_of_three(node), SlowAtRemovals()
    ends: list[str] = []
    with plugged(node.nri_socket, handler):
        removing = in_thread(lambda: node.cri.remove_pod(pod.id), ends, "removed")
        until(lambda: "REMOVE_CONTAINER" in [what for what, _ in handler.seen], "the first removal")
        with connecting(node) as second:
            handler.hold.set()
            removing.join(PATIENCE)
            until(lambda: second.ready, "the second plugin is synchronized")
    assert ends == ["removed"]
    assert node.cri.pods() == []


def test_a_connection_and_all_other_calls_wait_for_a_container_that_takes_its_time_to_stop(node: Runtime) -> None:
    pod = node.cri.run_pod("p", "uid-p", f"{node.cgroup_parent}/pod1")
    deaf = node.cri.run(pod, "deaf", command=["busybox", "sh", "-c", "trap '' TERM; while true; do sleep 1; done"])
    until(lambda: "sleep" in node.cri.execute(deaf, "busybox", "ps"), "the container ignores SIGTERM")
    asked = MESSAGES["StopContainerRequest"](container_id=deaf, timeout=4)
    ends: list[str] = []
    handler = Watching()
    with plugged(node.nri_socket, handler):
        stopping = in_thread(lambda: node.cri.call("StopContainer", asked, "Empty"), ends, "stopped")
        until(lambda: f'StopContainer for \\"{deaf}' in node.log, "containerd stops it")
        with connecting(node) as second:
            creating = in_thread(lambda: node.cri.create(pod, "other"), ends, "created")
            creating.join(PATIENCE)
            until(lambda: second.ready, "the second plugin is synchronized")
            stopping.join()
    assert ends == ["stopped", "created"]
