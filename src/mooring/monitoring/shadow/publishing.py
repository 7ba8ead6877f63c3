"""A shadow's counts in the cluster: an object of the node, written by a thread of its own.

The shadow never waits for it. A write that fails is retried, and reported now and then.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Final

import httpx2

from mooring.engine.core.errors import MooringError
from mooring.engine.core.machine import Finding
from mooring.inputs.decoding.fields import Report, ignore
from mooring.monitoring.shadow.tally import Tally, now_text
from mooring.published.shadow_document import shadow_document
from mooring.published.writing import Pace, Rhythm, apply, node_uid
from mooring.service.cluster.apiserver import Cluster, ClusterError

RHYTHM: Final = Rhythm(gathering=1.0, least=60.0)
"""The counts of a node are written once a minute at most."""
LOOKING: Final = 1.0
"""Seconds between two checks of the counts."""
ENDING: Final = 15.0
"""Seconds that the last write may take."""
_SUBJECT: Final = "--publish"


class ShadowPublisher:
    """Publishes the counts of one node from its start until it is closed."""

    def __init__(
        self,
        tally: Tally,
        connect: Callable[[], Cluster],
        report: Report = ignore,
        *,
        clock: Callable[[], float] = time.monotonic,
        today: Callable[[], str] = now_text,
    ) -> None:
        """Do nothing yet.

        Args:
            tally: is read.
            connect: opens the way to the API server, again after a failure, so that renewed credentials are read.
            report: receives outages and recoveries.
            clock: seconds that only go forward.
            today: now, as RFC 3339.
        """
        self._tally, self._connect, self._report, self._clock, self._today = tally, connect, report, clock, today
        self._pace = Pace(RHYTHM)
        self._seen = -1
        self._cluster: Cluster | None = None
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="mooring-shadow-publisher", daemon=True)

    def start(self) -> ShadowPublisher:
        """Begin to write."""
        self._thread.start()
        return self

    def close(self) -> None:
        """Write what is not written yet, and end."""
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join(ENDING)
        else:
            self._disconnect()

    def step(self, *, last: bool = False) -> None:
        """Write when it is time to.

        Args:
            last: whether there is no later time: what has changed is written now.
        """
        now, changes = self._clock(), self._tally.changes
        if changes != self._seen:
            self._seen, self._pace = changes, self._pace.changed(now)
        due = self._pace.due
        if due is None or (now < due and not (last and self._pace.first is not None)):
            return
        try:
            self._write()
        except MooringError as error:
            self._failed(error)
        else:
            if self._pace.failures:
                self._report(Finding("info", _SUBJECT, f"the counts of {self._tally.node} are published again"))
            self._pace = self._pace.written(self._clock())

    def _run(self) -> None:
        while not self._stopping.wait(LOOKING):
            self.step()
        self.step(last=True)
        self._disconnect()

    def _write(self) -> None:
        if self._cluster is None:
            self._cluster = self._connect()
        http, node = self._cluster.http, self._tally.node
        apply(http, shadow_document(self._tally.document(self._today()), node_uid(http, node)))

    def _failed(self, error: MooringError) -> None:
        self._disconnect()
        pause = error.pause if isinstance(error, ClusterError) else 0.0
        self._pace = self._pace.failed(self._clock(), self._tally.node, pause)
        if self._pace.failures <= 2 or self._pace.failures % 20 == 0:
            missing = isinstance(error, ClusterError) and error.code == httpx2.codes.NOT_FOUND
            remedy = "; apply the definitions of deploy/crds" if missing else ""
            message = f"the counts are not published (attempt {self._pace.failures}): {error}{remedy}"
            self._report(Finding("warning", _SUBJECT, message))

    def _disconnect(self) -> None:
        if self._cluster is not None:
            self._cluster.close()
            self._cluster = None
