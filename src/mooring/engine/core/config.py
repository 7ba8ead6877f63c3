"""The configuration of a kubelet and of Mooring itself, as values.

Source: KubeletConfiguration v1beta1 of v1.37.1; spec: configuration.md section 1. Values are as written: names of
policies and options are checked where the kubelet checks them (:mod:`mooring.engine.node.settings`), not while a file
is read.

Plugins that were chosen: what the configuration names, loaded and understood. No kubelet has them. Source: CPU Manager
Plugin Model (proposal); spec: resize.md section 7. Who loads them is :mod:`mooring.engine.plugins.loading`, who asks
them is :mod:`mooring.engine.plugins`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import Enum
from typing import Any, Protocol

from mooring.engine.core.pod import LocationAttributes
from mooring.engine.core.release import NEWEST, Release
from mooring.lazy import dataclass, field, replace


class PluginPlacement(Enum):
    """Where a plugin takes part; both are discussed by the proposal."""

    CPU_MANAGER = "cpu-manager"
    """Inside the CPU manager: in its hints and in its choice."""
    HINT_PROVIDER = "hint-provider"
    """As one more hint provider of the topology manager; the choice of CPUs stays the kubelet's."""


MILLISECOND = 1_000_000
BUDGET = 50 * MILLISECOND
"""Nanoseconds that all plugins together have for one question."""


class OutOfTimeError(Exception):
    """Plugins did not answer within their budget."""


Work = Callable[[], object]


class Watch(Protocol):
    """Holds plugins to their budget of time."""

    def __call__(self, work: Work, budget: int) -> object:
        """Do some work within a number of nanoseconds, or raise :class:`OutOfTimeError`."""

    def give_up(self, plugin: str) -> None:
        """Note that a plugin did not come back in time: it is not asked again."""

    def has_given_up(self, plugin: str) -> bool:
        """Tell whether a plugin is not to be asked any more."""


@dataclass(frozen=True, slots=True)
class ChosenPlugin:
    """One plugin of the configuration."""

    name: str
    settings: Mapping[str, object]
    points: Mapping[str, Callable[..., object]] = field(compare=False, repr=False)
    """Extension point -> the plugin's function, which takes its arguments by name."""
    placement: PluginPlacement = PluginPlacement.CPU_MANAGER
    weight: int = 1
    """With which its scores count."""
    is_shipped: bool = False
    """Whether it came with Mooring, so that it need not be watched."""


@dataclass(frozen=True, slots=True)
class PluginChoice:
    """The plugins of a node, in the order in which they are asked."""

    plugins: tuple[ChosenPlugin, ...] = ()
    budget: int = BUDGET
    """Nanoseconds for one question."""
    watch: Watch | None = field(default=None, compare=False, repr=False)
    """Holds plugins to their budget; without one they have no time limit, and none is given up."""

    def has_given_up(self, plugin: str) -> bool:
        """Tell whether a plugin is not to be asked any more."""
        return self.watch is not None and self.watch.has_given_up(plugin)


EXCLUSIVE_RESIZE = "exclusive-resize"
SCALE_DOWN_DELAY = "scale-down-delay"
ASSIGNED_CPUSET = "assigned-cpuset"
CPU_HOTPLUG = "cpu-hotplug"
MIXED_CPUS = "mixed-cpus"
PLUGINS = "plugins"
IRQ_AFFINITY = "irq-affinity"
DEVICE_ALIGNMENT = "device-alignment"

EXTENSIONS: frozenset[str] = frozenset(
    {
        ASSIGNED_CPUSET, CPU_HOTPLUG, DEVICE_ALIGNMENT, EXCLUSIVE_RESIZE, IRQ_AFFINITY, MIXED_CPUS, PLUGINS,
        SCALE_DOWN_DELAY,
    },
)  # fmt: skip
"""Additions that this version can switch on by ``extensions`` in Mooring's own document (spec: resize.md sections 4 to
7)."""

FIXABLE_DEFECTS = frozenset(
    {
        "average-sizes", "claim-loop", "exact-mask-reuse", "group-loop", "hint-typo", "memory-nil-hints", "numa-gauge",
        "odd-uncore", "pod-restart", "saved-combo", "shared-uncore", "socket-restart",
    },
)  # fmt: skip
"""Defects of kubelet v1.37.1 that Mooring reproduces unless ``fixedDefects`` names them (spec: README.md section 5)."""


@dataclass(frozen=True, slots=True)
class ReservedMemory:
    """One entry of ``reservedMemory``."""

    numa_node: int
    limits: Mapping[str, str]
    """Resource name -> quantity text."""


@dataclass(frozen=True, slots=True)
class GivenFlag:
    """A flag of the kubelet's command line that not every release has."""

    written: str
    """With its dashes, without its value."""
    source: str
    """File and line."""


@dataclass(frozen=True, slots=True)
class CheckedFields:
    """Fields that no resource manager reads, and on which some releases refuse to start; None where absent."""

    flags: tuple[GivenFlag, ...] = ()
    null_duration: bool = False
    """Whether a duration is null, which the kubelet cannot decode."""
    values: Mapping[str, Any] = field(default_factory=dict)
    """Path of a field -> its value, durations in nanoseconds; fields that nothing but a check reads."""
    cpu_options_empty: bool = False
    """Whether ``cpuManagerPolicyOptions`` stands there and is empty, while its gate may be off."""
    topology_options_empty: bool = False
    """The same of ``topologyManagerPolicyOptions``."""


