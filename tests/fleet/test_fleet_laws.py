"""Laws of simulations over random work and events: nothing is lost, and every node decides as a kubelet of its own."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as some
from tests.fleet.clusters import ALIGNED, LOOSE, MOST_REMADE, arrival, asked, cluster, group

from mooring.engine.kubelet.admit import AdmitMode
from mooring.engine.kubelet.events import Admit, Remove, Restart, after_event
from mooring.engine.kubelet.kubelet import Kubelet
from mooring.engine.releases.catalog import release_of
from mooring.explanations.why import Prediction
from mooring.fleet.cluster import (
    ControllerKind,
    NodeAction,
    NodeChange,
    NodeEvent,
    NodeTaints,
    PodArrival,
    PodDemand,
    PodPhase,
    Work,
    Workload,
    work_of,
)
from mooring.fleet.nodes import Nodes
from mooring.fleet.scheduler.strategy import Scoring, Strategy, strategy_of
from mooring.fleet.simulation import Simulation, answer_of
from mooring.inputs.pods.pod_relations import PodAffinityTerm, PodRelations, PodSelector, SpreadConstraint
from mooring.inputs.pods.scheduling_fields import Operator, Requirement, Taint

LAW = settings(deadline=None, max_examples=12, suppress_health_check=[HealthCheck.too_slow])
WEB = PodSelector(("default",), (Requirement("app", Operator.IN, ("web",)),))
APART = PodRelations("default", (("app", "web"),), anti_affinity=(PodAffinityTerm(WEB, "kubernetes.io/hostname"),))
SPREAD = PodRelations(
    "default", (("app", "web"),), spread=(SpreadConstraint(WEB, "kubernetes.io/hostname", 1, is_required=True),)
)
URGENT = replace(asked("3"), priority=10)
SHAPES = (
    asked("1"),
    asked("2"),
    asked("3", gpus=1),
    asked("4"),
    asked("6"),
    asked("1", gpus=2),
    asked("500m"),
    asked("700m", guaranteed=False),
    asked("200m", gpus=1, guaranteed=False),
    URGENT,
    replace(asked("1"), relations=APART),
    replace(asked("300m", guaranteed=False), relations=SPREAD),
)
STRATEGIES = (
    *(Strategy(scoring, extender) for scoring in Scoring for extender in (False, True)),
    strategy_of("LeastAllocated+numa:LeastNUMANodes"),
    Strategy(agent=True),
)
CHANGES: tuple[NodeChange, ...] = (
    *NodeAction,
    Restart(),
    Restart(replace(ALIGNED, topology_manager_policy="none")),
    Restart(replace(LOOSE, topology_manager_policy="restricted", reserved_system_cpus="0-1")),
    Restart(release=release_of("1.36")),
    NodeTaints((Taint("gone", effect="NoExecute"),)),
    NodeTaints(()),
)
NODES = ("a-0", "a-1", "b")


@some.composite
def works(draw: some.DrawFn) -> Work:
    found: list[PodArrival] = []
    for number in range(draw(some.integers(1, 20))):
        runs = draw(some.one_of(some.none(), some.integers(0, 40).map(float)))
        owner = draw(some.sampled_from(("", "default/web")))
        found.append(arrival(f"p{number}", draw(some.sampled_from(SHAPES)), draw(some.integers(0, 60)), runs, owner))
    return work_of("random", found, (), [draw(workloads(number)) for number in range(draw(some.integers(0, 2)))])


@some.composite
def workloads(draw: some.DrawFn, number: int) -> Workload:
    kind, shape = draw(some.sampled_from(ControllerKind)), draw(some.sampled_from(SHAPES))
    runs = float(draw(some.integers(1, 30))) if kind is ControllerKind.JOB else None
    pods, at = draw(some.integers(1, 4)), float(draw(some.integers(0, 40)))
    is_set = kind is ControllerKind.STATEFUL_SET
    return Workload(f"default/w{number}", kind, shape, at, pods, draw(some.integers(0, 2)), 2, is_set, 0, runs)


@some.composite
def events(draw: some.DrawFn) -> tuple[NodeEvent, ...]:
    count = draw(some.integers(0, 5))
    return tuple(
        NodeEvent(float(draw(some.integers(0, 60))), draw(some.sampled_from(NODES)), draw(some.sampled_from(CHANGES)))
        for _ in range(count)
    )


def simulated(work: Work, strategy: Strategy, seed: int = 0, happening: tuple[NodeEvent, ...] = ()) -> Simulation:
    nodes = replace(cluster(group("a", 2), group("b", 1, LOOSE, gpus=0)), events=happening)
    return Simulation(nodes, work, strategy, seed).run()


@LAW
@given(works(), some.sampled_from(STRATEGIES), events())
def test_every_pod_has_one_fate_and_one_node_and_sums_of_nodes_are_those_of_their_pods(
    work: Work, strategy: Strategy, happening: tuple[NodeEvent, ...]
) -> None:
    result = simulated(work, strategy, 0, happening)
    made = Counter(record.arrival.name.partition("~")[0] for record in result.records)
    assert set(made) >= {one.name for one in work.arrivals}
    assert max(made.values()) <= MOST_REMADE + 1 + len(happening) + result.preempted
    on_nodes = Counter(name for pods in result.nodes.pods for name in pods)
    for record in result.records:
        assert on_nodes[record.arrival.name] == (record.fate is PodPhase.RUNS)
        on_node = record.fate in (PodPhase.RAN, PodPhase.RUNS, PodPhase.EVICTED)
        assert (record.admitted is not None) >= on_node
        assert (record.node is not None) == (on_node or record.fate in (PodPhase.REFUSED, PodPhase.HELD))
        assert bool(record.code) == (record.fate in (PodPhase.REFUSED, PodPhase.HELD))
    table = result.nodes.table
    assert (table.used <= table.offered).all() or happening
    for place in range(len(table.members)):
        counted = (PodPhase.RUNS, PodPhase.HELD)
        running = [one for one in result.records if one.node == place and one.fate in counted]
        cpu = sum(one.arrival.asked.requests.get("cpu", 0) for one in running)
        assert table.row(table.used, "cpu")[place] == cpu
        assert table.row(table.used, "pods")[place] == len(running)
    assert (sum(table.by_priority.values(), 0 * table.used) == table.used).all()
    for pods in result.nodes.pods if not happening else ():
        apart = [one for one in pods.values() if one.asked.relations.anti_affinity]
        assert not apart or len([one for one in pods.values() if one.asked.relations.labels]) == 1


@LAW
@given(works(), some.sampled_from(STRATEGIES), events())
def test_each_node_decides_as_a_kubelet_alone(work: Work, strategy: Strategy, happening: tuple[NodeEvent, ...]) -> None:
    nodes = replace(cluster(group("a", 2), group("b", 1, LOOSE, gpus=0)), events=happening)
    simulation = Simulation(nodes, work, strategy, 0)
    told = replayed(simulation.nodes, {id(one.change): one.change for one in happening})
    result = simulation.run()
    for place, kubelet in enumerate(told):
        found = result.nodes.at[place], result.nodes.states.of("alone", kubelet)
        shared, alone = (sorted(text for text in state.held.values() if text != "None") for state in found)
        assert shared == alone


def replayed(nodes: Nodes, changes: Mapping[int, NodeChange]) -> list[Kubelet]:
    """Return a kubelet for each node that follows what the simulation does with it, and decides by itself."""
    kubelets = [member.group.started() for member in nodes.table.members]
    begin, end, change, empty = nodes.begin, nodes.end, nodes.change, nodes.empty

    def begun(node: int, name: str, asked: PodDemand, now: float) -> Prediction:
        prediction = begin(node, name, asked, now)
        pod = replace(asked.shape.pod, uid=name, name=name)
        kubelets[node], answer = after_event(kubelets[node], Admit(pod), AdmitMode.MANAGERS)
        assert answer.admissions[0].admitted == prediction.admitted
        return prediction

    def ended(node: int, name: str) -> None:
        end(node, name)
        kubelets[node] = after_event(kubelets[node], Remove(name))[0]

    def changed(node: int, by: Any, key: Any) -> Any:
        if isinstance(restart := changes[key], Restart):
            kubelets[node] = after_event(kubelets[node], restart)[0]
        return change(node, by, key)

    def emptied(node: int) -> None:
        empty(node)
        kubelets[node] = nodes.table.members[node].group.started()

    vars(nodes).update(begin=begun, end=ended, change=changed, empty=emptied)
    return kubelets


@LAW
@given(works(), some.integers(0, 5), events())
def test_the_same_seed_gives_the_same_records(work: Work, seed: int, happening: tuple[NodeEvent, ...]) -> None:
    first, second = (simulated(work, STRATEGIES[0], seed, happening) for _ in range(2))
    assert first.records == second.records
    assert first.samples == second.samples


@LAW
@given(works(), some.just(()) | events())
def test_with_the_extender_no_kubelet_refuses_and_a_pod_that_waits_at_the_end_fits_nowhere(
    work: Work, happening: tuple[NodeEvent, ...]
) -> None:
    result = simulated(work, Strategy(extender=True), 0, happening)
    assert happening or answer_of(result).pods.refused == 0
    for record in result.records:
        if record.fate is PodPhase.WAITS:
            places = range(len(result.nodes.table.members))
            assert not any(result.nodes.takes(place, record.arrival.asked, exactly=True) for place in places)


def test_nodes_of_one_group_share_engine_runs() -> None:
    work = work_of("equal", [arrival(f"p{number}", SHAPES[1]) for number in range(40)])
    result = Simulation(cluster(group("a", 40, ALIGNED)), work).run()
    assert answer_of(result).pods.admitted == 40
    assert result.nodes.states.asked <= 4
