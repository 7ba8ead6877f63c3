"""What only a pod of the cluster can do: certificates of extender and scheduler, files of a node's agent, leaving.

Images have no shell, so that these tasks of the Helm chart are functions of Mooring: ``mooring deploy TASK``.

One authority signs both certificates, which are Secrets. A certificate is renewed with a third of its time left, and
signed by the newest authority; an authority that is renewed stays trusted until it ends, so that no side meets a
certificate of which it has not heard. Files of an agent are tokens, a kubeconfig, the seccomp profile. Leaving: the
agents of a DaemonSet stop on every node, and give containers their CPUs back.
"""

from __future__ import annotations

import copy
import json
import os
import time
from base64 import b64decode, b64encode
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from threading import Event
from typing import Any, Final, TypeAlias

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from mooring.engine.checkpoint.store import write_atomically
from mooring.engine.core.errors import InputError, MooringError
from mooring.service.apiserver import Cluster, asked, asked_json

AUTHORITY: Final = "mooring-ca"
SIDES: Final = {
    "mooring-extender": ExtendedKeyUsageOID.SERVER_AUTH,
    "mooring-scheduler": ExtendedKeyUsageOID.CLIENT_AUTH,
}
"""Name of a certificate -> its use; the Secret is called ``NAME-tls``."""
CERTIFICATE_TIME: Final = timedelta(days=90)
AUTHORITY_TIME: Final = timedelta(days=3650)
_MERGE: Final = {"Content-Type": "application/merge-patch+json"}
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
    versions, found = {}, {}
    for name in (AUTHORITY, *(f"{side}-tls" for side in SIDES)):
        secret = asked_json(cluster.http, "GET", f"{path}/{name}")
        versions[name] = secret["metadata"]["resourceVersion"]
        found[name] = {file: b64decode(text) for file, text in (secret.get("data") or {}).items()}
    changed = renewed(found, namespace, now)
    for name, content in changed.items():
        data = {file: b64encode(value).decode() for file, value in content.items()}
        patch = {"metadata": {"resourceVersion": versions[name]}, "data": data}
        asked(cluster.http, "PATCH", f"{path}/{name}", json=patch, headers=_MERGE)
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
        # A name of its own: a certificate's issuer is found by name where several are trusted.
        name = f"{AUTHORITY}-{now:%Y%m%d%H%M%S}"
        made = _builder(name, name, key, now, AUTHORITY_TIME, signs=True).sign(key, hashes.SHA256())
        trusted.insert(0, made)
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
            made = _side_builder(side, namespace, key, trusted[0], now).sign(signer, hashes.SHA256())
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
    name: str, issuer: str, key: ec.EllipticCurvePrivateKey, begin: datetime, time: timedelta, *, signs: bool
) -> x509.CertificateBuilder:
    usage = x509.KeyUsage(
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
    return (
        x509.CertificateBuilder()
        .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)]))
        .issuer_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, issuer)]))
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(begin - _EARLIER)
        .not_valid_after(begin + time)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(x509.BasicConstraints(ca=signs, path_length=0 if signs else None), critical=True)
        .add_extension(usage, critical=True)
    )


def _side_builder(
    side: str, namespace: str, key: ec.EllipticCurvePrivateKey, authority: x509.Certificate, now: datetime
) -> x509.CertificateBuilder:
    [issuer] = authority.subject.get_attributes_for_oid(NameOID.COMMON_NAME)
    names = [x509.DNSName(name) for name in (f"{side}.{namespace}.svc", side)]
    identifier = x509.SubjectKeyIdentifier.from_public_key(authority.public_key())
    return (
        _builder(side, str(issuer.value), key, now, CERTIFICATE_TIME, signs=False)
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .add_extension(x509.ExtendedKeyUsage([SIDES[side]]), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(identifier), critical=False)
    )


def _pem(certificates: Sequence[x509.Certificate]) -> bytes:
    return b"".join(one.public_bytes(serialization.Encoding.PEM) for one in certificates)


def _key_pem(key: Any) -> bytes:
    made: bytes = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    return made


PROFILE = "mooring-agent.json"
"""Name of the seccomp profile in the kubelet's folder."""
_PERIOD = 60.0
"""Seconds between two copies: the kubelet replaces a projected token 12 minutes before its end."""


def keep_token(source: Path, target: Path, stop: Event) -> None:
    """Copy a token now and once a minute, until the event is set.

    Args:
        source: the projected file.
        target: the file on the node, replaced by rename, for its owner only.
        stop: ends the copying.

    Raises:
        InputError: the token cannot be read or written.
    """
    os.umask(0o077)
    while True:
        write_atomically(target, _text(source))
        if stop.wait(_PERIOD):
            return


def write_profile(source: Path, folder: Path) -> None:
    """Copy the agent's seccomp profile into the kubelet's folder of profiles.

    Raises:
        InputError: a file cannot be read or written.
    """
    write_atomically(folder / PROFILE, _text(source))


