"""Telling that a containerd hangs, with what a developer of containerd wants to see, instead of waiting with it."""

from __future__ import annotations

import contextlib
import os
import re
import signal

from tests.e2e.containerd.runtime import Runtime
from tests.patience import until

_BEGIN, _END = "=== BEGIN goroutine stack dump ===", "=== END goroutine stack dump ==="


class HangingError(RuntimeError):
    """A containerd that does not answer; it has been killed. The text has the goroutines that wait for a lock."""


def stacks(node: Runtime) -> str:
    """Return what every goroutine of a containerd does; empty when it does not even tell that."""
    before = node.log.count(_END)
    os.kill(node.pid, signal.SIGUSR1)
    with contextlib.suppress(AssertionError):
        until(lambda: node.log.count(_END) > before, "containerd tells its stacks", seconds=10)
        text = node.log
        return text[text.rindex(_BEGIN) : text.rindex(_END)].replace("\\n", "\n").replace("\\t", "\t")
    return ""


def waiting_for_locks(dump: str) -> list[str]:
    """Return the goroutines of a dump that wait for a lock, each as its state and the functions of containerd and NRI.

    >>> waiting_for_locks("goroutine 7 [sync.Mutex.Lock]:\\nsync.x()\\na.com/containerd/b/nri.(*API).Run(0x1)\\n")
    ['sync.Mutex.Lock: nri.(*API).Run']
    """
    found = []
    for goroutine in re.split(r"\n\n(?=goroutine )", dump):
        head = re.search(r"goroutine \d+ \[(sync\.\w*Mutex\.\w+)", goroutine)
        if head:
            calls = re.findall(r"^\S*/containerd/\S*?([\w-]+\.[^/\n]+?)\((?:0x|\{|\.\.\.|\))", goroutine, re.MULTILINE)
            found.append(f"{head[1]}: {' < '.join(calls)}")
    return found


def end_hanging(node: Runtime, what: str) -> HangingError:
    """Kill a containerd that hangs, and return what is to be raised.

    Args:
        node: see above.
        what: hangs, for example the call that has no answer.
    """
    dump = stacks(node)
    path = node.folder / "stacks"
    path.write_text(dump, encoding="utf-8")
    locks = waiting_for_locks(dump)
    node.kill(signal.SIGKILL)
    # One that gets no CPU time does not tell its stacks either, and is not locked up.
    shown = "\n".join(locks[:20]) or ("no goroutine waits for a lock" if dump else "it did not tell its stacks in time")
    return HangingError(f"containerd {node.parts.version} hangs: {what}\n{len(locks)} wait for locks:\n{shown}")
