#!/usr/bin/env python3
"""Keeps each thread of a program on one CPU of its own, and follows when a resize changes them.

Run it in a container that is told its CPUs (docs/reference/assigned-cpus.md). It needs nothing but Python on Linux.
"""

import ctypes
import os
import sys
import threading
from pathlib import Path

FOLDER = sys.argv[1] if len(sys.argv) > 1 else "/run/mooring-assigned"
IN_MOVED_TO = 0x80


def cpus():
    """Return the CPUs that the container has, or is about to have."""
    text = Path(FOLDER, "assigned.cpuset").read_text(encoding="ascii")
    parts = [part.split("-") for part in text.split(",") if part]
    return [cpu for part in parts for cpu in range(int(part[0]), int(part[-1]) + 1)]


def changes():
    """Yield the CPUs now and at every event.

    CPUs that come again say that the cpuset has changed: kernels before 6.2 undo every pin then.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    watch = libc.inotify_init()
    if watch < 0 or libc.inotify_add_watch(watch, FOLDER.encode(), IN_MOVED_TO) < 0:
        raise OSError(ctypes.get_errno(), "inotify")
    # The watch comes before the first look, so that no change falls in between.
    while True:
        yield cpus()
        os.read(watch, 65536)


def work(stopped):
    """Stand for what a thread does."""
    while not stopped.wait(0.01):
        pass


def main():
    """Have one thread for each CPU, on that CPU."""
    threads = []
    known = None
    for found in changes():
        while len(threads) > max(len(found), 1):
            thread, stopped = threads.pop()
            stopped.set()
            thread.join()
        while len(threads) < len(found):
            stopped = threading.Event()
            thread = threading.Thread(target=work, args=(stopped,))
            thread.start()
            threads.append((thread, stopped))
        for cpu, (thread, _) in zip(found, threads, strict=False):
            os.sched_setaffinity(thread.native_id, {cpu})
        if found != known:
            known = found
            print("CPUs:", ",".join(map(str, found)) or "those of everybody", flush=True)


if __name__ == "__main__":
    main()
