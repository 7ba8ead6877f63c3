"""One more device of what the pod asks for, or a pod before it: who gets the new one may leave the pod its place."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from mooring.planner.changes.applying import with_device
from mooring.planner.changes.change import MoreDevices
from mooring.planner.changes.cost import Cost
from mooring.planner.changes.proposal import Proposal
from mooring.planner.changes.search import Search, cheaper
from mooring.planner.question import Entry, pods_in


def proposals(search: Search) -> Iterator[Proposal]:
    """Yield, for each resource, the NUMA node on which one more device disturbs the fewest pods."""
    if not search.has_room:
        return
    until = pods_in(search.queue[: search.place + 1])
    wanted = {name for pod in until for container in pod.containers for name in container.limits}
    for resource in sorted(wanted.intersection(search.question.devices)):
        best: Proposal | None = None
        for node in sorted(node.node_id for node in search.question.machine.info.topology):
            found = _on(search, MoreDevices(resource, node), best)
            best = found or best
        if best is not None:
            yield best


def _on(search: Search, change: MoreDevices, best: Proposal | None) -> Proposal | None:
    """Return the proposal if it is better than the best so far."""
    # A pod that asks for none of them is not affected.
    first = next(place for place, entry in enumerate(search.queue) if _asks(entry, change.resource))
    kubelet = search.course.before[first]
    kubelet = replace(kubelet, node=kubelet.node.with_devices(with_device(search.question, change)))
    course = search.tried((change,), kubelet, search.queue[first:])
    if course is None:
        return None
    cost = Cost(touched=search.touched(course), devices=1)
    return search.proposal((change,), cost, course) if cheaper(cost, best) else None


def _asks(entry: Entry, resource: str) -> bool:
    return any(resource in container.limits for pod in pods_in([entry]) for container in pod.containers)
