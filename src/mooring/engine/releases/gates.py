"""The feature gates that a release of the kubelet recognises: default, stage, lock, and the gates that each needs.

A name outside of a release's gates is refused as ``unrecognized feature gate``; a locked gate and, from 1.35 on, a
missing need stop the kubelet whether or not a manager reads the gate (:mod:`mooring.engine.core.release`).

Source: the histories :mod:`mooring.engine.releases.gate_history` and :mod:`mooring.engine.releases.gates`.

Gates that may be on only while others are on, with the releases in which that changed.

Kubelets before 1.35 do not check it, so no text begins earlier. The form is that of
:data:`mooring.engine.releases.gate_history.GATE_HISTORY`: ``1.35 A B, 1.37 nothing``.

Source: component-base/featuregate (dependencies, from 1.35) and pkg/features of each release.

The policy options that a release of the kubelet has, and the maturity group of each.

A group decides which feature gate guards an option: none for ``stable``, ``...PolicyBetaOptions`` for ``beta``,
``...PolicyAlphaOptions`` for ``alpha``. The texts are histories (:mod:`mooring.engine.releases.rule`).

Source: cpumanager and topologymanager policy_options.go of each release; spec: releases.md section 3.

The features that a node declares in its status, each the name of a gate that is on there (KEP-5328).

Source: component-helpers/nodedeclaredfeatures of each release.

The metrics that a release has, by the names that they have in the newest one: histories of the name; a metric without
one is the same in all releases.

Source: pkg/kubelet/metrics of each release; spec: releases.md section 9.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache

from mooring.engine.core.release import FeatureGates, Gate, Stage
from mooring.engine.releases.gate_history import GATE_HISTORY
from mooring.engine.releases.rule import standing

_REMOVED = "removed"
_NOTHING = "nothing"


@cache
def known_gates(release: str) -> Mapping[str, Gate]:
    """Return the gates of a release such as ``1.34``.

    >>> known_gates("1.31")["InPlacePodVerticalScaling"]
    Gate(default=False, stage=<Stage.ALPHA: 'alpha'>, locked=False, needs=())
    >>> known_gates("1.37")["InPlacePodVerticalScaling"]
    Gate(default=True, stage=<Stage.GA: 'GA'>, locked=True, needs=())
    >>> ["MemoryManager" in known_gates(name) for name in ("1.35", "1.36")]
    [True, False]
    """
    gates = {}
    for name, history in GATE_HISTORY.items():
        words = standing(history, release)
        if words not in ("", _REMOVED):
            needs = GATE_NEEDS.get(name)
            gates[name] = _gate(words, "" if needs is None else standing(needs, release))
    return gates


@cache
def _gate(words: str, needs: str) -> Gate:
    """Return a gate made of the words of its two histories; few differ, so that most gates share one."""
    stage, switch, *lock = words.split(" ")
    return Gate(switch == "on", Stage(stage), bool(lock), () if needs in ("", _NOTHING) else tuple(needs.split(" ")))


GATE_NEEDS: Mapping[str, str] = {
    "AuthorizeNodeWithSelectors": "1.35 AuthorizeWithSelectors",
    "ClusterTrustBundleProjection": "1.35 ClusterTrustBundle",
    "CompositePodGroup": "1.37 GenericWorkload TopologyAwareWorkloadScheduling",
    "DRAAdminAccess": "1.35 DynamicResourceAllocation, 1.38 nothing",
    "DRAConsumableCapacity": "1.35 DynamicResourceAllocation, 1.38 nothing",
    "DRADerivedAttributes": "1.37 DynamicResourceAllocation, 1.38 nothing",
    "DRADeviceBindingConditions": (
        "1.35 DRAResourceClaimDeviceStatus DynamicResourceAllocation, 1.38 DRAResourceClaimDeviceStatus"
    ),
    "DRADeviceCompatibilityGroups": (
        "1.37 DRAPartitionableDevices DynamicResourceAllocation, 1.38 DRAPartitionableDevices"
    ),
    "DRADeviceTaintRules": "1.35 DRADeviceTaints",
    "DRADeviceTaints": "1.35 DynamicResourceAllocation, 1.38 nothing",
    "DRAExtendedResource": "1.35 DynamicResourceAllocation, 1.38 nothing",
    "DRAFractionalCapacityRange": "1.37 DRAConsumableCapacity",
    "DRAListTypeAttributes": "1.36 DynamicResourceAllocation, 1.38 nothing",
    "DRANodeAllocatableResources": "1.36 DynamicResourceAllocation, 1.38 nothing",
    "DRAOptionalNodeOperations": "1.37 DynamicResourceAllocation NodeDeclaredFeatures, 1.38 NodeDeclaredFeatures",
    "DRAPartitionableDevices": "1.35 DynamicResourceAllocation, 1.38 nothing",
    "DRAPartitionableDevicesType": (
        "1.37 DRAPartitionableDevices DRAResourcePoolStatus DynamicResourceAllocation, "
        "1.38 DRAPartitionableDevices DRAResourcePoolStatus"
    ),
    "DRAPrioritizedList": "1.35 DynamicResourceAllocation, 1.38 nothing",
    "DRAResourceClaimGranularStatusAuthorization": (
        "1.36 DRAResourceClaimDeviceStatus DynamicResourceAllocation, 1.38 DRAResourceClaimDeviceStatus"
    ),
    "DRAResourcePoolStatus": "1.36 DynamicResourceAllocation, 1.38 nothing",
    "DRASchedulerFilterTimeout": "1.35 DynamicResourceAllocation, 1.38 nothing",
    "DRAWorkloadResourceClaims": "1.36 DynamicResourceAllocation GenericWorkload, 1.38 GenericWorkload",
    "DeclarativeValidationBeta": "1.36 DeclarativeValidation",
    "DeclarativeValidationTakeover": "1.35 DeclarativeValidation",
    "DisableAllocatorDualWrite": "1.35 MultiCIDRServiceAllocator",
    "DynamicNodeLocalEphemeralVolumes": "1.38 NodeDeclaredFeatures",
    "EventedPLEG": "1.37 PLEGOnDemandRelist",
    "ExtendWebSocketsToKubelet": "1.36 NodeDeclaredFeatures",
    "GangScheduling": "1.35 GenericWorkload",
    "GracefulNodeShutdownBasedOnPodPriority": "1.35 GracefulNodeShutdown",
    "H2CContainerProbe": "1.37 NodeDeclaredFeatures",
    "ImageVolumeWithDigest": "1.36 ImageVolume",
    "InPlacePodLevelResourcesVerticalScaling": (
        "1.35 InPlacePodVerticalScaling NodeDeclaredFeatures PodLevelResources, "
        "1.38 NodeDeclaredFeatures PodLevelResources"
    ),
    "InPlacePodVerticalScalingAllocatedStatus": "1.35 InPlacePodVerticalScaling",
    "InPlacePodVerticalScalingExclusiveCPUs": "1.35 InPlacePodVerticalScaling, 1.38 nothing",
    "InPlacePodVerticalScalingExclusiveMemory": (
        "1.35 InPlacePodVerticalScaling MemoryManager, 1.36 InPlacePodVerticalScaling, 1.38 nothing"
    ),
    "InPlacePodVerticalScalingInitContainers": (
        "1.36 InPlacePodVerticalScaling NodeDeclaredFeatures, 1.38 NodeDeclaredFeatures"
    ),
    "InPlacePodVerticalScalingMemoryBackedVolumes": (
        "1.37 InPlacePodVerticalScaling NodeDeclaredFeatures, 1.38 NodeDeclaredFeatures"
    ),
    "InPlacePodVerticalScalingSchedulerPreemption": "1.37 InPlacePodVerticalScaling, 1.38 nothing",
    "KubeAPIServerWorkloadsTrust": "1.38 ClusterTrustBundle ClusterTrustBundleProjection",
    "KubeletAllocatedPodsEndpoint": "1.37 InPlacePodVerticalScaling, 1.38 nothing",
    "MatchLabelKeysInPodTopologySpreadSelectorMerge": "1.35 MatchLabelKeysInPodTopologySpread",
    "NodeControllerLeaseCircuitBreaker": "1.37 AtomicFIFO",
    "PodCertificateRequest": "1.35 AuthorizeNodeWithSelectors, 1.37 nothing",
    "PodGroupPreemptionPolicy": "1.37 GenericWorkload",
    "PodLevelResourceManagers": "1.36 PodLevelResources",
    "PodLevelResourcesFixDefaulting": "1.37 PodLevelResources",
    "PodLevelResourcesFixKubeletQOSClass": "1.37 PodLevelResources",
    "PodLifecycleSleepActionAllowZero": "1.35 PodLifecycleSleepAction",
    "ProcMountType": "1.35 UserNamespacesSupport",
    "ResourceHealthStatus": "1.35 DynamicResourceAllocation, 1.38 nothing",
    "ResourceHealthStatusMessage": "1.36 ResourceHealthStatus",
    "RestartAllContainersOnContainerExits": "1.35 ContainerRestartRules NodeDeclaredFeatures",
    "ServiceAccountTokenNodeBinding": "1.35 ServiceAccountTokenNodeBindingValidation",
    "StaleControllerConsistencyDaemonSet": "1.36 AtomicFIFO",
    "StaleControllerConsistencyHPA": "1.37 AtomicFIFO",
    "StaleControllerConsistencyJob": "1.36 AtomicFIFO",
    "StaleControllerConsistencyReplicaSet": "1.36 AtomicFIFO",
    "StaleControllerConsistencyStatefulSet": "1.36 AtomicFIFO",
    "StorageVersionAPI": "1.35 APIServerIdentity",
    "StructuredAuthenticationConfigurationEgressSelector": "1.35 StructuredAuthenticationConfiguration, 1.37 nothing",
    "StructuredAuthenticationConfigurationJWKSMetrics": "1.35 StructuredAuthenticationConfiguration, 1.37 nothing",
    "TopologyAwareWorkloadScheduling": "1.36 GenericWorkload",
    "UnknownVersionInteroperabilityProxy": "1.35 APIServerIdentity",
    "UserNamespacesHostNetworkSupport": "1.35 UserNamespacesSupport, 1.36 NodeDeclaredFeatures UserNamespacesSupport",
    "WindowsCPUAndMemoryAffinity": "1.35 MemoryManager, 1.36 nothing",
    "WindowsGracefulNodeShutdown": "1.35 GracefulNodeShutdown",
    "WorkloadAwarePreemption": "1.36 GangScheduling",
    "WorkloadWithJob": "1.36 GenericWorkload",
}


CPU_OPTION_HISTORY: Mapping[str, str] = {
    "full-pcpus-only": "1.31 beta, 1.33 stable",
    "strict-cpu-reservation": "1.32 alpha, 1.33 beta, 1.35 stable",
    "prefer-align-cpus-by-uncorecache": "1.32 alpha, 1.34 beta, 1.36 stable",
    "distribute-cpus-across-numa": "1.31 alpha, 1.33 beta",
    "align-by-socket": "1.31 alpha",
    "distribute-cpus-across-cores": "1.31 alpha",
}
"""CPU manager policy option -> its groups."""

TOPOLOGY_OPTION_HISTORY: Mapping[str, str] = {
    "prefer-closest-numa-nodes": "1.31 beta, 1.32 stable",
    "max-allowable-numa-nodes": "1.31 beta, 1.35 stable",
}
"""Topology manager policy option -> its groups."""


@cache
def cpu_option_groups(release: str) -> Mapping[str, str]:
    """Return the CPU manager's options of a release such as ``1.34``, with their groups.

    >>> sorted(cpu_option_groups("1.31").items())[:2]
    [('align-by-socket', 'alpha'), ('distribute-cpus-across-cores', 'alpha')]
    >>> "strict-cpu-reservation" in cpu_option_groups("1.31")
    False
    """
    return _groups(CPU_OPTION_HISTORY, release)


@cache
def topology_option_groups(release: str) -> Mapping[str, str]:
    """Return the topology manager's options of a release, with their groups.

    >>> topology_option_groups("1.34")
    {'prefer-closest-numa-nodes': 'stable', 'max-allowable-numa-nodes': 'beta'}
    """
    return _groups(TOPOLOGY_OPTION_HISTORY, release)


def _groups(histories: Mapping[str, str], release: str) -> dict[str, str]:
    groups = {name: standing(history, release) for name, history in histories.items()}
    return {name: group for name, group in groups.items() if group}


_DECLARED: Mapping[str, str] = {
    "DRANodeAllocatableResources": "1.37 declared",
    "DRAOptionalNodeOperations": "1.37 declared",
    "ExtendWebSocketsToKubelet": "1.36 declared",
    "InPlacePodLevelResourcesVerticalScaling": "1.35 declared",
    "InPlacePodVerticalScalingInitContainers": "1.36 declared",
    "InPlacePodVerticalScalingMemoryBackedVolumes": "1.37 declared",
    "PodCertificateMLDSA": "1.38 declared",
    "RestartAllContainersOnContainerExits": "1.35 declared",
    "SecurityProfileOCI": "1.38 declared",
    "UserNamespacesHostNetworkSupport": "1.36 declared",
    "VolumeBindMountOptions": "1.37 declared",
}


def declared_features(release: str, gates: FeatureGates) -> tuple[str, ...]:
    """Return what a node declares; its container runtime is taken to do its part.

    Kubelet 1.35, with its alpha gate on, declares GuaranteedQoSPodCPUResize too, which no scheduler asks for.

    >>> declared_features("1.36", FeatureGates({"NodeDeclaredFeatures": True, "ExtendWebSocketsToKubelet": True}))
    ('ExtendWebSocketsToKubelet',)
    """
    if not gates["NodeDeclaredFeatures"]:
        return ()
    return tuple(name for name, history in _DECLARED.items() if standing(history, release) and gates[name])


def _since(release: str, *names: str) -> dict[str, str]:
    return {f"kubelet_{name}": f"{release} kubelet_{name}" for name in names}


METRIC_HISTORY: Mapping[str, str] = {
    **_since(
        "1.32",
        "cpu_manager_shared_pool_size_millicores",
        "cpu_manager_exclusive_cpu_allocation_count",
        "container_aligned_compute_resources_count",
    ),
    **_since("1.33", "container_aligned_compute_resources_failure_count", "cpu_manager_allocation_per_numa"),
    **_since(
        "1.34",
        "container_requested_resizes_total",
        "pod_deferred_accepted_resizes_total",
        "pod_in_progress_resizes",
        "pod_infeasible_resizes_total",
        "pod_pending_resizes",
        "pod_resize_duration_milliseconds",
    ),
    **_since("1.37", "pod_deferred_resize_duration_seconds", "pod_level_resources_admission_total"),
    **_since("1.38", "device_plugin_devices"),
    "kubelet_resource_manager_allocations_total": (
        "1.36 resource_manager_allocations_total, 1.37 kubelet_resource_manager_allocations_total"
    ),
    "kubelet_resource_manager_allocation_errors_total": (
        "1.36 resource_manager_allocation_errors_total, 1.37 kubelet_resource_manager_allocation_errors_total"
    ),
    "kubelet_resource_manager_container_assignments_total": (
        "1.36 resource_manager_container_assignments, 1.37 kubelet_resource_manager_container_assignments_total"
    ),
}
"""Metric -> its names."""


def metric_name(metric: str, release: str) -> str:
    """Return the name that a metric of the newest release has in another one; empty when it does not have it.

    >>> metric_name("kubelet_resource_manager_allocations_total", "1.36")
    'resource_manager_allocations_total'
    >>> metric_name("kubelet_cpu_manager_allocation_per_numa", "1.32")
    ''
    """
    history = METRIC_HISTORY.get(metric)
    return metric if history is None else standing(history, release)
