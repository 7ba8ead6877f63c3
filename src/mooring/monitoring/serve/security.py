"""What every request passes and every answer carries: no other origins, no other hosts, nothing that could write.

A page on loopback is reachable from every page that a browser shows, by a name of the attacker that leads to
127.0.0.1: so the host that the browser names must be loopback, too. Requests that another site's page makes are refused
by what browsers say about them (Fetch Metadata, Origin).
"""

from __future__ import annotations

from collections.abc import Mapping
from http import HTTPStatus
from typing import Final
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import PlainTextResponse

from mooring.service.pages import Application, ASGIMessage, Receive, Send

POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; form-action 'self'; base-uri 'none'; "
    "frame-ancestors 'none'"
)
HEADERS: Final[Mapping[str, str]] = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",  # without any, browsers send the sign-in form with the origin null
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}
_LOOPBACK: Final = ("localhost", "127.0.0.1", "::1")


class SecuredApplication:
    """An application behind these checks."""

    def __init__(self, inner: Application, *, loopback: bool) -> None:
        """Put the checks before an application.

        Args:
            inner: answers.
            loopback: whether only hosts of loopback are served.
        """
        self._inner, self._loopback = inner, loopback

    async def __call__(self, scope: ASGIMessage, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            return

        async def with_headers(message: ASGIMessage) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers.setdefault(name, value)
            await send(message)

        problem = refusal(scope["method"], Headers(scope=scope), loopback=self._loopback)
        inner = PlainTextResponse(f"{problem}\n", HTTPStatus.FORBIDDEN) if problem else self._inner
        await inner(scope, receive, with_headers)


def refusal(method: str, headers: Mapping[str, str], *, loopback: bool) -> str:
    """Return why a request is refused; empty when it is not.

    >>> refusal("GET", {"host": "localhost:8080"}, loopback=True)
    ''
    >>> refusal("GET", {"host": "attacker.example"}, loopback=True)
    'this page is served for localhost only'
    """
    host = headers.get("host", "")
    if loopback and (urlsplit(f"//{host}").hostname or "") not in _LOOPBACK:
        return "this page is served for localhost only"
    site = headers.get("sec-fetch-site", "none")
    navigates = method == "GET" and headers.get("sec-fetch-mode") == "navigate"
    if site in ("cross-site", "same-site") and not (navigates and headers.get("sec-fetch-dest") == "document"):
        return "requests of other sites are refused"
    origin = headers.get("origin")
    if origin is not None and urlsplit(origin).netloc != host:
        return "requests of other origins are refused"
    return ""
