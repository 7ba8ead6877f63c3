"""The named rules of older kubelets: how long each held, what it says, and where it is from.

A rule is in the code beside the newest rule that it replaces, under the same name
(:class:`mooring.engine.core.release.ReleaseRules`). Its span stands here and nowhere else.

Source: spec: releases.md sections 5 to 8.
"""

from __future__ import annotations

from mooring.engine.releases.rule import UNTIL_137, ReleaseRule

RULES = (
    *UNTIL_137,
    ReleaseRule(
        "smt-check-before-existing", until="1.36", options=("full-pcpus-only",), codes=("MOOR-121", "MOOR-122"),
        recording="cpu-packed-136-0020", recording_after="delta-align-distribute-000",
        says="full-pcpus-only is enforced before an existing assignment counts, so that a running container can be "
        "rejected when it is admitted again",
        instead="an existing assignment wins",
        source="cpumanager, static policy, Allocate; spec: releases.md section 5, rule 1",
    ),
    ReleaseRule(
        "distribute-ignores-sockets", until="1.36", options=("align-by-socket", "distribute-cpus-across-numa"),
        codes=("MOOR-174",), recording="cpu-distributed-136-0053", recording_after="delta-align-distribute-027",
        says="distribute-cpus-across-numa chooses combinations of NUMA nodes without regard to align-by-socket, and "
        "stops at the first balance of 0",
        instead="combinations in one socket win, and the share is capped in the search",
        source="cpumanager, distribute; spec: releases.md section 5, rule 2",
    ),
    ReleaseRule(
        "distribute-claims-full-share", until="1.36", options=("distribute-cpus-across-numa",),
        codes=("MOOR-124", "MOOR-174"), recording_after="delta-align-distribute-027",
        says="every node of the chosen combination is asked for the full share; where one has less, it gives nothing, "
        "and the CPUs that are missing are an accounting error",
        instead="the share is capped to the poorest node of the combination",
        source="cpumanager, distribute; spec: releases.md section 5, rule 3",
    ),
    ReleaseRule(
        "empty-memory-request-is-served", until="1.36", recording="delta-no-memory-request-009",
        recording_after="delta-no-memory-request-013",
        says="a container without memory requests in a pod that is Guaranteed by its pod-level resources runs through "
        "hint, extension and group check with an empty request, and its entry in the state is an empty list",
        instead="such a container is left out",
        source="memorymanager, static policy; spec: releases.md section 5, rule 4",
    ),
    ReleaseRule(
        "empty-pod-resources-decide-qos", until="1.36", codes=("MOOR-164",), recording="delta-empty-pod-resources-002",
        recording_after="delta-empty-pod-resources-002",
        says="an empty spec.resources decides the QoS class while PodLevelResources is on",
        instead="only a spec.resources with a supported resource does",
        source="QoS class; spec: releases.md section 5, rule 5",
    ),
    ReleaseRule(
        "reserved-cpu-not-rounded", until="1.36", codes=("MOOR-231",), recording="delta-reservation-rounding-000",
        recording_after="delta-reservation-rounding-000",
        says="reserved amounts of cpu are kept exactly, and their sum is rounded up to CPUs",
        instead="each amount is first rounded to the nearest 0.001 CPU",
        source="kubelet command, reservation; spec: releases.md section 5, rule 6",
    ),
    ReleaseRule(
        "resize-asks-like-admission", until="1.36", codes=("MOOR-184",),
        says="a resize asks the managers as the admission of a new pod does, so that exclusive CPUs of another number "
        "are an impossible hint, and a container without CPUs of its own may get some",
        instead="the CPU manager and the memory manager have no opinion about a resize and change nothing",
        source="all managers, operation resize; spec: releases.md section 5, rule 8",
    ),
    ReleaseRule(
        "memory-pinning-counted-first", until="1.36",
        says="the metric of memory pinning requests counts a container before its requests are read",
        instead="it counts containers that ask for memory",
        source="memorymanager, static policy, Allocate; spec: releases.md section 9",
    ),
    ReleaseRule(
        "device-hints-over-all-nodes", until="1.35", codes=("MOOR-132",), recording="delta-device-nodes-033",
        recording_after="delta-device-nodes-033", says="hints for devices run over all NUMA nodes of the machine",
        instead="hints run over the nodes with a device of that resource",
        source="devicemanager, hints; spec: releases.md section 6, rule 1",
    ),
    ReleaseRule(
        "resize-beyond-node-refused", until="1.35", codes=("MOOR-141", "MOOR-142"),
        says="a resize to more memory or CPUs than the whole node has is Infeasible: Node didn't have enough capacity",
        instead="the node resources check defers it",
        source="kubelet, canResizePod; spec: releases.md section 6, rule 11",
    ),
    ReleaseRule(
        "pod-level-pods-by-containers-without-gate", until="1.35", codes=("MOOR-166",), recording="podlevel-135-0046",
        recording_after="podlevel-136-0026",
        says="while PodLevelResources is off, pods with resources of their own are handled by the requests of their "
        "containers",
        instead="such pods get no exclusive CPUs, no memory and no hints",
        source="cpumanager and memorymanager; spec: releases.md section 6, rule 3",
    ),
    ReleaseRule(
        "status-resources-decide-size", until="1.34", codes=("MOOR-106",), recording="delta-status-sizes-004",
        recording_after="delta-status-sizes-004",
        says="while InPlacePodVerticalScaling is on, allocatedResources of a container's status replace its requests",
        instead="the requests of the specification count",
        source="cpumanager and memorymanager; spec: releases.md section 7, rule 1",
    ),
    ReleaseRule(
        "static-policies-refuse-every-resize", since="1.32", until="1.33", codes=("MOOR-181",),
        says="the static policy of the CPU manager or the memory manager refuses every resize of a Guaranteed pod, "
        "whatever changes, unless InPlacePodVerticalScalingExclusiveCPUs is on",
        instead="each policy refuses a change of its own resource, and each has its gate",
        source="kubelet, canResizePod; spec: releases.md section 8 (1.33 to 1.34, rule 7)",
    ),
    ReleaseRule(
        "resize-leaves-eviction-threshold", until="1.33", codes=("MOOR-142",),
        says="a resize is Infeasible beyond the allocatable of the node's status, without eviction threshold and huge "
        "pages",
        instead="it is Infeasible beyond capacity less systemReserved and kubeReserved",
        source="kubelet, canResizePod; spec: releases.md section 8 (1.33 to 1.34, rule 8)",
    ),
    ReleaseRule(
        "resize-counts-sidecars-alone", until="1.33", codes=("MOOR-141", "MOOR-142"),
        says="what a resized pod requests of the whole node counts a sidecar as an init container that runs alone",
        instead="sidecars count beside the other containers",
        source="kubelet, GetResourceRequest; spec: releases.md section 8 (1.33 to 1.34, rule 9)",
    ),
    ReleaseRule(
        "partial-uncore-rounds-down", until="1.33", options=("prefer-align-cpus-by-uncorecache",), codes=("MOOR-172",),
        recording="delta-odd-uncore-010", recording_after="delta-odd-uncore-010",
        says="the cores needed from a cache group are rounded down and must make the exact number of CPUs, so that an "
        "odd number never fits on machines with SMT",
        instead="the cores are rounded up and a CPU too many is dropped",
        source="cpumanager, prefer-align-cpus-by-uncorecache; spec: releases.md section 8",
    ),
    ReleaseRule(
        "pod-level-pods-by-containers", until="1.33", codes=("MOOR-166",), recording="delta-pod-level-gate-on-003",
        recording_after="delta-pod-level-gate-on-003",
        says="the managers do not know pod-level resources; containers' requests decide while the QoS class comes from "
        "the pod",
        instead="pods with resources of their own get no exclusive CPUs, no memory and no hints",
        source="cpumanager and memorymanager; spec: releases.md section 8",
    ),
    ReleaseRule(
        "pod-level-pods-admitted-without-gate", until="1.33", codes=("MOOR-145",),
        says="the kubelet admits pods with resources of their own while PodLevelResources is off",
        instead="it rejects them before it asks the managers: PodLevelResourcesNotSupported",
        source="kubelet, admission; spec: releases.md section 8 (1.33 to 1.34, rule 5) and section 10",
    ),
    ReleaseRule(
        "huge-page-limits-beside-requests", since="1.33", until="1.33",
        says="pod-level limits of huge pages default to those of the containers even where the pod-level requests name "
        "them",
        instead="they get that default only where neither the pod-level limits nor the pod-level requests name them",
        source="API server, pod-level defaults; spec: releases.md section 8 (1.33 to 1.34, rule 6)",
    ),
    ReleaseRule(
        "static-memory-policy-not-asked", until="1.32", codes=("MOOR-181",),
        says="the memory manager policy refuses no resize", instead="Static refuses every resize of a Guaranteed pod",
        source="kubelet, canResizePod; spec: releases.md section 8 (1.32 to 1.33, rule 7)",
    ),
    ReleaseRule(
        "status-of-init-containers-ignored", until="1.32", recording="delta-status-sizes-015",
        recording_after="delta-status-sizes-002", says="the status of an init container does not count for its size",
        instead="the status of a sidecar counts too",
        source="cpumanager and memorymanager; spec: releases.md section 8",
    ),
    ReleaseRule(
        "huge-page-requests-of-containers", since="1.32", until="1.32",
        says="pod-level requests of huge pages default to those of the containers, as those of cpu and memory do, and "
        "pod-level limits of huge pages have no default",
        instead="the pod-level limits default to those of the containers, and the requests to the pod-level limits",
        source="API server, pod-level defaults; spec: releases.md section 8 (1.32 to 1.33, rule 6)",
    ),
    ReleaseRule(
        "eviction-defaults-not-merged", until="1.32", codes=("MOOR-501",), recording="delta-merge-eviction-006",
        recording_after="delta-merge-eviction-007",
        says="mergeDefaultEvictionSettings is an unknown field and is ignored",
        instead="it fills in the default thresholds",
        source="kubelet command, reservation; spec: releases.md section 8",
    ),
    ReleaseRule(
        "uncore-alignment-not-counted", until="1.32",
        says="the metric of aligned containers has no boundary uncore_cache",
        instead="containers inside one uncore cache are counted",
        source="cpumanager, metrics; spec: releases.md section 9",
    ),
    ReleaseRule(
        "alignment-not-counted-at-start", until="1.32",
        says="the metric of aligned containers has no series before the first is counted",
        instead="its series are 0 at the start",
        source="cpumanager and topologymanager, metrics; spec: releases.md section 9",
    ),
    ReleaseRule(
        "exclusive-cpus-summed-at-start", until="1.32",
        says="the metric of exclusive CPUs begins with the sum of all assignments",
        instead="it begins with their union", source="cpumanager, metrics; spec: releases.md section 9",
    ),
    ReleaseRule(
        "capitalized-topology-option-texts", until="1.32", codes=("MOOR-243",), recording="delta-topology-option-004",
        recording_after="delta-topology-option-004",
        says="the refusal of a topology manager option whose group is not enabled begins with Topology Manager Policy",
        instead="it begins with topology manager policy",
        source="topologymanager, policy options; spec: releases.md section 8",
    ),
    ReleaseRule(
        "static-cpu-policy-not-asked", until="1.31", codes=("MOOR-181",),
        says="the CPU manager policy refuses no resize", instead="static refuses every resize of a Guaranteed pod",
        source="kubelet, canResizePod; spec: releases.md section 8 (1.31 to 1.32, rule 12)",
    ),
    ReleaseRule(
        "smt-text-needs-free-cores", until="1.31", options=("full-pcpus-only",), codes=("MOOR-121", "MOOR-122"),
        recording="state-131-0098", recording_after="config-errors-132-0045",
        says="with no physical CPU left every request is refused as if it were no multiple of the core size",
        instead="it is refused because no physical CPUs are free",
        source="cpumanager, static policy, Allocate; spec: releases.md section 8",
    ),
    ReleaseRule(
        "violating-hints-accepted", until="1.31", codes=("MOOR-114",), recording="delta-memory-groups-024",
        recording_after="delta-memory-groups-024",
        says="a memory hint that cuts into a group of NUMA nodes is taken as it is",
        instead="it is refused: preferred hint violates NUMA node allocation",
        source="memorymanager, static policy, Allocate; spec: releases.md section 8",
    ),
    ReleaseRule(
        "memory-file-compared-by-number", until="1.31", codes=("MOOR-332",), recording="delta-group-distribution-007",
        recording_after="delta-group-distribution-007",
        says="every number of every NUMA node in the memory manager's file must equal the machine's",
        instead="free and reserved amounts are compared as sums over a group of NUMA nodes",
        source="memorymanager, static policy, Start; spec: releases.md section 8",
    ),
    ReleaseRule(
        "best-effort-memory-policy-unknown", until="1.31", codes=("MOOR-209",), recording="delta-memory-policy-000",
        recording_after="delta-memory-policy-000", says="the memory manager policy BestEffort is an unknown policy",
        instead="it is known, and refused because it is not available on Linux",
        source="memorymanager, NewManager; spec: releases.md section 8",
    ),
    ReleaseRule(
        "machine-not-read-for-policy-none", until="1.31", codes=("MOOR-208",),
        says="the CPU manager reads the machine's CPUs for the static policy only",
        instead="it reads them for policy none too, so that a machine without CPUs stops the kubelet",
        source="cpumanager, NewManager; spec: releases.md section 8 (1.31 to 1.32, rule 6)",
    ),
    ReleaseRule(
        "pod-resources-unknown", until="1.31", codes=("MOOR-512",), recording_after="delta-pod-level-gate-on-003",
        says="spec.resources is an unknown field and is dropped",
        instead="the field exists, behind the gate PodLevelResources", source="API; spec: releases.md section 8",
    ),
    ReleaseRule(
        "gates-checked-after-decoding", until="1.31", codes=("MOOR-202",), recording="config-errors-131-0090",
        recording_after="delta-gate-036",
        says="wrong feature gates are refused after the configuration was decoded, with the bare text",
        instead="they are refused while the configuration is decoded",
        source="kubelet command, feature gates; spec: releases.md section 2",
    ),
    ReleaseRule(
        "default-pod-sysctls-unknown", until="1.36", codes=("MOOR-203", "MOOR-501"),
        says="defaultPodSysctls is an unknown field and is ignored",
        instead="it is refused while the gate DefaultPodSysctls is off", source="kubelet configuration, validation",
    ),
    ReleaseRule(
        "memory-throttling-needs-no-gate", until="1.36", codes=("MOOR-203",),
        says="memoryThrottlingFactor may be set whether MemoryQoS is on or off",
        instead="a value other than 0.9 is refused while MemoryQoS is off",
        source="kubelet configuration, validation; spec: releases.md section 5, rule 9",
    ),
    ReleaseRule(
        "memory-reservation-policy-unknown", until="1.35", codes=("MOOR-203", "MOOR-501"),
        says="memoryReservationPolicy is an unknown field and is ignored",
        instead="it is None or TieredReservation, the latter with MemoryQoS only",
        source="kubelet configuration, validation; spec: releases.md section 6, rule 10",
    ),
    ReleaseRule(
        "image-minimum-gc-age-not-checked", until="1.35", codes=("MOOR-203",),
        says="a negative imageMinimumGCAge is accepted", instead="it is refused",
        source="kubelet configuration, validation; spec: releases.md section 6, rule 10",
    ),
    ReleaseRule(
        "log-query-text-names-handler", until="1.34", codes=("MOOR-203",),
        says="the refusal of enableSystemLogQuery without NodeLogQuery names enableSystemLogHandler",
        instead="it names enableSystemLogQuery",
        source="kubelet configuration, validation; spec: releases.md section 7, rule 8",
    ),
    ReleaseRule(
        "run-once-accepted", until="1.31", codes=("MOOR-203",), says="runOnce is accepted", instead="it is refused",
        source="kubelet configuration, validation",
    ),
)  # fmt: skip
"""Every named rule, the newest changes first."""
