"""Several replicas: the one that holds the Lease decides, the others pass connections on to it.

So every replica is ready behind the Service, and only one decides. Bytes are passed on as they are, TLS included.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from contextlib import closing, suppress
from threading import Event, Thread
from typing import Final, Protocol

from mooring.core.errors import InputError
from mooring.scheduling.watches import Report
from mooring.service.cluster.apiserver import ClusterError
from mooring.service.cluster.lease import PERIOD, Election
from mooring.service.options import parse_address

CONNECTIONS: Final = 512
"""A scheduler keeps one for each request that is under way."""
_CONNECTING: Final = 2.0
"""Seconds for a connection to the replica that works."""
_CHUNK: Final = 1 << 16


class LeaseCandidate(Protocol):
    """A replica as far as the election goes."""

    @property
    def is_ready(self) -> bool:
        """Whether everything has been listed."""

    @property
    def hangs(self) -> bool:
        """Whether it has stopped to answer."""


def wait_for_lease(
    election: Election, extender: LeaseCandidate, listener: socket.socket, stop: Event, report: Report
) -> bool:
    """Pass connections on until this replica holds the Lease; return whether it does.

    Args:
        election: is taken part in once everything has been listed.
        extender: of this replica.
        listener: where the scheduler connects; it stays open.
        stop: set when the process is to end.
        report: receives what is the matter.
    """
    with closing(Standby(listener, lambda: election.address, CONNECTIONS)):
        while not stop.is_set():
            _step(election, report, stands=extender.is_ready)
            if election.leads:
                return True
            stop.wait(PERIOD)
    return False


def hold_lease(election: Election, extender: LeaseCandidate, stop: Event, report: Report) -> None:
    """Renew the Lease until the process is to end.

    Raises:
        ClusterError: the Lease is lost: another replica decides by now, or will soon. Or the engine hangs.
    """
    while not stop.wait(PERIOD):
        if extender.hangs:
            raise ClusterError(
                "the engine hangs: the lease is left to another replica, and this one has to start again"
            )
        _step(election, report)
        if not election.leads:
            raise ClusterError("the lease is lost: another replica goes on, and this one has to start again")


def _step(election: Election, report: Report, *, stands: bool = True) -> None:
    try:
        election.step(stands=stands)
    except ClusterError as error:
        report("lease", str(error))


class Standby:
    """Serves a listener from a thread of its own until it is closed; the listener stays open."""

    def __init__(self, listener: socket.socket, address: Callable[[], str], connections: int) -> None:
        """Begin to pass on.

        Args:
            listener: listens already.
            address: returns where connections go, as host and port; empty: they are closed.
            connections: how many are passed on at once; further ones are closed.
        """
        self._listener, self._address, self._most = listener.dup(), address, connections
        self._open: set[asyncio.Task[None]] = set()
        self._started = Event()
        self._thread = Thread(target=lambda: asyncio.run(self._run()), name="standby", daemon=True)
        self._thread.start()
        self._started.wait()

    def close(self) -> None:
        """Close all connections that are passed on; the scheduler opens others."""
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join()

    async def _run(self) -> None:
        self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
        server = await asyncio.start_server(self._accepted, sock=self._listener)
        self._started.set()
        await self._stop.wait()
        server.close()
        for task in self._open:
            task.cancel()
        await asyncio.gather(*self._open, return_exceptions=True)

    async def _accepted(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        if task is None or len(self._open) >= self._most:
            writer.close()
            return
        self._open.add(task)
        try:
            await self._passed(reader, writer)
        except asyncio.CancelledError:
            return  # by the end of _run; the streams of Python 3.11 would log it as an error
        finally:
            self._open.discard(task)
            writer.close()

    async def _passed(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError, TimeoutError, InputError):
            address = parse_address(self._address(), field="holderIdentity", example="10.0.0.7:8888")
            if address is None:
                return
            # wait_for of Python 3.11 forgets that it was cancelled when the connection opens at the same moment.
            async with asyncio.timeout(_CONNECTING):
                from_leader, to_leader = await asyncio.open_connection(address.host, address.port)
            try:
                ways = [asyncio.ensure_future(_pump(*way)) for way in ((reader, to_leader), (from_leader, writer))]
                # Either side may end it: what HTTP has said by then is complete, or is asked again.
                try:
                    await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
                finally:
                    for way in ways:
                        way.cancel()
                    await asyncio.gather(*ways, return_exceptions=True)
            finally:
                to_leader.close()


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(_CHUNK):
        writer.write(data)
        await writer.drain()
