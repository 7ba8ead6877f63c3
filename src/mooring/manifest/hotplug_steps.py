"""Steps of a scenario in which CPUs go offline or come back (extension cpu-hotplug)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from mooring.core.config import CPU_HOTPLUG, MooringConfig
from mooring.core.cpuset import CPUSet, CPUSetSyntaxError
from mooring.core.errors import InputError
from mooring.manifest.fields import name_at


@dataclass(frozen=True, slots=True)
class Offline:
    """CPUs go offline."""

    cpus: CPUSet


@dataclass(frozen=True, slots=True)
class Online:
    """CPUs come back."""

    cpus: CPUSet


def hotplug_step(step: Mapping[str, Any], mooring: MooringConfig) -> Offline | Online | None:
    """Read ``{"offline": "3,7"}`` or ``{"online": "3,7"}``; None for another step.

    Raises:
        InputError: it is not valid, or the scenario does not name the extension.

    >>> hotplug_step({"offline": "2-3"}, MooringConfig(frozenset({"cpu-hotplug"})))
    Offline(cpus=CPUSet('2-3'))
    """
    for field, made in (("offline", Offline), ("online", Online)):
        if field in step:
            cpus = cpu_list(name_at(step, field), field)
            if CPU_HOTPLUG not in mooring.extensions:
                remedy = f"write mooring: {{extensions: [{CPU_HOTPLUG}]}}"
                raise InputError(f"needs the extension {CPU_HOTPLUG}", field=field, remedy=remedy)
            return made(cpus)
    return None


def cpu_list(text: str, field: str) -> CPUSet:
    """Return a list of CPUs, at least one.

    Raises:
        InputError: it is no list.
    """
    try:
        cpus = CPUSet.parse(text)
    except CPUSetSyntaxError as error:
        raise InputError(f"no list of CPUs: {error}", field=field, remedy="write for example 2-3,7") from None
    if not cpus:
        raise InputError("names no CPU", field=field, remedy="write for example 2-3,7")
    return cpus
