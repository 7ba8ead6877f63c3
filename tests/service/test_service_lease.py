"""Replicas that share a Lease: at most one works at any time, whatever fails, and one works again soon."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mooring.service.apiserver import ClusterError
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
    return [Election(server, f"replica-{number}:8888", lambda: server.now) for number in range(count)]


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


def test_another_replica_works_once_the_first_is_silent_for_the_duration() -> None:
    server = Server()
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


def test_a_lease_that_is_given_up_is_taken_at_the_next_try() -> None:
    server = Server()
    first, second = replicas(server, 2)
    first.step()
    second.step()
    first.release()
    assert (first.leads, server.lease["spec"]["holderIdentity"]) == (False, "")
    second.step()
    assert second.leads
    assert server.lease["spec"]["leaseTransitions"] == 2


def test_a_replica_gives_up_only_its_own_lease() -> None:
    server = Server()
    first, second = replicas(server, 2)
    first.step()
    second.release()
    assert first.leads
    assert server.lease["spec"]["holderIdentity"].startswith("replica-0:8888_")


@pytest.mark.parametrize("fails", ["read", "before", "after"])
def test_a_renewal_that_fails_leaves_the_time_of_the_last_one(fails: str) -> None:
    server = Server()
    (only,) = replicas(server, 1)
    only.step()
    server.now, server.fails = 3.0, fails
    with pytest.raises(ClusterError):
        only.step()
    assert (only.may_work_for(0.5), only.may_work_for(2.0)) == (True, False)
    server.now = 4.0
    assert not only.leads


def test_a_replica_that_starts_again_is_another_one() -> None:
    server = Server()
    first, again = Election(server, "h:1", lambda: server.now), Election(server, "h:1", lambda: server.now)
    first.step()
    again.step()
    assert not again.leads


def test_fields_of_others_stay_in_the_lease() -> None:
    server = Server()
    server.lease["metadata"]["labels"] = {"kept": "yes"}
    (only,) = replicas(server, 1)
    only.step()
    written: Any = server.lease
    assert written["metadata"]["labels"] == {"kept": "yes"}
    assert written["spec"]["leaseDurationSeconds"] == DURATION
