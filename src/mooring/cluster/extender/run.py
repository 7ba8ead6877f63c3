"""The extender as a process: what it follows, where it listens, with which limits, and how it stops."""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack, closing, suppress
from dataclasses import dataclass, field
from dataclasses import replace as with_fields
from functools import partial
from typing import Final

from msgspec.structs import replace

from mooring.cluster.extender.answers import Answers
from mooring.cluster.extender.binding import Binder, ClusterPodAPI, PodAPI
from mooring.cluster.extender.claims import ClaimView
from mooring.cluster.extender.deciding import Decider
from mooring.cluster.extender.options import ExtenderOptions, load_extender_options
from mooring.cluster.extender.pods import Shapes
from mooring.cluster.extender.possible_nodes import NodeVerdict
from mooring.cluster.extender.service import NOT_FOLLOWING, NOT_LEADING, NOT_LISTED, ExtenderMetrics, Service
from mooring.cluster.extender.view import ClusterView
from mooring.cluster.extender.watches import Report, followers
from mooring.engine.core.errors import InputError
from mooring.engine.core.pod import Pod
from mooring.engine.kubelet.admit import shape_of
from mooring.published.possible_kubelets import NodeFaults
from mooring.service.apiserver import Cluster, ClusterError, cluster_of, configuration_of
from mooring.service.daemon import Heartbeat, settle, short_turns, stop_signals
from mooring.service.following import Follower
from mooring.service.http import Application, ConnectionLimits, HTTPServer, TLSFiles, listener_at, tls_context
from mooring.service.lease import ANSWER_TIME, PERIOD, Election, lease_at
from mooring.service.logs import Traces, open_traces, start_log
from mooring.service.options import LogLevel

_TIDY_PERIOD = 5.0
"""Seconds between two times that what is over is forgotten."""
_SETTLE_PERIOD = 60.0
"""Seconds after which the garbage collector leaves out what is known by then: with 5,000 nodes and 50,000 pods a
collection of everything holds up an answer for 150 ms (Python 3.11). What is no longer used is freed all the same,
except for cycles."""
_WHOLE_PERIOD = 3600.0
"""Seconds after which everything is collected once, so that cycles do not add up."""
_PATIENCE = 4
"""Times of a request after which a silent engine hangs: it ends each of those that wait within that time."""
_LOOK_PERIOD = 0.02
"""Seconds between two looks for nodes that have changed."""


@dataclass(frozen=True, slots=True)
class Extender:
    """An extender with everything that belongs to it."""

    view: ClusterView
    service: Service
    followers: list[Follower]
    metrics: ExtenderMetrics
    stopping: threading.Event
    heartbeat: Heartbeat
    longest_pause: float
    election: Election | None = None
    failing: threading.Event = field(default_factory=threading.Event)
    """Set while outlooks cannot be made."""

    @property
    def has_listed(self) -> bool:
        """Whether everything has been listed."""
        return all(one.has_listed.is_set() for one in self.followers)

    def problem(self) -> str:
        """Return what keeps this replica from deciding; empty when nothing does."""
        if not self.has_listed:
            return NOT_LISTED
        if self.failing.is_set() or any(one.defect.is_set() for one in self.followers):
            return NOT_FOLLOWING
        return NOT_LEADING if self.election is not None and not self.election.leads else ""

    def hang(self) -> str:
        """Return what has stopped to get on; empty when nothing has."""
        age = self.heartbeat.age()
        return f"engine or predictions have stood still for {age:.0f} seconds" if age > self.longest_pause else ""

    def start(self) -> None:
        """Start to follow the cluster."""
        for one in self.followers:
            one.start()
        threading.Thread(target=self._predict, name="mooring-outlooks", daemon=True).start()

    def stop(self) -> None:
        """End all threads."""
        self.stopping.set()
        for one in self.followers:
            one.stop()
        self.service.close()

    def _predict(self) -> None:
        """Make the outlooks of changed nodes before the scheduler requests them."""
        tidy = settled = time.monotonic()
        whole = settled + _WHOLE_PERIOD
        beat = settled

        def look() -> bool:
            nonlocal tidy, settled, whole, beat
            for name in self.view.changed_nodes():
                self.view.outlook(name)
                if self.stopping.is_set():
                    return True
                beat = self._beat(beat)
            beat = self._beat(beat)
            now = time.monotonic()
            if now >= tidy:
                tidy = now + _TIDY_PERIOD
                self.view.prune()
            if now >= settled and self.has_listed:
                settled = now + _SETTLE_PERIOD
                settle(whole=now >= whole)
                whole = now + _WHOLE_PERIOD if now >= whole else whole
            return True

        while not self.stopping.wait(_LOOK_PERIOD):
            if self.view.faults.guarded("outlooks", look, lambda _error: False):
                self.failing.clear()
            else:
                self.failing.set()

    def _beat(self, due: float) -> float:
        """Take it that predictions get on, if the engine does; return when to do so again."""
        now = time.monotonic()
        if now < due or not self.service.has_come_round():
            return due
        self.heartbeat.beat()
        return now + PERIOD


