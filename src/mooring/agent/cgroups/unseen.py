"""Control groups of a machine that is not this one: nothing is written, and nothing is found wrong.

For an agent that is given a machine of tests or simulations: its CPUs are not those of the kernel beneath.
"""

from __future__ import annotations

from collections.abc import Iterable

from mooring.agent.cgroups.cpuset import Cpuset
from mooring.agent.cgroups.files import CGroupTrouble
from mooring.agent.cgroups.protocol import CPUSetWritten, Deviation, QuotaFound, QuotaLifted
from mooring.agent.cgroups.quota import Quota
from mooring.agent.reactor.effects import LiftQuota, ReturnCPUs, WriteCPUSet


class UnseenCGroups:
    """:class:`~mooring.agent.cgroups.protocol.CGroups` of nowhere; what the runtime was told counts alone."""

    def write_cpuset(self, wanted: WriteCPUSet) -> CPUSetWritten:
        """Write nothing."""
        return CPUSetWritten(wanted)

    def return_cpus(self, wanted: ReturnCPUs) -> str:
        """Return nothing."""
        del wanted
        return ""

    def lift_quota(self, wanted: LiftQuota) -> QuotaLifted:
        """Lift nothing."""
        return QuotaLifted(wanted)

    def restore_quota(self, place: LiftQuota, quota: Quota) -> CGroupTrouble | None:
        """Restore nothing."""
        del place, quota
        return None

    def in_effect(self, place: WriteCPUSet) -> Cpuset | None:
        """See nothing."""
        del place
        return None

    def has_group(self, cgroup: str, pid: int) -> bool:
        """Miss nothing."""
        del cgroup, pid
        return True

    def has_processes(self, cgroup: str, pid: int) -> bool:
        """See nothing run."""
        del cgroup, pid
        return False

    def deviations(self, wanted: Iterable[WriteCPUSet]) -> tuple[Deviation, ...]:
        """Find nothing."""
        del wanted
        return ()

    def quotas(self, wanted: Iterable[LiftQuota]) -> tuple[QuotaFound, ...]:
        """Find nothing."""
        del wanted
        return ()
