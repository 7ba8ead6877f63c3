"""Certificates of extender and scheduler, in Secrets: made, and renewed before they end.

One authority signs both. A certificate is renewed with a third of its time left, and signed by the newest authority; an
authority that is renewed stays trusted until it ends, so that no side meets a certificate of which it has not heard.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Final, TypeAlias

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from mooring.engine.core.errors import InputError
from mooring.service.cluster.apiserver import Cluster, check_response, cluster_errors

AUTHORITY: Final = "mooring-ca"
SIDES: Final = {
    "mooring-extender": ExtendedKeyUsageOID.SERVER_AUTH,
    "mooring-scheduler": ExtendedKeyUsageOID.CLIENT_AUTH,
}
"""Name of a certificate -> its use; the Secret is called ``NAME-tls``."""
CERTIFICATE_TIME: Final = timedelta(days=90)
AUTHORITY_TIME: Final = timedelta(days=3650)
_EARLIER: Final = timedelta(minutes=5)
"""For clocks that are behind."""

Content: TypeAlias = Mapping[str, bytes]
"""Of a Secret: name of the file -> bytes."""


def renew_secrets(cluster: Cluster, namespace: str, now: datetime) -> list[str]:
    """Write the Secrets whose certificates are missing or soon to end; return their names.

    The Secrets exist: the account that this needs may not create any.

    Raises:
        ClusterError: the API server refuses or does not answer; 409 when another job wrote at the same time.
    """
    path = f"api/v1/namespaces/{namespace}/secrets"
    headers = {"Content-Type": "application/merge-patch+json"}
    versions, found = {}, {}
    with cluster_errors():
        for name in (AUTHORITY, *(f"{side}-tls" for side in SIDES)):
            response = cluster.http.get(f"{path}/{name}")
            check_response(response)
            secret = response.json()
            versions[name] = secret["metadata"]["resourceVersion"]
            found[name] = {file: b64decode(text) for file, text in (secret.get("data") or {}).items()}
        changed = renewed(found, namespace, now)
        for name, content in changed.items():
            data = {file: b64encode(value).decode() for file, value in content.items()}
            patch = {"metadata": {"resourceVersion": versions[name]}, "data": data}
            check_response(cluster.http.patch(f"{path}/{name}", json=patch, headers=headers))
    return list(changed)


def renewed(found: Mapping[str, Content], namespace: str, now: datetime) -> dict[str, Content]:
    """Return the Secrets that must be written, the authority first.

    Args:
        found: content of the Secrets, by name; empty where none was made yet.
        namespace: of the Service; its name is in the certificates.
        now: with a time zone.

    Raises:
        InputError: the authority's key is one of another kind.
    """
    changed: dict[str, Content] = {}
    authority = found[AUTHORITY]
    trusted = [one for one in _certificates(authority) if one.not_valid_after_utc > now]
    if not trusted or _is_due(trusted[0], now):
        key = ec.generate_private_key(ec.SECP256R1())
        trusted.insert(0, _signed(_authority_builder(key, now), key))
        authority = changed[AUTHORITY] = {"tls.crt": _pem(trusted), "tls.key": _key_pem(key)}
    bundle = authority["tls.crt"]
    signer = serialization.load_pem_private_key(authority["tls.key"], None)
    if not isinstance(signer, ec.EllipticCurvePrivateKey):
        raise InputError("is not the authority of this program", source=AUTHORITY, remedy="delete the Secret's data")
    for side in SIDES:
        name = f"{side}-tls"
        content = found[name]
        own = _certificates(content)
        if not own or _is_due(own[0], now) or not any(_has_signed(one, own[0]) for one in trusted):
            key = ec.generate_private_key(ec.SECP256R1())
            made = _signed(_side_builder(side, namespace, key, trusted[0], now), signer)
            changed[name] = {"tls.crt": _pem([made]), "tls.key": _key_pem(key), "ca.crt": bundle}
        elif content.get("ca.crt") != bundle:
            changed[name] = {**content, "ca.crt": bundle}
    return changed


def _certificates(content: Content) -> list[x509.Certificate]:
    try:
        return x509.load_pem_x509_certificates(content["tls.crt"])
    except (KeyError, ValueError):  # none yet, or damaged: it is replaced
        return []


def _is_due(certificate: x509.Certificate, now: datetime) -> bool:
    begin, end = certificate.not_valid_before_utc, certificate.not_valid_after_utc
    return end - now < (end - begin) / 3


def _has_signed(authority: x509.Certificate, certificate: x509.Certificate) -> bool:
    try:
        certificate.verify_directly_issued_by(authority)
    except (ValueError, TypeError, InvalidSignature):
        return False
    return True


def _builder(
    name: str, issuer: str, key: ec.EllipticCurvePrivateKey, begin: datetime, time: timedelta
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)]))
        .issuer_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, issuer)]))
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(begin - _EARLIER)
        .not_valid_after(begin + time)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )


def _authority_builder(key: ec.EllipticCurvePrivateKey, now: datetime) -> x509.CertificateBuilder:
    # A name of its own: a certificate's issuer is found by name where several are trusted.
    name = f"{AUTHORITY}-{now:%Y%m%d%H%M%S}"
    return (
        _builder(name, name, key, now, AUTHORITY_TIME)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(signs=True), critical=True)
    )


def _side_builder(
    side: str, namespace: str, key: ec.EllipticCurvePrivateKey, authority: x509.Certificate, now: datetime
) -> x509.CertificateBuilder:
    [issuer] = authority.subject.get_attributes_for_oid(NameOID.COMMON_NAME)
    names = [x509.DNSName(name) for name in (f"{side}.{namespace}.svc", side)]
    identifier = x509.SubjectKeyIdentifier.from_public_key(authority.public_key())
    return (
        _builder(side, str(issuer.value), key, now, CERTIFICATE_TIME)
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(signs=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([SIDES[side]]), critical=False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(identifier),
            critical=False,
        )
    )


def _usage(*, signs: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs,
        crl_sign=signs,
        encipher_only=False,
        decipher_only=False,
    )


def _signed(builder: x509.CertificateBuilder, key: ec.EllipticCurvePrivateKey) -> x509.Certificate:
    return builder.sign(key, hashes.SHA256())


def _pem(certificates: Sequence[x509.Certificate]) -> bytes:
    return b"".join(one.public_bytes(serialization.Encoding.PEM) for one in certificates)


def _key_pem(key: Any) -> bytes:
    made: bytes = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    return made
