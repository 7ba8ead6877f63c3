"""Reading ``cpu_manager_state``: every format that kubelet v1.37.1 reads, with its checks and messages.

Left to the CPU manager: whether the state fits the machine (spec: cpu-manager.md section 2).

Source: kubelet v1.37.1, cpumanager/state (checkpoint.go, state_checkpoint.go); spec: state-files.md section 4, and
resize.md section 5.3 for pending releases.
"""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache

from mooring.checkpoint.canonical import canonical_data
from mooring.checkpoint.checksum import legacy_checksum
from mooring.checkpoint.cpu_file import cpu_state_text, initial_cpu_text
from mooring.checkpoint.formats import Created, FormatFamily, LoadRefusal, OlderFormat, read_checkpoint
from mooring.checkpoint.gotypes import GoValue
from mooring.checkpoint.structures import CPU_DATA, CPU_DATA_WITH_RELEASES, CPU_LEGACY_NAME, CPU_V2, CPU_V3, CPU_V4
from mooring.core.bits import NO_CPUS, CPUMask
from mooring.core.cpuset import CPUSet, CPUSetSyntaxError
from mooring.core.errors import MooringError
from mooring.core.gotext import quote
from mooring.core.moment import Moment
from mooring.cpumanager.state import CPUState, PreAssignment
from mooring.node.start import policy_mismatch

_LATER = "pre-assigned cpuset"


def load_cpu_state(
    text: str | None, *, policy: str, pod_level: bool, baselines: bool, releases: bool = False
) -> CPUState | Created | LoadRefusal:
    """Read the CPU manager's state file as the kubelet does when it starts.

    Where the kubelet walks over a map in random order and stops at the first bad set, the order here is that of the
    names.

    Args:
        text: The file, or None when there is none.
        policy: The configured CPU manager policy.
        pod_level: Gate PodLevelResourceManagers: pod sets are taken over.
        baselines: Gate InPlacePodVerticalScalingExclusiveCPUs: baselines are taken over, or made from the
            assignments.
        releases: Extension scale-down-delay: pending releases are taken over. A kubelet does not see them.

    >>> load_cpu_state("{", policy="static", pod_level=False, baselines=False)
    LoadRefusal(manager='cpu', message='unexpected end of JSON input')
    """
    if text is None:
        return Created(initial_cpu_text(policy))
    known = canonical_cpu_state(text, pod_level=pod_level, baselines=baselines)
    if known is not None and known.policy == policy:
        return known
    return read_strictly(text, policy=policy, pod_level=pod_level, baselines=baselines, releases=releases)


def canonical_cpu_state(text: str, *, pod_level: bool, baselines: bool) -> CPUState | None:
    """Return the state of which ``text`` is the file; None when it is not what would be written for any.

    >>> text = cpu_state_text(CPUState("none", 0b110, {}), pod_level=False, baselines=False)
    >>> canonical_cpu_state(text, pod_level=False, baselines=False).default
    6
    >>> canonical_cpu_state(text + " ", pod_level=False, baselines=False)
    """
    found = canonical_data(text, CPU_DATA)
    if found is None:
        return None
    try:
        found["podEntries"] = {pod: _mask(one.get("cpuSet", "")) for pod, one in found["podEntries"].items()}
        state = _state(found, pod_level=pod_level, baselines=baselines)
    except (CPUSetSyntaxError, _BadSetError):
        return None
    # Without the gate, and where a file has no baselines, this shows what the strict reader would say.
    return state if cpu_state_text(state, pod_level=pod_level, baselines=baselines) == text else None


def read_strictly(
    text: str, *, policy: str, pod_level: bool, baselines: bool, releases: bool = False
) -> CPUState | LoadRefusal:
    """Read the text of a file by Go's rules alone; see :func:`load_cpu_state`, which answers the same, sooner."""
    checkpoint = read_checkpoint(text, cpu_family(pod_level=pod_level, releases=releases))
    if isinstance(checkpoint, str):
        return LoadRefusal("cpu", checkpoint)
    if checkpoint["policyName"] != policy:
        return LoadRefusal("cpu", policy_mismatch("cpu", policy, checkpoint["policyName"]))
    try:
        state = _state(checkpoint, pod_level=pod_level, baselines=baselines)
        return replace(state, pre_assignments=_releases(checkpoint, state)) if releases else state
    except _BadSetError as error:
        return LoadRefusal("cpu", str(error))


class _BadSetError(MooringError):
    """A CPU set that cannot be read; the message is the kubelet's."""


