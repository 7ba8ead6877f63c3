"""Fingerprints are those that the ecosystem computes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mooring.publisher.node_topology import fingerprint, xxh64

PRODUCTION = ["production/jaeger-dpgjk", "production/nginx-rt684", "production/envoy-g9m22"]
TEN = [
    "analytics/controller-69dkj",
    "kube-public/subscriber-tq6v7",
    "kube-public/transformer-hfbng",
    "kube-public/validator-c6pn5",
    "kube-system/proxy-wszrd",
    "middleware/processor-jkrl4",
    "network/gateway-vsll5",
    "network/importer-kzdfr",
    "network/importer-q5vt9",
    "staging/prometheus-bwgbn",
]


def of(names: list[str]) -> str:
    return fingerprint((namespace, name) for namespace, _, name in (one.partition("/") for one in names))


@pytest.mark.parametrize(
    ("names", "expected"),
    [(PRODUCTION, "pfp0v001607b76a0e9d3aeb4"), (TEN, "pfp0v001567144e4a561bb5a")],
    ids=["three", "ten"],
)
def test_published_examples(names: list[str], expected: str) -> None:
    assert of(names) == expected


@given(st.permutations(TEN))
def test_order_does_not_matter(names: list[str]) -> None:
    assert of(names) == of(TEN)


@given(st.sets(st.sampled_from(TEN)), st.sets(st.sampled_from(TEN)))
def test_other_pods_have_another_fingerprint(some: set[str], others: set[str]) -> None:
    assert (of(list(some)) == of(list(others))) == (some == others)


@pytest.mark.parametrize(
    ("data", "seed", "expected"),
    [
        (b"", 0, 0xEF46DB3751D8E999),
        (b"a", 0, 0xD24EC4F1A98C6E5B),
        (b"Nobody inspects the spammish repetition", 0, 0xFBCEA83C8A378BF1),
        (b"xxhash", 20141025, 13067679811253438005),
    ],
    ids=["empty", "one", "stripe", "seed"],
)
def test_hash_is_xxh64(data: bytes, seed: int, expected: int) -> None:
    assert xxh64(data, seed) == expected
