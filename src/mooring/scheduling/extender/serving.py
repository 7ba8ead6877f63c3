"""Where the extender listens: the address, HTTPS, and how long clients are waited for."""

from __future__ import annotations

import ssl
from typing import Final

from mooring.core.errors import InputError
from mooring.scheduling.extender.options import TLS, ExtenderOptions
from mooring.service.http import Application, Limits, Server, listener_at
from mooring.service.options import Address

_IDLE: Final = 100.0
"""Seconds until the next request: longer than the 90 after which the scheduler closes an idle connection.

Source: Go's http.DefaultTransport, whose IdleConnTimeout k8s.io/apimachinery v0.37 takes.
"""
_BUSY: Final = 3
"""Times of a request within which it is over in any case: its body, its answer, and as much again."""
_CONNECTIONS: Final = 512
"""A scheduler keeps one for each request that is under way."""
_GRACE: Final = 5.0
"""Seconds for requests under way when the extender ends."""


def serve(options: ExtenderOptions, app: Application, limits: Limits | None = None) -> Server:
    """Serve an application where the options say.

    Args:
        options: of the extender.
        app: answers.
        limits: in place of those of the options.

    Raises:
        InputError: the certificates or the address cannot be used.
    """
    tls = _context(options.tls) if options.tls.certificate else None
    listener = listener_at(Address(options.host, options.port), "choose another address", field="listen")
    return Server(listener, app, limits or limits_of(options), tls=tls)


def limits_of(options: ExtenderOptions) -> Limits:
    """Return how long clients may take."""
    seconds = options.request_time
    return Limits(seconds, seconds * _BUSY, _IDLE, connections=_CONNECTIONS, head=64 * 1024, grace=_GRACE)


def _context(tls: TLS) -> ssl.SSLContext:
    try:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(tls.certificate, tls.key)
        if tls.client_ca:
            context.load_verify_locations(tls.client_ca)
            context.verify_mode = ssl.CERT_REQUIRED
    except (OSError, ssl.SSLError) as error:
        remedy = "check certificate, key and clientCA"
        raise InputError(f"cannot be used: {error}", field="tls", remedy=remedy) from None
    return context