def kubeconfig_of_pod(
    accounts: Sequence[str], tokens: Path, authority: Path, environment: Mapping[str, str]
) -> dict[str, Any]:
    """Return a kubeconfig for the pod's own API server, with one context for each account.

    Args:
        accounts: the first one is the current context.
        tokens: folder with a folder for each account.
        authority: file with the certificate authority of the API server.
        environment: of the pod; the kubelet names the API server there.

    Raises:
        InputError: this is not a pod.

    >>> pod = {"KUBERNETES_SERVICE_HOST": "fd00::1", "KUBERNETES_SERVICE_PORT": "443"}
    >>> made = kubeconfig_of_pod(["mooring-agent-pods"], Path("/tokens"), Path("/ca.crt"), pod)
    >>> made["clusters"][0]["cluster"]["server"]
    'https://[fd00::1]:443'
    """
    try:
        host, port = environment["KUBERNETES_SERVICE_HOST"], environment["KUBERNETES_SERVICE_PORT"]
    except KeyError as missing:
        raise InputError("is not set", source=str(missing.args[0]), remedy="run this in a pod") from None
    server = f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}"
    users = [{"name": name, "user": {"tokenFile": str(tokens / name / "token")}} for name in accounts]
    contexts = [{"name": name, "context": {"cluster": "cluster", "user": name}} for name in accounts]
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": accounts[0],
        "clusters": [{"name": "cluster", "cluster": {"server": server, "certificate-authority": str(authority)}}],
        "users": users,
        "contexts": contexts,
    }


def write_kubeconfig(path: Path, content: Mapping[str, Any]) -> None:
    """Write a kubeconfig as JSON, which is YAML.

    Raises:
        InputError: it cannot be written.
    """
    write_atomically(path, json.dumps(content, indent=1) + "\n")


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        raise InputError(f"cannot be read: {error}", source=str(path)) from None


DAEMON_SET = "mooring-agent"
_CONTAINER = "agent"
_LEAVING_PERIOD = 2.0
"""Seconds between two requests for the state of the DaemonSet."""


def leave(cluster: Cluster, namespace: str, patience: float, *, wait: Callable[[float], None] = time.sleep) -> int:
    """Let the agents of all nodes leave; return the number of nodes.

    Args:
        cluster: with the right to read and patch the DaemonSet.
        namespace: of the DaemonSet.
        patience: seconds until all nodes must have been left.
        wait: between two requests.

    Raises:
        ClusterError: the API server refuses or does not answer.
        MooringError: some node was not left in time.
    """
    path = f"apis/apps/v1/namespaces/{namespace}/daemonsets/{DAEMON_SET}"
    patch = leaving_patch(asked_json(cluster.http, "GET", path))
    state = asked_json(cluster.http, "PATCH", path, json=patch, headers=_MERGE)
    waited = 0.0
    while not has_left(state):
        if waited >= patience:
            status = state.get("status", {})
            left = min(status.get("updatedNumberScheduled", 0), status.get("numberReady", 0))
            raise MooringError(
                f"{left} of {status.get('desiredNumberScheduled', 0)} nodes were left within {patience:.0f} s; see the "
                f"logs of the container 'leave' in the pods of {DAEMON_SET}, and repeat, or leave these nodes by hand "
                "with: mooring agent --config FILE --leave"
            )
        wait(_LEAVING_PERIOD)
        waited += _LEAVING_PERIOD
        state = asked_json(cluster.http, "GET", path)
    return int(state["status"]["desiredNumberScheduled"])


def has_left(daemon_set: dict[str, Any]) -> bool:
    """Return whether the pods of all nodes are those that have left, and are ready.

    >>> status = {"observedGeneration": 2, "desiredNumberScheduled": 3, "updatedNumberScheduled": 3, "numberReady": 2}
    >>> has_left({"metadata": {"generation": 2}, "status": status})
    False
    """
    status, wanted = daemon_set.get("status", {}), daemon_set["metadata"]["generation"]
    nodes = status.get("desiredNumberScheduled", 0)
    return bool(
        status.get("observedGeneration", 0) >= wanted
        and status.get("updatedNumberScheduled", 0) == nodes
        and status.get("numberReady", 0) == nodes
    )


def leaving_patch(daemon_set: dict[str, Any]) -> dict[str, Any]:
    """Return the merge patch after which every pod leaves its node, with all that the agent has, and then only waits.

    Args:
        daemon_set: of the agents; one that was patched already stays as it is.
    """
    pod = daemon_set["spec"]["template"]["spec"]
    [agent] = [one for one in pod["containers"] if one["name"] == _CONTAINER]
    leaver = copy.deepcopy(agent)
    for probe in ("livenessProbe", "readinessProbe", "startupProbe"):
        leaver.pop(probe, None)
    resting = {**copy.deepcopy(leaver), "args": ["deploy", "wait"]}
    leaver = {**leaver, "name": "leave", "args": [*agent["args"], "--leave"]}
    before = [one for one in pod.get("initContainers", []) if one["name"] != "leave"]
    if agent["args"] == resting["args"]:  # a second try
        return {"spec": {}}
    return {
        "spec": {
            "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": "100%"}},
            "template": {"spec": {"initContainers": [*before, leaver], "containers": [resting]}},
        }
    }
