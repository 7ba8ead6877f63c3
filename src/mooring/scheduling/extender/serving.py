"""Where the extender listens: the address, HTTPS, and how long clients are waited for."""

from __future__ import annotations

import socket
import ssl
from typing import Any, Final, cast

import uvicorn
from starlette.types import ASGIApp

from mooring.core.errors import InputError
from mooring.scheduling.extender.connections import Patience, telling, timed
from mooring.scheduling.extender.options import TLS, ExtenderOptions

IDLE: Final = 100.0
"""Seconds until the next request: longer than the 90 after which the scheduler closes an idle connection.

Source: Go's http.DefaultTransport, whose IdleConnTimeout k8s.io/apimachinery v0.37 takes.
"""
_BUSY: Final = 3
"""Times of a request within which it is over in any case: its body, its answer, and as much again."""


def listener_of(options: ExtenderOptions) -> socket.socket:
    """Return the socket at the address of the options.

    Raises:
        InputError: it cannot be had.
    """
    host, port = options.host, options.port
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family, backlog=128)
    except OSError as error:
        problem = f"cannot be listened on: {(error.strerror or str(error)).lower()}"
        raise InputError(problem, source=f"{host}:{port}", field="listen", remedy="choose another address") from None


def server_of(options: ExtenderOptions, app: ASGIApp) -> uvicorn.Server:
    """Return the server of an application, which runs with a listener.

    Raises:
        InputError: the certificates cannot be used.
    """
    patience = Patience(options.request_time, options.request_time * _BUSY, IDLE)
    made = uvicorn.Config(
        telling(app),
        host=options.host,
        port=options.port,
        http=cast("Any", timed(patience)),
        ws="none",
        log_config=None,
        access_log=False,
        server_header=False,
        lifespan="off",
        timeout_graceful_shutdown=5,
        timeout_keep_alive=int(IDLE) + 1,  # the patience ends first
        **_https(options.tls),
    )
    try:
        made.load()
    except (OSError, ssl.SSLError) as error:
        raise InputError(
            f"cannot be used: {error}", field="tls", remedy="check certificate, key and clientCA"
        ) from None
    return uvicorn.Server(made)


def _https(tls: TLS) -> dict[str, Any]:
    found: dict[str, Any] = {}
    if tls.certificate:
        found |= {"ssl_certfile": tls.certificate, "ssl_keyfile": tls.key}
    if tls.client_ca:
        found |= {"ssl_ca_certs": tls.client_ca, "ssl_cert_reqs": ssl.CERT_REQUIRED}
    return found
