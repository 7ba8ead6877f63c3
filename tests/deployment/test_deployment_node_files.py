"""Files on the node: a token is replaced whole, and the kubeconfig leads to the pod's own API server."""

from __future__ import annotations

import os
import stat
import threading
from pathlib import Path

import pytest
from tests.cli.command import mooring
from tests.patience import until

from mooring.agent.pods.cluster import AgentAccount, own_accounts
from mooring.cluster.deployment.tasks import PROFILE, keep_token, kubeconfig_of_pod, write_kubeconfig, write_profile
from mooring.engine.core.errors import InputError

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
    with pytest.raises(InputError, match="KUBERNETES_SERVICE_HOST"):
        kubeconfig_of_pod(["mooring-agent-pods"], Path("/tokens"), Path("/ca.crt"), {})


def test_the_profile_goes_where_the_kubelet_looks_for_it(tmp_path: Path) -> None:
    (tmp_path / "seccomp.json").write_text("{}", encoding="utf-8")
    write_profile(tmp_path / "seccomp.json", tmp_path)
    assert (tmp_path / PROFILE).read_text(encoding="utf-8") == "{}"


def test_a_container_with_other_cpus_than_it_must_have_fails_the_check() -> None:
    mine = len(os.sched_getaffinity(0))
    assert mooring("deploy", "check", "--cpus", str(mine)).code == 0
    assert mooring("deploy", "check", "--cpus", str(mine + 1)).code == 1
