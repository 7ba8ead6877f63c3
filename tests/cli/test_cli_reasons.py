"""``mooring explain REASON`` and ``mooring explain "MESSAGE"``: what is pasted from an event leads to the codes."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from tests.cli.command import EXAMPLES, mooring

from mooring.engine.core.decision import DECIDED_REASONS, OTHER_REASONS
from mooring.explanations.codes import all_codes, reason_page, reasons

PASTED = {
    "Pod was rejected: Resources cannot be allocated with Topology locality": "TopologyAffinityError",
    "Warning  TopologyAffinityError  12s  kubelet  Resources cannot be allocated with Topology locality": (
        "TopologyAffinityError"
    ),
    "Allocate failed due to not enough cpus available to satisfy request: requested=8, available=2, which is "
    "unexpected": "MOOR-101",
    "Allocate failed due to [memorymanager] failed to find the extended preferred hint, which is unexpected": (
        "MOOR-115"
    ),
    "Allocate failed due to requested number of devices unavailable for nvidia.com/gpu. Requested: 2, Available: 1, "
    "which is unexpected": "MOOR-131",
    "SMT Alignment Error: requested 3 cpus not multiple cpus per core = 2": "MOOR-121",
    "Node didn't have enough resource: cpu, requested: 4000, used: 2000, capacity: 5000": "MOOR-141",
    "0/5 nodes are available: 2 Insufficient cpu, 3 node(s) had untolerated taint {a: b}.": "FailedScheduling",
    "0/3 nodes are available:\n  3 mooring: no single NUMA node has enough free CPUs (MOOR-103)": "MOOR-103",
    'pods "web" is forbidden: exceeded quota: q, requested: cpu=4, used: cpu=8, limited: cpu=10': "FailedCreate",
    "The node was low on resource: memory. Threshold quantity: 100Mi": "Evicted",
}


@pytest.mark.parametrize(("sentence", "leads_to"), PASTED.items())
def test_a_message_that_is_pasted_leads_to_its_meaning(sentence: str, leads_to: str) -> None:
    answered = mooring("explain", sentence)
    assert (answered.code, leads_to in answered.out) == (0, True), answered


def test_a_message_names_only_the_codes_that_split_it() -> None:
    sentence = (
        "Allocate failed due to [memorymanager] preferred hint violates NUMA node allocation, which is unexpected"
    )
    assert re.findall(r"^\* (MOOR-\d+)", mooring("explain", sentence).out, re.MULTILINE) == ["MOOR-114"]


@pytest.mark.parametrize("reason", sorted({*DECIDED_REASONS, *OTHER_REASONS, "OutOfcpu", "OutOfnvidia.com/gpu"}))
def test_every_reason_of_an_admission_has_a_meaning(reason: str) -> None:
    answered = mooring("explain", reason)
    assert (answered.code, "## What it means\n" in answered.out) == (0, True), answered


def test_every_code_of_a_reason_has_a_page() -> None:
    assert set(re.findall(r"MOOR-\d+", "".join(reasons().values()))) <= set(all_codes())


def test_every_message_of_the_table_leads_to_its_own_reason() -> None:
    for reason, text in reasons().items():
        for message in re.findall(r"^\* `(.+?)`: ", text, re.MULTILINE):
            page = reason_page(f"so: {re.sub('%[dsv]', '7', message)}")
            assert page is not None
            assert reasons()[page.code] == text, (reason, message)


def test_a_sentence_without_a_known_reason_is_refused_in_one_line() -> None:
    answered = mooring("explain", "it does not work")
    assert answered.code == 2
    assert answered.complaint.startswith("mooring: it does not work: no known reason is in this sentence; paste the")


def test_the_name_of_a_pod_is_no_reason(tmp_path: Path) -> None:
    pods = (EXAMPLES / "pods.yaml").read_text(encoding="utf-8")
    file = tmp_path / "pods.yaml"
    file.write_text(pods.replace("timekeeper", "evicted"), encoding="utf-8")
    assert "## What it means" not in mooring("explain", "evicted", "-f", file, "--machine", "small-1s8").out


def test_a_reason_has_neither_picture_nor_document() -> None:
    for form in ("json", "svg"):
        answered = mooring("explain", "OutOfcpu", "-o", form)
        assert (answered.code, "a reason is text" in answered.err) == (2, True), answered
