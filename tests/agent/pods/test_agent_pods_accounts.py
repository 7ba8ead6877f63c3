"""Each switch of the agent can have an account of its own, whose token is a file that is renewed."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.agent.pods.fault_injector import PATIENCE, FaultInjector, pod_object

from mooring.agent.effects import ClusterEvent, EventSubject
from mooring.agent.pods.cluster import AgentAccount, connector, own_accounts
from mooring.agent.pods.writer import ClusterWriter
from mooring.engine.core.errors import InputError
from mooring.engine.core.machine import Finding

WEB = EventSubject("Pod", "web-0", "uid-web-0", "shop")
NODE = "/api/v1/nodes/node-1"


@pytest.fixture
def injector() -> Iterator[FaultInjector]:
    with FaultInjector() as one:
        one.put(pod_object("web-0"))
        yield one


def write_kubeconfig(folder: Path, injector: FaultInjector, *own: str) -> str:
    """Write a kubeconfig whose further contexts have a token file each, named relative to the folder."""
    names = ["usual", *own]
    content = {
        "current-context": "usual",
        "clusters": [{"name": "c", "cluster": {"server": injector.config().cluster.server}}],
        "users": [{"name": name, "user": {"tokenFile": f"tokens/{name}"}} for name in names],
        "contexts": [{"name": name, "context": {"cluster": "c", "user": name}} for name in names],
    }
    (folder / "tokens").mkdir(exist_ok=True)
    for name in names:
        (folder / "tokens" / name).write_text(f"of {name}\n", encoding="utf-8")
    file = folder / "kubeconfig"
    file.write_text(json.dumps(content), encoding="utf-8")
    return str(file)


def tokens(injector: FaultInjector, what: str) -> list[str]:
    return [request.token for request in injector.asked(what)]


def test_every_write_uses_the_account_of_its_switch(injector: FaultInjector, tmp_path: Path) -> None:
    own = [AgentAccount.EVENTS.value, AgentAccount.EVICT.value, AgentAccount.TAINT.value]
    file = write_kubeconfig(tmp_path, injector, *own)
    writer = ClusterWriter(connector(file), "node-1", own=own_accounts(file))
    writer.start()
    writer.taint(present=True)
    writer.event(ClusterEvent(WEB, "Held", "no room"))
    writer.evict(WEB, "no room")
    writer.stop(PATIENCE)
    assert set(tokens(injector, f"PATCH {NODE}")) == {"of mooring-agent-taint"}
    assert tokens(injector, "POST /apis/events.k8s.io/v1/namespaces/shop/events") == ["of mooring-agent-events"]
    assert tokens(injector, "POST /api/v1/namespaces/shop/pods/web-0/eviction") == ["of mooring-agent-evict"]


def test_a_switch_without_an_account_uses_the_current_context(injector: FaultInjector, tmp_path: Path) -> None:
    file = write_kubeconfig(tmp_path, injector, AgentAccount.PUBLISH.value)
    assert set(own_accounts(file)) == {AgentAccount.PUBLISH}
    writer = ClusterWriter(connector(file), "node-1", own=own_accounts(file))
    writer.start()
    writer.taint(present=True)
    writer.stop(PATIENCE)
    assert set(tokens(injector, f"PATCH {NODE}")) == {"of usual"}


def test_a_renewed_token_is_read_when_the_old_one_is_refused(injector: FaultInjector, tmp_path: Path) -> None:
    file = write_kubeconfig(tmp_path, injector)
    injector.tokens = frozenset({"of usual"})
    with connector(file)() as cluster:
        assert cluster.http.get(NODE).is_success
        (tmp_path / "tokens" / "usual").write_text("renewed\n", encoding="utf-8")
        assert cluster.http.get(NODE).is_success, "the old token is still accepted"
        injector.tokens = frozenset({"renewed"})
        assert cluster.http.get(NODE).is_success
    assert tokens(injector, f"GET {NODE}") == ["of usual", "of usual", "of usual", "renewed"]


@pytest.mark.parametrize("before", [None, "stale"])
def test_the_taint_is_written_when_its_token_arrives(
    before: str | None, injector: FaultInjector, tmp_path: Path
) -> None:
    file = write_kubeconfig(tmp_path, injector)
    injector.tokens = frozenset({"fresh"})
    token, findings = tmp_path / "tokens" / "usual", list[Finding]()
    token.unlink()
    if before:
        token.write_text(before, encoding="utf-8")

    def report(finding: Finding) -> None:
        findings.append(finding)
        token.write_text("fresh", encoding="utf-8")

    writer = ClusterWriter(connector(file), "node-1", report=report)
    writer.start()
    writer.taint(present=True)
    assert injector.wait_for(lambda: bool(injector.taints))
    writer.stop(PATIENCE)
    assert "the node's taint could not be set" in findings[0].message


def test_a_misspelt_account_is_refused(injector: FaultInjector, tmp_path: Path) -> None:
    file = write_kubeconfig(tmp_path, injector, "mooring-agent-taints")
    with pytest.raises(
        InputError, match=r"contexts\[mooring-agent-taints\]: is not an account of the agent; name one of "
    ):
        own_accounts(file)


def test_a_mistake_in_an_accounts_context_names_its_field(injector: FaultInjector, tmp_path: Path) -> None:
    file = Path(write_kubeconfig(tmp_path, injector, AgentAccount.TAINT.value))
    content = json.loads(file.read_text(encoding="utf-8"))
    content["users"].pop()
    file.write_text(json.dumps(content), encoding="utf-8")
    with pytest.raises(InputError, match=r"contexts\[mooring-agent-taint\].user: 'mooring-agent-taint' is not among"):
        own_accounts(str(file))
