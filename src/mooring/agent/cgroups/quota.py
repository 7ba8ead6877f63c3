"""The CFS quota of one group: read, lifted, restored.

A group's processes get ``quota`` microseconds of CPU time per ``period``. A quota on any group from the container up to
its pod throttles exclusive CPUs, so that the quota is lifted on all of them (spec: pod-level.md section 5). When it is
lifted :mod:`mooring.agent.quota` says.
"""

from __future__ import annotations

from dataclasses import dataclass

from mooring.agent.cgroups.files import CGroupTrouble, GroupError, Hierarchy, read, write

_V1_QUOTA = "cpu.cfs_quota_us"
_V1_PERIOD = "cpu.cfs_period_us"
_V2 = "cpu.max"
_NONE_V1 = -1
_NONE_V2 = "max"


@dataclass(frozen=True, slots=True)
class Quota:
    """CPU time of a group."""

    microseconds: int | None
    """Per period; None means no limit."""
    period: int
    """Microseconds."""

    @property
    def is_lifted(self) -> bool:
        """Whether there is no limit."""
        return self.microseconds is None


def read_quota(hierarchy: Hierarchy, folder: str) -> Quota:
    """Return the quota of a group.

    Raises:
        GroupError: when it cannot be read.
    """
    if hierarchy.version == 2:
        return parse_max(read(f"{folder}/{_V2}"), f"{folder}/{_V2}")
    quota, period = (_number(read(path), path) for path in (f"{folder}/{_V1_QUOTA}", f"{folder}/{_V1_PERIOD}"))
    return Quota(quota if quota >= 0 else None, period)


def lift_quota(hierarchy: Hierarchy, folder: str) -> Quota | None:
    """See to it that a group has no quota; its period stays.

    Returns:
        The quota that was lifted; None when there was none.

    Raises:
        GroupError: when it cannot be read or written.
    """
    before = read_quota(hierarchy, folder)
    if before.is_lifted:
        return None
    write_quota(hierarchy, folder, Quota(None, before.period))
    return before


def write_quota(hierarchy: Hierarchy, folder: str, quota: Quota) -> None:
    """Write a quota and read it back.

    In version 1 no group may have a larger share of its period than the group above: give quotas back from the top.

    Raises:
        GroupError: when the kernel does not take it.
    """
    if hierarchy.version == 2:
        write(f"{folder}/{_V2}", format_max(quota))
    else:
        if _number(read(f"{folder}/{_V1_PERIOD}"), folder) != quota.period:
            # A quota of another period would be judged with the new one in between.
            write(f"{folder}/{_V1_QUOTA}", str(_NONE_V1))
            write(f"{folder}/{_V1_PERIOD}", str(quota.period))
        write(f"{folder}/{_V1_QUOTA}", str(_NONE_V1 if quota.microseconds is None else quota.microseconds))
    shown = read_quota(hierarchy, folder)
    if shown != quota:
        raise GroupError(
            CGroupTrouble.NOT_TAKEN, folder, f"{format_max(quota)} was written and {format_max(shown)} is there"
        )


def format_max(quota: Quota) -> str:
    """Return the form of ``cpu.max``.

    >>> format_max(Quota(150000, 100000)), format_max(Quota(None, 100000))
    ('150000 100000', 'max 100000')
    """
    return f"{_NONE_V2 if quota.microseconds is None else quota.microseconds} {quota.period}"


def parse_max(text: str, path: str = "") -> Quota:
    """Read the form of ``cpu.max``.

    Raises:
        GroupError: when it is not of this form.

    >>> parse_max("max 100000")
    Quota(microseconds=None, period=100000)
    """
    quota, _, period = text.partition(" ")
    return Quota(None if quota == _NONE_V2 else _number(quota, path), _number(period, path))


def _number(text: str, path: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise GroupError(CGroupTrouble.REFUSED, path, f"{text!r} is not a number") from None
