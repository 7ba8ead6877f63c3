"""All combinations of options on top of a configuration.

Every combination is made, the impossible ones too: which of them are legal is for the kubelet to say, when it is
started with them. Only what a combination merely needs is added: the feature gate of its alpha and beta options, and
room for the machine's NUMA nodes.

Source: the options and policies of kubelet v1.37.1 (docs/reference/configuration.md).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import replace
from enum import Enum
from itertools import chain, combinations, product

from mooring.answers.compare.variant import options_on
from mooring.engine.core.config import EXTENSIONS, KubeletConfig, with_defaults
from mooring.engine.core.gates import FeatureGates, resolve_gates
from mooring.engine.core.release import NEWEST, Release
from mooring.engine.cpumanager.options import GROUP_GATES
from mooring.engine.cpumanager.policy import STATIC
from mooring.engine.memorymanager.policy import STATIC as MEMORY_STATIC
from mooring.engine.node.validation import SCOPES
from mooring.engine.releases.gates import cpu_option_groups, known_gates
from mooring.engine.topologymanager.merge import NONE, POLICIES
from mooring.engine.topologymanager.options import DEFAULT_MAX_ALLOWABLE, MAX_ALLOWABLE, PREFER_CLOSEST


class Dimension(Enum):
    """A setting that is varied; the value is its name on the command line."""

    CPU_POLICY = "cpu-policy"
    CPU_OPTIONS = "cpu-options"
    MEMORY_POLICY = "memory-policy"
    TOPOLOGY_POLICY = "topology-policy"
    TOPOLOGY_SCOPE = "topology-scope"
    TOPOLOGY_OPTIONS = "topology-options"


ALL_OPTIONS = (
    Dimension.CPU_OPTIONS,
    Dimension.TOPOLOGY_POLICY,
    Dimension.TOPOLOGY_SCOPE,
    Dimension.TOPOLOGY_OPTIONS,
)
"""What ``--all-options`` varies: all options, with the CPU and memory managers' policies as they are."""

Setting = Callable[[KubeletConfig], KubeletConfig]
"""Makes one choice in a configuration."""


def option_sets(
    config: KubeletConfig, dimensions: Collection[Dimension], numa_nodes: int, release: Release = NEWEST
) -> Iterator[KubeletConfig]:
    """Yield every combination of the dimensions on top of a configuration, legal or not, in a fixed order.

    Args:
        config: what everything else is taken from.
        dimensions: what is varied.
        numa_nodes: how many NUMA nodes the machine has.
        release: of the kubelet; it decides which options there are.

    >>> [made.topology_manager_scope for made in option_sets(KubeletConfig(), [Dimension.TOPOLOGY_SCOPE], 1)]
    ['container', 'pod']
    """
    settings = [_settings(dimension, release) for dimension in Dimension if dimension in dimensions]
    for chosen in product(*settings):
        made = with_defaults(config)
        for setting in chosen:
            made = setting(made)
        yield _with_room(_with_gates(made, release), numa_nodes)


def _settings(dimension: Dimension, release: Release) -> list[Setting]:
    match dimension:
        case Dimension.CPU_POLICY:
            return [_set("cpu_manager_policy", name) for name in ("none", STATIC)]
        case Dimension.CPU_OPTIONS:
            names = tuple(cpu_option_groups(release.name))
            subsets = chain.from_iterable(combinations(names, count) for count in range(len(names) + 1))
            return [_set("cpu_manager_policy_options", dict.fromkeys(chosen, "true")) for chosen in subsets]
        case Dimension.MEMORY_POLICY:
            return [_set("memory_manager_policy", name) for name in ("None", MEMORY_STATIC)]
        case Dimension.TOPOLOGY_POLICY:
            return [_set("topology_manager_policy", name) for name in POLICIES]
        case Dimension.TOPOLOGY_SCOPE:
            return [_set("topology_manager_scope", name) for name in SCOPES]
        case Dimension.TOPOLOGY_OPTIONS:
            return [_closest(on=on) for on in (False, True)]


def _set(member: str, value: object) -> Setting:
    return lambda config: replace(config, **{member: value})  # type: ignore[arg-type]


def _closest(*, on: bool) -> Setting:
    def setting(config: KubeletConfig) -> KubeletConfig:
        options = options_on(config.topology_manager_policy_options)
        options.pop(PREFER_CLOSEST, None)
        if on:
            options[PREFER_CLOSEST] = "true"
        return replace(config, topology_manager_policy_options=options)

    return setting


def _with_gates(config: KubeletConfig, release: Release) -> KubeletConfig:
    """Switch on the gates that the options need and that are off."""
    gates = resolve_gates(config.feature_gates, known_gates(release.name), EXTENSIONS)
    if not isinstance(gates, FeatureGates):
        return config
    known = cpu_option_groups(release.name)
    groups = {known.get(name) for name in options_on(config.cpu_manager_policy_options)}
    needed = [gate for group, gate in GROUP_GATES.items() if group in groups and not gates[gate]]
    return replace(config, feature_gates={**config.feature_gates, **dict.fromkeys(needed, True)}) if needed else config


def _with_room(config: KubeletConfig, numa_nodes: int) -> KubeletConfig:
    """Let the topology manager accept the machine's NUMA nodes, where it looks at them at all."""
    options = config.topology_manager_policy_options
    allowed = options.get(MAX_ALLOWABLE, "")
    enough = allowed.isdecimal() and int(allowed) >= numa_nodes
    if config.topology_manager_policy == NONE or enough or numa_nodes <= DEFAULT_MAX_ALLOWABLE:
        return config
    return replace(config, topology_manager_policy_options={**options, MAX_ALLOWABLE: str(numa_nodes)})