@dataclass(frozen=True, slots=True)
class KubeletConfig:
    """The fields that the resource managers read; texts as written in the file."""

    cpu_manager_policy: str = "none"
    cpu_manager_policy_options: Mapping[str, str] = field(default_factory=dict)
    memory_manager_policy: str = "None"
    reserved_memory: tuple[ReservedMemory, ...] = ()
    topology_manager_policy: str = "none"
    topology_manager_scope: str = "container"
    topology_manager_policy_options: Mapping[str, str] = field(default_factory=dict)
    reserved_system_cpus: str = ""
    kube_reserved: Mapping[str, str] = field(default_factory=dict)
    system_reserved: Mapping[str, str] = field(default_factory=dict)
    kube_reserved_cgroup: str = ""
    system_reserved_cgroup: str = ""
    eviction_hard: Mapping[str, str] | None = None
    """None means absent: the kubelet's own defaults apply. A present map replaces them unless they are merged."""
    merge_default_eviction_settings: bool = False
    cpu_cfs_quota: bool = True
    cpu_cfs_quota_period_ns: int = 100_000_000
    feature_gates: Mapping[str, bool] = field(default_factory=dict)
    max_pods: int = 110
    pods_per_core: int = 0
    """Pods for each CPU of the machine, where these are fewer than ``max_pods``; 0 for no such limit."""
    cpu_manager_reconcile_period_ns: int = 10_000_000_000
    """How often the CPU manager repeats its assignments to the runtime, in nanoseconds."""
    checked: CheckedFields = CheckedFields()
    """What is only checked at the start."""


NEVER = "never"
SAME_NODES = "same-nodes"
ANYWHERE = "anywhere"
REPLACE = (NEVER, SAME_NODES, ANYWHERE)
"""Where a container gets other CPUs from when some of its own go offline (``cpuHotplug.replace``): nowhere, from the
NUMA nodes of its CPUs, or from those first and then from anywhere."""


class AssignedScope(Enum):
    """Which containers get their CPUs in files and environment; the value is the word in the agent's document."""

    ANNOTATED = "annotated"
    """Those of pods that request it."""
    ALL = "all"


class DeviceAlignment(Enum):
    """What devices that a container holds mean for its CPUs and memory; the value is the word in documents."""

    IGNORE = "ignore"
    """Nothing."""
    FOLLOW = "follow"
    """They take part in the merge like every provider of hints, under the node's topology policy."""
    REQUIRE = "require"
    """The same, under a policy that is at least as strict as ``restricted``."""


@dataclass(frozen=True, slots=True)
class DeviceAlignments:
    """``deviceAlignment`` of Mooring's own document; only the extension device-alignment looks at it."""

    default: DeviceAlignment = DeviceAlignment.FOLLOW
    """Of devices that are in no class."""
    classes: Mapping[str, tuple[DeviceAlignment, tuple[str, ...]]] = field(default_factory=dict)
    """Name of a class -> what its devices mean, and which they are: resource names of device plugins and names of DRA
    drivers, with ``*`` for any text. The first class that names a resource counts."""


@dataclass(frozen=True, slots=True)
class MooringConfig:
    """Mooring's own document: what it may do beyond or better than kubelet v1.37.1. Empty by default."""

    extensions: frozenset[str] = frozenset()
    fixed_defects: frozenset[str] = frozenset()
    replace_offline: str = SAME_NODES
    """``cpuHotplug.replace``, one of :data:`REPLACE`; only the extension cpu-hotplug looks at it."""
    plugins: PluginChoice = field(default_factory=PluginChoice)
    """Who takes part in the choice of CPUs (extension plugins)."""
    device_alignments: DeviceAlignments = field(default_factory=DeviceAlignments)
    """How CPUs and memory follow devices (extension device-alignment)."""
    device_attributes: Mapping[str, LocationAttributes] = field(default_factory=dict)
    """Driver of dynamic resource allocation -> attributes in which it says where its devices are."""
    release: Release = NEWEST
    """The kubelet release that the engine decides as."""


def may_be_off(feature_gates: Mapping[str, bool], gate: str) -> bool:
    """Tell whether a configuration may switch a gate off that is on by default: by its name, or with its stage.

    >>> may_be_off({"AllBeta": False}, "CPUManagerPolicyOptions"), may_be_off({}, "CPUManagerPolicyOptions")
    (True, False)
    """
    return not feature_gates.get(gate, feature_gates.get("AllBeta", True))


def with_defaults(config: KubeletConfig) -> KubeletConfig:
    """Return the configuration with empty names replaced by their defaults, as the kubelet does while decoding."""
    return replace(
        config,
        cpu_manager_policy=config.cpu_manager_policy or "none",
        memory_manager_policy=config.memory_manager_policy or "None",
        topology_manager_policy=config.topology_manager_policy or "none",
        topology_manager_scope=config.topology_manager_scope or "container",
    )