def extender_with(
    options: ExtenderOptions,
    connect: Callable[[], Cluster],
    report: Report,
    server: PodAPI | None = None,
    election: Election | None = None,
    traces: Traces | None = None,
) -> Extender:
    """Put an extender together; it does nothing yet.

    Args:
        options: the document's.
        connect: opens a way to the API server, for one thread.
        report: receives what is the matter with what.
        server: binds pods; the API server by default.
        election: decides which of several replicas binds pods; None where there is one.
        traces: where spans of requests go; None for nowhere.
    """
    claims = ClaimView() if options.device_claims else None
    view = ClusterView(
        time.monotonic,
        assumed_for=options.assumed_for,
        longest_age=options.longest_state_age,
        claims=claims,
        faults=NodeFaults(report),
    )
    shapes, decider = Shapes(), Decider(options.unknown_nodes)
    last_word, one_at_a_time = Decider(options.unknown_nodes), threading.Lock()

    def undecided(about: str, why: str) -> None:
        metrics.undecided.inc()
        report(about, why)

    answers = Answers(view, decider, options.weights, shapes, claims, undecided)

    def verdict(pod: Pod, node: str) -> NodeVerdict:
        outlook = view.outlook(node, pod)
        shape = answers.shape_on(node, pod, shape_of(pod))
        with one_at_a_time:
            return with_fields(answers, decider=last_word).verdict(node, outlook, shape)

    def counts() -> dict[str, int]:
        engine = {"engine_runs": decider.runs + last_word.runs, "known_answers": decider.hits + last_word.hits}
        return {**view.counts(), **engine, "ready": int(made.has_listed)}

    metrics = ExtenderMetrics(counts)
    view.report_refusals(metrics.refused)

    def failed(about: str, problem: str) -> None:
        metrics.outages.labels(about.partition(" ")[0]).inc()
        report(about, problem)

    service = Service(
        answers,
        Binder(view, server or ClusterPodAPI(connect), shapes, verdict, election, claims),
        metrics,
        options,
        lambda: made.problem(),  # noqa: PLW0108 - it is made below
        lambda: made.hang(),  # noqa: PLW0108 - as above
        traces=traces,
    )
    made = Extender(
        view,
        service,
        followers(connect, view, shapes, failed, claims),
        metrics,
        threading.Event(),
        Heartbeat(time.monotonic),
        options.request_time * _PATIENCE,
        election,
    )
    return made


