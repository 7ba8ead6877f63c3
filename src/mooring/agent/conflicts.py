"""Programs of this node beside which the agent cannot run: a kubelet that manages CPUs itself, and another agent.

**The kubelet.** The shipped unit starts the agent before the kubelet, so that at a boot there is no kubelet to ask; and
a kubelet can be restarted with other flags at any time. The agent then continues, reads its files again, or ends. A
check costs two small files while the kubelet is the same.

**Another agent.** Two agents that both set the CPUs of a container make the runtime fail every creation ("both tried to
set CPU pinning", containerd/nri pkg/adaptation/result.go). Their state folders may differ; the runtime's socket is the
same. So the locks are on the folder of that socket, which every agent can open, from a container of its own too.
Nothing is written.

* A shared record lock at an offset made from the socket's name says that an agent is there: each sees the others.
* The folder's own lock says which one was first. Another one does not connect while the first is there.

Source: fcntl(2), "Open file description locks", which Linux has for folders too; flock(2).
"""

from __future__ import annotations

import fcntl
import math
import os
import struct
import threading
import zlib
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from mooring.agent.effects import ClusterEvent, about_node
from mooring.agent.pods.cluster import ClusterReporter
from mooring.engine.core.errors import InputError
from mooring.inputs.configuration.kubelet_flags import KubeletFlags, kubelet_flags
from mooring.inputs.machines.tree import KubeletProcess, Tree, kubelet_here, open_tree, still_runs
from mooring.service.agent_configuration import refuse_kubelet_beside
from mooring.service.agent_options import AgentOptions
from mooring.service.logs import Log

PERIOD = 10.0
"""Seconds between two checks."""
REASON = "KubeletManagesCPUs"
"""Reason of the event about a node on which the agent ends."""
_FLOCK = "hhqqi4x"
"""``struct flock`` of 64-bit Linux: type, whence, start, length, pid."""


class KubeletFinder:
    """Finds the kubelet and remembers it. Its calls come from one thread."""

    def __init__(self, opened: Callable[[], Tree] = lambda: open_tree("/")) -> None:
        """Look at nothing yet.

        Args:
            opened: returns the computer's files, as they are then.
        """
        self._opened = opened
        self._process: KubeletProcess | None = None
        self.embedding = ""
        """A program that was found to contain the kubelet, and does not show its arguments."""
        self._judged: KubeletProcess | None = None
        self._flags: Mapping[str, Any] = {}

    def flags(self) -> KubeletFlags | None:
        """Return what decides on the command line of the kubelet that runs; None when there is none."""
        process = self._found()
        flags = None if process is None else kubelet_flags(process.arguments)
        self._flags = {} if flags is None else flags.fields
        return flags

    def check(self, kubelet_config: str) -> bool:
        """Look whether there is another kubelet, and whether the agent may run beside it.

        Args:
            kubelet_config: the file of the node's kubelet that was named to the agent, or an empty text.

        Returns:
            Whether its flags say other things about the node than those with which the configuration was read.

        Raises:
            InputError: kubelet and agent cannot continue beside each other.
        """
        process = self._found()
        if process is None or process == self._judged:
            return False
        flags = kubelet_flags(process.arguments)
        refuse_kubelet_beside(kubelet_config, flags)
        self._judged = process
        return bool(kubelet_config) and flags.fields != self._flags

    def _found(self) -> KubeletProcess | None:
        tree = self._opened()
        if self._process is None or not still_runs(tree, self._process):
            self._process, self.embedding = kubelet_here(tree)
        return self._process


class KubeletWatch:
    """Looks at the kubelet while the agent runs.

    Beside a kubelet that manages CPUs itself the agent ends, as it does not begin beside one: each would undo every ten
    seconds what the other writes, and neither knows the other's assignments. The order of arrival must not matter,
    because the shipped unit starts the agent before the kubelet.
    """

    def __init__(
        self, beside: KubeletFinder, outward: ClusterReporter, node: str, log: Log, changed: Callable[[], object]
    ) -> None:
        """Look at nothing yet.

        Args:
            beside: finds the kubelet.
            outward: tells the cluster.
            node: name of the node in it.
            log: of the agent.
            changed: called when the kubelet's flags describe the node differently than before.
        """
        self._beside, self._outward, self._node, self._log, self._changed = beside, outward, node, log, changed
        self._next = -math.inf
        self._embedding = ""
        self.conflict: InputError | None = None
        """Why the agent must end."""

    def ask(self) -> None:
        """Look at the next call, whether it is time to or not."""
        self._next = -math.inf

    def check(self, now: float, options: AgentOptions) -> None:
        """Look when it is time to.

        Args:
            now: seconds that only go forward.
            options: in force.
        """
        if now < self._next:
            return
        self._next = now + PERIOD
        try:
            if self._beside.check(options.kubelet_config):
                self._changed()
        except InputError as error:
            if self.conflict is None:
                self.conflict = error
                self._log.error("the agent stops: the kubelet manages CPUs or memory itself", why=str(error))
                self._outward.event(ClusterEvent(about_node(self._node), REASON, f"the agent ends: {error}"))
        if self._beside.embedding and self._beside.embedding != self._embedding:
            self._embedding = self._beside.embedding
            self._log.warning(
                "a program embeds the kubelet and does not show its flags; its policies must be none and None",
                program=self._embedding,
            )


class NodeLock:
    """The lock of an agent; calls may come from several threads."""

    def __init__(self, nri_socket: str) -> None:
        """Take the lock as far as it can be taken now.

        Args:
            nri_socket: path of the runtime's socket for plugins.
        """
        self._socket = Path(nri_socket)
        self._guard = threading.Lock()
        self._folder = -1
        self._is_first = False
        self.conflict()

    def conflict(self) -> str:
        """Return which other agent is in the way, in words; empty when there is none.

        A folder that is not there, or that cannot be locked, has no other agent.
        """
        with self._guard:
            try:
                # Take what is not held yet, and tell whether another agent holds its part
                socket = Path(os.path.realpath(self._socket))
                folder = socket.parent
                if self._folder >= 0 and not os.path.samestat(folder.stat(), os.fstat(self._folder)):
                    # The runtime has made its folder again.
                    self._let_go()
                if self._folder < 0:
                    self._folder = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
                    self._record_lock(fcntl.F_OFD_SETLK, fcntl.F_RDLCK, socket.name)
                if not self._is_first:
                    with suppress(BlockingIOError):
                        fcntl.flock(self._folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
                        self._is_first = True
                is_shared = self._record_lock(fcntl.F_OFD_GETLK, fcntl.F_WRLCK, socket.name) != fcntl.F_UNLCK
            except OSError:
                self._let_go()
                return ""
            if not is_shared:
                return ""
            return f"another agent of this node uses the runtime's socket {self._socket}: stop one of the two"

    def must_wait(self) -> str:
        """Return why this agent must not connect to the runtime; empty when it may."""
        found = self.conflict()
        return "" if self._is_first else found

    def close(self) -> None:
        """Release the lock."""
        with self._guard:
            self._let_go()

    def _record_lock(self, command: int, kind: int, name: str) -> int:
        """Set or query the record lock; return the type that the kernel answers."""
        # Runtimes may have their sockets in one folder.
        offset = zlib.crc32(os.fsencode(name))
        asked = struct.pack(_FLOCK, kind, os.SEEK_SET, offset, 1, 0)
        answer: tuple[int, ...] = struct.unpack(_FLOCK, fcntl.fcntl(self._folder, command, asked))
        return answer[0]

    def _let_go(self) -> None:
        if self._folder >= 0:
            os.close(self._folder)
        self._folder, self._is_first = -1, False
