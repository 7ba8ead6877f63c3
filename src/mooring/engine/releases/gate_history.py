"""Every feature gate of kubelets 1.31 to 1.38, with the releases in which something about it changed.

A text is read from left to right: ``1.32 alpha off, 1.33 beta on, 1.35 GA on locked, 1.37 removed`` was not known to
1.31, is off by default in 1.32, on from 1.33, locked to on from 1.35 on, and not recognised from 1.37 on. A release
that changes nothing adds nothing. :mod:`mooring.engine.releases.gates` reads the texts.

Source: pkg/features of each release, with the gates of the libraries that register theirs with the kubelet's binary
(apiserver, apiextensions-apiserver, client-go and the component endpoints), component-base (logging, metrics, and the
two switches AllAlpha and AllBeta) and controller-manager (imported by way of cloud-provider). The gates' own names
count, not those of their constants: CustomCPUCFSQuotaPeriod, not CPUCFSQuotaPeriod; RuntimeClassInImageCriApi, not
RuntimeClassInImageCriAPI.
"""

from __future__ import annotations

from collections.abc import Mapping

_GATES: Mapping[str, str] = {
    "1.31 GA on, 1.35 GA on locked, 1.38 removed": "ExecProbeTimeout",
    "1.31 GA on locked, 1.32 removed":
        "CloudDualStackNodeIPs HPAContainerMetrics KMSv2 KMSv2KDF LegacyServiceAccountTokenCleanUp "
        "MinDomainsInPodTopologySpread NewVolumeManagerReconstruction NodeOutOfServiceVolumeDetach PodHostIPs "
        "ServerSideApply ServerSideFieldValidation StableLoadBalancerNodeSet ValidatingAdmissionPolicy "
        "ZeroLimitedNominalConcurrencyShares",
    "1.31 GA on locked, 1.33 removed":
        "APIListChunking AdmissionWebhookMatchConditions AggregatedDiscoveryEndpoint AppArmor AppArmorFields "
        "CPUManager DisableCloudProviders DisableKubeletCloudCredentialProviders EfficientWatchResumption "
        "JobPodFailurePolicy KubeProxyDrainingTerminatingNodes PDBUnhealthyPodEvictionPolicy "
        "PersistentVolumeLastPhaseTransitionTime RemainingItemCount WatchBookmark",
    "1.31 GA on locked, 1.34 removed":
        "DevicePluginCDIDevices ElasticIndexedJob PodDisruptionConditions StatefulSetStartOrdinal",
    "1.31 GA on locked, 1.37 removed": "LogarithmicScaleDown",
    "1.31 GA on locked, 1.38 removed": "PodSchedulingReadiness",
    "1.31 alpha off":
        "APIServingWithRoutine AllAlpha CPUManagerPolicyAlphaOptions CSIVolumeHealth CloudControllerManagerWebhook "
        "CrossNamespaceVolumeDataSource EventedPLEG LoggingAlphaOptions QOSReserved RuntimeClassInImageCriApi "
        "StorageVersionAPI TopologyManagerPolicyAlphaOptions",
    "1.31 alpha off, 1.32 beta off, 1.34 GA on, 1.35 GA on locked, 1.38 removed": "DynamicResourceAllocation",
    "1.31 alpha off, 1.32 beta on, 1.33 beta off, 1.34 beta on": "WatchList",
    "1.31 alpha off, 1.32 beta on, 1.34 GA on locked": "RelaxedEnvironmentVariableValidation",
    "1.31 alpha off, 1.32 beta on, 1.34 GA on locked, 1.37 removed":
        "AnonymousAuthConfigurableEndpoints AuthorizeNodeWithSelectors AuthorizeWithSelectors",
    "1.31 alpha off, 1.32 beta on, 1.34 GA on locked, 1.38 removed": "RecoverVolumeExpansionFailure",
    "1.31 alpha off, 1.32 beta on, 1.35 GA on locked, 1.38 removed": "JobManagedBy",
    "1.31 alpha off, 1.32 removed": "DRAControlPlaneController",
    "1.31 alpha off, 1.33 beta off": "CoordinatedLeaderElection",
    "1.31 alpha off, 1.33 beta off, 1.34 GA on, 1.35 GA on locked, 1.38 removed": "DisableAllocatorDualWrite",
    "1.31 alpha off, 1.33 beta off, 1.35 beta on, 1.36 GA on locked": "ImageVolume",
    "1.31 alpha off, 1.33 beta off, 1.37 GA on": "ClusterTrustBundle ClusterTrustBundleProjection SELinuxMount",
    "1.31 alpha off, 1.33 beta on, 1.34 GA on locked, 1.38 removed": "WinDSR",
    "1.31 alpha off, 1.33 beta on, 1.35 GA on locked, 1.38 removed":
        "InPlacePodVerticalScaling SupplementalGroupsPolicy",
    "1.31 alpha off, 1.33 removed": "VolumeCapacityPriority",
    "1.31 alpha off, 1.34 beta off, 1.36 GA on": "MutatingAdmissionPolicy",
    "1.31 alpha off, 1.34 beta on, 1.36 GA on locked": "KubeletPodResourcesDynamicResources KubeletPodResourcesGet",
    "1.31 alpha off, 1.35 GA on": "InformerResourceVersion",
    "1.31 alpha off, 1.35 beta off, 1.37 GA on": "StorageVersionMigrator",
    "1.31 alpha off, 1.35 beta off, 1.37 beta on": "MaxUnavailableStatefulSet",
    "1.31 alpha off, 1.35 removed": "UserNamespacesPodSecurityStandards",
    "1.31 alpha off, 1.36 GA on": "CustomCPUCFSQuotaPeriod",
    "1.31 alpha off, 1.36 beta on": "ResourceHealthStatus UnknownVersionInteroperabilityProxy",
    "1.31 alpha off, 1.36 removed": "InTreePluginPortworxUnregister",
    "1.31 alpha off, 1.37 beta off": "PodAndContainerStatsFromCRI",
    "1.31 alpha off, 1.37 beta on": "HPAScaleToZero KubeletInUserNamespace MemoryQoS",
    "1.31 alpha on, 1.33 deprecated off, 1.38 removed": "WindowsHostNetwork",
    "1.31 beta off": "AllBeta LocalStorageCapacityIsolationFSQuotaMonitoring",
    "1.31 beta off, 1.32 GA on locked, 1.35 removed": "StrictCostEnforcementForVAP StrictCostEnforcementForWebhooks",
    "1.31 beta off, 1.32 beta on, 1.34 GA on locked, 1.37 removed": "SchedulerQueueingHints",
    "1.31 beta off, 1.33 GA on, 1.34 GA on locked, 1.38 removed": "MultiCIDRServiceAllocator",
    "1.31 beta off, 1.33 beta on, 1.34 GA on locked, 1.37 removed": "OrderedNamespaceDeletion",
    "1.31 beta off, 1.33 beta on, 1.36 GA on locked": "ProcMountType UserNamespacesSupport",
    "1.31 beta off, 1.33 deprecated off locked, 1.36 removed": "WatchFromStorageWithoutResourceVersion",
    "1.31 beta off, 1.34 GA on, 1.36 GA on locked": "VolumeAttributesClass",
    "1.31 beta off, 1.35 beta on": "WatchListClient",
    "1.31 beta off, 1.36 GA on locked": "NodeLogQuery",
    "1.31 beta off, 1.36 beta on, 1.37 GA on locked": "WatchCacheInitializationPostStartHook",
    "1.31 beta off, 1.37 beta on": "ConcurrentWatchObjectDecode",
    "1.31 beta on":
        "APIResponseCompression APIServerIdentity CPUManagerPolicyBetaOptions ContainerCheckpoint ContextualLogging "
        "GracefulNodeShutdown GracefulNodeShutdownBasedOnPodPriority KubeletSeparateDiskGC LoggingBetaOptions "
        "MatchLabelKeysInPodTopologySpread OpenAPIEnums PodDeletionCost ReloadKubeletServerCertificateFile "
        "RotateKubeletServerCertificate StorageVersionHash TopologyManagerPolicyBetaOptions "
        "UnauthenticatedHTTP2DOSMitigation",
    "1.31 beta on, 1.32 GA on, 1.36 GA on locked": "TopologyManagerPolicyOptions",
    "1.31 beta on, 1.32 GA on locked, 1.35 removed":
        "ComponentSLIs CronJobsScheduledAnnotation LoadBalancerIPMode PodIndexLabel SizeMemoryBackedVolumes "
        "StatefulSetAutoDeletePVC",
    "1.31 beta on, 1.32 GA on locked, 1.36 removed": "MemoryManager StructuredAuthorizationConfiguration",
    "1.31 beta on, 1.32 GA on locked, 1.37 removed": "RetryGenerateName",
    "1.31 beta on, 1.32 GA on locked, 1.38 removed":
        "CustomResourceFieldSelectors ServiceAccountTokenJTI ServiceAccountTokenNodeBindingValidation "
        "ServiceAccountTokenPodNodeInfo",
    "1.31 beta on, 1.33 GA on locked":
        "CPUManagerPolicyOptions NodeInclusionPolicyInPodTopologySpread RecursiveReadOnlyMounts",
    "1.31 beta on, 1.33 GA on locked, 1.36 removed":
        "CSIMigrationPortworx HonorPVReclaimPolicy ServiceTrafficDistribution TopologyAwareHints",
    "1.31 beta on, 1.33 GA on locked, 1.37 removed":
        "AnyVolumeDataSource JobBackoffLimitPerIndex JobSuccessPolicy SidecarContainers",
    "1.31 beta on, 1.33 GA on locked, 1.38 removed":
        "CRDValidationRatcheting MatchLabelKeysInPodAffinity NFTablesProxyMode ServiceAccountTokenNodeBinding",
    "1.31 beta on, 1.33 deprecated off, 1.36 deprecated off locked": "SeparateCacheWatchRPC",
    "1.31 beta on, 1.33 deprecated on": "StorageNamespaceIndex",
    "1.31 beta on, 1.34 GA on locked": "KubeletCgroupDriverFromCRI",
    "1.31 beta on, 1.34 GA on locked, 1.37 removed":
        "APIServerTracing ConsistentListFromCache JobPodReplacementPolicy PodLifecycleSleepAction "
        "ResilientWatchCacheInitialization StructuredAuthenticationConfiguration",
    "1.31 beta on, 1.34 GA on locked, 1.38 removed":
        "KubeletTracing NodeSwap SeparateTaintEvictionController WinOverlay",
    "1.31 beta on, 1.35 GA on locked": "ImageMaximumGCAge",
    "1.31 beta on, 1.36 GA on locked": "SELinuxMountReadWriteOncePod",
    "1.31 beta on, 1.37 GA on locked": "PodReadyToStartContainersCondition",
    "1.31 beta on, 1.38 GA on locked": "PortForwardWebsockets TranslateStreamCloseWebsocketRequests",
    "1.31 deprecated off": "AllowDNSOnlyNodeCSR AllowInsecureKubeletCertificateSigningRequests KMSv1",
    "1.31 deprecated off, 1.32 deprecated off locked, 1.35 removed": "AllowServiceLBStatusOnNonLB",
    "1.31 deprecated off, 1.33 deprecated on, 1.36 deprecated on locked": "DisableNodeKubeProxyVersion",
    "1.32 alpha off":
        "CBORServingAndStorage ClientsAllowCBOR ClientsPreferCBOR InPlacePodVerticalScalingExclusiveCPUs "
        "PodLogsQuerySplitStreams",
    "1.32 alpha off, 1.33 beta on": "RemoteRequestHeaderUID SchedulerAsyncPreemption",
    "1.32 alpha off, 1.33 beta on, 1.34 GA on locked, 1.37 removed":
        "PodLifecycleSleepActionAllowZero RelaxedDNSSearchValidation",
    "1.32 alpha off, 1.33 beta on, 1.36 GA on locked": "KubeletFineGrainedAuthz SELinuxChangePolicy",
    "1.32 alpha off, 1.33 beta on, 1.37 GA on locked": "DRAResourceClaimDeviceStatus",
    "1.32 alpha off, 1.33 deprecated off, 1.36 removed": "InPlacePodVerticalScalingAllocatedStatus",
    "1.32 alpha off, 1.34 beta on": "PodLevelResources WindowsGracefulNodeShutdown",
    "1.32 alpha off, 1.34 beta on, 1.36 GA on locked": "DRAAdminAccess ExternalServiceAccountTokenSigner",
    "1.32 alpha off, 1.35 beta on": "KubeletCrashLoopBackOffMax",
    "1.32 alpha off, 1.36 beta on": "ComponentFlagz ComponentStatusz",
    "1.32 alpha off, 1.37 beta on": "AllowUnsafeMalformedObjectDeletion",
    "1.32 alpha off, 1.38 beta on": "WindowsCPUAndMemoryAffinity",
    "1.32 beta off, 1.33 beta on": "ServiceAccountNodeAudienceRestriction",
    "1.32 beta on, 1.33 GA on locked, 1.37 removed": "BtreeWatchCache",
    "1.32 beta on, 1.35 GA on locked, 1.38 removed": "SystemdWatchdog",
    "1.32 deprecated off": "KubeletRegistrationGetOnExistsOnly",
    "1.32 deprecated off, 1.35 deprecated off locked, 1.38 removed": "AllowOverwriteTerminationGracePeriodSeconds",
    "1.33 alpha off": "ContainerStopSignals ReduceDefaultCrashLoopBackOffDecay",
    "1.33 alpha off, 1.34 beta off, 1.35 beta on, 1.36 GA on locked": "MutableCSINodeAllocatableCount",
    "1.33 alpha off, 1.34 beta on": "KubeletServiceAccountTokenForCredentialProviders ListFromCacheSnapshot",
    "1.33 alpha off, 1.34 beta on, 1.35 GA on locked": "PodObservedGenerationTracking",
    "1.33 alpha off, 1.34 beta on, 1.35 GA on locked, 1.38 removed": "PreferSameTrafficDistribution",
    "1.33 alpha off, 1.34 beta on, 1.36 GA on, 1.37 GA on locked": "DRAPrioritizedList",
    "1.33 alpha off, 1.34 beta on, 1.36 GA on locked": "KubeletPSI",
    "1.33 alpha off, 1.35 beta on":
        "DeploymentReplicaSetTerminatingReplicas KubeletEnsureSecretPulledImages PodTopologyLabelsAdmission",
    "1.33 alpha off, 1.35 beta on, 1.37 GA on locked": "HPAConfigurableTolerance",
    "1.33 alpha off, 1.36 beta on, 1.37 GA on, 1.38 GA on locked": "DRADeviceTaints",
    "1.33 alpha off, 1.36 beta on, 1.38 GA on locked": "DRAPartitionableDevices StrictIPCIDRValidation",
    "1.33 alpha off, 1.37 beta on": "StorageCapacityScoring",
    "1.33 beta off, 1.36 deprecated off, 1.37 deprecated off locked": "DeclarativeValidationTakeover",
    "1.33 beta on": "AllowParsingUserUIDFromCertAuth SchedulerPopFromBackoffQ",
    "1.33 beta on, 1.34 GA on locked, 1.37 removed":
        "StreamingCollectionEncodingToJSON StreamingCollectionEncodingToProtobuf",
    "1.33 beta on, 1.36 GA on locked": "DeclarativeValidation InOrderInformers",
    "1.33 beta on, 1.36 deprecated on, 1.37 deprecated on locked": "DisableCPUQuotaWithExclusiveCPUs",
    "1.33 deprecated off, 1.34 removed": "LegacySidecarContainers",
    "1.33 deprecated off, 1.36 deprecated off locked": "GitRepoVolumeDriver",
    "1.33 deprecated on, 1.35 deprecated on locked, 1.38 removed": "AggregatedDiscoveryRemoveBetaType",
    "1.34 GA on locked, 1.35 removed": "ProbeHostPodSecurityStandards",
    "1.34 alpha off": "InPlacePodVerticalScalingExclusiveMemory",
    "1.34 alpha off, 1.35 beta off, 1.37 GA on": "PodCertificateRequest",
    "1.34 alpha off, 1.35 beta on":
        "ClearingNominatedNodeNameAfterBinding ContainerRestartRules NominatedNodeNameForExpectation",
    "1.34 alpha off, 1.35 beta on, 1.37 GA on locked": "HostnameOverride",
    "1.34 alpha off, 1.35 beta on, 1.38 GA on locked": "EnvFiles",
    "1.34 alpha off, 1.36 beta on, 1.37 GA on locked": "DRAExtendedResource RelaxedServiceNameValidation",
    "1.34 alpha off, 1.36 beta on, 1.38 GA on": "DRAConsumableCapacity",
    "1.34 alpha off, 1.36 beta on, 1.38 GA on locked": "DRADeviceBindingConditions",
    "1.34 beta off": "SchedulerAsyncAPICalls",
    "1.34 beta on":
        "DRASchedulerFilterTimeout DetectCacheInconsistency MatchLabelKeysInPodTopologySpreadSelectorMerge "
        "SizeBasedListCostEstimate StatefulSetSemanticRevisionComparison "
        "StructuredAuthenticationConfigurationEgressSelector TokenRequestServiceAccountUIDValidation",
    "1.34 beta on, 1.37 removed": "PreventStaticPodAPIReferences",
    "1.34 deprecated on": "KubeletPodResourcesListUseActivePods",
    "1.35 alpha off":
        "CloudControllerManagerWatchBasedRoutesReconciliation MutablePVNodeAffinity "
        "TaintTolerationComparisonOperators UserNamespacesHostNetworkSupport",
    "1.35 alpha off, 1.36 beta off, 1.37 GA on, 1.38 GA on locked": "DRADeviceTaintRules",
    "1.35 alpha off, 1.36 beta on":
        "ConstrainedImpersonation InPlacePodLevelResourcesVerticalScaling MutablePodResourcesForSuspendedJobs "
        "MutableSchedulingDirectivesForSuspendedJobs RestartAllContainersOnContainerExits",
    "1.35 alpha off, 1.36 beta on, 1.37 GA on locked": "NodeDeclaredFeatures",
    "1.35 alpha off, 1.37 beta off": "GenericWorkload",
    "1.35 alpha off, 1.37 beta on": "VolumeLimitScaling",
    "1.35 alpha off, 1.37 removed": "GangScheduling",
    "1.35 beta off, 1.36 beta on": "CRDObservedGenerationTracking",
    "1.35 beta on":
        "InOrderInformersBatchProcess OpportunisticBatching StructuredAuthenticationConfigurationJWKSMetrics",
    "1.35 beta on, 1.36 GA on locked": "CSIServiceAccountTokenSecrets",
    "1.35 beta on, 1.38 GA on locked": "AuthorizePodWebsocketUpgradeCreatePermission",
    "1.35 deprecated off": "ChangeContainerStatusOnKubeletRestart",
    "1.36 GA on": "AllowServiceExternalIPs",
    "1.36 alpha off":
        "CRIListStreaming ControllerManagerReleaseLeaderElectionLockOnExit DRAListTypeAttributes "
        "DRANodeAllocatableResources DRAResourcePoolStatus ImageVolumeWithDigest WorkloadWithJob",
    "1.36 alpha off, 1.37 beta off": "DRAWorkloadResourceClaims PodLevelResourceManagers",
    "1.36 alpha off, 1.37 beta on":
        "ManifestBasedAdmissionControlConfig NativeHistograms PersistentVolumeClaimUnusedSinceTime PodsAPI",
    "1.36 alpha off, 1.37 removed": "WorkloadAwarePreemption",
    "1.36 alpha off, 1.38 beta off": "TopologyAwareWorkloadScheduling",
    "1.36 alpha off, 1.38 beta on": "ShardedListAndWatch",
    "1.36 beta on":
        "AtomicFIFO ClientsAllowCARotation ClientsAllowTLSCacheGC DRAResourceClaimGranularStatusAuthorization "
        "DeclarativeValidationBeta ReloadKubeletClientCAFile ResourceHealthStatusMessage "
        "StaleControllerConsistencyDaemonSet StaleControllerConsistencyJob StaleControllerConsistencyReplicaSet "
        "StaleControllerConsistencyStatefulSet UnlockWhileProcessingFIFO",
    "1.36 beta on, 1.37 GA on locked": "InPlacePodVerticalScalingInitContainers PLEGOnDemandRelist",
    "1.36 beta on, 1.38 GA on locked": "ExtendWebSocketsToKubelet",
    "1.36 deprecated on": "ServiceCIDRStatusFieldWiping",
    "1.37 alpha off":
        "APIServerWebhookAuthenticationToken ConsistentListFromCacheSkipTimeoutFallback DRADerivedAttributes "
        "DRADeviceCompatibilityGroups DRAOptionalNodeOperations DRAPartitionableDevicesType DefaultPodSysctls "
        "EmptyDirVolumeMode EvictionRequestAPI GRPCContainerProbeTLS H2CContainerProbe "
        "InPlacePodVerticalScalingMemoryBackedVolumes InPlacePodVerticalScalingSchedulerPreemption "
        "InterPodAffinityHostnameFastPath KubeletAllocatedPodsEndpoint NodeLifecycleConditions VolumeBindMountOptions",
    "1.37 alpha off, 1.38 beta off": "CompositePodGroup",
    "1.37 alpha off, 1.38 beta on":
        "AtomicWriteVolumeUserFields KubeProxyNFTablesLocalhostNodePorts SchedulerPreQueueingHints "
        "StatefulSetRecreateStrategy",
    "1.37 alpha off, 1.38 removed": "PodGroupPreemptionPolicy",
    "1.37 beta off, 1.38 GA on": "DRAFractionalCapacityRange",
    "1.37 beta on":
        "EtcdRangeStream ExcludeAdmissionWebhookVirtualResources HPAOptimizedSelectorStore HugepageAwareEviction "
        "NFTablesNetlink NodeControllerLeaseCircuitBreaker PodLevelResourcesFixDefaulting "
        "PodLevelResourcesFixKubeletQOSClass StaleControllerConsistencyHPA WatchListCompression "
        "WebhookRoundTripLoadBalancing",
    "1.37 beta on, 1.38 GA on locked": "HPAGeneration",
    "1.37 deprecated on": "KubeProxyIPVS",
    "1.38 alpha off":
        "CloudNodeAdditionalLabelsReconciliation ConditionalAuthorization ConsistentGetFromCache "
        "DynamicNodeLocalEphemeralVolumes KubeAPIServerWorkloadsTrust ManagedFieldsOptOut ManagedFieldsOptOutClient "
        "RequestCostAggregation SecurityProfileOCI",
    "1.38 beta off": "CertificateSigningRequestMLDSA PodCertificateMLDSA ServiceAccountTokenMLDSA",
    "1.38 beta on":
        "AllocatorPoolBufferCap ClientsAllowConnectionPool OpenAPIV2LazyBuild WatchFromStorageWithoutPrevKV "
        "WatchListClientConcurrentDecoding",
}  # fmt: skip
"""History -> the gates that have it."""

