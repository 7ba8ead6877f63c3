"""The extender's own document: where it listens, what it answers in doubt, what counts how much, and its limits."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Annotated, Any, Final

from msgspec import Struct, field

from mooring.engine.core.errors import InputError
from mooring.inputs.decoding.fields import count_at, text_at, wrong_kind
from mooring.service.options import (
    Address,
    FieldReader,
    LogFormat,
    address_at,
    duration_at,
    load_options,
    names_of,
    option,
    parse_address,
    read_part,
)

KIND: Final = "ExtenderConfiguration"
_MEBIBYTE: Final = 2**20
_LISTEN: Final = Address("127.0.0.1", 8888)
_ASSUMED_FOR: Final = 600.0
_REQUEST_TIME: Final = 4.0


def _listen_at(content: Mapping[str, Any], name: str) -> Address:
    return parse_address(text_at(content, name), field=name, example="0.0.0.0:8888") or _LISTEN


def _seconds_at(default: float | None) -> FieldReader:
    """Return the reader of a duration in seconds; an empty text gives the default."""

    def read(content: Mapping[str, Any], name: str) -> float | None:
        if content[name] == "":
            return default
        seconds = duration_at(content, name) / 1e9
        if seconds <= 0:
            raise InputError("must be longer than 0", field=name)
        return seconds

    return read


def _count_at(content: Mapping[str, Any], name: str) -> int:
    found = count_at(content, name, 1)
    if not 1 <= found <= 1024:
        raise InputError("must be between 1 and 1024", field=name)
    return found


def _mebibytes_at(content: Mapping[str, Any], name: str) -> int:
    return _count_at(content, name) * _MEBIBYTE


def _weight_at(content: Mapping[str, Any], name: str) -> float:
    value = content[name]
    if not isinstance(value, int | float) or isinstance(value, bool):
        raise wrong_kind(value, "a number", name)
    if not 0 <= value <= 1000:
        raise InputError("must be between 0 and 1000", field=name)
    return float(value)


class UnknownNodes(Enum):
    """What is said about a node of which nothing can be said."""

    DENY_EXCLUSIVE = "denyExclusive"
    """No to pods that want exclusive CPUs, yes to all others."""
    ALLOW = "allow"
    DENY = "deny"


class TLS(Struct, frozen=True, rename={"client_ca": "clientCA"}):
    """Files for HTTPS; empty texts switch it off."""

    certificate: Annotated[str, option("file of the extender's certificate")] = ""
    key: Annotated[str, option("file of its key")] = ""
    client_ca: Annotated[str, option("CA of the certificates that clients must have; empty: they need none")] = ""


class Weights(Struct, frozen=True, rename="camel"):
    """How much each figure of a score counts; one that is left out counts nothing."""

    alignment: Annotated[float, option("weight of the alignment, 0 to 1000", _weight_at)] = 0.0
    fragmentation: Annotated[
        float, option("weight of the largest request that one NUMA node still takes, 0 to 1000", _weight_at)
    ] = 0.0
    least_allocated: Annotated[float, option("weight of nodes with more free CPUs, 0 to 1000", _weight_at)] = 0.0
    most_allocated: Annotated[float, option("weight of nodes with fewer free CPUs, 0 to 1000", _weight_at)] = 0.0


WEIGHTS: Final = Weights(alignment=2.0, fragmentation=1.0)
"""Those of a document without any."""


class LeaseName(Struct, frozen=True):
    """The Lease that several replicas share; empty: there is one replica."""

    namespace: Annotated[str, option("namespace of the Lease")] = ""
    name: Annotated[str, option("its name")] = ""


def _lease_at(content: Mapping[str, Any], name: str) -> LeaseName:
    found = read_part(content, name, LeaseName)
    if bool(found.namespace) != bool(found.name):
        raise InputError("namespace and name belong together", field=name, remedy="give both, or neither")
    return found


def _tls_at(content: Mapping[str, Any], name: str) -> TLS:
    found = read_part(content, name, TLS)
    if bool(found.certificate) != bool(found.key) or (found.client_ca and not found.certificate):
        raise InputError("certificate and key belong together", field=name, remedy="give both, or neither")
    return found


def _weights_at(content: Mapping[str, Any], name: str) -> Weights:
    found = read_part(content, name, Weights)
    return found if content[name] else WEIGHTS


class ExtenderOptions(Struct, frozen=True, rename="camel"):
    """The document's fields."""

    listen: Annotated[Address, option("address of the extender", _listen_at)] = _LISTEN
    health_address: Annotated[
        Address | None,
        option("address of health and metrics without TLS; empty: none", address_at),
    ] = None
    webhook_address: Annotated[
        Address | None,
        option(
            "address of the validating webhook, over TLS and without clients' certificates; empty: none", address_at
        ),
    ] = None
    tls: Annotated[TLS, option("files for HTTPS", _tls_at)] = field(default_factory=TLS)
    lease: Annotated[LeaseName, option("the Lease that several replicas share; empty: one replica", _lease_at)] = field(
        default_factory=LeaseName
    )
    kubeconfig: Annotated[
        str, option("how to reach the API server; empty: by the service account of the pod that the extender runs in")
    ] = ""
    device_claims: Annotated[
        bool, option("whether claims for devices of drivers count on nodes where CPUs and memory follow devices")
    ] = False
    unknown_nodes: Annotated[UnknownNodes, option("answer for a node without usable data")] = (
        UnknownNodes.DENY_EXCLUSIVE
    )
    longest_state_age: Annotated[
        float | None, option("seconds after which a published state no longer counts; None: never", _seconds_at(None))
    ] = field(default=None, name="maxStateAge")
    assumed_for: Annotated[
        float, option("seconds for which a bind counts that the API server never confirms", _seconds_at(_ASSUMED_FOR))
    ] = _ASSUMED_FOR
    request_time: Annotated[
        float,
        option(
            "seconds within which a request is answered; below the scheduler's httpTimeout", _seconds_at(_REQUEST_TIME)
        ),
    ] = _REQUEST_TIME
    largest_body: Annotated[int, option("bytes that a request may have", _mebibytes_at)] = field(
        default=32 * _MEBIBYTE, name="maxBodyMiB"
    )
    requests_at_once: Annotated[int, option("requests that are answered at once", _count_at)] = field(
        default=16, name="maxRequests"
    )
    weights: Annotated[Weights, option("how much each figure of a score counts", _weights_at)] = WEIGHTS
    log_format: Annotated[LogFormat, option("form of a line in the log")] = LogFormat.JSON


FIELDS: Final = tuple(names_of(ExtenderOptions))


def load_extender_options(path: str) -> ExtenderOptions:
    """Read the extender's file.

    Raises:
        InputError: it cannot be used.
    """
    options = load_options(path, KIND, ExtenderOptions)
    if options.webhook_address is not None and not options.tls.certificate:
        remedy = "give tls.certificate and tls.key: an API server asks over HTTPS only"
        raise InputError("needs a certificate", source=path, field="webhookAddress", remedy=remedy)
    return options
