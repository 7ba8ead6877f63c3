"""A network of its own for this thread and all that it starts: only a loopback, which has a second address.

All ports in it are free. The kubelet wants an address of its node that is none of the loopback's 127/8.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

NODE_ADDRESS = "10.123.0.5"
_NEW_NETWORK = 0x40000000
"""CLONE_NEWNET of Linux' sched.h; Python 3.11 has no function for it."""


@contextlib.contextmanager
def private_network(busybox: Path) -> Iterator[None]:
    """Leave the machine's network until the end of the block.

    Args:
        busybox: sets the addresses.

    Raises:
        OSError: the kernel does not allow it.
    """
    before = os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
    try:
        _call("unshare", _NEW_NETWORK)
        try:
            for words in (("link", "set", "lo", "up"), ("addr", "add", f"{NODE_ADDRESS}/32", "dev", "lo")):
                subprocess.run([str(busybox), "ip", *words], check=True, capture_output=True)
            yield
        finally:
            _call("setns", before, _NEW_NETWORK)
    finally:
        os.close(before)


def _call(name: str, *arguments: int) -> None:
    if getattr(ctypes.CDLL(None, use_errno=True), name)(*arguments):
        number = ctypes.get_errno()
        raise OSError(number, f"{name}: {os.strerror(number)}")
