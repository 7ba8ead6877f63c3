"""Executing the effects of an event: those that the reply waits for at once, the others in a thread of their own.

Among them are the files that tell containers their CPUs: a folder for each, mounted into it, where it cannot be
written. A file is replaced by a rename, so that a reader finds the old text or the new one, whole, and a watch on the
folder sees ``IN_MOVED_TO``. The texts have no line end, like the files of a downward API volume.
"""

from __future__ import annotations

import math
import os
import queue
import threading
import time
from collections.abc import Callable, Collection
from contextlib import suppress
from functools import partial
from pathlib import Path
from threading import Lock

from mooring.agent import effects
from mooring.agent.cgroups.files import CGroupTrouble, GroupError
from mooring.agent.cgroups.protocol import CGroups, CPUSetSeen
from mooring.agent.metrics import AgentMetrics
from mooring.agent.state import Assigned
from mooring.engine.checkpoint.store import system_words
from mooring.engine.core.bits import list_text
from mooring.service.logs import Log

MOST_WAITING = 4096
"""Pieces of work that wait at most. What is dropped beyond that, the next check of all containers makes up for."""
_MOST_COMPLAINTS = 1000


class Executor:
    """Executes effects; calls come from one thread at a time, except to :meth:`complain`."""

    def __init__(
        self,
        cgroups: CGroups,
        metrics: AgentMetrics,
        work: WorkQueue,
        log: Log,
        verify: Callable[[tuple[str, ...]], object],
        announce: Callable[[effects.ClusterEvent | effects.Evict], object],
        files: AssignedFiles,
    ) -> None:
        """Execute nothing yet.

        Args:
            cgroups: of the node.
            metrics: count effects.
            work: the thread for what no reply waits for.
            log: of the agent.
            verify: verifies containers; called in that thread, and before a container starts.
            announce: reports to the cluster; called in that thread.
            files: tell containers their CPUs.
        """
        self.cgroups, self.metrics, self.work, self.log, self.announce = cgroups, metrics, work, log, announce
        self.checks = PendingChecks(verify)
        self.lifted = -math.inf
        """When a quota was last lifted, by the clock that only goes forward."""
        self._files = files
        self._complained: set[tuple[str, str]] = set()

    def execute(self, effect: effects.Effect) -> CPUSetSeen | None:
        """Execute an effect, or queue it; return what came of writing a cpuset.

        :class:`~mooring.agent.effects.Persist` is not executed here: a state that cannot be written changes the
        outcome.
        """
        self.metrics.count(effect)
        match effect:
            case effects.WriteCPUSet() if effect.cpus or effect.mems:
                return self.cgroups.write_cpuset(effect)
            case effects.ReturnCPUs():
                if problem := self.cgroups.return_cpus(effect):
                    self.complain("groups above containers", f"a CPU that came online cannot be added: {problem}")
            case effects.LiftQuota():
                self.lifted = time.monotonic()
                try:
                    self.cgroups.lift_quota(effect)
                except GroupError as error:
                    if error.trouble is not CGroupTrouble.GONE:
                        self.complain(effect.container_id or effect.uid, f"a quota is not lifted: {error}")
            case effects.WriteAssigned() | effects.DropAssigned() | effects.SweepAssigned():
                self.complain("files of assigned CPUs", self._files.do(effect))
            case effects.ResizeAnswered():
                # One that is refused is a warning.
                write = self.log.info if effect.result == "accepted" else self.log.warning
                about = {"resize": effect.result, "pod": effect.uid, "container": effect.container_id}
                self.work.put(partial(write, effect.message, **about))
            case effects.Verify():
                self.checks.add(effect.container_ids)
                self.work.put(partial(self.checks.run, effect.container_ids))
            case effects.AgentReport():
                about = {"pod": effect.uid, "container": effect.container_id, "reason": effect.reason}
                about = {key: text for key, text in (about | {"code": effect.code}).items() if text}
                self.work.put(partial(self.log.warning, effect.message, finding=effect.finding.value, **about))
            case effects.ClusterEvent() | effects.Evict():
                self.work.put(partial(self.announce, effect))
        return None

    def complain(self, about: str, problem: str) -> None:
        """Log a problem, once for each thing that it is about; an empty one is none."""
        if problem and (about, problem) not in self._complained:
            if len(self._complained) > _MOST_COMPLAINTS:
                self._complained.clear()
            self._complained.add((about, problem))
            self.work.put(partial(self.log.warning, problem, about=about))


