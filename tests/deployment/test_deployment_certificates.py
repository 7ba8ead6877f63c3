"""Certificates: both sides accept each other, now and at every moment of every renewal."""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509

from mooring.cluster.deployment.tasks import AUTHORITY, AUTHORITY_TIME, CERTIFICATE_TIME, Content, renewed

NOW = datetime.now(UTC)
SERVER, CLIENT = "mooring-extender-tls", "mooring-scheduler-tls"
EMPTY: Mapping[str, Content] = {AUTHORITY: {}, SERVER: {}, CLIENT: {}}


def made(at: datetime = NOW, found: Mapping[str, Content] = EMPTY) -> dict[str, Content]:
    return {**found, **renewed(found, "mooring", at)}


def shake_hands(folder: Path, server: Content, client: Content, name: str = "mooring-extender.mooring.svc") -> None:
    """Connect in memory; raises ssl.SSLError when one side does not accept the other."""
    contexts = []
    for purpose, content in ((ssl.PROTOCOL_TLS_SERVER, server), (ssl.PROTOCOL_TLS_CLIENT, client)):
        for file, value in content.items():
            (folder / file).write_bytes(value)
        context = ssl.SSLContext(purpose)
        context.load_cert_chain(folder / "tls.crt", folder / "tls.key")
        context.load_verify_locations(folder / "ca.crt")
        context.verify_mode = ssl.CERT_REQUIRED
        contexts.append(context)
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    sides = [
        contexts[0].wrap_bio(to_server, to_client, server_side=True),
        contexts[1].wrap_bio(to_client, to_server, server_hostname=name),
    ]
    waiting = list(sides)
    for _ in range(10):
        for side in list(waiting):
            try:
                side.do_handshake()
                waiting.remove(side)
            except ssl.SSLWantReadError:
                pass
    assert not waiting


def test_extender_and_scheduler_accept_each_other(tmp_path: Path) -> None:
    secrets = made()
    shake_hands(tmp_path, secrets[SERVER], secrets[CLIENT])


def test_another_name_and_another_authority_are_refused(tmp_path: Path) -> None:
    secrets, others = made(), made()
    with pytest.raises(ssl.SSLError):
        shake_hands(tmp_path, secrets[SERVER], secrets[CLIENT], "elsewhere.mooring.svc")
    with pytest.raises(ssl.SSLError):
        shake_hands(tmp_path, secrets[SERVER], {**others[CLIENT], "ca.crt": secrets[CLIENT]["ca.crt"]})


def test_nothing_is_written_while_two_thirds_of_the_time_are_not_over() -> None:
    secrets = made()
    assert renewed(secrets, "mooring", NOW + CERTIFICATE_TIME * 0.6) == {}
    assert set(renewed(secrets, "mooring", NOW + CERTIFICATE_TIME * 0.7)) == {SERVER, CLIENT}


def test_damaged_and_foreign_certificates_are_replaced() -> None:
    secrets, others = made(), made()
    damaged = {**secrets, SERVER: {**secrets[SERVER], "tls.crt": b"none"}, CLIENT: others[CLIENT]}
    assert set(renewed(damaged, "mooring", NOW)) == {SERVER, CLIENT}


def test_sides_that_renew_at_different_times_accept_each_other_past_a_new_authority() -> None:
    """One side has heard of everything, the other of nothing since the run before; on each day of ten years."""
    secrets, authorities = made(), set()
    days = [1, *range(0, AUTHORITY_TIME.days + 200, 40)]
    for day in days:
        at = NOW + timedelta(days=day)
        after = made(at, secrets)
        authorities.add(after[AUTHORITY]["tls.crt"])
        for server, client in ((after, secrets), (secrets, after), (after, after)):
            accepts(server[SERVER], client[CLIENT], at)
        secrets = after
    assert len(authorities) > 1, "an authority was renewed"


def accepts(server: Content, client: Content, at: datetime) -> None:
    """Judge as the sides would at a moment, which no TLS library can be told."""
    for one, other in ((server, client), (client, server)):
        [certificate] = x509.load_pem_x509_certificates(other["tls.crt"])
        assert certificate.not_valid_after_utc > at
        issuers = [
            authority
            for authority in x509.load_pem_x509_certificates(one["ca.crt"])
            if authority.subject == certificate.issuer and authority.not_valid_after_utc > at
        ]
        assert issuers
        certificate.verify_directly_issued_by(issuers[0])
