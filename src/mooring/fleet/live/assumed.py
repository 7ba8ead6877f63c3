"""What is taken for granted about a live cluster, counted, for the reader of an answer."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from mooring.explain.phrases import plural

_MOST_NAMED: Final = 3


@dataclass(slots=True)
class Assumed:
    """What is taken for granted, counted."""

    machines: Counter[str] = field(default_factory=Counter)
    """Kind of the nodes whose machine is from the table or the person."""
    configurations: int = 0
    """Nodes whose kubelet's configuration is not known."""
    placed: int = 0
    """Pods that hold something, and that no published state names."""
    unplaced: list[str] = field(default_factory=list)
    """Pods of which the engine would refuse one in this order."""
    elsewhere: int = 0
    """Pods that are bound to nodes that are not listed."""
    left_out: dict[str, str] = field(default_factory=dict)
    """Node of which nothing can be said -> the reason."""
    releases: Counter[str] = field(default_factory=Counter)
    """What is said of kubelets of other releases."""

    def findings(self, waiting: int, ignored: Mapping[str, int]) -> Iterator[str]:
        """Yield what a reader has to know."""
        for kind, count in sorted(self.machines.items()):
            yield f"the machine of {plural(count, 'node')} is that of {kind}"
        if self.configurations:
            kubelets = plural(self.configurations, "kubelet")
            yield f"the configuration of {kubelets} is not known: its defaults are taken, --config names another"
        if self.placed:
            own, order = ("its own is", "its start") if self.placed == 1 else ("their own are", "their start")
            yield (
                f"{plural(self.placed, 'running pod')} with CPUs, memory or devices of {own} named by no "
                f"published state: admitted in the order of {order}"
            )
        if self.unplaced:
            named = ", ".join(self.unplaced[:_MOST_NAMED])
            pods = plural(len(self.unplaced), "running pod")
            yield f"{pods} would be refused in that order, counted in sums only: {named}"
        for message, count in sorted(self.releases.items()):
            yield f"{plural(count, 'kubelet')}: {message}"
        for name, reason in sorted(self.left_out.items()):
            yield f"node {name} is left out: {reason}"
        if self.elsewhere:
            yield f"{plural(self.elsewhere, 'pod')} on nodes that are not listed left out"
        if waiting:
            yield f"{plural(waiting, 'pod')} without a node left out"
        for name, count in sorted(ignored.items()):
            yield f"{plural(count, 'pod')} {'has' if count == 1 else 'have'} {name}, which is not simulated"
