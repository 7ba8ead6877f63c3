"""The extender's HTTP, with its metrics: bounded in bytes, in requests at once and in time, and always one answer.

What the scheduler gets when something goes wrong: 400 with one line of JSON for a body that cannot be read, 413 for one
that is too large, 503 when too many requests are under way for too long, and an Error in the answer while not
everything has been listed. It retries the pod in all of these cases, unless the extender is ``ignorable``.

Requests wait for their turn: the scheduler sends binds while it filters for further pods, and a pod that is refused
waits for its next try in the scheduler, from one second up to ten.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from http import HTTPStatus
from typing import Any, Final

import msgspec
from prometheus_client.metrics_core import GaugeMetricFamily, Metric

from mooring.cluster.extender.answers import Answers
from mooring.cluster.extender.binding import Binder
from mooring.cluster.extender.options import ExtenderOptions
from mooring.cluster.extender.reviews import UNANSWERED, AdmissionReview, review_answer, reviewed
from mooring.cluster.extender.wire import (
    Arguments,
    BindAnswer,
    BindArguments,
    FilterAnswer,
    PreemptAnswer,
    PreemptArguments,
    decoded,
    request_span,
)
from mooring.engine.core.errors import InputError
from mooring.service.http import JSON, Application, ASGIMessage, Page, ProgramMetrics, Receive, Send
from mooring.service.logs import Traces

_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0)
"""Seconds; a scheduler waits for five by default."""

_GAUGES: Mapping[str, str] = {
    "nodes": "Nodes with a published state.",
    "unreadable": "Nodes whose published state cannot be read.",
    "unjudged": "Questions about nodes whose published state the engine cannot judge.",
    "pods": "Pods that are known.",
    "assumed": "Pods that are bound and that no state has named yet.",
    "unconfirmed": "Pods that this extender bound and that the API server has not shown since.",
    "engine_runs": "Runs of the engine.",
    "known_answers": "Answers that were known from an earlier run.",
    "ready": "1 when everything has been listed.",
}
NOT_LISTED: Final = "the extender has not yet listed all nodes and pods"
NOT_LEADING: Final = "another replica decides"
NOT_FOLLOWING: Final = "predictions, or what they follow, have failed; the log names the cause"
_TOO_LATE: Final = "mooring: not decided within the time of the request"
REVIEW: Final = "validate"
_REVIEW_SECONDS: Final = 1.5
"""Time for what an API server asks, which waits for two seconds (``timeoutSeconds`` of the chart)."""
_SMALL: Final = 64 * 1024
"""Bytes of a request that may be answered without the engine's thread."""
_RESERVE: Final = 0.8
"""Part of the time of a request after which no new node is asked about."""
_TURN: Final = 0.5
"""Part of the time of a request for which the scheduler's wait for their turn, unread."""


_JUDGED: Final[Mapping[str, tuple[type[Any], Callable[[Answers, Any], object], Callable[[str], object]]]] = {
    "filter": (Arguments, Answers.filtered, lambda why: FilterAnswer(Error=why)),
    "prioritize": (Arguments, Answers.prioritized, lambda _: []),
    "preempt": (PreemptArguments, Answers.preempted, lambda _: PreemptAnswer({})),
}
"""Verb -> what is asked, what answers it, and the answer where there is none."""


_Endpoint = Callable[[Receive], Awaitable[Page]]


class ExtenderMetrics(ProgramMetrics):
    """Counters of one extender, and the page that shows them."""

    def __init__(self, counts: Callable[[], Mapping[str, int]]) -> None:
        """Begin at zero.

        Args:
            counts: tells what is not counted but seen.
        """
        super().__init__("mooring_extender")
        self._counts = counts
        says = "Time from a request of the scheduler to its answer."
        self.seconds = self.seconds_of("request_seconds", says, "verb", _BUCKETS)
        self.requests = self.counter("requests", "Requests, by verb and status.", "verb", "status")
        self.binds = self.counter("binds", "Binds, by result.", "result")
        self.refusals = self.counter(
            "mispredictions", "Pods bound by this extender that their node refused, by its reason.", "reason"
        )
        self.undecided = self.counter(
            "undecided_claims", "Claims of which the filter could not say which devices they would get (MOOR-627)."
        )
        self.reviews = self.counter(
            "reviews", "Objects that were reviewed when they were applied, by answer.", "answer"
        )
        self.outages = self.counter("watch_failures", "Lists and watches that failed, by what was watched.", "what")

    def refused(self, reason: str) -> None:
        """Count a pod that its node refused although it was admitted here."""
        self.refusals.labels(reason).inc()

    def seen(self) -> Iterator[Metric]:
        """Yield the gauges."""
        counts = self._counts()
        for name, says in _GAUGES.items():
            yield GaugeMetricFamily(f"mooring_extender_{name}", says, value=float(counts.get(name, 0)))


