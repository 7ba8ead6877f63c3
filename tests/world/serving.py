"""Queues, pools and servers of a world: a request is a thread that runs the application's coroutine."""

from __future__ import annotations

import asyncio
import concurrent.futures
import queue
from collections import deque
from collections.abc import AsyncIterator, Callable, Collection, Coroutine
from contextlib import asynccontextmanager
from typing import Any

from tests.world.threads import StandIn, Thread, threads


class SimpleQueue:
    """In place of ``queue.SimpleQueue`` and, with a size, of ``queue.Queue``."""

    def __init__(self, maxsize: int = 0) -> None:
        self._items: deque[Any] = deque()
        self._size = maxsize

    def __class_getitem__(cls, _of: object) -> type:
        return cls

    def _has_room(self) -> bool:
        return not self._size or len(self._items) < self._size

    def put(self, item: object, block: bool = True, timeout: float | None = None) -> None:
        threads().step()
        if not self._has_room() and not (block and threads().wait(self._has_room, timeout)):
            raise queue.Full
        self._items.append(item)

    def put_nowait(self, item: object) -> None:
        self.put(item, block=False)

    def get(self, block: bool = True, timeout: float | None = None) -> Any:
        threads().step()
        if not self._items and not (block and threads().wait(lambda: bool(self._items), timeout)):
            raise queue.Empty
        return self._items.popleft()

    def get_nowait(self) -> Any:
        return self.get(block=False)

    def qsize(self) -> int:
        return len(self._items)

    def empty(self) -> bool:
        return not self._items


class Future:
    """In place of ``concurrent.futures.Future``."""

    def __init__(self, work: Callable[[], object]) -> None:
        self._work = work
        self._found: object = None
        self._error: Exception | None = None
        self._is_done = False

    def __class_getitem__(cls, _of: object) -> type:
        return cls

    def run(self) -> None:
        try:
            self._found = self._work()
        except Exception as error:  # noqa: BLE001 - who asks for the result gets it
            self._error = error
        self._is_done = True

    def done(self) -> bool:
        return self._is_done

    def result(self) -> Any:
        threads().wait(self.done)
        if self._error is not None:
            raise self._error
        return self._found


class Pool:
    """In place of ``concurrent.futures.ThreadPoolExecutor``."""

    def __init__(self, most: int, name: str) -> None:
        self._most, self._name = most, name
        self._waiting: deque[Future] = deque()
        self._threads: list[Thread] = []
        self._idle = 0
        self._is_over = False

    def submit(self, work: Callable[..., object], *given: object) -> Future:
        if self._is_over:
            raise RuntimeError("cannot schedule new futures after shutdown")
        future = Future(lambda: work(*given))
        self._waiting.append(future)
        if self._idle < len(self._waiting) and len(self._threads) < self._most:
            self._threads.append(Thread(self._run, f"{self._name}_{len(self._threads)}"))
            self._threads[-1].start()
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        self._is_over = True
        if cancel_futures:
            self._waiting.clear()
        for one in self._threads if wait else ():
            one.join()

    def _run(self) -> None:
        while True:
            self._idle += 1
            threads().wait(lambda: self._is_over or bool(self._waiting))
            self._idle -= 1
            if not self._waiting:
                return
            self._waiting.popleft().run()


class Loop:
    """In place of the running event loop."""

    @staticmethod
    def run_in_executor(pool: Pool, work: Callable[..., object], *given: object) -> Future:
        return pool.submit(work, *given)


@asynccontextmanager
async def _timeout(_seconds: float) -> AsyncIterator[None]:
    yield


async def _wait(futures: Collection[Future], timeout: float) -> tuple[list[Future], list[Future]]:
    threads().wait(lambda: all(one.done() for one in futures), timeout)
    return [one for one in futures if one.done()], [one for one in futures if not one.done()]


class Semaphore:
    """In place of ``asyncio.Semaphore``."""

    def __init__(self, value: int) -> None:
        self._value = value

    def locked(self) -> bool:
        return self._value == 0

    async def acquire(self) -> None:
        threads().wait(lambda: self._value > 0)
        self._value -= 1

    def release(self) -> None:
        self._value += 1


QUEUE = StandIn(queue, SimpleQueue=SimpleQueue, Queue=SimpleQueue)
ASYNCIO = StandIn(asyncio, get_running_loop=Loop, timeout=_timeout, wait=_wait, Semaphore=Semaphore)
FUTURES = StandIn(concurrent.futures, Future=Future, ThreadPoolExecutor=Pool)


def answered(app: Any, path: str, body: bytes) -> tuple[int, bytes]:
    """Return status and content of an application's answer; every await in it is a wait of this thread."""
    sent: list[Any] = []

    async def receive() -> Any:
        return {"type": "http.request", "body": body, "more_body": False}

    async def send(message: Any) -> None:
        sent.append(message)

    method = "POST" if body else "GET"
    scope = {"type": "http", "method": method, "path": path, "query_string": b"", "headers": [], "asgi": {}}
    _run(app(scope, receive, send))
    return sent[0]["status"], b"".join(message.get("body", b"") for message in sent)


def _run(work: Coroutine[Any, Any, object]) -> None:
    try:
        work.send(None)
    except StopIteration:
        return
    raise AssertionError("the application waits for something that is not the world's")
