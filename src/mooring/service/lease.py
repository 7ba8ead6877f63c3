"""Which of several replicas works: the one that holds a Lease.

A holder renews the Lease every second, and may work until :data:`VALID` seconds after it sent the last renewal that
succeeded. Another replica takes the Lease over when its holder gave it up, or when it saw no renewal for
:data:`DURATION` seconds by its own clock. So no clock is compared with another one, and for two seconds in between
nobody works.

Source: the algorithm of client-go v0.37 (tools/leaderelection), with its parameters.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, Final
from uuid import uuid4

from mooring.service.apiserver import Cluster, ClusterError, asked, asked_json

PERIOD: Final = 1.0
"""Seconds between two tries."""
DURATION: Final = 6
"""Seconds without a renewal after which another replica takes over."""
VALID: Final = 4.0
"""Seconds for which a renewal allows its holder to work."""
ANSWER_TIME: Final = 2.0
"""Seconds for a request: a later answer would not help."""

Lease = dict[str, Any]


ReadLease = Callable[[], Lease]
"""Returns the Lease, or raises a :class:`ClusterError`."""
WriteLease = Callable[[Lease], object]
"""Writes a Lease that was read, and raises a :class:`ClusterError` where another one was written since, or nothing was
written; with code 0 or of the server it may be written all the same."""


class Election:
    """One replica's part in it; used by one thread, except for :meth:`may_work_for`."""

    def __init__(self, read: ReadLease, write: WriteLease, name: str, clock: Callable[[], float]) -> None:
        """Begin as a standby.

        Args:
            read: asks for the Lease.
            write: changes it.
            name: of this replica, for people.
            clock: seconds that only go forward.
        """
        self._read, self._put, self._clock = read, write, clock
        # A replica that starts again is another one: nobody can tell what the first has on the way.
        self._identity = f"{name}_{uuid4().hex[:12]}"
        self._until = clock()
        self._seen: tuple[object, ...] = ()
        self._seen_at = clock()
        self._holder = ""

    def may_work_for(self, seconds: float) -> bool:
        """Tell whether the Lease is held, and will be for some seconds."""
        return self._clock() + seconds < self._until

    @property
    def leads(self) -> bool:
        """Whether this replica works."""
        return self.may_work_for(0.0)

    def step(self, *, stands: bool = True) -> None:
        """Renew the Lease, or take it where it is free.

        Args:
            stands: whether this replica wants the Lease.

        Raises:
            ClusterError: the Lease cannot be read or written.
        """
        lease = self._read()
        spec = lease.get("spec") or {}
        record = spec.get("holderIdentity"), spec.get("renewTime"), spec.get("leaseTransitions")
        if record != self._seen:
            self._seen, self._seen_at = record, self._clock()
        self._holder = str(spec.get("holderIdentity") or "")
        is_held = bool(self._holder) and self._clock() - self._seen_at < (spec.get("leaseDurationSeconds") or DURATION)
        if not stands or (is_held and self._holder != self._identity):
            return
        if not self._write(lease, self._identity):
            return
        self._holder = self._identity

    def take_part(
        self, stands: Callable[[], bool], stop: threading.Event, report: Callable[[str, str], object]
    ) -> None:
        """Take the Lease once it is free, and renew it until the process is to end.

        Args:
            stands: whether this replica wants the Lease; where its work hangs, another one takes over.
            stop: set when the process is to end.
            report: receives what is the matter.

        Raises:
            ClusterError: the Lease is lost: another replica decides by now, or will soon.
        """
        led = False
        while not stop.is_set():
            try:
                self.step(stands=stands())
            except ClusterError as error:
                report("lease", str(error))
            if led and not self.leads:
                raise ClusterError("the lease is lost: another replica goes on, and this one has to start again")
            led = self.leads
            stop.wait(PERIOD)

    def release(self) -> None:
        """Give the Lease up, once this replica has stopped working.

        Raises:
            ClusterError: it cannot be written; then it runs out.
        """
        self._until = self._clock()
        lease = self._read()
        if (lease.get("spec") or {}).get("holderIdentity") == self._identity:
            self._write(lease, "")
            self._until = self._clock()

    def _write(self, lease: Lease, holder: str) -> bool:
        """Write the holder; return whether no other replica has written before."""
        before, now = lease.get("spec") or {}, datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        taken = holder != before.get("holderIdentity")
        spec = {
            "holderIdentity": holder,
            "leaseDurationSeconds": DURATION,
            "acquireTime": now if taken else before.get("acquireTime"),
            "renewTime": now,
            "leaseTransitions": (before.get("leaseTransitions") or 0) + int(taken and bool(holder)),
        }
        sent = self._clock()
        try:
            self._put({**lease, "spec": spec})
        except ClusterError as error:
            if error.code == 409:
                return False
            raise
        self._until = sent + VALID
        return True


def lease_at(connect: Callable[[], Cluster], namespace: str, name: str) -> tuple[ReadLease, WriteLease]:
    """Return what reads and what writes the Lease of an API server; its answers are to be waited for shortly."""
    path = f"apis/coordination.k8s.io/v1/namespaces/{namespace}/leases/{name}"

    def read() -> Lease:
        with connect() as cluster:
            return asked_json(cluster.http, "GET", path)

    def write(lease: Lease) -> None:
        with connect() as cluster:
            asked(cluster.http, "PUT", path, json=lease)

    return read, write