class PendingChecks:
    """Containers that must be verified. Each is verified once, by the first thread that comes to it."""

    def __init__(self, verify: Callable[[tuple[str, ...]], object]) -> None:
        """Have no container to verify.

        Args:
            verify: verifies containers and corrects what differs; may add further containers.
        """
        self._verify = verify
        self._running = Lock()
        """Held during a check; taken before the other lock, never within it."""
        self._lock = Lock()
        self._due: dict[str, int] = {}
        """By container: a number that tells the newest request from those before it."""
        self._requests = 0

    def add(self, container_ids: Collection[str]) -> None:
        """Note that these containers must be verified after now."""
        with self._lock:
            self._requests += 1
            self._due.update(dict.fromkeys(container_ids, self._requests))

    def run(self, container_ids: Collection[str]) -> None:
        """Verify those of the containers that were not verified since they were added."""
        with self._running:
            with self._lock:
                due = {one: self._due[one] for one in container_ids if one in self._due}
            try:
                if due:
                    self._verify(tuple(due))
            finally:
                with self._lock:
                    # A container that was added again meanwhile may have been verified too early.
                    self._due = {one: number for one, number in self._due.items() if due.get(one) != number}

    def run_all(self) -> None:
        """Return once every container added so far is verified; waits for a check in another thread."""
        with self._lock:
            due = tuple(self._due)
        if due:
            self.run(due)


class WorkQueue:
    """Does one piece of work after another in a thread of its own."""

    def __init__(self, failed: Callable[[Exception], object], size: int = MOST_WAITING) -> None:
        """Do nothing yet; :meth:`start` does.

        Args:
            failed: receives the error of a piece of work.
            size: how many pieces may wait.
        """
        self._failed = failed
        self._waiting: queue.Queue[Callable[[], object] | None] = queue.Queue(size)
        self._thread = threading.Thread(target=self._run, name="mooring-work", daemon=True)
        self.dropped = 0
        """How often there was no room."""

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def put(self, work: Callable[[], object]) -> bool:
        """Queue a piece of work; return whether there was room. Never waits."""
        try:
            self._waiting.put_nowait(work)
        except queue.Full:
            self.dropped += 1
            return False
        return True

    def finish(self, patience: float) -> None:
        """Do what waits, and end; waits for that for some seconds."""
        if self._thread.is_alive():
            try:
                self._waiting.put(None, timeout=patience)
            except queue.Full:
                return
            self._thread.join(patience)

    def _run(self) -> None:
        while (work := self._waiting.get()) is not None:
            try:
                work()
            except Exception as error:  # noqa: BLE001 - without this thread no container would be verified any more
                self._failed(error)


CPUSET_FILE = "assigned.cpuset"
MEMSET_FILE = "assigned.memset"
SHARED_FILE = "shared.cpuset"
"""The pool in which a mixed container may run besides; other containers do not have this file."""
_FOLDER_MODE = 0o755
"""All users may read, only the owner may write: a container sees it through a read-only mount."""
_FILE_MODE = 0o444


class AssignedFiles:
    """Folders of containers in one folder of the agent's own; calls come one after another."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def do(self, effect: effects.WriteAssigned | effects.DropAssigned | effects.SweepAssigned) -> str:
        """Do what an effect says; return the problem in words, empty when there is none."""
        try:
            match effect:
                case effects.WriteAssigned():
                    mine = self.folder / effect.container_id
                    for folder in (self.folder.parent, self.folder, mine) if effect.makes else ():
                        # All users may read it, whatever the process's mask.
                        with suppress(FileExistsError):
                            folder.mkdir(_FOLDER_MODE)
                            folder.chmod(_FOLDER_MODE)
                    if effect.makes or mine.is_dir():
                        _write_assigned(mine, effect.assigned, again=effect.again)
                case effects.DropAssigned():
                    _remove(self.folder / effect.container_id)
                case effects.SweepAssigned():
                    with suppress(FileNotFoundError):
                        for mine in [one for one in self.folder.iterdir() if one.is_dir() and not one.is_symlink()]:
                            if mine.name in effect.silent:
                                _write_assigned(mine, Assigned())
                            elif mine.name not in effect.told:
                                _remove(mine)
        except OSError as error:
            return f"{self.folder}: {system_words(error)}"
        return ""


def _write_assigned(mine: Path, assigned: Assigned, *, again: bool = False) -> None:
    texts = {CPUSET_FILE: str(assigned.cpus), MEMSET_FILE: list_text(assigned.mems)}
    if assigned.shared is not None or (mine / SHARED_FILE).exists():
        # Who is not mixed any more may have it open in a watch.
        texts[SHARED_FILE] = str(assigned.shared or "")
    for name, text in texts.items():
        with suppress(OSError, ValueError):
            if not again and (mine / name).read_text("ascii") == text:
                continue
        new = mine / f".{name}"
        new.unlink(missing_ok=True)
        # Nothing is brought to the disk: the folder is one of a file system that a reboot empties.
        descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW, _FILE_MODE)
        try:
            os.fchmod(descriptor, _FILE_MODE)
            os.write(descriptor, text.encode("ascii"))
        finally:
            os.close(descriptor)
        new.replace(mine / name)


def _remove(mine: Path) -> None:
    """Remove a container's folder; files of other programs in it stay."""
    with suppress(FileNotFoundError):
        names = (CPUSET_FILE, MEMSET_FILE, SHARED_FILE)
        for one in (*(mine / name for name in names), *(mine / f".{name}" for name in names)):
            one.unlink(missing_ok=True)
        mine.rmdir()
