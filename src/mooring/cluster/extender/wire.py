"""The bodies that the scheduler and its extender exchange.

Names are those of the scheduler (k8s.io/kube-scheduler extender/v1, v1.37): upper-case keys outside, the API's own
inside. Only what is needed is decoded; whole nodes are passed on as they came.

Spans of the extender: one for each request of the scheduler that is answered, with the pod and counts of nodes.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any, Final, TypeVar

import msgspec

from mooring.documents.plan import learn
from mooring.engine.core.errors import InputError
from mooring.explanations.codes import page
from mooring.service.logs import Attribute, CompletedSpan

SOURCE: Final = "request"


class NodeList(msgspec.Struct, omit_defaults=True):
    """A v1 NodeList whose items are not read further than need be."""

    metadata: dict[str, Any] = {}
    items: list[msgspec.Raw] | None = None


class Arguments(msgspec.Struct):
    """What filter and prioritize are asked."""

    Pod: msgspec.Raw = msgspec.Raw(b"null")
    Nodes: NodeList | None = None
    NodeNames: list[str] | None = None


class FilterAnswer(msgspec.Struct):
    """The answer to filter."""

    Nodes: NodeList | None = None
    NodeNames: list[str] | None = None
    FailedNodes: dict[str, str] = {}
    FailedAndUnresolvableNodes: dict[str, str] = {}
    Error: str = ""


class Priority(msgspec.Struct, gc=False):
    """The score of one node."""

    Host: str
    Score: int


class BindArguments(msgspec.Struct):
    """Which pod is to be bound to which node."""

    PodName: str
    PodNamespace: str
    PodUID: str
    Node: str


class BindAnswer(msgspec.Struct):
    """The answer to bind."""

    Error: str = ""


class MetaPod(msgspec.Struct):
    """A victim by its uid."""

    UID: str = ""


class MetaVictims(msgspec.Struct):
    """Victims of one node, by their uids."""

    Pods: list[MetaPod] | None = None
    NumPDBViolations: int = 0


class _Metadata(msgspec.Struct):
    name: str = ""
    namespace: str = "default"
    uid: str = ""


class _Pod(msgspec.Struct):
    metadata: _Metadata = msgspec.field(default_factory=_Metadata)


class Victims(msgspec.Struct):
    """Victims of one node, as whole pods of which only the uids are read."""

    Pods: list[_Pod] | None = None
    NumPDBViolations: int = 0


class PreemptArguments(msgspec.Struct):
    """What preempt is asked."""

    Pod: msgspec.Raw = msgspec.Raw(b"null")
    NodeNameToVictims: dict[str, Victims] | None = None
    NodeNameToMetaVictims: dict[str, MetaVictims] | None = None


class PreemptAnswer(msgspec.Struct):
    """The answer to preempt, the same in both forms of the question."""

    NodeNameToMetaVictims: dict[str, MetaVictims]


class _NodeMetadata(msgspec.Struct):
    name: str


class _NamedNode(msgspec.Struct):
    metadata: _NodeMetadata


Body = TypeVar("Body")


def decoded(data: bytes, shape: type[Body]) -> Body:
    """Return a body.

    Raises:
        InputError: it is not what the scheduler sends.
    """
    try:
        return msgspec.json.decode(data, type=shape)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise InputError(f"the body cannot be read: {str(error)[:200]}", source=SOURCE) from None


def node_names(asked: Arguments) -> list[str]:
    """Return the names of the nodes that are asked about, in either form.

    Raises:
        InputError: a node has no name.
    """
    if asked.NodeNames is not None:
        return asked.NodeNames
    items = asked.Nodes.items if asked.Nodes is not None else None
    names = []
    for number, item in enumerate(items or ()):
        try:
            names.append(_NODES.decode(item).metadata.name)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            raise InputError(f"cannot be read: {error}", source=SOURCE, field=f"Nodes.items[{number}]") from None
    return names


_NODES = msgspec.json.Decoder(_NamedNode)


class _Asked(msgspec.Struct):
    Pod: _Pod = msgspec.field(default_factory=_Pod)


learn(Arguments, BindArguments, PreemptArguments, _Asked)


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


@cache
def sentence(code: str, reason: str) -> str:
    """Return the words for a refusal, the same for the same cause on whichever node.

    >>> sentence("MOOR-101", "UnexpectedAdmissionError")
    'mooring: fewer CPUs are free than the pod requests (MOOR-101, UnexpectedAdmissionError)'
    """
    title = page(code).title
    first = title if title[:2].isupper() else title[:1].lower() + title[1:]
    return f"mooring: {first} ({code}{', ' + reason if reason else ''})"
