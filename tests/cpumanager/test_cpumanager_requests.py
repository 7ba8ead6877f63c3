"""How many exclusive CPUs a container and a pod ask for (spec: cpu-manager.md section 3)."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.cpumanager.pods import amounts, container, guaranteed, pod_level

from mooring.engine.core.pod import Container, ContainerKind, Pod, PodLevelGates, StatusSizes
from mooring.engine.cpumanager.policy import exclusive_cpus, exclusive_cpus_of_pod

OFF = PodLevelGates()
ON = PodLevelGates(managers=True)
INIT, SIDECAR, APP = ContainerKind.INIT, ContainerKind.SIDECAR, ContainerKind.APP


def count(pod: Pod, gates: PodLevelGates = OFF) -> int:
    return exclusive_cpus(pod, pod.containers[0], gates)


@pytest.mark.parametrize(
    ("cpu", "expected"),
    [
        ("1", 1),
        ("2000m", 2),
        ("2.0", 2),
        ("1500m", 0),
        ("999m", 0),
        ("1001m", 0),
        ("0", 0),
        ("", 0),
        # Amounts below one milli: both whole CPUs and millis are rounded up before they are compared.
        ("0.0001", 0),
        ("1.9999", 2),
        ("1999.1m", 2),
        ("2.0001", 0),
        ("1k", 1000),
        # The kubelet compares 64-bit numbers: both sides wrap around alike, and a count may be negative.
        ("10000000000000000", 10**16),
        ("9223372036854775808", -(2**63)),
    ],
)
def test_whole_numbers_of_cpus_are_exclusive(cpu: str, expected: int) -> None:
    assert count(guaranteed("u", container("c", cpu))) == expected


@pytest.mark.parametrize(
    ("requests", "limits", "expected"),
    [
        (amounts("2"), amounts("2"), 2),
        (amounts("2"), amounts("3"), 0),
        (amounts("2", "1Gi"), amounts("2", "2Gi"), 0),
        (amounts("2", ""), amounts("2", ""), 0),
        (amounts("2", "0"), amounts("2", "0"), 0),
        (amounts("2"), amounts("2", ""), 0),
        (amounts("2"), amounts("2000m", "1024Mi"), 2),
    ],
)
def test_in_a_pod_with_its_own_resources_limits_must_equal_requests(
    requests: dict[str, object], limits: dict[str, object], expected: int
) -> None:
    pod = pod_level("u", "4", Container("c", requests=requests, limits=limits))  # type: ignore[arg-type]
    assert count(pod, ON) == expected
    assert count(pod, OFF) == 2


@pytest.mark.parametrize("kind", [SIDECAR, APP])
def test_a_pod_counts_only_containers_whose_specification_requests_cpu(kind: ContainerKind) -> None:
    """Up to v1.34 a status decides the number, but not whether the container counts (v1.33, podGuaranteedCPUs)."""
    gates = PodLevelGates(unknown_to_managers=True, statuses=StatusSizes.APPS_AND_SIDECARS)
    silent = replace(container("b", kind=kind), allocated=amounts("3"))
    pod = pod_level("u", "4", container("a", "1"), silent)
    assert exclusive_cpus(pod, silent, gates) == 3
    assert exclusive_cpus_of_pod(pod, gates) == 1


@given(st.lists(st.tuples(st.sampled_from([INIT, SIDECAR]), st.integers(0, 4)), max_size=4), st.integers(0, 9))
def test_the_peak_is_that_of_the_story_of_the_pod(init: list[tuple[ContainerKind, int]], apps: int) -> None:
    """Play the pod: sidecars stay, init containers come and go, apps run with all sidecars."""
    made = [container(f"i{index}", str(cpus), kind=kind) for index, (kind, cpus) in enumerate(init)]
    running = peak = 0
    for kind, cpus in init:
        if kind is SIDECAR:
            running += cpus
        peak = max(peak, running + (cpus if kind is INIT else 0))
    pod = guaranteed("u", *made, container("a", str(apps)))
    assert exclusive_cpus_of_pod(pod, OFF) == max(peak, running + apps)
