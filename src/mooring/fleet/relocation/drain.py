"""What a drain of nodes does: their pods are evicted, and their controllers make them anew elsewhere."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from mooring.engine.core.errors import InputError
from mooring.fleet.live.reading import LiveCluster
from mooring.fleet.nodes import Nodes
from mooring.fleet.relocation.replacement import FAILURES, Outcome, Relocated, relocated
from mooring.fleet.scheduler.scheduler import Scheduler
from mooring.fleet.strategy import Strategy
from mooring.inputs.decoding.fields import nearest


@dataclass(frozen=True, slots=True)
class DrainAnswer:
    """What becomes of the pods of drained nodes."""

    live: LiveCluster
    drained: tuple[str, ...]
    pods: tuple[Relocated, ...]
    """Those that leave in the order in which they find places, then those that do not."""

    @property
    def counts(self) -> Mapping[Outcome, int]:
        """Pods by what becomes of them."""
        found = Counter(one.outcome for one in self.pods)
        return {outcome: found[outcome] for outcome in Outcome if found[outcome]}

    @property
    def is_clean(self) -> bool:
        """Whether every evicted pod finds a place."""
        return not any(one.outcome in FAILURES for one in self.pods)


def drain(live: LiveCluster, names: Sequence[str], strategy: Strategy, seed: int = 0) -> DrainAnswer:
    """Drain nodes together.

    Args:
        live: the cluster.
        names: of the nodes.
        strategy: how the replacements are placed.
        seed: of the choice among nodes of one score.

    Raises:
        InputError: there is no such node.
    """
    nodes = Nodes(live.cluster)
    places = places_of(nodes, names)
    for place in places.values():
        nodes.table.open[place] = False
    kept: list[Relocated] = []
    leaving = []
    for name, place in places.items():
        for pod in live.pods[name]:
            if pod.stays is not None:
                kept.append(Relocated(pod, Outcome.STAYS, name))
            elif any(budget.blocks(pod) for budget in live.budgets):
                kept.append(Relocated(pod, Outcome.HELD, name))
            else:
                nodes.end(place, pod.name)
                if not pod.leaving:
                    leaving.append((pod, name))
    found = relocated(nodes, Scheduler(nodes, strategy, seed), leaving)
    return DrainAnswer(live, tuple(places), (*found, *kept))


def places_of(nodes: Nodes, names: Sequence[str]) -> dict[str, int]:
    """Return the places of nodes by name.

    Raises:
        InputError: there is no such node.
    """
    known = nodes.places
    for name in names:
        if name not in known:
            close = nearest(name, known)
            remedy = f"did you mean {close}?" if close else "see kubectl get nodes"
            raise InputError(f"nothing is known about a node {name!r:.80}", source="NODE", remedy=remedy)
    return {name: known[name] for name in dict.fromkeys(names)}