class _TooLargeError(Exception):
    pass


class Service:
    """Answers the scheduler."""

    def __init__(
        self,
        answers: Answers,
        binder: Binder,
        metrics: ExtenderMetrics,
        options: ExtenderOptions,
        problem: Callable[[], str],
        hang: Callable[[], str],
        clock: Callable[[], float] = time.monotonic,
        traces: Traces | None = None,
    ) -> None:
        """Serve nothing yet; :attr:`app` does.

        Args:
            answers: to filter, prioritize and preempt.
            binder: binds.
            metrics: count.
            options: time, size and number of requests.
            problem: what keeps this replica from deciding; empty when nothing does.
            hang: what does not get on; empty when everything does.
            clock: seconds that only go forward.
            traces: where spans of requests go; None for nowhere.
        """
        self._traces = traces
        self._answers, self._binder, self._metrics, self._options = answers, binder, metrics, options
        self._problem, self._clock = problem, clock
        self._turns = {is_review: asyncio.Semaphore(options.requests_at_once) for is_review in (False, True)}
        """For requests under way: those of API servers do not keep out the scheduler's."""
        self._reviewing = asyncio.Lock()
        # The engine runs in one thread: more of them would only take turns. Binds wait for the API server.
        self._thinking = ThreadPoolExecutor(1, "mooring-engine")
        self._binding = ThreadPoolExecutor(options.requests_at_once, "mooring-bind")
        self._engine = threading.Lock()
        """Held while answers are made."""
        self._round: Future[int] | None = None
        open_to_all = {
            ("GET", "/healthz"): _page(lambda: _probed(hang())),
            ("GET", "/readyz"): _page(lambda: _probed(hang() or problem())),
            ("GET", "/metrics"): _page(metrics.page),
        }
        self.health = _application(open_to_all)
        self.webhook = _application(
            {
                ("POST", path): self._verb(REVIEW, partial(self._review, denies=denies))
                for path, denies in (("/validate", False), ("/validate/deny", True))
            }
        )
        judged = {("POST", f"/{verb}"): self._verb(verb, partial(self._judge, verb)) for verb in _JUDGED}
        self.app = _application({**judged, ("POST", "/bind"): self._verb("bind", self._bind), **open_to_all})

    def close(self) -> None:
        """Wait for nothing that is under way."""
        self._thinking.shutdown(wait=False, cancel_futures=True)
        self._binding.shutdown(wait=False, cancel_futures=True)
        self._binder.close()

    def has_come_round(self) -> bool:
        """Tell whether the engine has done all that it was asked until the last call; used by one thread."""
        if self._round is not None and not self._round.done():
            return False
        self._round = self._thinking.submit(int)
        return True

    def finish_binds(self) -> None:
        """Wait until no bind is under way."""
        self._binding.shutdown(wait=True)

    def _verb(self, verb: str, answer: Callable[[bytes, float], Awaitable[object]]) -> _Endpoint:
        turns = self._turns[verb == REVIEW]

        async def endpoint(receive: Receive) -> Page:
            began = self._clock()
            try:
                patience = 0 if verb == REVIEW else self._options.request_time * _TURN
                async with asyncio.timeout(patience) if turns.locked() else nullcontext():
                    await turns.acquire()
            except TimeoutError:
                return self._refused(verb, 503, "too many requests are under way")
            try:
                async with asyncio.timeout(self._options.request_time):
                    body = await self._body(receive)
                found = await answer(body, began + self._options.request_time * _RESERVE)
            except _TooLargeError:
                return self._refused(verb, 413, f"the body has more than {self._options.largest_body} bytes")
            except InputError as error:
                return self._refused(verb, 400, str(error))
            except TimeoutError:
                return self._refused(verb, 408, "the body did not arrive in time")
            finally:
                turns.release()
                self._metrics.seconds.labels(verb).observe(self._clock() - began)
            self._metrics.requests.labels(verb, "200").inc()
            if self._traces is not None and verb != REVIEW:
                self._traces.record(request_span(verb, body, found, began, self._clock()))
            return Page(msgspec.json.encode(found), JSON)

        return endpoint

    async def _body(self, receive: Receive) -> bytes:
        parts, size, is_whole = list[bytes](), 0, False
        while not is_whole:
            message = await receive()
            if message["type"] == "http.disconnect":
                raise TimeoutError
            parts.append(message.get("body", b""))
            size, is_whole = size + len(parts[-1]), not message.get("more_body", False)
            if size > self._options.largest_body:
                raise _TooLargeError
        return b"".join(parts)

    async def _judge(self, verb: str, body: bytes, until: float) -> object:
        shape, answer, without = _JUDGED[verb]
        if problem := self._problem():
            return without(f"mooring: {problem}")
        found, late = self._known_at_once(verb, body), without(_TOO_LATE)
        if found is not None:
            return found
        return await self._thought(lambda answers: answer(answers, decoded(body, shape)), self._thinking, until, late)

    def _known_at_once(self, verb: str, body: bytes) -> object | None:
        """Answer without the engine's thread what takes no run of the engine: waking it costs more than the answer."""
        if verb == "preempt" or len(body) > _SMALL or not self._engine.acquire(blocking=False):
            return None
        try:
            asked = decoded(body, Arguments)
            with self._answers.view.held() as is_held:
                if is_held and self._answers.knows(asked, merit=verb == "prioritize"):
                    return _JUDGED[verb][1](self._answers, asked)
        finally:
            self._engine.release()
        return None

    async def _bind(self, body: bytes, until: float) -> object:
        asked = decoded(body, BindArguments)
        if problem := self._problem():
            return BindAnswer(f"mooring: {problem}")
        late = BindAnswer(_TOO_LATE)
        found = await self._thought(
            lambda answers: self._binder.bind(asked, answers.in_time), self._binding, until, late
        )
        result = "bound" if isinstance(found, BindAnswer) and not found.Error else "refused"
        self._metrics.binds.labels(result).inc()
        return found

    async def _review(self, body: bytes, until: float, *, denies: bool) -> object:
        asked, found = decoded(body, AdmissionReview), None
        until = min(until, self._clock() + _REVIEW_SECONDS)
        guarded = self._answers.view.faults.guarded

        def ask(answers: Answers) -> object:
            return guarded("reviews", partial(reviewed, answers, asked, denies=denies), lambda _error: None)

        if not self._problem():
            async with self._reviewing:  # at most one of them is before the scheduler's next request
                found = await self._thought(ask, self._thinking, until, None)
        answer, response = found if isinstance(found, tuple) else (UNANSWERED, {})
        self._metrics.reviews.labels(answer).inc()
        return review_answer(asked, response)

    async def _thought(self, ask: Callable[[Answers], object], where: Executor, until: float, late: object) -> object:
        """Ask in another thread; say that it is late when the time is over. The thread ends soon after."""
        answers = replace(self._answers, in_time=lambda: self._clock() < until)

        def think() -> object:
            with self._engine if where is self._thinking else nullcontext():
                return ask(answers)

        future = asyncio.get_running_loop().run_in_executor(where, think)
        done, _ = await asyncio.wait([future], timeout=max(until - self._clock(), 0) + self._options.request_time * 0.2)
        return future.result() if done else late

    def _refused(self, verb: str, status: int, problem: str) -> Page:
        self._metrics.requests.labels(verb, str(status)).inc()
        return Page(msgspec.json.encode({"error": problem}), JSON, HTTPStatus(status))


