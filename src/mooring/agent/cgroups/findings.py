"""What the kernel shows of a container, held against what was decided, in words for the reactor and for people."""

from __future__ import annotations

from mooring.agent.cgroups.cpuset import Cpuset
from mooring.agent.cgroups.files import CGroupTrouble
from mooring.agent.cgroups.protocol import CPUSetWritten, Deviation, shows
from mooring.agent.reactor.effects import WriteCPUSet
from mooring.agent.reactor.enforcement import Compliance, WriteOutcome


def written_of(done: CPUSetWritten) -> WriteOutcome:
    """Return what came of a write."""
    standing, wanted = _standing(done), done.wanted
    had = ""
    if done.wrote and done.before is not None and not shows(done.before, wanted):
        had = differing(done.before, wanted)
    if standing is Compliance.UNKNOWN:
        return WriteOutcome(wanted, standing, had, unknown_text(wanted, done.trouble, done.problem))
    if standing not in (Compliance.WITHIN, Compliance.BEYOND) or done.after is None:
        return WriteOutcome(wanted, standing, had)
    why = f": {done.problem}" if done.problem else ", though it was written"
    return WriteOutcome(wanted, standing, had, f"has {differing(done.after, wanted)}{why}")


def lasting_text(deviation: Deviation) -> str:
    """Return the text about a deviation that cannot be corrected, as it continues the container's name."""
    wanted = deviation.wanted
    if deviation.found is None:
        return unknown_text(wanted, deviation.trouble, deviation.problem)
    return f"has {differing(deviation.found, wanted)}, though that is configured: offline, or missing in a group above"


def differing(found: Cpuset, wanted: WriteCPUSet) -> str:
    """Return in words what differs.

    >>> from mooring.core.cpuset import CPUSet
    >>> wanted = WriteCPUSet("c", 1, "/c", CPUSet.parse("1-2"), CPUSet.of(0))
    >>> differing(Cpuset(CPUSet.parse("0-7"), CPUSet.parse("0")), wanted)
    'CPUs 0-7 instead of 1-2'
    """
    parts = [
        f"{what} {has or 'none'} instead of {right}"
        for what, has, right in (("CPUs", found.cpus, wanted.cpus), ("memory nodes", found.mems, wanted.mems))
        if right and has != right
    ]
    return " and ".join(parts)


def unknown_text(wanted: WriteCPUSet, trouble: CGroupTrouble | None, problem: str) -> str:
    """Return the text for a container whose cpuset is unknown."""
    if trouble in (CGroupTrouble.GONE, CGroupTrouble.NOT_FOUND):
        process = f"process {wanted.pid}" if wanted.pid else "no process is known"
        return (
            f"has no control group {wanted.cgroup or 'with a name'} that can be found ({process}); "
            "the agent must see the control groups and processes of the host"
        )
    return f"has a control group that cannot be read or written: {problem or 'for an unknown reason'}"


def _standing(done: CPUSetWritten) -> Compliance:
    if done.after is not None:
        return Compliance.RIGHT if shows(done.after, done.wanted) else _beside(done.after, done.wanted)
    if done.trouble is None:
        return Compliance.UNSEEN
    return Compliance.ENDED if done.trouble is CGroupTrouble.GONE else Compliance.UNKNOWN


def _beside(found: Cpuset, wanted: WriteCPUSet) -> Compliance:
    pairs = ((found.cpus, wanted.cpus), (found.mems, wanted.mems))
    is_within = all(not right or has <= right for has, right in pairs)
    return Compliance.WITHIN if is_within else Compliance.BEYOND
