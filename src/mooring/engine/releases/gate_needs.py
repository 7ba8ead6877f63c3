"""Gates that may be on only while others are on, with the releases in which that changed.

Kubelets before 1.35 do not check it, so no text begins earlier. The form is that of
:data:`mooring.engine.releases.gate_history.GATE_HISTORY`: ``1.35 A B, 1.37 nothing``.

Source: component-base/featuregate (dependencies, from 1.35) and pkg/features of each release.
"""

from __future__ import annotations

from collections.abc import Mapping

GATE_NEEDS: Mapping[str, str] = {
    "AuthorizeNodeWithSelectors": "1.35 AuthorizeWithSelectors",
    "ClusterTrustBundleProjection": "1.35 ClusterTrustBundle",
    "CompositePodGroup": "1.37 GenericWorkload TopologyAwareWorkloadScheduling",
    "DRAAdminAccess": "1.35 DynamicResourceAllocation",
    "DRAConsumableCapacity": "1.35 DynamicResourceAllocation",
    "DRADerivedAttributes": "1.37 DynamicResourceAllocation",
    "DRADeviceBindingConditions": "1.35 DRAResourceClaimDeviceStatus DynamicResourceAllocation",
    "DRADeviceCompatibilityGroups": "1.37 DRAPartitionableDevices DynamicResourceAllocation",
    "DRADeviceTaintRules": "1.35 DRADeviceTaints",
    "DRADeviceTaints": "1.35 DynamicResourceAllocation",
    "DRAExtendedResource": "1.35 DynamicResourceAllocation",
    "DRAFractionalCapacityRange": "1.37 DRAConsumableCapacity",
    "DRAListTypeAttributes": "1.36 DynamicResourceAllocation",
    "DRANodeAllocatableResources": "1.36 DynamicResourceAllocation",
    "DRAOptionalNodeOperations": "1.37 DynamicResourceAllocation NodeDeclaredFeatures",
    "DRAPartitionableDevices": "1.35 DynamicResourceAllocation",
    "DRAPartitionableDevicesType": "1.37 DRAPartitionableDevices DRAResourcePoolStatus DynamicResourceAllocation",
    "DRAPrioritizedList": "1.35 DynamicResourceAllocation",
    "DRAResourceClaimGranularStatusAuthorization": "1.36 DRAResourceClaimDeviceStatus DynamicResourceAllocation",
    "DRAResourcePoolStatus": "1.36 DynamicResourceAllocation",
    "DRASchedulerFilterTimeout": "1.35 DynamicResourceAllocation",
    "DRAWorkloadResourceClaims": "1.36 DynamicResourceAllocation GenericWorkload",
    "DeclarativeValidationBeta": "1.36 DeclarativeValidation",
    "DeclarativeValidationTakeover": "1.35 DeclarativeValidation",
    "DisableAllocatorDualWrite": "1.35 MultiCIDRServiceAllocator",
    "EventedPLEG": "1.37 PLEGOnDemandRelist",
    "ExtendWebSocketsToKubelet": "1.36 NodeDeclaredFeatures",
    "GangScheduling": "1.35 GenericWorkload",
    "GracefulNodeShutdownBasedOnPodPriority": "1.35 GracefulNodeShutdown",
    "H2CContainerProbe": "1.37 NodeDeclaredFeatures",
    "ImageVolumeWithDigest": "1.36 ImageVolume",
    "InPlacePodLevelResourcesVerticalScaling": "1.35 InPlacePodVerticalScaling NodeDeclaredFeatures PodLevelResources",
    "InPlacePodVerticalScalingAllocatedStatus": "1.35 InPlacePodVerticalScaling",
    "InPlacePodVerticalScalingExclusiveCPUs": "1.35 InPlacePodVerticalScaling",
    "InPlacePodVerticalScalingExclusiveMemory": (
        "1.35 InPlacePodVerticalScaling MemoryManager, 1.36 InPlacePodVerticalScaling"
    ),
    "InPlacePodVerticalScalingInitContainers": "1.36 InPlacePodVerticalScaling NodeDeclaredFeatures",
    "InPlacePodVerticalScalingMemoryBackedVolumes": "1.37 InPlacePodVerticalScaling NodeDeclaredFeatures",
    "InPlacePodVerticalScalingSchedulerPreemption": "1.37 InPlacePodVerticalScaling",
    "KubeletAllocatedPodsEndpoint": "1.37 InPlacePodVerticalScaling",
    "MatchLabelKeysInPodTopologySpreadSelectorMerge": "1.35 MatchLabelKeysInPodTopologySpread",
    "NodeControllerLeaseCircuitBreaker": "1.37 AtomicFIFO",
    "PodCertificateRequest": "1.35 AuthorizeNodeWithSelectors, 1.37 nothing",
    "PodGroupPreemptionPolicy": "1.37 GenericWorkload",
    "PodLevelResourceManagers": "1.36 PodLevelResources",
    "PodLevelResourcesFixDefaulting": "1.37 PodLevelResources",
    "PodLevelResourcesFixKubeletQOSClass": "1.37 PodLevelResources",
    "PodLifecycleSleepActionAllowZero": "1.35 PodLifecycleSleepAction",
    "ProcMountType": "1.35 UserNamespacesSupport",
    "ResourceHealthStatus": "1.35 DynamicResourceAllocation",
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
