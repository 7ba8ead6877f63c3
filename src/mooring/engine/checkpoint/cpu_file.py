"""The text of ``cpu_manager_state`` as each release writes it: V2, V3, or V4 around V2.

Every admission and removal writes this text, so it is put together from one piece per pod, and pieces are
remembered. The plain way (``structures.py`` walked by ``dump.py``) is held against it in the tests.

Pending releases (KEP-6122) are this project's addition to the data: kubelets ignore the member, and their next write
drops it.

Source: cpumanager/state of each release (checkpoint.go, state_checkpoint.go); spec: state-files.md sections 2 and 3,
releases.md section 4, resize.md section 5.3.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

from mooring.engine.checkpoint.checksum import Piece, data_checksum, fnv1a_32, legacy_checksum
from mooring.engine.checkpoint.gojson import quoted
from mooring.engine.checkpoint.structures import CPU_LEGACY_NAME, CPU_V3
from mooring.engine.core.bits import NO_CPUS, list_text
from mooring.engine.core.release import NEWEST
from mooring.engine.cpumanager.state import CPUState, PreAssignment
from mooring.engine.releases.state_files import state_file_rules


def cpu_text_of(release: str, state: CPUState, *, pod_level: bool, baselines: bool) -> str:
    """Return the text of the state file as a release writes it, without a newline at its end.

    Args:
        release: Such as ``1.34``.
        state: What to write.
        pod_level: Gate PodLevelResourceManagers.
        baselines: Gate InPlacePodVerticalScalingExclusiveCPUs.

    >>> cpu_text_of("1.34", CPUState("none", 0b1110000, {}), pod_level=False, baselines=False)
    '{"policyName":"none","defaultCpuSet":"4-6","checksum":354655845}'
    """
    written = state_file_rules(release, pod_level=pod_level).cpu.written
    if written == "V4":
        return cpu_state_text(state, pod_level=pod_level, baselines=baselines)
    return cpu_text_v3(state) if written == "V3" else cpu_text_v2(state)


def cpu_state_text(state: CPUState, *, pod_level: bool, baselines: bool) -> str:
    r"""Return the state in format V4, the newest.

    Of the pending releases those are written that say so; only the extension scale-down-delay makes any.

    Args:
        state: What to write.
        pod_level: Gate PodLevelResourceManagers: pod sets are written.
        baselines: Gate InPlacePodVerticalScalingExclusiveCPUs: baselines are written.

    >>> print(cpu_state_text(CPUState("none", 0, {}), pod_level=False, baselines=False))  # doctest: +ELLIPSIS
    {"policyName":"none","defaultCpuSet":"","checksum":1353318690,"data":"{...}","dataChecksum":3028111495}
    """
    old = _old_part(state)
    data = old.members
    if pod_level and state.pods:
        data += f',"podEntries":{{{_pod_entries(state.pods)}}}'
    if baselines and state.baselines:
        data += f',"baselines":{{{_baseline_entries(state.baselines)}}}'
    releases = _written_releases(state)
    if releases:
        data += f',"preAssignments":{{{releases}}}'
    data = f"{{{data}}}"
    # All special characters were escaped in the data already: only its quotes and backslashes are left to escape again.
    escaped = data.replace("\\", "\\\\").replace('"', '\\"')
    return f'{{{old.members},"checksum":{old.checksum},"data":"{escaped}","dataChecksum":{data_checksum(data)}}}'


def initial_cpu_text(policy: str, release: str = NEWEST.name, *, pod_level: bool = False) -> str:
    """Return what the kubelet writes when there is no file, before the policy fills the state."""
    return cpu_text_of(release, CPUState(policy, NO_CPUS, {}), pod_level=pod_level, baselines=False)


def cpu_text_v2(state: CPUState) -> str:
    """Return the state in format V2, for a kubelet rolled back to 1.36 or earlier; it has no pod sets.

    >>> cpu_text_v2(CPUState("none", 0b1110000, {}))
    '{"policyName":"none","defaultCpuSet":"4-6","checksum":354655845}'
    """
    old = _old_part(state)
    return f'{{{old.members},"checksum":{old.checksum}}}'


def cpu_text_v3(state: CPUState) -> str:
    """Return the state in format V3, for a kubelet 1.36 with PodLevelResourceManagers.

    >>> cpu_text_v3(CPUState("static", 0b10000001, {}, {"uid": 0b1110}))
    '{"policyName":"static","defaultCpuSet":"0,7","podEntries":{"uid":{"cpuSet":"1-3"}},"checksum":2296372635}'
    """
    members = _old_part(state).members
    if state.pods:
        members += f',"podEntries":{{{_pod_entries(state.pods)}}}'
    value = {
        "policyName": state.policy,
        "defaultCpuSet": list_text(state.default),
        "entries": {
            pod: {name: list_text(mask) for name, mask in containers.items()}
            for pod, containers in state.assignments.items()
        },
        "podEntries": state.pods,
    }
    return f'{{{members},"checksum":{legacy_checksum(CPU_V3, value, CPU_LEGACY_NAME)}}}'


@dataclass(frozen=True, slots=True)
class _OldPart:
    """Policy, default set and container entries: what all formats have in common."""

    members: str
    """The members as JSON, without braces."""

    checksum: int
    """Checksum of format V2."""


def _old_part(state: CPUState) -> _OldPart:
    default = list_text(state.default)
    entries = [_entry(pod, tuple(held.items())) for pod, held in sorted(state.assignments.items())]
    members = f'"policyName":{quoted(state.policy)},"defaultCpuSet":"{default}"'
    if entries:
        members += f',"entries":{{{",".join([entry.json for entry in entries])}}}'
    dump = (
        f"(*state.{CPU_LEGACY_NAME}){{PolicyName:(string){state.policy} DefaultCPUSet:(string){default} "
        f"Entries:(map[string]map[string]string)map[{' '.join([entry.dump for entry in entries])}] "
        f"Checksum:(checksum.Checksum)0}}"
    )
    return _OldPart(members, fnv1a_32(dump.encode(errors="surrogatepass")))


# The pieces below are remembered by content, never by the identity of a mapping that might change. A
# kubelet runs some hundred pods at most; a planner goes through many more, but comes back to the same ones.


@lru_cache(maxsize=4096)
def _entry(pod: str, containers: tuple[tuple[str, int], ...]) -> Piece:
    """Return one pod's container sets."""
    sets = [(name, list_text(mask)) for name, mask in sorted(containers)]
    json = ",".join([f'{quoted(name)}:"{cpus}"' for name, cpus in sets])
    dump = " ".join([f"{name}:{cpus}" for name, cpus in sets])
    return Piece(f"{quoted(pod)}:{{{json}}}", f"{pod}:map[{dump}]")