GATE_HISTORY: Mapping[str, str] = dict(
    sorted((name, history) for history, names in _GATES.items() for name in names.split())
)
"""Gate -> its history, in the order of the names."""

_GRADUATED: Mapping[str, str] = {
    "1.14": "HugePages PodPriority",
    "1.17": "CSINodeInfo NodeLease PodShareProcessNamespace",
    "1.18": "BlockVolume CSIBlockVolume TaintBasedEvictions",
    "1.19": "RotateKubeletClientCertificate",
    "1.20": "RuntimeClass StartupProbe SupportNodePidsLimit SupportPodPidsLimit TokenRequest TokenRequestProjection",
    "1.21": "CRIContainerLogRotation ImmutableEphemeralVolumes RunAsGroup Sysctls",
    "1.22": "BoundServiceAccountTokenVolume CSIServiceAccountToken HugePageStorageMediumSize SetHostnameAsFQDN",
    "1.23": "CSIVolumeFSGroupPolicy ConfigurableFSGroupPolicy GenericEphemeralVolume IPv6DualStack TTLAfterFinished",
    "1.24": "ExpandCSIVolumes ExpandInUsePersistentVolumes ExpandPersistentVolumes PodOverhead",
    "1.25": "CSIInlineVolume CSIMigration EphemeralContainers IdentifyPodOS LocalStorageCapacityIsolation",
    "1.26": "CPUManager DevicePlugins KubeletCredentialProviders",
    "1.27": "TopologyManager",
    "1.28": "KubeletPodResources KubeletPodResourcesGetAllocatable",
    "1.32": "MemoryManager",
}
"""Release -> gates that are always on since; most were gone before 1.31.

Source: https://kubernetes.io/docs/reference/command-line-tools-reference/feature-gates-removed/
"""

ALWAYS_ON: Mapping[str, str] = {name: since for since, names in _GRADUATED.items() for name in names.split()}
"""Gate -> the release since which it is always on."""
