"""Replicas that share a Lease: at most one works at any time, whatever fails, and one works again soon."""

from __future__ import annotations

import json
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mooring.engine.core.errors import InputError
from mooring.service.apiserver import ClusterError, cluster_of, configuration_of
from mooring.service.lease import DURATION, PERIOD, Election, Lease

LEASE: Lease = {"metadata": {"name": "mooring-extender", "resourceVersion": "1"}}


class Server:
    """An API server that refuses what is written over another's writing, and fails when told."""

    def __init__(self) -> None:
        self.lease = deepcopy(LEASE)
        self.fails = ""
        self.now = 0.0

    def read(self) -> Lease:
        if self.fails == "read":
            raise ClusterError("away")
        return deepcopy(self.lease)

    def write(self, lease: Lease) -> None:
        if self.fails == "before":
            raise ClusterError("away")
        if lease["metadata"]["resourceVersion"] != self.lease["metadata"]["resourceVersion"]:
            raise ClusterError("conflict", code=409)
        self.lease = deepcopy(lease)
        self.lease["metadata"]["resourceVersion"] = str(int(lease["metadata"]["resourceVersion"]) + 1)
        self.lease["spec"]["renewTime"] = f"{self.now}"
        if self.fails == "after":
            raise ClusterError("no answer")


def replicas(server: Server, count: int) -> list[Election]:
    return [replica(server, f"replica-{number}:8888") for number in range(count)]


def replica(server: Server, name: str) -> Election:
    return Election(server.read, server.write, name, lambda: server.now)


@pytest.fixture
def server() -> Server:
    return Server()


steps = st.tuples(
    st.sampled_from([0, 1, 2]),
    st.sampled_from(["step", "step", "step", "look", "release"]),
    st.sampled_from([0.0, 0.3, 1.0, 2.5, 5.9, 7.0]),
    st.sampled_from(["", "", "", "read", "before", "after"]),
)


@settings(deadline=None, max_examples=300)
@given(st.lists(steps, max_size=40))
def test_at_most_one_replica_works_at_any_time(story: list[tuple[int, str, float, str]]) -> None:
    server = Server()
    found = replicas(server, 3)
    for which, what, seconds, fails in story:
        server.fails = fails
        try:
            if what == "release":
                found[which].release()
            else:
                found[which].step(stands=what == "step")
        except ClusterError:
            pass
        for _ in range(10):
            assert sum(one.leads for one in found) <= 1
            server.now += seconds / 10


def test_another_replica_works_once_the_first_is_silent_for_the_duration(server: Server) -> None:
    first, second = replicas(server, 2)
    first.step()
    second.step()
    assert (first.leads, second.leads) == (True, False)
    tries = 0
    while not second.leads:
        server.now += PERIOD
        second.step()
        tries += 1
    assert DURATION <= tries * PERIOD <= DURATION + PERIOD
    assert not first.leads
    first.step()
    assert not first.leads


def test_a_lease_that_is_given_up_is_taken_at_the_next_try(server: Server) -> None:
    first, second = replicas(server, 2)
    first.step()
    second.step()
    first.release()
    assert (first.leads, server.lease["spec"]["holderIdentity"]) == (False, "")
    second.step()
    assert second.leads
    assert server.lease["spec"]["leaseTransitions"] == 2


def test_a_replica_gives_up_only_its_own_lease(server: Server) -> None:
    first, second = replicas(server, 2)
    first.step()
    second.release()
    assert first.leads
    assert server.lease["spec"]["holderIdentity"].startswith("replica-0:8888_")


@pytest.mark.parametrize("fails", ["read", "before", "after"])
def test_a_renewal_that_fails_leaves_the_time_of_the_last_one(server: Server, fails: str) -> None:
    (only,) = replicas(server, 1)
    only.step()
    server.now, server.fails = 3.0, fails
    with pytest.raises(ClusterError):
        only.step()
    assert (only.may_work_for(0.5), only.may_work_for(2.0)) == (True, False)
    server.now = 4.0
    assert not only.leads


