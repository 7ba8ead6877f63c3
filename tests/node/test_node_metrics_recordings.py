"""Laws that hold between the numbers, the decisions and the state, after every step of recorded scenarios."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest
from tests.node.metered import MetricsObserver, Numbers, numbers
from tests.planner.recordings import decoded, lines, machines, scenarios

from mooring.engine.core.config import MooringConfig
from mooring.engine.cpumanager.facts import CPUsAssigned, CPUsReleased, CPUsTaken
from mooring.engine.cpumanager.policy import available_cpus
from mooring.engine.devicemanager.state import DeviceState
from mooring.engine.kubelet.admit import AdmitMode
from mooring.engine.kubelet.events import Admit, Event, Readmit, Remove, Restart, after_event
from mooring.engine.kubelet.kubelet import Kubelet, StateTexts
from mooring.engine.kubelet.start import NotStarted, restart_kubelet, start_kubelet
from mooring.engine.node import Decision
from mooring.engine.node.facts import KubeletStarted
from mooring.engine.node.metrics import NUMA_GAUGE, Metrics
from mooring.engine.node.settings import CPU_FILE, MEMORY_FILE
from mooring.inputs.configuration.devices import device_table
from mooring.inputs.pods.scenario import Scenario

EVERY = {"real-kubelet": 1, "admission-podlevel": 4}
"""One scenario of so many is run; of the other files one of :data:`EVERY_OTHER`."""
EVERY_OTHER = 30

ADMISSIONS = (
    "admission-cpu-distributed",
    "admission-cpu-packed",
    "admission-cpu-uncore",
    "admission-devices",
    "admission-lifecycle-restart",
    "admission-memory",
    "admission-podlevel",
    "admission-topology",
    "real-kubelet",
)

REQUESTS = "topology_manager_admission_requests_total"
SHARED_POOL = "cpu_manager_shared_pool_size_millicores"
EXCLUSIVE = "cpu_manager_exclusive_cpu_allocation_count"
ALIGNED = "container_aligned_compute_resources"
PER_NUMA = "cpu_manager_allocation_per_numa"


@dataclass
class Watched:
    """A kubelet, its numbers, and what they are held against, since its start."""

    kubelet: Kubelet
    observer: MetricsObserver = field(init=False)
    facts: list[object] = field(default_factory=list)
    start: Numbers = field(init=False)
    start_held: int = field(init=False)
    decisions: list[Decision] = field(default_factory=list)
    shown: tuple[Metrics, Numbers] | None = None
    """The numbers as they were read last."""

    def __post_init__(self) -> None:
        node = self.kubelet.node
        self.observer = MetricsObserver(Metrics.initial(node.settings, node.cpu), self.facts.append)
        self.start = self.numbers
        self.start_held = node.cpu.held

    @property
    def numbers(self) -> Numbers:
        if self.shown is None or self.shown[0] is not self.observer.metrics:
            self.shown = self.observer.metrics, numbers(self.observer.metrics)
        return self.shown[1]

    @property
    def reused(self) -> int:
        """How many CPUs were handed out that were held already: those that init containers left."""
        reused, held = 0, self.start_held
        for fact in self.facts:
            if isinstance(fact, CPUsAssigned):
                reused += (fact.cpus & held).bit_count()
            if isinstance(fact, CPUsAssigned | CPUsReleased):
                held = fact.held
        return reused

    @property
    def has_cpus_with_two_owners(self) -> bool:
        """Whether a CPU was handed out that nobody could give (defect average-sizes)."""
        return any(isinstance(fact, CPUsTaken) and fact.taken & ~fact.pool for fact in self.facts)


def run(scenario: Scenario, mooring: MooringConfig) -> Iterator[Watched]:
    """Yield the kubelet after its start and after every step, up to a crash; a restart makes another one."""
    files = StateTexts(scenario.files.get(CPU_FILE), scenario.files.get(MEMORY_FILE))
    kubelet = start_kubelet(machines()[scenario.machine], scenario.kubelet, mooring, files)
    if isinstance(kubelet, NotStarted):
        return
    watched = Watched(kubelet.with_devices(DeviceState(device_table(scenario.devices))))
    yield watched
    for step in (*map(Readmit, scenario.active), *scenario.steps):
        events: list[Event] = [step] if isinstance(step, Admit | Readmit | Remove) else []
        if isinstance(step, Restart):
            events = [*map(Readmit, watched.kubelet.node.active.values())]
            restarted = restart_kubelet(watched.kubelet, step.kubelet)
            if isinstance(restarted, NotStarted):
                return
            watched = Watched(restarted)
        for event in events:
            watched.kubelet, result = after_event(watched.kubelet, event, AdmitMode.MANAGERS, watched.observer)
            if result.crash or result.crashed:
                return
            watched.decisions += [one.decision for one in result.admissions]
            if result.is_last:
                break
        yield watched
        if watched.decisions and watched.decisions[-1].endless:
            return


def watched_kubelets(file: str, *, fixed: frozenset[str] = frozenset()) -> Iterator[Watched]:
    """Yield the kubelets of a recording after every step."""
    for scenario in scenarios(f"{file}.jsonl.gz", EVERY.get(file, EVERY_OTHER)):
        yield from run(scenario, MooringConfig(fixed_defects=fixed))


def total(found: Numbers, metric: str) -> int:
    return sum(value for series, value in found.items() if series.partition("{")[0] == metric)


def assert_counters_agree_with_decisions(watched: Watched) -> None:
    found, settings = watched.numbers, watched.kubelet.settings
    rejected = [decision for decision in watched.decisions if decision.rejection is not None]
    admitted = [decision for decision in watched.decisions if decision.admitted]
    assert found[REQUESTS] == len(watched.decisions)
    expected = 0 if settings.topology_policy == "none" else len(rejected)
    assert found["topology_manager_admission_errors_total"] == expected
    assert total(found, "admission_rejections_total") == len(rejected)
    reasons = Counter(decision.reason for decision in rejected)
    by_affinity = reasons["TopologyAffinityError"]
    assert found.get('admission_rejections_total{reason="TopologyAffinityError"}', 0) == by_affinity
    if settings.gates["PodLevelResources"]:
        assert total(found, "pod_level_resources_admission_total") == len(admitted)
    scope = "pod" if settings.pod_scope else "container"
    if settings.topology_policy == "single-numa-node":
        assert found[f'{ALIGNED}_failure_count{{boundary="numa_node",scope="{scope}"}}'] == by_affinity
        aligned = found[f'{ALIGNED}_count{{boundary="numa_node",scope="{scope}"}}']
        least = len(admitted) if scope == "pod" else sum(len(decision.containers) for decision in admitted)
        assert aligned == least if scope == "pod" else aligned >= least


def assert_requests_and_errors_agree(watched: Watched) -> None:
    found, settings = watched.numbers, watched.kubelet.settings
    managed = settings.gates["PodLevelResourceManagers"]
    for resource in ("cpu", "memory"):
        requests = found[f"{resource}_manager_pinning_requests_total"]
        errors = found[f"{resource}_manager_pinning_errors_total"]
        # A whole pod whose CPUs are refused before they are cut is an error without a request.
        assert requests >= errors or (managed and settings.pod_scope and resource == "cpu")
        failed = [
            value
            for series, value in found.items()
            if series.startswith("resource_manager_allocation_errors_") and f'"{resource}"' in series
        ]
        assert sum(failed) == (errors if managed else 0)
    if not managed:
        assert not [series for series in found if series.startswith("resource_manager_")]


def assert_gauges_agree_with_the_state(watched: Watched) -> None:
    found, node = watched.numbers, watched.kubelet.node
    policy = node.settings.cpu
    pool, start_pool = found[SHARED_POOL], watched.start[SHARED_POOL]
    assert pool - start_pool == -1000 * (found[EXCLUSIVE] - watched.start[EXCLUSIVE])
    if policy is None:
        assert pool == 0
    elif not watched.has_cpus_with_two_owners:
        assert pool == 1000 * (available_cpus(policy, node.cpu).bit_count() - watched.reused)
        if not node.settings.pod_level.managers:
            assert found[EXCLUSIVE] == node.cpu.held.bit_count() + watched.reused


def assert_numa_gauges_agree_with_the_state(watched: Watched, *, fixed: bool) -> None:
    found, node = watched.numbers, watched.kubelet.node
    policy = node.settings.cpu
    if policy is None or node.settings.pod_level.managers or watched.has_cpus_with_two_owners:
        return
    for numa, inside in policy.topology.numa.items():
        shown, count = found.get(f'{PER_NUMA}{{numa_node="{numa}"}}'), (node.cpu.held & inside).bit_count()
        if count or fixed:
            assert (shown or 0) == count
        else:
            assert shown is None or shown > 0


@pytest.mark.corpus
@pytest.mark.parametrize("file", ADMISSIONS)
def test_numbers_agree_with_decisions_and_state(file: str) -> None:
    seen: Counter[str] = Counter()
    for watched in watched_kubelets(file):
        assert_counters_agree_with_decisions(watched)
        assert_requests_and_errors_agree(watched)
        assert_gauges_agree_with_the_state(watched)
        assert_numa_gauges_agree_with_the_state(watched, fixed=False)
        seen["steps"] += 1
        seen["rejected"] += any(decision.rejection is not None for decision in watched.decisions)
        seen["reused"] += watched.reused > 0
        seen["exclusive"] += watched.numbers[EXCLUSIVE] > 0
    assert seen["rejected"] > 5
    assert seen["exclusive"] > 20
    assert seen["steps"] > seen["exclusive"] or file == "real-kubelet"
    if file == "admission-lifecycle-restart":
        assert seen["reused"] > 10


@pytest.mark.corpus
def test_without_the_defect_numa_gauges_are_those_of_the_state() -> None:
    returned = 0
    for watched in watched_kubelets("admission-lifecycle-restart", fixed=frozenset({NUMA_GAUGE})):
        assert_numa_gauges_agree_with_the_state(watched, fixed=True)
        found = watched.numbers
        returned += any(value == 0 for series, value in found.items() if series.startswith(PER_NUMA))
    assert returned > 20


@pytest.mark.corpus
def test_pods_that_are_begun_anew_or_kept_after_a_restart_move_the_gauges_as_the_state() -> None:
    restarted = 0
    for watched in watched_kubelets("admission-podlevel", fixed=frozenset({"pod-restart"})):
        assert_gauges_agree_with_the_state(watched)
        assert_counters_agree_with_decisions(watched)
        restarted += watched.start[EXCLUSIVE] > 0
    assert restarted > 20


def test_an_admission_that_never_ends_is_asked_and_leaves_the_gauges_alone() -> None:
    ended: list[Watched] = []
    for line in lines("admission-cpu-distributed.jsonl.gz"):
        if '"endless"' in line and (scenario := decoded(line)).expect.get("endless"):
            watched = list(run(scenario, MooringConfig()))[-1]
            assert watched.decisions[-1].endless is not None
            assert_counters_agree_with_decisions(watched)
            assert_gauges_agree_with_the_state(watched)
            ended.append(watched)
    assert len(ended) == 3


def test_an_observer_that_receives_the_start_needs_no_new_one() -> None:
    compared = 0
    for watched in watched_kubelets("real-kubelet"):
        node = watched.kubelet.node
        anew = MetricsObserver(watched.observer.metrics)
        anew(KubeletStarted(node.settings, node.cpu))
        assert anew.metrics == Metrics.initial(node.settings, node.cpu)
        compared += 1
    assert compared > 5
