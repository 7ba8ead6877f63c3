"""TLS of a server: files that are replaced while it runs, as cert-manager and the chart's job do."""

from __future__ import annotations

import ssl
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from mooring.engine.core.errors import InputError


@dataclass(frozen=True, slots=True)
class TLSFiles:
    """Where the files are, and how a refusal names them."""

    certificate: str
    key: str
    client_ca: str = ""
    """Its certificates are what clients must have; empty: they need none."""
    source: str = ""
    field: str = ""


def tls_context(tls: TLSFiles, report: Callable[[str], object]) -> ssl.SSLContext:
    """Return a context whose handshakes use the files as they are at that moment.

    Files that cannot be used leave the ones before in use.

    Args:
        tls: names of the files.
        report: receives what is the matter.

    Raises:
        InputError: the files cannot be used at the start.
    """
    used, present = _read(tls)

    def follow(connection: ssl.SSLObject, _name: str | None, _context: ssl.SSLContext) -> None:
        nonlocal used, present
        if _stamp(tls) != used:
            try:
                used, present = _read(tls)
            except InputError as error:
                used = _stamp(tls)  # reported once
                report(f"{error}; the certificate before stays in use")
        connection.context = present

    # OpenSSL calls it in every handshake, with or without a server name in the client's hello.
    context = present
    context.sni_callback = follow
    return context


_Stamp = tuple[tuple[int, int], ...]
"""Inode and time of change of each file."""


def _stamp(tls: TLSFiles) -> _Stamp:
    found = []
    for name in filter(None, (tls.certificate, tls.key, tls.client_ca)):
        try:
            about = Path(name).stat()
        except OSError:
            found.append((0, 0))
        else:
            found.append((about.st_ino, about.st_mtime_ns))
    return tuple(found)


def _read(tls: TLSFiles) -> tuple[_Stamp, ssl.SSLContext]:
    stamp = _stamp(tls)
    try:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(tls.certificate, tls.key or None)
        if tls.client_ca:
            context.load_verify_locations(tls.client_ca)
            context.verify_mode = ssl.CERT_REQUIRED
    except (OSError, ssl.SSLError) as error:
        problem = f"cannot be used: {error.strerror or error}"
        remedy = "check certificate, key and CA, which are PEM"
        raise InputError(problem, source=tls.source, field=tls.field, remedy=remedy) from None
    return stamp, context