@lru_cache(maxsize=4096)
def _baseline_entry(pod: str, containers: tuple[tuple[str, int], ...]) -> str:
    """Return one pod's baselines in JSON."""
    sets = [f'{quoted(name)}:{{"baseline":"{list_text(mask)}"}}' for name, mask in sorted(containers)]
    return f"{quoted(pod)}:{{{','.join(sets)}}}"


@lru_cache(maxsize=4096)
def _pod_entry(pod: str, mask: int) -> str:
    """Return one pod's own set in JSON; an empty set is left out."""
    return f'{quoted(pod)}:{{"cpuSet":"{list_text(mask)}"}}' if mask else f"{quoted(pod)}:{{}}"


def _pod_entries(pods: Mapping[str, int]) -> str:
    return ",".join([_pod_entry(pod, mask) for pod, mask in sorted(pods.items())])


def _baseline_entries(baselines: Mapping[str, Mapping[str, int]]) -> str:
    return ",".join([_baseline_entry(pod, tuple(held.items())) for pod, held in sorted(baselines.items())])


def _written_releases(state: CPUState) -> str:
    """Return the pending releases that are kept in the file, in JSON; few pods have any, so none is remembered."""
    pods = []
    for pod, containers in sorted(state.pre_assignments.items()):
        written = [_release(name, pre) for name, pre in sorted(containers.items()) if pre.is_written]
        if written:
            pods.append(f"{quoted(pod)}:{{{','.join(written)}}}")
    return ",".join(pods)


def _release(container: str, pre: PreAssignment) -> str:
    at = pre.apply_at
    members = f'"cpuSet":"{list_text(pre.cpus)}","applyAt":{at.since_boot},"bootId":{quoted(at.boot)}'
    return f"{quoted(container)}:{{{members}}}"
