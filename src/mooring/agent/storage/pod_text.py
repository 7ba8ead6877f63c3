"""Pods as plain documents and back, exactly: the journal must give the engine the same amounts again."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from mooring.engine.core.pod import ClaimUse, Container, ContainerKind, Pod, PodResources, QoS, ResourceList
from mooring.engine.core.quantity import Quantity, QuantityFormat

Amounts = dict[str, str | list[str]]


class ContainerText(msgspec.Struct, frozen=True, omit_defaults=True):
    """One container."""

    name: str
    kind: str = "app"
    requests: Amounts = {}
    limits: Amounts = {}
    claims: list[tuple[str, str]] = []


class PodText(msgspec.Struct, frozen=True, omit_defaults=True):
    """One pod."""

    uid: str
    name: str
    namespace: str
    qos: str
    containers: list[ContainerText] = []
    resources: tuple[Amounts, Amounts] | None = None
    overhead: Amounts = {}
    annotations: dict[str, str] = {}
    scale_down_grace: int | None = None
    priority: int = 0
    claims: tuple[str, ...] = ()


def text_of_pod(pod: Pod) -> PodText:
    """Return a pod as a document."""
    return PodText(
        uid=pod.uid,
        name=pod.name,
        namespace=pod.namespace,
        qos=pod.qos.value,
        containers=[
            ContainerText(
                one.name,
                one.kind.value,
                _texts(one.requests),
                _texts(one.limits),
                [(use.claim, use.request) for use in one.claims],
            )
            for one in pod.containers
        ],
        resources=None if pod.resources is None else (_texts(pod.resources.requests), _texts(pod.resources.limits)),
        overhead=_texts(pod.overhead),
        annotations=dict(pod.annotations),
        scale_down_grace=pod.scale_down_grace,
        priority=pod.priority,
        claims=pod.claims,
    )


def pod_of_text(text: PodText) -> Pod:
    """Return the pod of a document.

    Raises:
        ValueError: an amount, a kind or a class is none.
        MooringError: an amount's text is no quantity.
    """
    return Pod(
        uid=text.uid,
        name=text.name,
        namespace=text.namespace,
        containers=tuple(
            Container(
                one.name,
                ContainerKind(one.kind),
                _amounts(one.requests),
                _amounts(one.limits),
                claims=tuple(ClaimUse(claim, request) for claim, request in one.claims),
            )
            for one in text.containers
        ),
        qos=QoS(text.qos),
        resources=text.resources and PodResources(_amounts(text.resources[0]), _amounts(text.resources[1])),
        overhead=_amounts(text.overhead),
        annotations=text.annotations,
        scale_down_grace=text.scale_down_grace,
        priority=text.priority,
        claims=text.claims,
    )


def _texts(resources: ResourceList) -> Amounts:
    return {resource: _text(quantity) for resource, quantity in resources.items()}


def _text(quantity: Quantity) -> str | list[str]:
    """Return the amount as people write it where that says everything, else its parts."""
    text = str(quantity)
    if _parts(Quantity.parse(text)) == _parts(quantity):
        return text
    return _parts(quantity)


def _parts(quantity: Quantity) -> list[str]:
    return [str(quantity.nano), quantity.format.value, "fast" if quantity.fast else "", str(quantity.scale)]


def _amounts(texts: Mapping[str, Any]) -> ResourceList:
    return {resource: _amount(text) for resource, text in texts.items()}


def _amount(text: str | list[str]) -> Quantity:
    if isinstance(text, str):
        return Quantity.parse(text)
    nano, form, fast, scale = text
    return Quantity(int(nano), QuantityFormat(form), bool(fast), int(scale))
