"""Taking CPUs: which algorithm serves which options.

Source: kubelet v1.37.1, cpumanager policy_static.go (takeByTopology); spec: cpu-manager.md section 5.
"""

from __future__ import annotations

from mooring.core.decision import Endless
from mooring.core.observer import Observer
from mooring.core.topology import Topology
from mooring.cpumanager.distribute import take_distributed
from mooring.cpumanager.packed import take_packed
from mooring.cpumanager.rules import TakeError, TakeRules


def take(
    topology: Topology, available: int, need: int, rules: TakeRules, observer: Observer | None = None, *, kept: int = 0
) -> int | TakeError | Endless:
    """Take ``need`` of the ``available`` CPUs by the rules that the policy options ask for.

    Distribution over NUMA nodes never looks at uncore caches. CPUs that are kept stand beside those taken and are not
    among the available ones (KEP-5554, spec: resize.md section 4).
    """
    if rules.distribute:
        return take_distributed(topology, available, need, rules, kept=kept, observer=observer)
    return take_packed(topology, available, need, rules, uncore=rules.uncore, kept=kept, observer=observer)
