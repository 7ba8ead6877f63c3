"""Who may see what: the API server is asked about tokens and namespaces, once a minute, and believed."""

from __future__ import annotations

import asyncio
import json
import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager, nullcontext
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from tests.scheduling.extender_cluster import certificates
from tests.serve.clusters import node_site, recording
from tests.shadow.listing import answering
from tests.values import not_none, refusal

from mooring.monitoring.serve.access import EVERYTHING, KEPT, REVIEWING, ClusterGuard, OpenGuard, Viewer
from mooring.monitoring.serve.app import ServeOptions, connection, guard_of, node_application, run_application
from mooring.service.apiserver import ClusterError
from mooring.service.options import Address


@dataclass
class Reviews:
    """An API server that answers reviews: tokens are names of people, who may list pods in the namespaces given.

    A token such as ``ann:scope`` is of the same person, who may list nothing with it.
    """

    rights: dict[str, tuple[str, ...]]
    asked: list[str] = field(default_factory=list)
    broken: bool = False
    tokens: list[str | None] = field(default_factory=list)
    """Of the requests."""
    held: threading.Event | None = None
    """What reviews of unknown tokens and questions about the namespace ``slow`` wait for."""

    def answer(self, kind: str, spec: dict[str, Any]) -> dict[str, Any]:
        if kind == "TokenReview":
            self.asked.append(f"token {spec['token']}")
            name, _, scope = spec["token"].partition(":")
            known = name in self.rights
            if self.held is not None and not known:
                self.held.wait(60)
            extra = {"team": ["one"], **({"scopes": [scope]} if scope else {})}
            user = {"username": name, "groups": ["people"], "extra": extra}
            return {"authenticated": True, "user": user} if known else {"error": "unknown"}
        attributes = spec["resourceAttributes"]
        assert (attributes["verb"], attributes["resource"]) == ("list", "pods")
        assert spec["groups"] == ["people"]
        assert spec["extra"].pop("team") == ["one"]
        self.asked.append(f"{spec['user']} {attributes['namespace']}")
        if self.held is not None and attributes["namespace"] == "slow":
            self.held.wait(60)
        return {"allowed": not spec["extra"] and attributes["namespace"] in self.rights[spec["user"]]}


@contextmanager
def playing(reviews: Reviews, folder: Path) -> Iterator[str]:
    """Play the API server until the end of the block; gives a kubeconfig for it."""

    def answer(request: BaseHTTPRequestHandler, body: bytes) -> tuple[int, bytes]:
        reviews.tokens.append(request.headers["Authorization"])
        status, content = 500 if reviews.broken else 201, json.loads(body)
        return status, json.dumps({"status": reviews.answer(content["kind"], content["spec"])}).encode()

    with answering(answer, folder) as file:
        yield str(file)


def viewer(guard: ClusterGuard, token: str, *namespaces: str) -> Viewer | None:
    return asyncio.run(guard.viewer(token, namespaces))


def test_rights_are_those_that_the_api_server_says_and_are_asked_once_a_minute(tmp_path: Path) -> None:
    reviews, now = Reviews({"ann": ("one",), "root": ("", "one")}), [0.0]
    with playing(reviews, tmp_path) as file:
        guard = ClusterGuard(connection(file), lambda: now[0])
        assert viewer(guard, "", "one") is None
        assert reviews.asked == []
        assert viewer(guard, "forged", "one") is None
        ann = not_none(viewer(guard, "ann", "one", "two"))
        assert (ann.may_list("one"), ann.may_list("two"), ann.may_list("three")) == (True, False, False)
        assert not_none(viewer(guard, "root", "one")).may_list("any")
        asked = len(reviews.asked)
        viewer(guard, "ann", "one", "two")
        viewer(guard, "forged")
        assert len(reviews.asked) == asked
        reviews.rights["ann"] = ()
        now[0] = KEPT + 1
        assert not not_none(viewer(guard, "ann", "one")).may_list("one")


def test_while_the_api_server_is_broken_nobody_new_sees_anything(tmp_path: Path) -> None:
    reviews = Reviews({"ann": ("core",)})
    reviews.broken = True
    with playing(reviews, tmp_path) as file:
        guard = ClusterGuard(connection(file))
        with pytest.raises(ClusterError):
            viewer(guard, "ann", "core")
        with node_site(recording(), guard, loopback=False) as site:
            assert site.ask("/", Authorization="Bearer ann").status == 502
            reviews.broken = False
            text = site.ask("/", Authorization="Bearer ann").text
            assert "core/upf-0" in text
            assert "hpc/" not in text


def test_after_a_failure_the_guard_connects_again_with_the_credentials_of_then(tmp_path: Path) -> None:
    reviews = Reviews({"ann": ("core",)}, broken=True)
    with playing(reviews, tmp_path) as file:
        connect, path = connection(file), Path(file)
        with closing(ClusterGuard(connect)) as guard:
            with pytest.raises(ClusterError):
                viewer(guard, "ann", "core")
            path.write_text(path.read_text().replace('"secret"', '"renewed"'), encoding="utf-8")
            reviews.broken = False
            assert viewer(guard, "ann", "core") is not None
        assert reviews.tokens[-1] == "Bearer renewed"


