"""Threads and clock of a world: one thread runs at a time, a seed says which, and time passes only while all wait.

A program that is killed gets :class:`KilledTaskError` at its next call of anything outside of it, and no call has any
effect from then on, whatever its ``finally`` blocks try.
"""

from __future__ import annotations

import random
import select
import threading
import time
import traceback
import types
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

_SWITCHES = 0.35
"""Share of the calls after which another thread runs."""


class KilledTaskError(BaseException):
    """The program of this thread is dead."""


class StuckError(Exception):
    """No thread of the world can go on, and none waits for the clock."""


def _never() -> bool:
    """Tell that what a thread waits for is the clock alone."""
    return False


def _held() -> Any:
    """Return what a thread waits for that does not run."""
    lock = threading.Lock()
    lock.acquire()
    return lock


class Program:
    """A process of the world: its threads, and whether it was killed."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.is_dead = False
        self.paused = 0.0
        """Until when it stands still."""
        self.failures: list[BaseException] = []
        """What its threads ended with, but for kills."""
        self.tracebacks: list[str] = []
        self.tasks: list[Task] = []

    @property
    def alive(self) -> list[Task]:
        return [one for one in self.tasks if not one.is_over]


@dataclass(eq=False)
class Task:
    """A thread of the world."""

    program: Program
    name: str
    number: int
    baton: Any = field(default_factory=_held)
    is_ready: Callable[[], bool] | None = None
    """What it waits for; None while it only waits for its turn."""
    deadline: float | None = None
    is_over: bool = False
    ident: int = 0
    thread: object = None
    """What ``threading.current_thread`` returns in it."""


class Threads:
    """Passes the baton."""

    def __init__(self, seed: str) -> None:
        self._random = random.Random(seed)  # noqa: S311 - a world is repeated, not secret
        self.now = 1000.0
        self.wall = 1_800_000_000.0
        """What the wall clock shows more than the one that only goes forward."""
        self.tasks: list[Task] = []
        self.current: Task | None = None
        self.switches = 0
        self.stuck = ""
        self._count = 0
        self.outside = Program("world")
        self._entered = Task(self.outside, "driver", 0)
        self._entered.ident = threading.get_ident()
        self.tasks.append(self._entered)
        self.current = self._entered

    @property
    def task(self) -> Task:
        assert self.current is not None
        return self.current

    def spawn(self, program: Program, name: str, work: Callable[[], object]) -> Task:
        """Make a thread of a program; it runs when its turn comes."""
        self._count += 1
        task = Task(program, name, self._count)
        task.ident = 10_000 + self._count

        def run() -> None:
            task.baton.acquire()
            try:
                if not program.is_dead:
                    work()
            except KilledTaskError:
                pass
            except BaseException as error:  # noqa: BLE001 - a law looks at it
                if not program.is_dead:
                    program.failures.append(error)
                    program.tracebacks.append(traceback.format_exc())
            task.is_over = True
            self.tasks.remove(task)
            self._next().baton.release()

        self.tasks.append(task)
        program.tasks.append(task)
        threading.Thread(target=run, daemon=True).start()
        return task

    def step(self) -> None:
        """Let others run, perhaps; to be called at whatever a thread does to the outside."""
        task = self.current
        assert task is not None
        if task.program.is_dead:
            raise KilledTaskError
        self.now += 0.00001
        if self._random.random() < _SWITCHES:
            self._pass(task)

    def wait(self, is_ready: Callable[[], bool], seconds: float | None = None) -> bool:
        """Wait until something is so; return False when the time is over before."""
        task = self.task
        if task.program.is_dead:
            raise KilledTaskError
        task.is_ready, task.deadline = is_ready, None if seconds is None else self.now + max(seconds, 0.0)
        self._pass(task)
        task.is_ready = task.deadline = None
        return is_ready()

    def sleep(self, seconds: float) -> None:
        self.wait(_never, seconds)

    def kill(self, program: Program) -> None:
        """End a program at once; returns when none of its threads is left."""
        program.is_dead = True
        if program is not self.task.program:
            self.wait(lambda: not program.alive)

    def _pass(self, task: Task) -> None:
        following = self._next()
        if following is not task:
            following.baton.release()
            task.baton.acquire()
        if self.stuck:
            raise StuckError(self.stuck)
        if task.program.is_dead:
            task.is_ready = task.deadline = None
            raise KilledTaskError

    def _next(self) -> Task:
        self.switches += 1
        while True:
            now, able = self.now, []
            for one in self.tasks:
                program = one.program
                if program.paused > now and not program.is_dead:
                    continue
                is_ready, deadline = one.is_ready, one.deadline
                if (
                    is_ready is None
                    or (deadline is not None and deadline <= now)
                    or program.is_dead
                    or (is_ready is not _never and is_ready())
                ):
                    able.append(one)
            if able:
                self.current = able[0] if len(able) == 1 else self._random.choice(able)
                return self.current
            waiting = []
            for one in self.tasks:
                deadline, paused = one.deadline, one.program.paused
                if deadline is not None or paused > now:
                    waiting.append(paused if deadline is None or deadline < paused else deadline)
            if not waiting:
                self.stuck = ", ".join(one.name for one in self.tasks)
                self.current = self._entered
                return self._entered
            self.now = max(now, min(waiting))


class Current:
    """The world of this process; the stand-ins below act on it."""

    threads: Threads


def threads() -> Threads:
    return Current.threads


class Lock:
    """In place of ``threading.Lock``."""

    reentrant = False

    def __init__(self) -> None:
        self._owner: Task | None = None
        self._depth = 0

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        world = threads()
        world.step()
        task = world.task
        if self._owner is task and self.reentrant:
            self._depth += 1
            return True
        if self._owner is not None and (
            not blocking or not world.wait(lambda: self._owner is None, None if timeout < 0 else timeout)
        ):
            return False
        self._owner, self._depth = task, 1
        return True

    def release(self) -> None:
        world = threads()
        self._depth -= 1
        if self._depth <= 0:
            self._owner = None
        if not world.task.program.is_dead:
            world.step()

    def locked(self) -> bool:
        return self._owner is not None

    def __enter__(self) -> bool:
        return self.acquire()

    def __exit__(self, *_: object) -> None:
        self.release()


class RLock(Lock):
    """In place of ``threading.RLock``."""

    reentrant = True


class Condition(RLock):
    """In place of ``threading.Condition``."""

    def __init__(self, lock: Lock | None = None) -> None:
        super().__init__()
        assert lock is None
        self._calls = 0

    def wait(self, timeout: float | None = None) -> bool:
        mine, depth = self._calls, self._depth
        self._owner, self._depth = None, 0
        found = threads().wait(lambda: self._calls != mine and self._owner is None, timeout)
        if self.locked():
            threads().wait(lambda: self._owner is None)
        self._owner, self._depth = threads().task, depth
        return found

    def wait_for(self, predicate: Callable[[], bool], timeout: float | None = None) -> bool:
        end = None if timeout is None else threads().now + timeout
        while not predicate():
            left = None if end is None else end - threads().now
            if left is not None and left <= 0:
                return False
            self.wait(left)
        return True

    def notify(self, count: int = 1) -> None:
        del count
        self._calls += 1

    def notify_all(self) -> None:
        self._calls += 1


class Event:
    """In place of ``threading.Event``."""

    def __init__(self) -> None:
        self._is_set = False

    def is_set(self) -> bool:
        return self._is_set

    def set(self) -> None:
        self._is_set = True
        threads().step()

    def clear(self) -> None:
        self._is_set = False

    def wait(self, timeout: float | None = None) -> bool:
        return threads().wait(lambda: self._is_set, timeout)


class Thread:
    """In place of ``threading.Thread``."""

    def __init__(
        self,
        target: Callable[..., object],
        name: str = "thread",
        args: Sequence[object] = (),
        *,
        daemon: bool | None = None,
    ) -> None:
        del daemon
        self.name, self._target, self._args = name, target, args
        self._task: Task | None = None

    @property
    def ident(self) -> int | None:
        return None if self._task is None else self._task.ident

    def start(self) -> None:
        world = threads()
        self._task = world.spawn(world.task.program, self.name, lambda: self._target(*self._args))
        self._task.thread = self
        world.step()

    def is_alive(self) -> bool:
        return self._task is not None and not self._task.is_over

    def join(self, timeout: float | None = None) -> None:
        threads().wait(lambda: not self.is_alive(), timeout)


def _select(
    readers: Iterable[Any], _writers: Iterable[Any], _others: Iterable[Any], timeout: float | None = None
) -> tuple[list[Any], list[Any], list[Any]]:
    watched = [*readers]
    threads().wait(lambda: any(one.is_readable() for one in watched), timeout)
    return [one for one in watched if one.is_readable()], [], []


def _current_thread() -> object:
    return threads().task.thread


class StandIn(types.ModuleType):
    """A module of which some names are the world's; the others are those of the module itself."""

    def __init__(self, module: types.ModuleType, **names: object) -> None:
        super().__init__(module.__name__)
        self._module = module
        self.__dict__.update(names)

    def __getattr__(self, name: str) -> Any:
        found = self.__dict__[name] = getattr(self._module, name)
        return found


TIME = StandIn(
    time,
    monotonic=lambda: threads().now,
    monotonic_ns=lambda: int(threads().now * 1e9),
    perf_counter=lambda: threads().now,
    time=lambda: threads().wall + threads().now,
    time_ns=lambda: int((threads().wall + threads().now) * 1e9),
    sleep=lambda seconds: threads().sleep(seconds),
)
THREADING = StandIn(
    threading,
    Lock=Lock,
    RLock=RLock,
    Condition=Condition,
    Event=Event,
    Thread=Thread,
    get_ident=lambda: threads().task.ident,
    current_thread=_current_thread,
)
SELECT = StandIn(select, select=_select)
