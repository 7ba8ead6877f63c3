"""What is wrong with what the CPU manager's file says of claims (:mod:`mooring.extensions.claimed`).

A claim stays until it is given back, so that one whose pods are gone is in order. That a claim and a pod have the same
CPU is found where all entries are compared; here is what only a claim can have wrong. The kubelet looks at none of it:
to a kubelet a claim is a pod that it does not know.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from mooring.core.cpuset import CPUSet
from mooring.cpumanager.policy import StaticPolicy
from mooring.cpumanager.state import CPUState
from mooring.explain.phrases import joined
from mooring.extensions.claimed import is_claim, parts_of
from mooring.node.start import CPU_FILE
from mooring.planner.doctor.problem import Holder, Problem, cpus_text

BAD_CLAIM = "MOOR-323"


def check_claims(policy: StaticPolicy, state: CPUState) -> Iterator[Problem]:
    """Yield one problem for each claim with entries that no claim is given."""
    for owner, entries in sorted(state.assignments.items()):
        faults = list(_faults(policy, entries)) if is_claim(owner) else []
        if faults:
            yield Problem(
                BAD_CLAIM,
                "warning",
                CPU_FILE,
                f"{_named(owner, entries)} {joined(faults)}; no claim is given CPUs like that.",
                tuple(Holder(owner, entry) for entry in sorted(entries)),
                CPUSet(_all(entries)),
            )


def _named(owner: str, entries: Mapping[str, int]) -> str:
    names = {parts_of(entry)[:2] for entry in entries}
    namespace, name = names.pop() if len(names) == 1 else ("", "")
    return f"Claim {namespace}/{name}" if name else f"Claim {owner.partition(':')[2]}"


def _faults(policy: StaticPolicy, entries: Mapping[str, int]) -> Iterator[str]:
    seen = twice = 0
    for entry, cpus in sorted(entries.items()):
        _, name, device, request = parts_of(entry)
        place = f"for request {request} of {device}"
        if not name:
            yield f"has an entry whose name tells no device ({entry:.60})"
        elif not cpus:
            yield f"has no CPU {place}"
        elif policy.rules.whole_cores and policy.topology.core_siblings(cpus) != cpus:
            yield f"has parts of cores {place} ({CPUSet(cpus)}) under full-pcpus-only"
        twice |= seen & cpus
        seen |= cpus
    if len({parts_of(entry)[:2] for entry in entries}) > 1:
        yield "has entries of more than one name"
    if twice:
        yield f"has {cpus_text(twice)} for more than one of its requests"


def _all(entries: Mapping[str, int]) -> int:
    cpus = 0
    for mask in entries.values():
        cpus |= mask
    return cpus
