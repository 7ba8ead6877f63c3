"""Options of the static CPU manager policy: names, maturity groups, values, compatibility, and the rules of taking.

Source: kubelet v1.37.1, cpumanager policy_options.go; spec: configuration.md sections 4.1 and 4.2.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping

from mooring.engine.core.config import SCALE_DOWN_DELAY
from mooring.engine.core.decision import Cause, Fault
from mooring.engine.core.gotext import GoSyntaxError, parse_bool, quote
from mooring.engine.core.moment import SECOND
from mooring.engine.core.release import NEWEST_RULES, FeatureGates, ReleaseRules
from mooring.engine.core.topology import Topology
from mooring.lazy import dataclass, replace

FIELD = "cpuManagerPolicyOptions"
FULL_PCPUS_ONLY = "full-pcpus-only"
STRICT_RESERVATION = "strict-cpu-reservation"
UNCORE = "prefer-align-cpus-by-uncorecache"
DISTRIBUTE_NUMA = "distribute-cpus-across-numa"
ALIGN_BY_SOCKET = "align-by-socket"
DISTRIBUTE_CORES = "distribute-cpus-across-cores"

EXCLUSIVE_RESIZE_GATE = "InPlacePodVerticalScalingExclusiveCPUs"

STABLE = "stable"
BETA = "beta"
ALPHA = "alpha"

OPTION_GROUPS: Mapping[str, str] = {
    FULL_PCPUS_ONLY: STABLE,
    STRICT_RESERVATION: STABLE,
    UNCORE: STABLE,
    DISTRIBUTE_NUMA: BETA,
    ALIGN_BY_SOCKET: ALPHA,
    DISTRIBUTE_CORES: ALPHA,
}
"""Option -> maturity group in v1.37.1; older releases have others (``mooring.engine.releases.gates``)."""

GROUP_GATES: Mapping[str, str] = {ALPHA: "CPUManagerPolicyAlphaOptions", BETA: "CPUManagerPolicyBetaOptions"}
"""Maturity group -> the feature gate that its options need."""

INCOMPATIBLE = (
    (FULL_PCPUS_ONLY, DISTRIBUTE_CORES),
    (DISTRIBUTE_NUMA, DISTRIBUTE_CORES),
    (UNCORE, DISTRIBUTE_CORES),
    (UNCORE, DISTRIBUTE_NUMA),
)
"""Pairs that exclude each other, in the order in which they are checked."""

SCALE_DELAY_TIME = "scale-delay-time"
"""An option of the alpha group that the extension scale-down-delay brings (KEP-6122)."""
LONGEST_DELAY = 10 * SECOND
_DELAY = re.compile(r"([0-9]{1,12})(ms|s)", re.ASCII)

SINGLE_NUMA_NODE = "single-numa-node"


_RULES_OF_1_37 = frozenset({"average-sizes", "claim-loop", "group-loop", "saved-combo"})
"""Defects that are rules up to 1.37: later kubelets decide as with the defect fixed (spec: preview.md sections 2, 5 and
6). They give a CPU to two containers, miscount uneven cores or never return."""


def parse_options(
    options: Mapping[str, str],
    gates: FeatureGates,
    extensions: Collection[str] = (),
    groups: Mapping[str, str] = OPTION_GROUPS,
) -> tuple[frozenset[str], int] | Fault:
    """Return the options that are on and scale-delay-time in nanoseconds, or what the kubelet finds wrong with them.

    The kubelet walks a map and so reports any of several bad options; sorted order is used here. An option given as
    false still has to be known and its group enabled.

    Args:
        options: as written.
        gates: two of them guard the groups.
        extensions: those of Mooring that are on; one brings an option.
        groups: the options of the kubelet's release, and their groups.
    """
    on = set()
    delay = 0
    known = {**groups, **({SCALE_DELAY_TIME: ALPHA} if SCALE_DOWN_DELAY in extensions else {})}
    for name in sorted(options):
        group = known.get(name)
        if group is None:
            return Fault(f"unknown CPU Manager Policy option: {quote(name)}", Cause.UNKNOWN_CPU_OPTION, FIELD, (name,))
        if group in GROUP_GATES and not gates[GROUP_GATES[group]]:
            text = (
                f"CPU Manager Policy {group.capitalize()}-level Options not enabled, but option {quote(name)} provided"
            )
            cause = Cause.ALPHA_CPU_OPTION if group == ALPHA else Cause.BETA_CPU_OPTION
            return Fault(text, cause, FIELD, (name,), (GROUP_GATES[group],))
        if name == SCALE_DELAY_TIME:
            read = _delay(options[name], gates)
            if isinstance(read, str):
                return Fault(read, field=FIELD, names=(name,))
            delay = read
            continue
        try:
            if parse_bool(options[name]):
                on.add(name)
        except GoSyntaxError as error:
            return Fault(f"bad value for option {quote(name)}: {error}", Cause.OPTION_VALUE, FIELD, (name,))
    for first, second in INCOMPATIBLE:
        if first in on and second in on:
            text = f"static policy options {first} and {second} can not be used at the same time"
            return Fault(text, Cause.OPTIONS_EXCLUDE, FIELD, (first, second))
    return frozenset(on), delay


def _delay(text: str, gates: FeatureGates) -> int | str:
    """Return the delay in nanoseconds, or why it cannot be: the texts are this project's where KEP-6122 has none."""
    found = _DELAY.fullmatch(text)
    if found is None:
        return f"bad value for option {quote(SCALE_DELAY_TIME)}: time: invalid duration {quote(text)}"
    delay = int(found[1]) * (SECOND if found[2] == "s" else SECOND // 1000)
    if delay > LONGEST_DELAY:
        return f"bad value for option {quote(SCALE_DELAY_TIME)}: must be between 0s and 10s"
    if delay and not gates[EXCLUSIVE_RESIZE_GATE]:
        return f"option {quote(SCALE_DELAY_TIME)} needs the feature gate {EXCLUSIVE_RESIZE_GATE}"
    return delay


def check_against_machine(
    on: Collection[str], topology: Topology, topology_policy: str, fixed_defects: frozenset[str]
) -> Fault | None:
    """Return why align-by-socket cannot work here; None when it can.

    Defect hint-typo: the first text is misspelt in v1.37.1.
    """
    if ALIGN_BY_SOCKET not in on:
        return None
    if topology_policy == SINGLE_NUMA_NODE:
        manager = "Topology manager" if "hint-typo" in fixed_defects else "Topolgy manager"
        text = f"{manager} {SINGLE_NUMA_NODE} policy is incompatible with CPUManager {ALIGN_BY_SOCKET} policy option"
        return Fault(text, Cause.SOCKET_AND_POLICY, FIELD, (ALIGN_BY_SOCKET,))
    if topology.num_sockets > topology.num_numa_nodes:
        text = "Align by socket is not compatible with hardware where number of sockets are more than number of NUMA"
        return Fault(text, Cause.SOCKET_AND_MACHINE, FIELD, (ALIGN_BY_SOCKET,))
    return None


@dataclass(frozen=True, slots=True)
class TakeRules:
    """The rules of taking, from the CPU manager policy options."""

    spread: bool = False
    """distribute-cpus-across-cores: single CPUs are taken across cores instead of filling cores."""
    distribute: bool = False
    """distribute-cpus-across-numa."""
    whole_cores: bool = False
    """full-pcpus-only: exclusive CPUs come in whole cores, and distribution hands out whole cores."""
    align_by_socket: bool = False
    """A socket is as good as a NUMA node where both cannot be had."""
    uncore: bool = False
    """prefer-align-cpus-by-uncorecache."""
    fixed_defects: frozenset[str] = frozenset()
    """Defects of v1.37.1 that are not to be reproduced (spec: README.md section 5)."""
    older: ReleaseRules = NEWEST_RULES
    """Rules of an older release that decide in place of those of the newest."""

    @staticmethod
    def of(on: Collection[str], fixed_defects: frozenset[str], older: ReleaseRules = NEWEST_RULES) -> TakeRules:
        """Return the rules of the options that are on."""
        return TakeRules(
            spread=DISTRIBUTE_CORES in on,
            distribute=DISTRIBUTE_NUMA in on,
            whole_cores=FULL_PCPUS_ONLY in on,
            align_by_socket=ALIGN_BY_SOCKET in on,
            uncore=UNCORE in on,
            fixed_defects=fixed_defects
            | {name for name in _RULES_OF_1_37 if not getattr(older, name.replace("-", "_"))},
            older=older,
        )

    def mended(self) -> TakeRules:
        """Return the rules for what no kubelet of these releases chooses, so that there is nothing to be equal to."""
        return replace(self, fixed_defects=self.fixed_defects | _RULES_OF_1_37)
