"""The fields of a KubeletConfiguration, by name.

Source: k8s.io/kubelet/config/v1beta1 at v0.37.1. Only :data:`READ` decides anything here; the others are
known so that a misspelt name can be told from one that does not matter.
"""

from __future__ import annotations


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


READ = _names("""
    cpuManagerPolicy cpuManagerPolicyOptions cpuManagerReconcilePeriod memoryManagerPolicy reservedMemory
    topologyManagerPolicy topologyManagerScope topologyManagerPolicyOptions reservedSystemCPUs kubeReserved
    systemReserved kubeReservedCgroup systemReservedCgroup evictionHard mergeDefaultEvictionSettings
    cpuCFSQuota cpuCFSQuotaPeriod featureGates maxPods
""")
"""Fields that the resource managers read (spec: configuration.md section 1)."""

KNOWN = READ | _names("""
    address allowedUnsafeSysctls apiVersion authentication authorization cgroupDriver cgroupRoot cgroupsPerQOS
    clusterDNS clusterDomain configMapAndSecretChangeDetectionStrategy containerLogMaxFiles
    containerLogMaxSize containerLogMaxWorkers containerLogMonitorInterval containerRuntimeEndpoint
    contentType crashLoopBackOff defaultPodSysctls enableContentionProfiling enableControllerAttachDetach
    enableDebugFlagsHandler enableDebuggingHandlers enableProfilingHandler enableServer enableSystemLogHandler
    enableSystemLogQuery enforceNodeAllocatable eventBurst eventRecordQPS evictionMaxPodGracePeriod
    evictionMinimumReclaim evictionPressureTransitionPeriod evictionSoft evictionSoftGracePeriod failCgroupV1
    failSwapOn fileCheckFrequency hairpinMode healthzBindAddress healthzPort httpCheckFrequency
    imageGCHighThresholdPercent imageGCLowThresholdPercent imageMaximumGCAge imageMinimumGCAge
    imagePullCredentialsVerificationPolicy imageServiceEndpoint iptablesDropBit iptablesMasqueradeBit
    kernelMemcgNotification kind kubeAPIBurst kubeAPIQPS kubeletCgroups localStorageCapacityIsolation logging
    makeIPTablesUtilChains maxOpenFiles maxParallelImagePulls memoryReservationPolicy memorySwap
    memoryThrottlingFactor nodeLeaseDurationSeconds nodeStatusMaxImages nodeStatusReportFrequency
    nodeStatusUpdateFrequency oomScoreAdj podCIDR podLogsDir podPidsLimit podsPerCore port
    preloadedImagesVerificationAllowlist protectKernelDefaults providerID qosReserved readOnlyPort
    registerNode registerWithTaints registryBurst registryPullQPS resolvConf rotateCertificates runOnce
    runtimeRequestTimeout seccompDefault serializeImagePulls serverTLSBootstrap showHiddenMetricsForVersion
    shutdownGracePeriod shutdownGracePeriodByPodPriority shutdownGracePeriodCriticalPods singleProcessOOMKill
    staticPodPath staticPodURL staticPodURLHeader streamingConnectionIdleTimeout syncFrequency systemCgroups
    tlsCertFile tlsCipherSuites tlsCurvePreferences tlsMinVersion tlsPrivateKeyFile tracing userNamespaces
    volumePluginDir volumeStatsAggPeriod
""")
"""Every field of the type."""
