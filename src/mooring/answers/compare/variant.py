"""Variants: one machine with one configuration, and all combinations of options on top of a configuration.

Every combination is made, the impossible ones too: which of them are legal is for the kubelet to say, when it is
started with them. Only what a combination merely needs is added: the feature gate of its alpha and beta options, and
room for the machine's NUMA nodes.

Source: the options and policies of kubelet v1.37.1 (docs/reference/configuration.md).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from itertools import chain, combinations, product

from mooring.documents.plan import DocumentPart
from mooring.engine.core.config import EXTENSIONS, KubeletConfig, MooringConfig, with_defaults
from mooring.engine.core.gotext import GoSyntaxError, parse_bool
from mooring.engine.core.machine import Machine
from mooring.engine.core.release import NEWEST, FeatureGates, Release, resolve_gates
from mooring.engine.cpumanager.options import GROUP_GATES
from mooring.engine.cpumanager.policy import STATIC
from mooring.engine.devicemanager.state import Device
from mooring.engine.memorymanager.policy import STATIC as MEMORY_STATIC
from mooring.engine.node.validation import SCOPES
from mooring.engine.releases.config_fields import READ_FIELDS, Holds
from mooring.engine.releases.gates import cpu_option_groups, known_gates
from mooring.engine.topologymanager.merge import DEFAULT_MAX_ALLOWABLE, MAX_ALLOWABLE, NONE, POLICIES, PREFER_CLOSEST


class VariantChangePart(DocumentPart):
    """A field in which a variant departs from the configuration as given."""

    field: str
    before: str
    after: str


@dataclass(frozen=True, slots=True)
class Variant:
    """One of the things that are compared."""

    name: str
    """Name of the configuration that was given, or that it was made from."""
    machine: Machine
    config: KubeletConfig
    mooring: MooringConfig = field(default_factory=MooringConfig)
    devices: Mapping[str, tuple[Device, ...]] = field(default_factory=dict)
    """Resource -> devices of the node's device plugins."""
    changes: tuple[VariantChangePart, ...] = ()
    """What was changed in the configuration that was given; empty for a configuration as it was given."""

    @property
    def is_given(self) -> bool:
        """Tell whether the configuration is one that was given."""
        return not self.changes

    @property
    def shared_by(self) -> Hashable:
        """What variants of one comparison have in common that can share a run: all but the topology manager's settings.

        Plugins may read any setting, so that such variants share nothing.
        """
        if self.mooring.plugins.plugins:
            return id(self)
        config = replace(
            self.config, topology_manager_policy="", topology_manager_scope="", topology_manager_policy_options={}
        )
        return id(self.machine), repr((self.mooring, self.devices, config))


def changes_between(before: KubeletConfig, after: KubeletConfig) -> tuple[VariantChangePart, ...]:
    """Return the settings in which two configurations depart, by the kubelet's names.

    An option given as false counts as one that is not given.

    >>> one = KubeletConfig(cpu_manager_policy_options={"full-pcpus-only": "true"})
    >>> changes_between(one, KubeletConfig(topology_manager_policy="restricted"))  # doctest: +NORMALIZE_WHITESPACE
    (VariantChangePart(field='cpuManagerPolicyOptions.full-pcpus-only', before='true', after=''),
     VariantChangePart(field='topologyManagerPolicy', before='none', after='restricted'))
    """
    left, right = _flat(before), _flat(after)
    return tuple(
        VariantChangePart(name, left.get(name, ""), right.get(name, ""))
        for name in sorted({*left, *right})
        if left.get(name, "") != right.get(name, "")
    )


def _flat(config: KubeletConfig) -> dict[str, str]:
    config, texts = with_defaults(config), dict[str, str]()
    for name, one in READ_FIELDS.items():
        value = one.of(config)
        if one.holds is Holds.OPTIONS:
            value = options_on(value)
        elif one.holds is Holds.MEMORY:
            value = {f"{entry.numa_node}.{key}": text for entry in value for key, text in entry.limits.items()}
        if isinstance(value, Mapping):
            texts |= {f"{name}.{key}": _text(part) for key, part in value.items()}
        elif value is not None:
            texts[name] = _text(value)
    return texts


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def options_on(options: Mapping[str, str]) -> dict[str, str]:
    """Return the options of a policy that do something, in sorted order; every form of true becomes ``true``.

    >>> options_on({"full-pcpus-only": "1", "align-by-socket": "false", "max-allowable-numa-nodes": "12"})
    {'full-pcpus-only': 'true', 'max-allowable-numa-nodes': '12'}
    """
    found = {}
    for name in sorted(options):
        text = options[name]
        if name == MAX_ALLOWABLE:  # the only one that is no boolean
            found[name] = text
            continue
        try:
            if parse_bool(text):
                found[name] = "true"
        except GoSyntaxError:
            # No boolean: the kubelet refuses it, and the answer must show that.
            found[name] = text
    return found


class Dimension(Enum):
    """A setting that is varied; the value is its name on the command line."""

    CPU_POLICY = "cpu-policy"
    CPU_OPTIONS = "cpu-options"
    MEMORY_POLICY = "memory-policy"
    TOPOLOGY_POLICY = "topology-policy"
    TOPOLOGY_SCOPE = "topology-scope"
    TOPOLOGY_OPTIONS = "topology-options"


ALL_OPTIONS = (Dimension.CPU_OPTIONS, Dimension.TOPOLOGY_POLICY, Dimension.TOPOLOGY_SCOPE, Dimension.TOPOLOGY_OPTIONS)
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
            return [_closest, lambda config: _closest(config, PREFER_CLOSEST)]


def _set(member: str, value: object) -> Setting:
    return lambda config: replace(config, **{member: value})  # type: ignore[arg-type]


def _closest(config: KubeletConfig, *chosen: str) -> KubeletConfig:
    options = options_on(config.topology_manager_policy_options)
    options.pop(PREFER_CLOSEST, None)
    return replace(config, topology_manager_policy_options={**options, **dict.fromkeys(chosen, "true")})


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
