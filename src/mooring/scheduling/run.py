"""The extender as a process: what it follows, where it listens, with which limits, and how it stops."""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, nullcontext, suppress
from dataclasses import dataclass
from ssl import SSLContext
from typing import Final

from msgspec.structs import replace

from mooring.core.errors import InputError
from mooring.core.pod import Pod
from mooring.kubelet.shapes import shape_of
from mooring.scheduling.answers import Answers
from mooring.scheduling.binding import Binder
from mooring.scheduling.claims import ClaimView
from mooring.scheduling.deciding import Decider, NodeVerdict
from mooring.scheduling.options import ExtenderOptions, load_extender_options
from mooring.scheduling.pod_api import ClusterPodAPI, PodAPI
from mooring.scheduling.pods import Shapes
from mooring.scheduling.replicas import CONNECTIONS, hold_lease, wait_for_lease
from mooring.scheduling.service import ExtenderMetrics, RequestLimits, Service
from mooring.scheduling.tls import tls_context
from mooring.scheduling.view import ClusterView
from mooring.scheduling.watches import Report, followers
from mooring.service.cluster.apiserver import Cluster, ClusterError, cluster_of, configuration_of
from mooring.service.cluster.following import Follower
from mooring.service.cluster.lease import Election, lease_of
from mooring.service.daemon import settle, stop_signals
from mooring.service.http import HTTPServer, listener_at
from mooring.service.logs import start_log
from mooring.service.options import LogLevel, parse_address
from mooring.service.pages import Application, ConnectionLimits
from mooring.service.tracing import Traces, open_traces

_TIDY_PERIOD = 5.0
"""Seconds between two times that what is over is forgotten."""
_SETTLE_PERIOD = 60.0
"""Seconds after which the garbage collector leaves out what is known by then: with 5,000 nodes and 50,000 pods a
collection of everything holds up an answer for 150 ms (Python 3.11). What is no longer used is freed all the same,
except for cycles."""
_WHOLE_PERIOD = 3600.0
"""Seconds after which everything is collected once, so that cycles do not add up."""
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

    @property
    def is_ready(self) -> bool:
        """Whether everything has been listed."""
        return all(one.has_listed.is_set() for one in self.followers)

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
        while not self.stopping.wait(_LOOK_PERIOD):
            for name in self.view.changed_nodes():
                self.view.outlook(name)
                if self.stopping.is_set():
                    return
            now = time.monotonic()
            if now >= tidy:
                tidy = now + _TIDY_PERIOD
                self.view.prune()
            if now >= settled and self.is_ready:
                settled = now + _SETTLE_PERIOD
                settle(whole=now >= whole)
                whole = now + _WHOLE_PERIOD if now >= whole else whole


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
        time.monotonic, assumed_for=options.assumed_for, longest_age=options.longest_state_age, claims=claims
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
            return last_word.verdict(outlook, shape)

    def counts() -> dict[str, int]:
        engine = {"engine_runs": decider.runs + last_word.runs, "known_answers": decider.hits + last_word.hits}
        return {**view.counts(), **engine, "ready": int(made.is_ready)}

    metrics = ExtenderMetrics(counts)
    view.report_refusals(metrics.refused)

    def failed(about: str, problem: str) -> None:
        metrics.outages.labels(about.partition(" ")[0]).inc()
        report(about, problem)

    service = Service(
        answers,
        Binder(view, server or ClusterPodAPI(connect), shapes, verdict, election, claims),
        metrics,
        RequestLimits(options.request_time, options.largest_body, options.requests_at_once),
        lambda: made.is_ready,
        traces=traces,
    )
    made = Extender(view, service, followers(connect, view, shapes, failed, claims), metrics, threading.Event())
    return made


def run_extender(config: str, kubeconfig: str, advertise: str = "") -> None:
    """Be the extender until SIGTERM or SIGINT.

    Args:
        config: its file.
        kubeconfig: in place of the file's.
        advertise: where other replicas reach this one; empty where it is the only one.

    Raises:
        InputError: it cannot begin.
    """
    options = load_extender_options(config)
    options = replace(options, kubeconfig=kubeconfig or options.kubeconfig)
    if bool(options.lease.name) != bool(parse_address(advertise, source="--advertise", example="10.0.0.7:8888")):
        remedy = "give both for several replicas, neither for one"
        raise InputError("belongs together with --advertise", source=config, field="lease", remedy=remedy)
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
        lease = lease_of(configuration, options.lease.namespace, options.lease.name)
        election = Election(lease, advertise, time.monotonic)

    def report(about: str, problem: str) -> None:
        log.warning(problem, about=about)

    traces = open_traces("mooring-extender", os.environ, log.warning)
    extender = extender_with(options, connect, report, election=election, traces=traces)
    listener, tls = _listening(options, report)
    with nullcontext() if traces is None else closing(traces), stop_signals() as stop, _running(extender):
        log.info("extender started", listen=str(options.listen), tls=tls is not None)
        if election is None or wait_for_lease(election, extender, listener, stop, report):
            with closing(HTTPServer(listener, extender.service.app, limits_of(options), tls=tls)):
                if election is None:
                    stop.wait()
                else:
                    log.info("extender holds the lease")
                    hold_lease(election, stop, report)
            if election is not None:
                extender.service.finish_binds()
                with suppress(ClusterError):
                    election.release()
    log.info("extender stopped")


@contextmanager
def _running(extender: Extender) -> Iterator[None]:
    extender.start()
    try:
        yield
    finally:
        extender.stop()


_IDLE: Final = 100.0
"""Seconds until the next request: longer than the 90 after which the scheduler closes an idle connection.

Source: Go's http.DefaultTransport, whose IdleConnTimeout k8s.io/apimachinery v0.37 takes.
"""
_BUSY: Final = 3
"""Times of a request within which it is over in any case: its body, its answer, and as much again."""
_GRACE: Final = 5.0
"""Seconds for requests under way when the extender ends."""


def serve(options: ExtenderOptions, app: Application, limits: ConnectionLimits | None = None) -> HTTPServer:
    """Serve an application where the options say.

    Args:
        options: of the extender.
        app: answers.
        limits: in place of those of the options.

    Raises:
        InputError: the certificates or the address cannot be used.
    """
    listener, tls = _listening(options, lambda _about, _problem: None)
    return HTTPServer(listener, app, limits or limits_of(options), tls=tls)


def _listening(options: ExtenderOptions, report: Report) -> tuple[socket.socket, SSLContext | None]:
    tls = tls_context(options.tls, report) if options.tls.certificate else None
    return listener_at(options.listen, "choose another address", field="listen"), tls


def limits_of(options: ExtenderOptions) -> ConnectionLimits:
    """Return how long clients may take."""
    seconds = options.request_time
    return ConnectionLimits(
        seconds, seconds * _BUSY, seconds * _BUSY, _IDLE, connections=CONNECTIONS, head=64 * 1024, grace=_GRACE
    )
