"""What a named rule of older kubelets is, and those of 1.37 and older that v1.38.0-beta.0, a preview, does not follow.

Source: spec: releases.md sections 5 to 8, preview.md.

Histories: texts that say in which releases something changed, and to what.

``1.32 alpha off, 1.33 beta on`` says nothing of 1.31, ``alpha off`` of 1.32, and ``beta on`` of 1.33 and later.
"""

from __future__ import annotations

from mooring.lazy import dataclass

RELEASE_NAMES = ("1.31", "1.32", "1.33", "1.34", "1.35", "1.36", "1.37", "1.38")
"""All known releases, the oldest first; those behind the newest that is out are previews."""


@dataclass(frozen=True, slots=True)
class ReleaseRule:
    """One rule that a range of older releases follows."""

    name: str
    """With hyphens; the field of :class:`~mooring.engine.core.release.ReleaseRules` has underscores."""
    until: str
    """The last release that follows it."""
    says: str
    """What these releases do, in one sentence."""
    instead: str
    """What the next release does."""
    source: str
    """The kubelet's component and the section of the specification."""
    since: str = RELEASE_NAMES[0]
    """The first release that follows it; the oldest known one unless the rule came later."""
    options: tuple[str, ...] = ()
    """CPU manager policy options that must be on for it to matter."""
    codes: tuple[str, ...] = ()
    """Codes of what the rule decides about; their pages name it."""
    recording: str = ""
    """A recorded scenario of its last release that fails without it; empty when no recording separates it there."""
    recording_after: str = ""
    """A recorded scenario of the next release that fails with it; empty when no recording separates it there."""

    @property
    def span(self) -> str:
        """The releases that follow it, in words: ``1.31 to 1.36``."""
        return self.until if self.since == self.until else f"{self.since} to {self.until}"

    @property
    def after(self) -> str:
        """The first release that does not follow it any more."""
        return RELEASE_NAMES[RELEASE_NAMES.index(self.until) + 1]

    @property
    def releases(self) -> tuple[str, ...]:
        """The releases that follow the rule, the oldest first."""
        return RELEASE_NAMES[RELEASE_NAMES.index(self.since) : RELEASE_NAMES.index(self.until) + 1]


def standing(history: str, release: str) -> str:
    """Return what a history says of one release; empty before its first part.

    >>> [standing("1.32 alpha off, 1.33 beta on", release) for release in ("1.31", "1.32", "1.37")]
    ['', 'alpha off', 'beta on']
    """
    minor = _minor(release)
    while history:
        history, _, last = history.rpartition(", ")
        since, _, words = last.partition(" ")
        if _minor(since) <= minor:
            return words
    return ""


def _minor(release: str) -> int:
    return int(release[2:])


