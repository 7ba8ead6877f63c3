"""One agent for each runtime of a node: the lock by which a second agent is found.

Two agents that both set the CPUs of a container make the runtime fail every creation ("both tried to set CPU pinning",
containerd/nri pkg/adaptation/result.go). Their state folders may differ; the runtime's socket is the same. So the locks
are on the folder of that socket, which every agent can open, from a container of its own too. Nothing is written.

* A shared record lock at an offset made from the socket's name says that an agent is there: each sees the others.
* The folder's own lock says which one was first. Another one does not connect while the first is there.

Source: fcntl(2), "Open file description locks", which Linux has for folders too; flock(2).
"""

from __future__ import annotations

import fcntl
import os
import struct
import threading
import zlib
from contextlib import suppress
from pathlib import Path

_FLOCK = "hhqqi4x"
"""``struct flock`` of 64-bit Linux: type, whence, start, length, pid."""


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
                is_shared = self._is_shared()
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

    def _is_shared(self) -> bool:
        """Take what is not held yet, and tell whether another agent holds its part."""
        socket = Path(os.path.realpath(self._socket))
        folder = socket.parent
        if self._folder >= 0 and not os.path.samestat(folder.stat(), os.fstat(self._folder)):
            # The runtime has made its folder anew.
            self._let_go()
        if self._folder < 0:
            self._folder = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            self._record_lock(fcntl.F_OFD_SETLK, fcntl.F_RDLCK, socket.name)
        if not self._is_first:
            with suppress(BlockingIOError):
                fcntl.flock(self._folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
                self._is_first = True
        return self._record_lock(fcntl.F_OFD_GETLK, fcntl.F_WRLCK, socket.name) != fcntl.F_UNLCK

    def _record_lock(self, command: int, kind: int, name: str) -> int:
        """Set the record lock or ask for one; return the type that the kernel answers."""
        # Runtimes may have their sockets in one folder.
        offset = zlib.crc32(os.fsencode(name))
        asked = struct.pack(_FLOCK, kind, os.SEEK_SET, offset, 1, 0)
        answer: tuple[int, ...] = struct.unpack(_FLOCK, fcntl.fcntl(self._folder, command, asked))
        return answer[0]

    def _let_go(self) -> None:
        if self._folder >= 0:
            os.close(self._folder)
        self._folder, self._is_first = -1, False
