"""Advice about kubelets that do not start: for every recorded text that can be mended, and with nothing left open."""

from __future__ import annotations

from functools import cache

import pytest
from tests.explain.refused_starts import recorded_starts

from mooring.engine.core.decision import Cause, Fault, StartRefusal
from mooring.explanations.reason import remedy

WITHOUT_ADVICE = (
    "unknown policy",  # the text says all there is
    "is not available for platform",
    "must be one of",
    "unrecognized feature gate",
    "cannot set feature gate",
    "but depends on features that are disabled",
    "unable to convert policy option to integer",
    "the minimum value of",
    "unable to parse reservedSystemCPUs",
    "eviction percentage threshold",
    "eviction threshold",
    "failed to parse quantity",
    "quantities must match the regular expression",
    "cannot be negative",
    "duplicate value for NUMA node",
    "is not supported, only [memory hugepages-<HugePageSize>] is accepted",
    "reserved memory may not be zero",
)
"""Texts that say themselves what is wrong with one field."""

FILES = (
    "admission-config-errors",
    "state-files",
    "admission-numa-large",
    "admission-lifecycle-restart",
    "real-kubelet",
)


@cache
def refusals(name: str) -> tuple[StartRefusal, ...]:
    return tuple(start.refusal for start in recorded_starts(f"{name}.jsonl.gz") if start.error)


@pytest.mark.parametrize("name", FILES)
def test_every_recorded_refusal_says_itself_what_is_wrong_or_has_advice(name: str) -> None:
    silent = {
        refusal.message
        for refusal in refusals(name)
        if not remedy(refusal) and not any(text in refusal.message for text in WITHOUT_ADVICE)
    }
    assert silent == set()


@pytest.mark.parametrize("name", FILES)
def test_advice_is_whole_sentences_that_name_the_manager(name: str) -> None:
    for refusal in refusals(name):
        text = remedy(refusal)
        assert text == "" or (text[0].isupper() and text.endswith("."))
        assert "{noun}" not in text
        assert "{what}" not in text
        for manager, other in (("cpu", "memory"), ("memory", "cpu")):
            if refusal.message.startswith(f"start {manager} manager error"):
                assert f"{other}_manager_state" not in text


@pytest.mark.parametrize(
    ("fault", "advice"),
    [
        (Fault("", Cause.UNKNOWN_TOPOLOGY_OPTION, names=("x",)), "Known are prefer-closest-numa-nodes and"),
        (Fault("", Cause.CPUS_NOT_ONLINE), "Name only CPUs that are online"),
        (
            Fault("", Cause.POLICY_CHANGED, names=("memory",)),
            "Another policy wrote the state file. Drain the node and delete the memory manager's state file",
        ),
        (Fault("", Cause.FILE_CONTRADICTS, names=("cpu",)), "The state file contradicts itself"),
        (Fault("", Cause.CPUS_CHANGED, names=("cpu",)), "The CPUs or the reservation differ"),
        (Fault("the sky is falling"), ""),
    ],
)
def test_advice(fault: Fault, advice: str) -> None:
    text = remedy(StartRefusal.of("start", fault))
    assert text.startswith(advice)
    assert bool(text) == bool(advice)