def run_extender(config: str, kubeconfig: str, advertise: str = "") -> None:
    """Be the extender until SIGTERM or SIGINT.

    Args:
        config: its file.
        kubeconfig: in place of the file's.
        advertise: name of this replica in the Lease; by default the host's with the port.

    Raises:
        InputError: it cannot begin.
        ClusterError: the Lease is lost.
    """
    options = load_extender_options(config)
    options = replace(options, kubeconfig=kubeconfig or options.kubeconfig)
    configuration = configuration_of(options.kubeconfig or None)
    log = start_log(options.log_format, LogLevel.INFO, name="mooring.extender")

    def connect() -> Cluster:
        try:
            return cluster_of(configuration)
        except InputError as error:
            raise ClusterError(str(error)) from None

    cluster_of(configuration).close()  # mistakes in the credentials are reported at once
    election = None
    if options.lease.name:
        connected = partial(cluster_of, configuration, answer_time=ANSWER_TIME)
        read, write = lease_at(connected, options.lease.namespace, options.lease.name)
        election = Election(read, write, advertise or f"{socket.gethostname()}:{options.listen.port}", time.monotonic)

    def report(about: str, problem: str) -> None:
        log.warning(problem, about=about)

    traces = open_traces("mooring-extender", os.environ, log.warning)
    extender = extender_with(options, connect, report, election=election, traces=traces)
    with ExitStack() as opened:
        if traces is not None:
            opened.callback(traces.close)
        if options.health_address is not None:
            listener = listener_at(options.health_address, "choose another address", field="healthAddress")
            opened.callback(HTTPServer(listener, extender.service.health, limits_of(options)).close)
        if options.webhook_address is not None:
            opened.callback(serve(options, extender.service.webhook, report=report, is_webhook=True).close)
        server = serve(options, extender.service.app, report=report)
        opened.callback(extender.stop)
        with closing(server), short_turns(), stop_signals() as stop:
            extender.start()
            log.info("extender started", listen=str(options.listen), tls=bool(options.tls.certificate))
            if election is None:
                stop.wait()
            else:
                take_part(election, lambda: extender.has_listed and not extender.hang(), stop, report)
        if election is not None:
            extender.service.finish_binds()
            with suppress(ClusterError):
                election.release()
    log.info("extender stopped")


def take_part(election: Election, stands: Callable[[], bool], stop: threading.Event, report: Report) -> None:
    """Take the Lease once it is free, and renew it until the process is to end.

    Args:
        election: of this replica.
        stands: whether it wants the Lease; where its engine hangs, another one takes over.
        stop: set when the process is to end.
        report: receives what is the matter.

    Raises:
        ClusterError: the Lease is lost: another replica decides by now, or will soon.
    """
    led = False
    while not stop.is_set():
        try:
            election.step(stands=stands())
        except ClusterError as error:
            report("lease", str(error))
        if led and not election.leads:
            raise ClusterError("the lease is lost: another replica goes on, and this one has to start again")
        led = election.leads
        stop.wait(PERIOD)


_CONNECTIONS: Final = 512
"""A scheduler keeps one for each request that is under way."""
_IDLE: Final = 100.0
"""Seconds until the next request: longer than the 90 after which the scheduler closes an idle connection.

Source: Go's http.DefaultTransport, whose IdleConnTimeout k8s.io/apimachinery v0.37 takes.
"""
_BUSY: Final = 3
"""Times of a request within which it is over in any case: its body, its answer, and as much again."""
_GRACE: Final = 5.0
"""Seconds for requests under way when the extender ends."""


def serve(
    options: ExtenderOptions,
    app: Application,
    limits: ConnectionLimits | None = None,
    report: Report = lambda _about, _problem: None,
    *,
    is_webhook: bool = False,
) -> HTTPServer:
    """Serve an application where the options say.

    Args:
        options: of the extender.
        app: answers.
        limits: in place of those of the options.
        report: receives what is the matter with what.
        is_webhook: whether API servers ask it, which have no certificate.

    Raises:
        InputError: the certificates or the address cannot be used.
    """
    tls, address, name = None, options.listen, "listen"
    if is_webhook and options.webhook_address is not None:
        address, name = options.webhook_address, "webhookAddress"
    if options.tls.certificate:
        authority = "" if is_webhook else options.tls.client_ca
        files = TLSFiles(options.tls.certificate, options.tls.key, authority, field="tls")
        tls = tls_context(files, lambda problem: report("tls", problem))
    listener = listener_at(address, "choose another address", field=name)
    return HTTPServer(listener, app, limits or limits_of(options), tls=tls)


def limits_of(options: ExtenderOptions) -> ConnectionLimits:
    """Return how long clients may take."""
    seconds = options.request_time
    whole = seconds * _BUSY
    return ConnectionLimits(seconds, whole, whole, _IDLE, connections=_CONNECTIONS, head=64 * 1024, grace=_GRACE)