def test_a_replica_that_starts_again_is_another_one(server: Server) -> None:
    first, again = replica(server, "h:1"), replica(server, "h:1")
    first.step()
    again.step()
    assert not again.leads


def test_fields_of_others_stay_in_the_lease(server: Server) -> None:
    server.lease["metadata"]["labels"] = {"kept": "yes"}
    (only,) = replicas(server, 1)
    only.step()
    written: Any = server.lease
    assert written["metadata"]["labels"] == {"kept": "yes"}
    assert written["spec"]["leaseDurationSeconds"] == DURATION


# A kubeconfig that cannot be used is told in one line that names the field.


def document(**changes: Any) -> dict[str, Any]:
    whole = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "here",
        "contexts": [{"name": "here", "context": {"cluster": "lab", "user": "node"}}],
        "clusters": [{"name": "lab", "cluster": {"server": "https://127.0.0.1:1"}}],
        "users": [{"name": "node", "user": {"token": "x"}}],
        **changes,
    }
    return {name: value for name, value in whole.items() if value is not None}


def cluster(**fields: Any) -> dict[str, Any]:
    return {"clusters": [{"name": "lab", "cluster": {"server": "https://127.0.0.1:1", **fields}}]}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "kubeconfig"


def refusal(path: Path) -> str:
    with pytest.raises(InputError) as raised:
        cluster_of(configuration_of(str(path)))
    return str(raised.value).removeprefix(f"{path}: ")


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"current-context": None}, "current-context: names no context; kubectl config use-context NAME sets it"),
        ({"current-context": "there"}, "current-context: 'there' is not among contexts; "),
        ({"contexts": None}, "contexts: is not a list of entries; "),
        ({"contexts": [{"name": "here", "context": {"user": "node"}}]}, "contexts[here].cluster: names no cluster; "),
        ({"clusters": []}, "contexts[here].cluster: 'lab' is not among clusters; "),
        ({"clusters": [{"name": "lab"}]}, "clusters[lab].cluster: has no fields; "),
        (
            cluster(**{"certificate-authority": "ca.crt"}),
            "clusters[lab].certificate-authority: ca.crt cannot be read: ",
        ),
        (cluster(**{"certificate-authority": 7}), "clusters[lab].certificate-authority: is not a path; name a file"),
        (
            {"users": [{"name": "node", "user": {"client-certificate": "/nowhere/a.crt", "client-key": "/nowhere/a"}}]},
            "users[node].client-certificate: /nowhere/a.crt cannot be read: no such file or directory; name another",
        ),
    ],
)
def test_a_mistake_names_its_field(changes: dict[str, Any], told: str, path: Path) -> None:
    path.write_text(json.dumps(document(**changes)), encoding="utf-8")
    found = refusal(path)
    assert found.startswith(told)
    assert "\n" not in found


@pytest.mark.parametrize(
    ("data", "told"),
    [
        (b"a: [b", "is not YAML in line 1: "),
        (b"", "is not a kubeconfig: it has no fields; "),
        (b"- 1", "is not a kubeconfig: it has no fields; "),
        (b"\x00", "is not YAML: "),
        (b"\x8f\xba\x00", "not UTF-8 text; name a kubeconfig, which is YAML"),
    ],
)
def test_what_is_no_document_is_told_apart(data: bytes, told: str, path: Path) -> None:
    path.write_bytes(data)
    assert refusal(path).startswith(told)


def test_a_certificate_that_is_none_is_reported_in_the_words_of_the_library(path: Path) -> None:
    (path.parent / "ca.crt").write_text("no certificate", encoding="utf-8")
    path.write_text(json.dumps(document(**cluster(**{"certificate-authority": "ca.crt"}))), encoding="utf-8")
    assert refusal(path).startswith("is not a usable kubeconfig: SSLError: ")


def test_a_good_one_with_a_file_beside_it_is_used(path: Path) -> None:
    path.write_text(json.dumps(document()), encoding="utf-8")
    with cluster_of(configuration_of(str(path))) as found:
        assert str(found.http.base_url).startswith("https://127.0.0.1:1")
