"""The extender put together: what it hears from the API server, where it listens, with which limits, how it stops."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from dataclasses import replace as with_fields
from functools import partial
from typing import Any, Final, TypeVar

import msgspec

from mooring.cluster.extender.answers import Answers
from mooring.cluster.extender.binding import Binder, ClusterPodAPI, PodAPI
from mooring.cluster.extender.claims import ClaimView
from mooring.cluster.extender.deciding import Decider
from mooring.cluster.extender.options import ExtenderOptions
from mooring.cluster.extender.pods import Seen, Shapes, seen_pod
from mooring.cluster.extender.possible_nodes import NodeVerdict
from mooring.cluster.extender.service import NOT_FOLLOWING, NOT_LEADING, NOT_LISTED, ExtenderMetrics, Service
from mooring.cluster.extender.view import ClusterView
from mooring.engine.core.errors import InputError
from mooring.engine.core.pod import Pod
from mooring.engine.kubelet.admit import shape_of
from mooring.published.facts_document import facts_of
from mooring.published.naming import names_of
from mooring.published.objects import FACTS, PATHS, STATE, object_name, state_of
from mooring.published.possible_kubelets import NodeFaults, unjudged
from mooring.service.apiserver import Cluster, ClusterError
from mooring.service.daemon import Heartbeat, settle
from mooring.service.following import PODS, Follower, ObjectListener, mapping_of
from mooring.service.http import Application, ConnectionLimits, HTTPServer, TLSFiles, listener_at, tls_context
from mooring.service.lease import PERIOD, Election
from mooring.service.logs import Traces

Report = Callable[[str, str], object]
"""Takes what something is about, and what is the matter."""
_RESOURCE = "apis/resource.k8s.io/v1"
_CLAIM, _CLASS = "ResourceClaim", "DeviceClass"
_T = TypeVar("_T")
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


# What the extender hears from the API server: facts, states and pods of all nodes.


def facts_listener(view: ClusterView, report: Report) -> ObjectListener:
    """Return what brings facts to the view."""

    def put(content: dict[str, Any]) -> str:
        name = object_name(content)
        about = f"{FACTS} {name}"
        view.put_facts(name, view.faults.guarded(about, lambda: _read(facts_of, content, about, report), unjudged))
        return name

    # Deleted ones are kept: a state may still be about them, and they never change.
    return ObjectListener(put, lambda _: None, _outages(FACTS, report), view.keep_facts, every=True)


def state_listener(view: ClusterView, report: Report) -> ObjectListener:
    """Return what brings states to the view."""

    def put(content: dict[str, Any], *, listed: bool = False) -> str:
        name, text = object_name(content), str((content.get("metadata") or {}).get("resourceVersion"))
        state = view.faults.guarded(name, lambda: _read(state_of, content, f"{STATE} {name}", report), unjudged)
        view.put_state(name, int(text) if text.isdecimal() else 0, state, listed=listed)
        return name

    def drop(content: dict[str, Any]) -> None:
        view.drop_state(object_name(content))

    failed = _outages(STATE, report)
    return ObjectListener(put, drop, failed, view.keep_states, partial(put, listed=True), every=True)


def claim_listener(claims: ClaimView, view: ClusterView, report: Report) -> ObjectListener:
    """Return what brings claims to their view, and tells the pods' nodes."""

    def drop(content: dict[str, Any]) -> tuple[str, str]:
        [key] = names_of([content])
        claims.drop_claim(*key)
        return key

    def put(content: dict[str, Any], *, listed: bool = False) -> tuple[str, str]:
        try:
            claim = claims.put_claim(content, listed=listed)
        except InputError as error:
            key = drop(content)
            report(f"{_CLAIM} {'/'.join(key)}", str(error))
            return key
        view.given(claim.pods)
        return claim.namespace, claim.name

    failed = _outages(_CLAIM, report)
    return ObjectListener(put, drop, failed, claims.keep_claims, partial(put, listed=True), every=True)


def class_listener(claims: ClaimView, report: Report) -> ObjectListener:
    """Return what brings DeviceClasses to the view of claims; one that is gone is named by no new claim."""

    def drop(content: dict[str, Any]) -> None:
        claims.drop_class(object_name(content))

    def put(content: dict[str, Any]) -> None:
        try:
            claims.put_class(content)
        except InputError as error:
            report(f"{_CLASS} {object_name(content)}", str(error))
            drop(content)

    return ObjectListener(put, drop, _outages(_CLASS, report), every=True)


def pod_listener(view: ClusterView, shapes: Shapes, report: Report) -> ObjectListener:
    """Return what brings pods to the view, of which only a little is decoded."""
    read = partial(seen_pod, shapes=shapes)

    def seen(item: msgspec.Raw) -> Seen | str:
        return view.faults.guarded("pods", lambda: _read(read, item, "pods", report), unjudged)

    def put(item: msgspec.Raw) -> None:
        found = seen(item)
        if not isinstance(found, str):
            view.put_pod(found)

    def drop(item: msgspec.Raw) -> None:
        [uid] = names_of([mapping_of(item)]).values()
        view.drop_pod(uid)

    def keep(listed: list[Seen | str]) -> None:
        view.replace_pods(found for found in listed if not isinstance(found, str))

    return ObjectListener(put, drop, _outages("pods", report), keep, seen, every=True, read=lambda item: item)


def _read(read: Callable[[Any], _T], content: object, about: str, report: Report) -> _T | str:
    try:
        return read(content)
    except InputError as error:
        report(about, str(error))
        return str(error)


def _outages(about: str, report: Report) -> Callable[[ClusterError], object]:
    return lambda error: report(about, str(error))


def followers(
    connect: Callable[[], Cluster], view: ClusterView, shapes: Shapes, report: Report, claims: ClaimView | None = None
) -> list[Follower]:
    """Return the followers of facts, states and pods; facts first, because states are about them.

    Args:
        connect: opens a way to the API server.
        view: what is known of nodes and pods.
        shapes: lets pods share what they have in common.
        report: receives what is the matter with what.
        claims: what is known of claims; None where they do not count.
    """
    follower = partial(Follower, connect, name="extender")
    of_claims = []
    if claims is not None:
        of_claims = [
            follower(f"{_RESOURCE}/deviceclasses", class_listener(claims, report)),
            follower(f"{_RESOURCE}/resourceclaims", claim_listener(claims, view, report)),
        ]
    return [
        *of_claims,
        follower(PATHS[FACTS], facts_listener(view, report), is_behind=view.misses_facts),
        follower(PATHS[STATE], state_listener(view, report)),
        follower(PODS, pod_listener(view, shapes, report)),
    ]