def _page(answer: Callable[[], Page]) -> _Endpoint:
    """Return the endpoint of a page, which no request waits for."""

    async def endpoint(_receive: Receive) -> Page:
        return answer()

    return endpoint


def _application(endpoints: Mapping[tuple[str, str], _Endpoint]) -> Application:
    """Return an application with nothing else between a request and its endpoint, by method and path."""

    async def app(scope: ASGIMessage, receive: Receive, send: Send) -> None:
        method = "GET" if scope["method"] == "HEAD" else scope["method"]
        endpoint = endpoints.get((method, scope["path"]))
        if endpoint is not None:
            page = await endpoint(receive)
        elif any(path == scope["path"] for _, path in endpoints):
            page = Page(b"Method Not Allowed", status=HTTPStatus.METHOD_NOT_ALLOWED)
        else:
            page = Page(b"Not Found", status=HTTPStatus.NOT_FOUND)
        headers = [(b"content-length", b"%d" % len(page.body)), (b"content-type", page.content_type.encode())]
        if page.status == HTTPStatus.REQUEST_TIMEOUT:
            # A client that is too slow is cut off; what others still send is read, so that they see the answer.
            headers.append((b"connection", b"close"))
        await send({"type": "http.response.start", "status": page.status, "headers": headers})
        await send({"type": "http.response.body", "body": page.body})

    return app


def _probed(problem: str) -> Page:
    """Return the answer to a probe."""
    status = HTTPStatus.SERVICE_UNAVAILABLE if problem else HTTPStatus.OK
    return Page(f"{problem or 'ok'}\n".encode(), status=status)