def test_a_token_with_scopes_does_not_get_the_rights_of_the_persons_other_tokens(tmp_path: Path) -> None:
    with playing(Reviews({"ann": ("one",)}), tmp_path) as file:
        guard = ClusterGuard(connection(file))
        assert viewer(guard, "ann", "one") == Viewer(frozenset({"one"}))
        assert viewer(guard, "ann:user-info", "one") == Viewer(frozenset())
        assert viewer(guard, "ann", "one") == Viewer(frozenset({"one"}))


def test_no_viewer_waits_for_the_reviews_of_others(tmp_path: Path) -> None:
    reviews = Reviews({"ann": ("one",), "bob": (), "root": ("",)})

    async def all_at_once(guard: ClusterGuard, held: threading.Event) -> None:
        for name in reviews.rights:
            await guard.viewer(name, ())
        reviews.held = held
        others = [asyncio.create_task(guard.viewer(f"forged-{number}", ())) for number in range(60)]
        others.append(asyncio.create_task(guard.viewer("bob", ("slow",))))
        async with asyncio.timeout(30):
            while sum(one.startswith("token forged") for one in reviews.asked) < REVIEWING:
                await asyncio.sleep(0)
            assert await guard.viewer("root", ("one",)) == EVERYTHING
            assert await guard.viewer("ann", ("one",)) == Viewer(frozenset({"one"}))
        assert sum(one.startswith("token forged") for one in reviews.asked) == REVIEWING
        held.set()
        assert await asyncio.gather(*others) == [*[None] * 60, Viewer(frozenset())]

    with playing(reviews, tmp_path) as file:
        held = threading.Event()
        try:
            asyncio.run(all_at_once(ClusterGuard(connection(file)), held))
        finally:
            held.set()


def test_requests_that_need_the_same_answer_ask_once(tmp_path: Path) -> None:
    async def both(guard: ClusterGuard) -> None:
        found = await asyncio.gather(*(guard.viewer("ann", ("one",)) for _ in range(20)))
        assert found == [Viewer(frozenset({"one"}))] * 20

    reviews = Reviews({"ann": ("one",)})
    with playing(reviews, tmp_path) as file:
        asyncio.run(both(ClusterGuard(connection(file))))
    assert reviews.asked == ["token ann", "ann ", "ann one"]


def test_unknown_tokens_evict_no_person(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mooring.monitoring.serve.access.MOST_KEPT", 4)
    reviews = Reviews({"ann": ("one",)})
    with playing(reviews, tmp_path) as file:
        guard = ClusterGuard(connection(file))
        viewer(guard, "ann", "one")
        for number in range(8):
            assert viewer(guard, f"forged-{number}", "one") is None
        viewer(guard, "ann", "one")
    assert reviews.asked.count("token ann") == 1


EVERYWHERE = "0.0.0.0"  # noqa: S104 - what is refused


@pytest.mark.parametrize(
    ("host", "is_loopback"), [("127.0.0.1", True), ("::1", True), ("localhost", True), (EVERYWHERE, False)]
)
def test_beyond_loopback_an_api_server_is_needed(host: str, is_loopback: bool, tmp_path: Path) -> None:
    options = ServeOptions(Address(host, 0), str(tmp_path / "nowhere"))
    assert options.is_loopback == is_loopback
    if is_loopback:
        assert viewer(guard_of(options), "") is not None  # type: ignore[arg-type]
    else:
        assert "nowhere" in refusal(guard_of, options)


def test_a_replaced_certificate_is_served_at_the_next_connection(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = [tmp_path / "tls.crt", tmp_path / "tls.key"]

    def place(name: str) -> str:
        own = certificates(tmp_path / name) / "mooring-extender-tls"
        for target in files:
            (own / target.name).replace(target)
        return ssl.PEM_cert_to_DER_cert(files[0].read_text(encoding="ascii")).hex()

    def served() -> str:
        trusting = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        trusting.check_hostname, trusting.verify_mode = False, ssl.CERT_NONE
        with (
            socket.create_connection(("127.0.0.1", int(port[0])), timeout=20) as plain,
            trusting.wrap_socket(plain) as client,
        ):
            return (client.getpeercert(binary_form=True) or b"").hex()

    stop, started, port = threading.Event(), threading.Event(), [""]

    def say(words: str) -> None:
        if words.startswith("serving "):
            port[0] = words.rstrip("/").rpartition(":")[2]
            started.set()

    monkeypatch.setattr("mooring.monitoring.serve.app.stop_signals", lambda: nullcontext(stop))
    first = place("first")
    options = ServeOptions(Address("127.0.0.1", 0), certificate=str(files[0]), key=str(files[1]))
    app = node_application(recording(), OpenGuard(), loopback=True)
    thread = Thread(target=run_application, args=(app, options, say), daemon=True)
    thread.start()
    try:
        assert started.wait(20)
        assert served() == first
        second = place("second")
        assert first != second
        assert served() == second
    finally:
        stop.set()
        thread.join(20)


async def never(*_args: object) -> None:
    await asyncio.Event().wait()


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"_LONGEST_PAUSE": -1.0}, "what is shown is no longer read"),
        ({"_ANSWERS": 0.05, "run_in_threadpool": never}, "no thread is free for a page"),
    ],
    ids=["reader", "threads"],
)
def test_a_page_that_cannot_be_kept_up_to_date_is_not_alive(
    changed: dict[str, object], said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in changed.items():
        monkeypatch.setattr(f"mooring.monitoring.serve.app.{name}", value)
    with node_site(recording()) as site:
        assert (site.ask("/healthz").status, site.ask("/healthz").text) == (503, f"{said}\n")
