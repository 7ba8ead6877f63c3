"""Clients over real sockets: who has no certificate is refused, and who dawdles is cut and holds nobody up."""

from __future__ import annotations

import contextlib
import http.client
import json
import socket
import ssl
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx2
import pytest
from msgspec import structs
from tests.patience import many_files, until
from tests.scheduling.extender_cluster import PATIENT, Authority, Certified, authority, ready_extender, shake_hands

from mooring.cluster.extender.binding import ClusterPodAPI
from mooring.cluster.extender.options import TLS, ExtenderOptions
from mooring.cluster.extender.run import limits_of, serve
from mooring.cluster.extender.wire import BindArguments
from mooring.engine.core.errors import InputError
from mooring.service.apiserver import Cluster, ClusterError
from mooring.service.http import HANDSHAKES, TLSFiles, tls_context
from mooring.service.options import Address

IMPATIENT = 0.2
SILENT = 1100
POD = {"metadata": {"name": "p", "namespace": "default", "uid": "u"}, "spec": {"containers": [{"name": "a"}]}}
QUESTION = json.dumps({"Pod": POD, "NodeNames": ["node-x"]}).encode()
HEAD = b"POST /filter HTTP/1.1\r\nHost: extender\r\nContent-Length: 1000\r\n"


@contextlib.contextmanager
def serving(options: ExtenderOptions, **limits: Any) -> Iterator[int]:
    """Run an extender until the end of the block, and give its port."""
    extender = ready_extender(options)
    known = replace(limits_of(options), grace=0.0, **limits)
    server = serve(structs.replace(options, listen=Address("127.0.0.1", 0)), extender.service.app, known)
    try:
        yield server.address[1]
    finally:
        server.close()
        extender.stop()