def _state(checkpoint: dict[str, GoValue], *, pod_level: bool, baselines: bool) -> CPUState:
    try:
        default = _mask(checkpoint["defaultCpuSet"])
    except CPUSetSyntaxError as error:
        raise _BadSetError(f"could not parse default CPU set {quote(checkpoint['defaultCpuSet'])}: {error}") from None
    assignments = _masks(checkpoint["entries"], "cpuset")
    return CPUState(
        policy=checkpoint["policyName"],
        default=default,
        assignments=assignments,
        # Formats without pod entries or baselines lack the member; an explicit null is the same as none.
        pods=(checkpoint.get("podEntries") or {}) if pod_level else {},
        baselines=_baselines(checkpoint, assignments) if baselines else {},
    )


def _baselines(
    checkpoint: dict[str, GoValue], assignments: dict[str, dict[str, CPUMask]]
) -> dict[str, dict[str, CPUMask]]:
    """Return the recorded baselines; a file without any makes today's assignments the baselines."""
    recorded = checkpoint.get("baselines")
    if not recorded:
        return {pod: dict(containers) for pod, containers in assignments.items()}
    texts: dict[str, dict[str, str] | None] = {
        pod: {name: entry["baseline"] for name, entry in (containers or {}).items()}
        for pod, containers in recorded.items()
    }
    return _masks(texts, "Baseline cpuset")


def _releases(checkpoint: dict[str, GoValue], state: CPUState) -> dict[str, dict[str, PreAssignment]]:
    """Return the pending releases; one that does not fit its container is left out, as one that was never begun."""
    recorded = {pod: held or {} for pod, held in (checkpoint.get("preAssignments") or {}).items()}
    masks = _masks({pod: {name: one["cpuSet"] for name, one in held.items()} for pod, held in recorded.items()}, _LATER)
    releases: dict[str, dict[str, PreAssignment]] = {}
    for pod, held in masks.items():
        for name, cpus in held.items():
            entry = recorded[pod][name]
            pre = PreAssignment(cpus, Moment(entry["applyAt"], entry["bootId"]), is_written=True)
            if pre.fits(
                state.assignments.get(pod, {}).get(name, NO_CPUS), state.baselines.get(pod, {}).get(name, NO_CPUS)
            ):
                releases.setdefault(pod, {})[name] = pre
    return releases


def _masks(entries: dict[str, dict[str, str] | None] | None, what: str) -> dict[str, dict[str, CPUMask]]:
    """Parse the sets of all containers; ``what`` is how the kubelet's message calls them."""
    masks: dict[str, dict[str, CPUMask]] = {}
    for pod, containers in sorted((entries or {}).items()):
        masks[pod] = {}
        for name, text in sorted((containers or {}).items()):
            try:
                masks[pod][name] = _mask(text)
            except CPUSetSyntaxError as error:
                place = f"for container {quote(name)} in pod {quote(pod)}"
                raise _BadSetError(f"could not parse {what} {quote(text)} {place}: {error}") from None
    return masks


@lru_cache(maxsize=4096)
def _mask(cpus: str) -> CPUMask:
    """Return the mask of a CPU list. Baselines repeat the assignments, and a file is read again after every write."""
    return CPUSet.parse(cpus).mask


def _v3_accepted(value: dict[str, GoValue]) -> bool:
    """Accept the checksum under the structure's own name or the legacy name; 0 has no special meaning."""
    names = (CPU_V3.name, CPU_LEGACY_NAME)
    return any(legacy_checksum(CPU_V3, value, name) == value["checksum"] for name in names)


def _v2_accepted(value: dict[str, GoValue]) -> bool:
    """Accept the checksum under the legacy name, or 0: the file back end of old kubelets wrote none."""
    return value["checksum"] in (0, legacy_checksum(CPU_V2, value, CPU_LEGACY_NAME))


def _v2_accepted_without_pod_level(value: dict[str, GoValue]) -> bool:
    """Accept also the structure's own name: with PodLevelResourceManagers off the kubelet tries it first."""
    return _v2_accepted(value) or legacy_checksum(CPU_V2, value, CPU_V2.name) == value["checksum"]


_V3 = OlderFormat(CPU_V3, _v3_accepted)
CPU_FAMILIES = {
    True: FormatFamily("cpu manager", "v4", CPU_V4, CPU_DATA, (_V3, OlderFormat(CPU_V2, _v2_accepted))),
    False: FormatFamily(
        "cpu manager", "v4", CPU_V4, CPU_DATA, (_V3, OlderFormat(CPU_V2, _v2_accepted_without_pod_level))
    ),
}
"""The formats of ``cpu_manager_state``, by whether PodLevelResourceManagers is on."""


def cpu_family(*, pod_level: bool, releases: bool) -> FormatFamily:
    """Return the formats of ``cpu_manager_state`` as a kubelet with these features reads them."""
    family = CPU_FAMILIES[pod_level]
    return replace(family, data=CPU_DATA_WITH_RELEASES) if releases else family
