"""Spans of the extender: one for each request of the scheduler that is answered, with the pod and counts of nodes."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from mooring.cluster.extender.wire import BindAnswer, BindArguments, FilterAnswer, PreemptAnswer
from mooring.service.tracing import Attribute, CompletedSpan


class _Metadata(msgspec.Struct):
    name: str = ""
    namespace: str = "default"
    uid: str = ""


class _Pod(msgspec.Struct):
    metadata: _Metadata = msgspec.field(default_factory=_Metadata)


class _Asked(msgspec.Struct):
    Pod: _Pod = msgspec.field(default_factory=_Pod)


def request_span(verb: str, body: bytes, answer: object, began: float, ended: float) -> CompletedSpan:
    """Return the span of a request.

    Args:
        verb: of the extender.
        body: of the request.
        answer: to it.
        began: when it came, on the monotonic clock.
        ended: when it was answered.
    """
    attributes = dict(_answer(answer))
    problem = str(getattr(answer, "Error", ""))
    return CompletedSpan(f"extender {verb}", began, ended, {**dict(_pod(verb, body)), **attributes}, problem)


def _pod(verb: str, body: bytes) -> Iterator[tuple[str, Attribute]]:
    try:
        if verb == "bind":
            asked = msgspec.json.decode(body, type=BindArguments)
            found = _Metadata(asked.PodName, asked.PodNamespace, asked.PodUID)
            yield "k8s.node.name", asked.Node
        else:
            found = msgspec.json.decode(body, type=_Asked).Pod.metadata
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return  # a pod without a name, for example, has an answer all the same
    yield "k8s.namespace.name", found.namespace
    yield "k8s.pod.name", found.name
    yield "k8s.pod.uid", found.uid


def _answer(answer: object) -> Iterator[tuple[str, Attribute]]:
    if isinstance(answer, FilterAnswer):
        passed = answer.NodeNames if answer.NodeNames is not None else answer.Nodes and answer.Nodes.items
        yield "mooring.nodes.passed", len(passed or ())
        yield "mooring.nodes.rejected", len(answer.FailedNodes) + len(answer.FailedAndUnresolvableNodes)
    elif isinstance(answer, PreemptAnswer):
        yield "mooring.nodes.passed", len(answer.NodeNameToMetaVictims)
    elif isinstance(answer, BindAnswer):
        yield "mooring.decision", "refused" if answer.Error else "bound"
    elif isinstance(answer, list):
        yield "mooring.nodes.scored", len(answer)
        yield "mooring.score.highest", max((one.Score for one in answer), default=0)