def answered(port: int, context: ssl.SSLContext | None = None) -> int:
    """Ask a question as the scheduler does, and return the status."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    if context is not None:
        connection = http.client.HTTPSConnection("127.0.0.1", port, timeout=60, context=context)
    with contextlib.closing(connection):
        connection.request("POST", "/filter", QUESTION, {"Content-Type": "application/json"})
        response = connection.getresponse()
        assert json.load(response)["NodeNames"] == ["node-x"]
        return response.status


def dawdling(port: int, sent: bytes) -> socket.socket:
    client = socket.create_connection(("127.0.0.1", port), timeout=60)
    client.sendall(sent)
    return client


def is_cut(client: socket.socket, more: bytes = b"x") -> bool:
    """Send one more byte, or nothing, and tell whether the other side has ended the connection."""
    client.setblocking(False)
    try:
        client.send(more)
        while client.recv(1000):
            pass
    except BlockingIOError:
        return False
    except ConnectionError:
        return True
    return True


@pytest.mark.parametrize(
    "sent",
    [b"", b"POST /fil", HEAD, HEAD + b"\r\n", HEAD + b"\r\n{"],
    ids=["nothing", "half-a-line", "half-a-head", "no-body", "some-body"],
)
def test_who_dawdles_is_cut_after_every_part_of_a_request(sent: bytes) -> None:
    with serving(ExtenderOptions(request_time=IMPATIENT)) as port, dawdling(port, sent) as client:
        until(lambda: is_cut(client), "the connection is cut")


def test_who_dawdles_with_the_next_request_is_cut_too() -> None:
    whole = b"GET /healthz HTTP/1.1\r\nHost: extender\r\n\r\n"
    patient = ExtenderOptions(request_time=PATIENT)
    with serving(patient, idle=IMPATIENT) as port, dawdling(port, whole + HEAD) as client:
        assert client.recv(1000).startswith(b"HTTP/1.1 200 ")
        until(lambda: is_cut(client), "the connection is cut")


def test_a_body_that_does_not_come_is_answered_before_the_connection_ends() -> None:
    # The connection's own end is far away, so that it does not come first on a machine that stood still.
    impatient = ExtenderOptions(request_time=IMPATIENT)
    with (
        serving(impatient, first=PATIENT, body=PATIENT, busy=PATIENT, idle=PATIENT) as port,
        dawdling(port, HEAD + b"\r\n{") as client,
        client.makefile("rb") as answer,
    ):
        said = answer.read()
    assert said.startswith(b"HTTP/1.1 408 ")
    assert said.endswith(b'{"error":"the body did not arrive in time"}')


def test_a_client_that_dawdles_holds_nobody_up() -> None:
    with serving(ExtenderOptions(request_time=PATIENT)) as port, contextlib.ExitStack() as waiting:
        for sent in (b"", b"POST /fil", HEAD, HEAD + b"\r\n{"):
            waiting.enter_context(dawdling(port, sent))
        assert answered(port) == 200


def test_one_connection_serves_many_requests() -> None:
    with serving(ExtenderOptions(request_time=PATIENT)) as port:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        with contextlib.closing(connection):
            for _ in range(3):
                connection.request("POST", "/filter", QUESTION)
                first = connection.sock
                assert connection.getresponse().read()
                assert connection.sock is first


@pytest.fixture(scope="module")
def signer(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return authority(tmp_path_factory.mktemp("ours"), "authority")


@pytest.fixture(scope="module")
def secured(signer: Authority) -> ExtenderOptions:
    own = signer.issue("extender", "subjectAltName=IP:127.0.0.1", "basicConstraints=critical,CA:FALSE")
    return ExtenderOptions(tls=TLS(str(own.certificate), str(own.key), str(signer.certificate)), request_time=PATIENT)


def trusting(signer: Authority, own: Certified | None = None) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=str(signer.certificate))
    if own is not None:
        context.load_cert_chain(own.certificate, own.key)
    return context


def test_clients_that_never_begin_their_handshake_keep_no_certified_client_out(
    signer: Authority, secured: ExtenderOptions
) -> None:
    scheduler = trusting(signer, signer.issue("scheduler", "extendedKeyUsage=clientAuth"))
    with many_files(SILENT * 2), serving(secured) as port, contextlib.ExitStack() as opened:
        silent = [opened.enter_context(dawdling(port, b"")) for _ in range(SILENT)]
        assert answered(port, scheduler) == 200
        until(lambda: sum(not is_cut(one, b"") for one in silent) <= HANDSHAKES, "those that began first are cut")
        assert not is_cut(silent[-1], b"")
        assert answered(port, scheduler) == 200


def test_who_has_no_certificate_or_anothers_is_refused(
    signer: Authority, secured: ExtenderOptions, tmp_path: Path
) -> None:
    stranger = authority(tmp_path, "stranger").issue("scheduler", "extendedKeyUsage=clientAuth")
    with serving(secured) as port:
        for context in (trusting(signer), trusting(signer, stranger), None):
            with pytest.raises((ssl.SSLError, ConnectionError, http.client.HTTPException)):
                answered(port, context)
        scheduler = signer.issue("later", "basicConstraints=critical,CA:FALSE", "extendedKeyUsage=clientAuth")
        assert answered(port, trusting(signer, scheduler)) == 200


def test_files_that_are_no_certificates_are_reported_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "no.crt").write_text("no certificate", encoding="utf-8")
    options = ExtenderOptions(tls=TLS(str(tmp_path / "no.crt"), str(tmp_path / "no.crt")))
    with pytest.raises(InputError, match="check certificate, key and CA") as caught:
        serve(options, ready_extender(options).service.app)
    assert "\n" not in str(caught.value)


def test_replaced_certificates_are_used_from_the_next_connection_on(signer: Authority, tmp_path: Path) -> None:
    """Also for clients that name no server, as a scheduler that knows the Service by its address."""
    other = authority(tmp_path, "other")
    names = ("subjectAltName=IP:127.0.0.1", "basicConstraints=critical,CA:FALSE")
    files = [tmp_path / name for name in ("tls.crt", "tls.key", "ca.crt")]

    def place(by: Authority) -> None:
        own = by.issue(f"extender-{by.name}", *names)
        for target, source in zip(files, (own.certificate, own.key, by.certificate), strict=True):
            fresh = target.with_suffix(".new")
            fresh.write_bytes(source.read_bytes())
            fresh.replace(target)

    place(signer)
    problems: list[str] = []
    context = tls_context(TLSFiles(*map(str, files)), problems.append)
    clients = {one.name: (one, one.issue("scheduler", "extendedKeyUsage=clientAuth")) for one in (signer, other)}
    assert accepted(context, *clients["authority"])
    assert not accepted(context, *clients["other"])
    place(other)
    assert accepted(context, *clients["other"])
    assert not accepted(context, *clients["authority"])
    files[1].write_text("damaged", encoding="utf-8")
    assert accepted(context, *clients["other"])
    assert accepted(context, *clients["other"])
    assert len(problems) == 1
    assert "stays in use" in problems[0]


def accepted(server: ssl.SSLContext, by: Authority, own: Certified) -> bool:
    """Tell whether client and server accept each other."""
    client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    client.check_hostname = False
    client.load_cert_chain(own.certificate, own.key)
    client.load_verify_locations(by.certificate)
    try:
        return shake_hands(server, client)
    except ssl.SSLError:
        return False


# Binds reuse connections to the API server, and none on which a request failed.


ASKED = BindArguments("web", "default", "uid", "node-1")


def test_a_connection_is_reused_until_it_is_old_or_a_request_fails() -> None:
    statuses, opened, now = [201, 201, 409, 201, 201], list[Cluster](), [0.0]

    def connect() -> Cluster:
        transport = httpx2.MockTransport(lambda _request: httpx2.Response(statuses.pop(0), text="said"))
        opened.append(Cluster(httpx2.Client(transport=transport, base_url="http://api")))
        return opened[-1]

    server = ClusterPodAPI(connect, lambda: now[0])
    server.bind(ASKED)
    server.bind(ASKED)
    assert len(opened) == 1
    with pytest.raises(ClusterError):
        server.bind(ASKED)
    server.bind(ASKED)
    assert len(opened) == 2
    now[0] = 301.0
    server.bind(ASKED)
    assert len(opened) == 3
    assert [one.http.is_closed for one in opened] == [True, True, False]
    server.close()
    assert opened[-1].http.is_closed