UNTIL_137 = (
    ReleaseRule(
        "spread-by-cpu-number", until="1.37", options=("distribute-cpus-across-cores",), codes=("MOOR-175",),
        recording="difference-spread", recording_after="difference-spread",
        says="distribute-cpus-across-cores takes the available CPUs of a socket in ascending order",
        instead="it takes one CPU of each core before second ones, beginning with the cores of which least is "
        "available",
        source="cpumanager, cpuAccumulator; spec: preview.md section 1",
    ),
    ReleaseRule(
        "average-sizes", until="1.37", codes=("MOOR-312", "MOOR-406"), recording="difference-core-size",
        recording_after="difference-core-size",
        says="a core or socket counts as free when as many of its CPUs are available as the machine's cores or sockets "
        "have on average, so that a CPU can get two owners where they are uneven",
        instead="it counts as free when all of its CPUs are available",
        source="cpumanager, cpuAccumulator; spec: preview.md section 2",
    ),
    ReleaseRule(
        "uncore-by-average-size", since="1.32", until="1.37", options=("prefer-align-cpus-by-uncorecache",),
        codes=("MOOR-172", "MOOR-520"), recording="difference-uncore-uneven",
        recording_after="difference-uncore-uneven",
        says="whole uncore caches are taken only while at least as many CPUs are needed as a cache has on average, and "
        "a cache that two NUMA nodes share is counted twice",
        instead="each free cache that is not larger than the need is taken whole, and counted once",
        source="cpumanager, takeByTopologyNUMAPacked; spec: preview.md section 3",
    ),
    ReleaseRule(
        "distribute-ignores-hint-width", until="1.37", options=("distribute-cpus-across-numa",),
        codes=("MOOR-171", "MOOR-174"), recording="difference-hint-nodes", recording_after="difference-hint-nodes",
        says="distribute-cpus-across-numa takes CPUs of as few NUMA nodes as hold them, however many nodes the hint "
        "has",
        instead="it takes them of at least as many nodes as the hint has, where that is possible",
        source="cpumanager, takeByTopologyNUMADistributed; spec: preview.md section 4",
    ),
    ReleaseRule(
        "saved-combo", until="1.37", options=("distribute-cpus-across-numa",), codes=("MOOR-174",),
        recording="delta-claim-many-nodes-010", recording_after="cpu-distributed-138-0021",
        says="distribute-cpus-across-numa overwrites the best combination of NUMA nodes by the last one that it looked "
        "at, where it remembered that one among five or more nodes",
        instead="the combination that it found is used",
        source="cpumanager, takeByTopologyNUMADistributed; spec: preview.md section 5",
    ),
    ReleaseRule(
        "group-loop", until="1.37", options=("distribute-cpus-across-numa", "full-pcpus-only"), codes=("MOOR-151",),
        recording="difference-groups", recording_after="difference-groups",
        says="distribute-cpus-across-numa with full-pcpus-only never ends when nodes that are to take the remainder "
        "have only half cores left",
        instead="such nodes are no candidates for the remainder",
        source="cpumanager, takeByTopologyNUMADistributed; spec: preview.md section 6",
    ),
    ReleaseRule(
        "claim-loop", since="1.37", until="1.37", options=("distribute-cpus-across-numa", "full-pcpus-only"),
        codes=("MOOR-151",),
        says="the hand-out of the remainder never ends when no node of the combination can provide a group",
        instead="it always ends", source="cpumanager, takeByTopologyNUMADistributed; spec: preview.md section 6",
    ),
    ReleaseRule(
        "huge-amounts-wrap", until="1.37", codes=("MOOR-518",), recording="difference-reserved",
        recording_after="difference-reserved",
        says="amounts beyond 64 bits of thousandths wrap round, so that 9223372036854776 CPUs count as a whole number "
        "of CPUs",
        instead="they saturate, and are no whole number", source="apimachinery, quantities; spec: preview.md section 7",
    ),
    ReleaseRule(
        "hints-without-score", until="1.37", recording_after="difference-pl-size", says="hints have no score",
        instead="each hint says which share of what its NUMA nodes have is given away; nothing decides by it",
        source="topologymanager, hints; spec: preview.md section 15",
    ),
    ReleaseRule(
        "pod-allocation-not-restored", since="1.36", until="1.37", codes=("MOOR-162",),
        recording="difference-pl-prefix", recording_after="difference-pl-prefix",
        says="at a restart a pod with CPUs as a whole is allocated anew, and no pod has its earlier CPUs",
        instead="its set and those of its containers are kept, and missing ones are cut out of its set",
        source="cpumanager, static policy, AllocatePod; spec: preview.md section 8",
    ),
    ReleaseRule(
        "pod-allocation-not-rolled-back", since="1.36", until="1.37", codes=("MOOR-162",),
        recording="difference-pl-rollback", recording_after="difference-pl-rollback",
        says="an allocation for a pod as a whole that fails in the middle keeps the CPUs", instead="it gives them back",
        source="cpumanager, static policy, AllocatePod; spec: preview.md section 8",
    ),
    ReleaseRule(
        "pod-memory-not-restored", since="1.36", until="1.37", recording="difference-pl-restart",
        recording_after="difference-pl-restart", says="at a restart memory of a pod as a whole is charged again",
        instead="the pod keeps its blocks",
        source="memorymanager, static policy, AllocatePod; spec: preview.md section 9",
    ),
    ReleaseRule(
        "pod-memory-of-app-types", until="1.37", recording="difference-mem-init-only",
        recording_after="difference-mem-init-only",
        says="in scope pod only types of memory that an app container requests are hinted for the pod",
        instead="types that an init container alone requests count too",
        source="memorymanager, static policy, pod requests; spec: preview.md section 10",
    ),
    ReleaseRule(
        "restart-blocks-against-pod", until="1.37", recording="difference-mem-restart",
        recording_after="difference-mem-restart",
        says="in scope pod the blocks of the first container that has some are compared with the requests of the pod, "
        "so that the hints of a running pod are mostly no preference",
        instead="they are compared with the requests of that container",
        source="memorymanager, static policy, regenerated hints; spec: preview.md section 10",
    ),
    ReleaseRule(
        "gauges-by-difference", until="1.37",
        says="the gauges of the CPU manager are changed by what each allocation and release adds or removes",
        instead="they are computed from the state", source="cpumanager, metrics; spec: preview.md section 11",
    ),
    ReleaseRule(
        "resize-names-policies", since="1.32", until="1.37", codes=("MOOR-181",), recording="difference-resize-off",
        recording_after="difference-resize-off",
        says="the refusal to resize a Guaranteed pod names the policy of the manager",
        instead="it names the allocation mode of the resource",
        source="kubelet, canResizePod; spec: preview.md section 12",
    ),
    ReleaseRule(
        "resize-retried-with-resources-only", until="1.37",
        says="an update of a pod retries deferred resizes only when it changes resources",
        instead="every update of a pod with a pending resize does",
        source="kubelet, allocation manager; spec: preview.md section 12",
    ),
    ReleaseRule(
        "json-texts-of-go-126", until="1.37", codes=("MOOR-262", "MOOR-301", "MOOR-302"), recording="delta-format-003",
        recording_after="state-138-0007", says="faults of state files are worded as by the JSON decoder of Go 1.26",
        instead="they are worded as by that of Go 1.27",
        source="encoding/json of the Go release that the kubelet is built with; spec: preview.md section 13",
    ),
    ReleaseRule(
        "swap-behavior-needs-gate", until="1.37", codes=("MOOR-203",),
        says="memorySwap is checked while the gate NodeSwap is on",
        instead="it is always checked, and LimitedSwap on cgroup v1 is refused in other words",
        source="kubelet configuration, validation; spec: preview.md section 14",
    ),
    ReleaseRule(
        "certificate-algorithms-unknown", until="1.37", codes=("MOOR-203", "MOOR-501"),
        recording_after="change-config-138-0012",
        says="clientCertificateKeyAlgorithm and serverCertificateKeyAlgorithm are unknown fields and are ignored",
        instead="values other than the supported algorithms are refused",
        source="kubelet configuration, validation; spec: preview.md section 14",
    ),
)  # fmt: skip
"""The rules, in the order of the specification."""
