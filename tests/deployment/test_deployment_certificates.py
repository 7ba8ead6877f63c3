"""Certificates: both sides accept each other, now and at every moment of every renewal."""

from __future__ import annotations

import os
import ssl
import stat
import threading
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml
from cryptography import x509
from tests.cli.command import mooring
from tests.patience import until
from tests.scheduling.extender_cluster import shake_hands
from tests.values import refusal

from mooring.agent.pods.cluster import AgentAccount, own_accounts
from mooring.cluster.deployment import (
    AUTHORITY,
    AUTHORITY_TIME,
    CERTIFICATE_TIME,
    DAEMON_SET,
    PROFILE,
    Content,
    has_left,
    keep_token,
    kubeconfig_of_pod,
    leaving_patch,
    renewed,
    write_kubeconfig,
    write_profile,
)

NOW = datetime.now(UTC)
SERVER, CLIENT = "mooring-extender-tls", "mooring-scheduler-tls"
EMPTY: Mapping[str, Content] = {AUTHORITY: {}, SERVER: {}, CLIENT: {}}


def made(at: datetime = NOW, found: Mapping[str, Content] = EMPTY) -> dict[str, Content]:
    return {**found, **renewed(found, "mooring", at)}


def connected(folder: Path, server: Content, client: Content, name: str = "mooring-extender.mooring.svc") -> bool:
    """Tell whether both sides accept each other; raises ssl.SSLError when one does not."""
    contexts = []
    for purpose, content in ((ssl.PROTOCOL_TLS_SERVER, server), (ssl.PROTOCOL_TLS_CLIENT, client)):
        for file, value in content.items():
            (folder / file).write_bytes(value)
        context = ssl.SSLContext(purpose)
        context.load_cert_chain(folder / "tls.crt", folder / "tls.key")
        context.load_verify_locations(folder / "ca.crt")
        context.verify_mode = ssl.CERT_REQUIRED
        contexts.append(context)
    server_side, client_side = contexts
    return shake_hands(server_side, client_side, name)


def test_extender_and_scheduler_accept_each_other_and_no_other_name_or_authority(tmp_path: Path) -> None:
    secrets, others = made(), made()
    assert connected(tmp_path, secrets[SERVER], secrets[CLIENT])
    with pytest.raises(ssl.SSLError):
        connected(tmp_path, secrets[SERVER], secrets[CLIENT], "elsewhere.mooring.svc")
    with pytest.raises(ssl.SSLError):
        connected(tmp_path, secrets[SERVER], {**others[CLIENT], "ca.crt": secrets[CLIENT]["ca.crt"]})


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


# Leaving a cluster: the pods that leave have what the agent has, and a node counts when its pod is ready.


DEPLOY = Path(__file__).resolve().parents[2] / "deploy"


def shipped() -> dict[str, Any]:
    documents = yaml.safe_load_all((DEPLOY / "agent" / "agent.yaml").read_text(encoding="utf-8"))
    [found] = [one for one in documents if one["kind"] == "DaemonSet"]
    assert found["metadata"]["name"] == DAEMON_SET
    return dict(found)


def patched(daemon_set: dict[str, Any]) -> dict[str, Any]:
    pod = leaving_patch(daemon_set)["spec"]["template"]["spec"]
    spec = {**daemon_set["spec"]["template"]["spec"], **pod}
    return {**daemon_set, "spec": {**daemon_set["spec"], "template": {"spec": spec}}}


def test_a_pod_leaves_with_the_rights_and_volumes_of_the_agent_before_it_waits() -> None:
    [agent] = shipped()["spec"]["template"]["spec"]["containers"]
    pod = patched(shipped())["spec"]["template"]["spec"]
    *before, leave = pod["initContainers"]
    assert [one["name"] for one in before] == ["prepare"]
    assert leave["args"] == [*agent["args"], "--leave"]
    for name in ("image", "securityContext", "volumeMounts"):
        assert leave[name] == agent[name]
    [resting] = pod["containers"]
    assert resting["args"] == ["deploy", "wait"]
    assert not [name for one in (leave, resting) for name in one if name.endswith("Probe")]
    assert leaving_patch(patched(shipped())) == {"spec": {}}, "a second try changes nothing"


@pytest.mark.parametrize(
    ("observed", "updated", "ready", "left"), [(4, 2, 2, False), (5, 1, 2, False), (5, 2, 1, False), (5, 2, 2, True)]
)
def test_a_node_counts_once_its_new_pod_is_ready(observed: int, updated: int, ready: int, *, left: bool) -> None:
    status = {"observedGeneration": observed, "updatedNumberScheduled": updated, "numberReady": ready}
    state = {"metadata": {"generation": 5}, "status": {**status, "desiredNumberScheduled": 2}}
    assert has_left(state) is left


# Files on the node: a token is replaced whole, and the kubeconfig leads to the pod's own API server.


POD = {"KUBERNETES_SERVICE_HOST": "10.0.0.1", "KUBERNETES_SERVICE_PORT": "443"}


def test_a_token_is_replaced_whole_and_for_its_owner_alone(tmp_path: Path) -> None:
    source, target, stop = tmp_path / "projected", tmp_path / "host" / "token", threading.Event()
    target.parent.mkdir()
    source.write_text("first", encoding="utf-8")
    target.write_text("old", encoding="utf-8")
    opened = target.open(encoding="utf-8")
    mask = os.umask(0)
    os.umask(mask)
    keeping = threading.Thread(target=keep_token, args=(source, target, stop))
    keeping.start()
    try:
        until(lambda: target.read_text(encoding="utf-8") == "first", "the token is copied")
    finally:
        stop.set()
        keeping.join()
        os.umask(mask)
    with opened:
        assert opened.read() == "old", "the old file stays whole for its readers"
    assert stat.S_IMODE(target.stat().st_mode) == 0o600
    assert [file.name for file in target.parent.iterdir()] == ["token"]


def test_the_agent_finds_its_accounts_in_the_kubeconfig_of_its_pod(tmp_path: Path) -> None:
    names = [AgentAccount.PODS.value, AgentAccount.TAINT.value]
    file = tmp_path / "kubeconfig"
    write_kubeconfig(file, kubeconfig_of_pod(names, Path("/tokens"), Path("/authority/ca.crt"), POD))
    assert set(own_accounts(str(file))) == {AgentAccount.PODS, AgentAccount.TAINT}


def test_a_pod_without_an_api_server_is_refused_by_the_variable_that_is_missing() -> None:
    assert "KUBERNETES_SERVICE_HOST" in refusal(
        kubeconfig_of_pod, ["mooring-agent-pods"], Path("/tokens"), Path("/ca.crt"), {}
    )


def test_the_profile_goes_where_the_kubelet_looks_for_it(tmp_path: Path) -> None:
    (tmp_path / "seccomp.json").write_text("{}", encoding="utf-8")
    write_profile(tmp_path / "seccomp.json", tmp_path)
    assert (tmp_path / PROFILE).read_text(encoding="utf-8") == "{}"


def test_a_container_with_other_cpus_than_it_must_have_fails_the_check() -> None:
    mine = len(os.sched_getaffinity(0))
    assert mooring("deploy", "check", "--cpus", str(mine)).code == 0
    assert mooring("deploy", "check", "--cpus", str(mine + 1)).code == 1
