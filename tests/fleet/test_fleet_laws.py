"""Laws of simulations over random work: nothing is lost, and every node decides as a kubelet of its own."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as some
from tests.fleet.clusters import ALIGNED, LOOSE, arrival, asked, cluster, group

from mooring.fleet.answer import answer_of
from mooring.fleet.cluster import Scoring, Strategy
from mooring.fleet.simulation import MOST_REMADE, Fate, Record, Simulation, SimulationResult
from mooring.fleet.work import PodArrival, Work, work_of
from mooring.kubelet.admit import AdmitMode, admit
from mooring.kubelet.kubelet import Kubelet
from mooring.publisher.restored import holds

LAW = settings(deadline=None, max_examples=12, suppress_health_check=[HealthCheck.too_slow])
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
)
STRATEGIES = tuple(Strategy(scoring, extender) for scoring in Scoring for extender in (False, True))


@some.composite
def works(draw: some.DrawFn) -> Work:
    found: list[PodArrival] = []
    for number in range(draw(some.integers(1, 24))):
        runs = draw(some.one_of(some.none(), some.integers(0, 40).map(float)))
        owner = draw(some.sampled_from(("", "default/web")))
        found.append(arrival(f"p{number}", draw(some.sampled_from(SHAPES)), draw(some.integers(0, 60)), runs, owner))
    return work_of("random", found)


def simulated(work: Work, strategy: Strategy, seed: int = 0) -> SimulationResult:
    return Simulation(cluster(group("a", 2), group("b", 1, LOOSE, gpus=0)), work, strategy, seed).run()


@LAW
@given(works(), some.sampled_from(STRATEGIES))
def test_every_pod_has_one_fate_and_at_most_one_node(work: Work, strategy: Strategy) -> None:
    result = simulated(work, strategy)
    made = Counter(record.arrival.name.partition("~")[0] for record in result.records)
    assert set(made) == {one.name for one in work.arrivals}
    assert max(made.values()) <= MOST_REMADE + 1
    for record in result.records:
        on_node = record.fate in (Fate.RAN, Fate.RUNS)
        assert (record.admitted is not None) == on_node
        assert (record.node is not None) == (on_node or record.fate is Fate.REFUSED)
        assert bool(record.code) == (record.fate is Fate.REFUSED)


@LAW
@given(works(), some.sampled_from(STRATEGIES))
def test_each_node_decides_as_a_kubelet_that_gets_its_pods_alone(work: Work, strategy: Strategy) -> None:
    result = simulated(work, strategy)
    for place, member in enumerate(result.nodes.table.members):
        kubelet = member.group.started()
        for record, ends in history(result, place):
            kubelet = ended(kubelet, record) if ends else begun(kubelet, record)
        expected = sorted(repr(found) for uid in kubelet.node.active if (found := holds(kubelet.node, uid)))
        assert sorted(text for text in result.nodes.at[place].held.values() if text != "None") == expected


def history(result: SimulationResult, place: int) -> list[tuple[Record, bool]]:
    """Return what happened on a node, in its order: a pod came, or it ended."""
    found = [((record.came, 1), record, False) for record in result.records if record.node == place]
    found += [((record.went, 0), record, True) for record in result.records if record.node == place and record.went]
    return [(record, ends) for _, record, ends in sorted(found, key=lambda entry: entry[0])]


def begun(kubelet: Kubelet, record: Record) -> Kubelet:
    name = record.arrival.name
    after, answer = admit(kubelet, replace(record.arrival.asked.shape.pod, uid=name, name=name), AdmitMode.MANAGERS)
    assert answer.admitted == (record.fate is not Fate.REFUSED)
    return after


def ended(kubelet: Kubelet, record: Record) -> Kubelet:
    return kubelet.remove(record.arrival.name)[0]


@LAW
@given(works(), some.sampled_from(STRATEGIES))
def test_sums_of_nodes_are_those_of_their_pods_and_never_above_what_they_offer(work: Work, strategy: Strategy) -> None:
    result = simulated(work, strategy)
    table = result.nodes.table
    assert (table.used <= table.offered).all()
    for place in range(len(table.members)):
        running = [one for one in result.records if one.node == place and one.fate is Fate.RUNS]
        cpu = sum(one.arrival.asked.requests.get("cpu", 0) for one in running)
        assert table.row(table.used, "cpu")[place] == cpu
        assert table.row(table.used, "pods")[place] == len(running)


@LAW
@given(works(), some.integers(0, 5))
def test_the_same_seed_gives_the_same_records(work: Work, seed: int) -> None:
    first, second = (simulated(work, STRATEGIES[0], seed) for _ in range(2))
    assert first.records == second.records
    assert first.samples == second.samples


@LAW
@given(works())
def test_with_the_extender_no_kubelet_refuses(work: Work) -> None:
    result = simulated(work, Strategy(extender=True))
    assert answer_of(result).fates[Fate.REFUSED] == 0


@LAW
@given(works())
def test_a_pod_that_waits_at_the_end_fits_nowhere(work: Work) -> None:
    result = simulated(work, Strategy(extender=True))
    for record in result.records:
        if record.fate is Fate.WAITS:
            places = range(len(result.nodes.table.members))
            assert not any(result.nodes.takes(place, record.arrival.asked, exactly=True) for place in places)


def test_nodes_of_one_group_share_engine_runs() -> None:
    work = work_of("equal", [arrival(f"p{number}", SHAPES[1]) for number in range(40)])
    result = Simulation(cluster(group("a", 40, ALIGNED)), work).run()
    assert answer_of(result).admitted == 40
    assert result.nodes.states.asked <= 4
