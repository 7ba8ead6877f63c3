"""CPU amounts through shares and quotas and back, and the quota of a pod's cgroup: rule by rule, and as a real kubelet
writes it.
"""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.agent.pods.runtime_view import recorded

from mooring.agent.pods.source import pod_of
from mooring.agent.quota import MOST_SHARES, milli_of_quota, milli_of_shares, quota_of, quota_of_pod, shares_of
from mooring.engine.core.pod import Container, ContainerKind, Pod, PodResources, QoS
from mooring.engine.core.quantity import Quantity

MILLI = st.integers(0, 300_000)
PERIODS = st.integers(1000, 1_000_000)
RECORDED = ("guaranteed", "static-pod-guaranteed", "besteffort", "init sidecar app-after-sidecar")
"""Messages about all containers of a pod, in the order of its specification."""


@settings(max_examples=300)
@given(st.integers(3, 255_999))
def test_a_request_comes_back_exactly_from_its_shares(milli: int) -> None:
    assert milli_of_shares(shares_of(milli)) == milli


def test_requests_beyond_what_shares_can_tell_are_unknown() -> None:
    assert [milli_of_shares(shares_of(milli)) for milli in (0, 1, 2, 256_000, 999_999)] == [0, 0, 0, None, None]


@settings(max_examples=200)
@given(st.integers(0, MOST_SHARES - 1))
def test_shares_that_no_request_has_count_as_the_next_smaller_request(shares: int) -> None:
    milli = milli_of_shares(shares)
    assert milli is not None
    assert shares_of(milli) <= max(shares, 2) < shares_of(max(milli, 2) + 1)


@settings(max_examples=300)
@given(MILLI.filter(bool), PERIODS)
def test_a_limit_lies_between_the_bounds_of_its_quota(milli: int, period: int) -> None:
    quota = quota_of(milli, period)
    least, greatest = milli_of_quota(quota, period)
    assert least <= milli <= greatest
    assert quota_of(greatest + 1, period) > quota
    assert least == 1 or quota_of(least - 1, period) < quota


@settings(max_examples=200)
@given(st.integers(11, 300_000))
def test_at_the_usual_period_the_bounds_are_one(milli: int) -> None:
    assert milli_of_quota(quota_of(milli)) == (milli, milli)


def cpu(amount: str) -> dict[str, Quantity]:
    return {"cpu": Quantity.parse(amount)} if amount else {}


def of(*limits: str, qos: QoS = QoS.GUARANTEED, whole: str = "", overhead: str = "") -> Pod:
    """Return a pod; a limit's container is an init container after ``i:`` and a sidecar after ``s:``."""
    kinds = {"i": ContainerKind.INIT, "s": ContainerKind.SIDECAR, "": ContainerKind.APP}
    made = []
    for number, text in enumerate(limits):
        kind, _, amount = text.rpartition(":")
        made.append(Container(f"c{number}", kinds[kind], limits=cpu(amount)))
    resources = PodResources(limits=cpu(whole)) if whole else None
    return Pod("u", "n", containers=tuple(made), qos=qos, resources=resources, overhead=cpu(overhead))


@pytest.mark.parametrize("names", RECORDED)
def test_it_is_what_a_real_kubelet_said(names: str) -> None:
    messages = [recorded(name) for name in names.split()]
    sandbox = messages[0][0]
    pod = pod_of(sandbox, [container for _, container in messages])
    kinds = {"i": ContainerKind.INIT, "s": ContainerKind.SIDECAR} if len(messages) > 1 else {}
    made = [replace(one, kind=kinds.get(one.name, ContainerKind.APP)) for one in pod.containers]
    quota = sandbox.pod_resources.quota or 0
    assert quota_of_pod(replace(pod, containers=tuple(made))) == max(quota, 0)


@pytest.mark.parametrize(
    ("pod", "quota"),
    [
        (of("2", "1500m"), 350_000),
        (of("2", "i:5"), 500_000),
        (of("s:1", "2"), 300_000),
        (of("s:1", "i:3", "2"), 400_000),
        (of("i:3", "s:1", "2"), 300_000),
        (of("1", "", whole="4"), 400_000),
        (of("2", overhead="250m"), 225_000),
        (of("5m"), 1_000),
        (of("2", "", qos=QoS.BURSTABLE), 0),
        (of("2", "1", qos=QoS.BURSTABLE), 300_000),
        (of("2", "", qos=QoS.BURSTABLE, whole="3"), 300_000),
        (of("", qos=QoS.BEST_EFFORT, overhead="1"), 0),
        (of("", qos=QoS.BURSTABLE, overhead="1"), 0),
    ],
    ids=lambda value: str(value) if isinstance(value, int) else "pod",
)
def test_each_rule_of_the_kubelet(pod: Pod, quota: int) -> None:
    assert quota_of_pod(pod) == quota


def test_another_period_gives_another_quota() -> None:
    assert quota_of_pod(of("2"), 10_000) == 20_000
