"""The extender's own document: where it listens, what it says in doubt, what counts how much, and its limits."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from mooring.core.errors import InputError
from mooring.manifest.documents import load_documents
from mooring.manifest.fields import check_names, choice_at, count_at, inside, mapping_at, text_at, wrong_kind
from mooring.manifest.quantities import nanoseconds
from mooring.scheduling.extender.deciding import UnknownNodes
from mooring.scheduling.extender.scoring import Weights
from mooring.service.options import Address, LogFormat, check_head, parse_address

KIND: Final = "ExtenderConfiguration"
_MEBIBYTE: Final = 2**20


@dataclass(frozen=True, slots=True)
class TLS:
    """Files for HTTPS; empty texts switch it off."""

    certificate: str = ""
    key: str = ""
    client_ca: str = ""
    """CA of the certificates that clients must have; empty when they need none."""


@dataclass(frozen=True, slots=True)
class ExtenderOptions:
    """The document's fields."""

    host: str = "127.0.0.1"
    port: int = 8888
    tls: TLS = field(default_factory=TLS)
    kubeconfig: str = ""
    """Empty means the service account of the pod in which the extender runs."""
    unknown_nodes: UnknownNodes = UnknownNodes.DENY_EXCLUSIVE
    longest_state_age: float | None = None
    """Seconds after which a state says nothing any more; None for never."""
    assumed_for: float = 600.0
    """Seconds for which a bind counts that the API server never confirms."""
    request_time: float = 4.0
    """Seconds within which a request is answered; below the scheduler's httpTimeout."""
    largest_body: int = 32 * _MEBIBYTE
    requests_at_once: int = 16
    weights: Weights = field(default_factory=Weights)
    log_format: LogFormat = LogFormat.JSON


FIELDS: Final = (
    "assumedFor",
    "kubeconfig",
    "listen",
    "logFormat",
    "maxBodyMiB",
    "maxRequests",
    "maxStateAge",
    "requestTime",
    "tls",
    "unknownNodes",
    "weights",
)
_TLS: Final = ("certificate", "key", "clientCA")
_WEIGHTS: Final = ("alignment", "fragmentation", "leastAllocated", "mostAllocated")


def load_extender_options(path: str) -> ExtenderOptions:
    """Read the extender's file.

    Raises:
        InputError: it cannot be used.
    """
    documents = load_documents(path)
    content = documents[0].content
    if len(documents) != 1 or not isinstance(content, dict) or content.get("kind") != KIND:
        raise InputError(f"must hold one {KIND} and nothing else", source=path, remedy=f"write kind: {KIND}")
    return extender_options(content, source=path)


def extender_options(content: Mapping[str, Any], *, source: str) -> ExtenderOptions:
    """Return what the document says.

    Raises:
        InputError: another version, an unknown field, or a value that cannot be meant.

    >>> extender_options({"listen": "0.0.0.0:9000", "requestTime": "2s"}, source="example").port
    9000
    >>> extender_options({"unknownNodes": "denny"}, source="extender.yaml")
    Traceback (most recent call last):
        ...
    mooring.core.errors.InputError: extender.yaml: unknownNodes: 'denny' is not known; did you mean deny?
    """
    try:
        return _options(content)
    except InputError as error:
        raise error.at(source) from None


def _options(content: Mapping[str, Any]) -> ExtenderOptions:
    check_head(content, FIELDS)
    usual = ExtenderOptions()
    listen = text_at(content, "listen") or f"{usual.host}:{usual.port}"
    address = parse_address(listen, field="listen", example="0.0.0.0:8888") or Address(usual.host, usual.port)
    return ExtenderOptions(
        host=address.host,
        port=address.port,
        tls=_tls(mapping_at(content, "tls")),
        kubeconfig=text_at(content, "kubeconfig"),
        unknown_nodes=choice_at(content, "unknownNodes", usual.unknown_nodes),
        longest_state_age=_seconds(content, "maxStateAge", None),
        assumed_for=_seconds(content, "assumedFor", usual.assumed_for) or usual.assumed_for,
        request_time=_seconds(content, "requestTime", usual.request_time) or usual.request_time,
        largest_body=_count(content, "maxBodyMiB", usual.largest_body // _MEBIBYTE) * _MEBIBYTE,
        requests_at_once=_count(content, "maxRequests", usual.requests_at_once),
        weights=_weights(mapping_at(content, "weights")),
        log_format=choice_at(content, "logFormat", usual.log_format),
    )


def _tls(content: Mapping[str, Any]) -> TLS:
    try:
        check_names(content, _TLS)
        found = TLS(*(text_at(content, name) for name in _TLS))
    except InputError as error:
        raise inside(error, "tls") from None
    if bool(found.certificate) != bool(found.key) or (found.client_ca and not found.certificate):
        raise InputError("certificate and key belong together", field="tls", remedy="give both, or neither")
    return found


def _weights(content: Mapping[str, Any]) -> Weights:
    try:
        check_names(content, _WEIGHTS)
    except InputError as error:
        raise inside(error, "weights") from None
    if not content:
        return Weights()
    values = [_weight(content, name) for name in _WEIGHTS]
    return Weights(*values)


def _weight(content: Mapping[str, Any], name: str) -> float:
    value = content.get(name, 0)
    if not isinstance(value, int | float) or isinstance(value, bool):
        raise wrong_kind(value, "a number", f"weights.{name}")
    if not 0 <= value <= 1000:
        raise InputError("must lie between 0 and 1000", field=f"weights.{name}")
    return float(value)


def _seconds(content: Mapping[str, Any], name: str, default: float | None) -> float | None:
    text = text_at(content, name)
    if not text:
        return default
    try:
        found = nanoseconds(text) / 1e9
    except InputError as error:
        raise inside(error, name) from None
    if found <= 0:
        raise InputError("must be longer than nothing", field=name)
    return found


def _count(content: Mapping[str, Any], name: str, default: int) -> int:
    found = count_at(content, name, default)
    if not 1 <= found <= 1024:
        raise InputError("must lie between 1 and 1024", field=name)
    return found
