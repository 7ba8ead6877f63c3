"""The text of ``cpu_manager_state`` as each release writes it (V2, V3, or V4 around V2), and as each reads it.

Every admission and removal writes this text, so it is put together from one piece per pod, and pieces are
remembered. The plain way (``structures.py`` walked by ``dump.py``) is held against it in the tests.

Pending releases (KEP-6122) are this project's addition to the data: kubelets ignore the member, and their next write
drops it.

Left to the CPU manager: whether the state fits the machine (spec: cpu-manager.md section 2).

Source: cpumanager/state of each release (checkpoint.go, state_checkpoint.go); spec: state-files.md sections 2 to 4,
releases.md section 4, resize.md section 5.3.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache, lru_cache
from typing import TypeAlias

from mooring.engine.checkpoint import gotypes
from mooring.engine.checkpoint.checksum import (
    Piece,
    canonical_data,
    canonical_members,
    fnv1a_32,
    legacy_checksum,
    with_data,
)
from mooring.engine.checkpoint.formats import FormatFamily, Unread, older_formats, read_checkpoint
from mooring.engine.checkpoint.gojson import quoted
from mooring.engine.core.bits import NO_CPUS, CPUMask, list_text
from mooring.engine.core.cpuset import CPUSet, CPUSetSyntaxError
from mooring.engine.core.decision import StartRefusal
from mooring.engine.core.errors import MooringError
from mooring.engine.core.gotext import quote
from mooring.engine.core.moment import Moment
from mooring.engine.core.release import NEWEST
from mooring.engine.cpumanager.state import CPUState, PreAssignment
from mooring.engine.node.settings import not_restored, other_policy
from mooring.engine.releases.catalog import FileFormats, StateFileRules, state_file_rules
from mooring.lazy import replace


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
    common, checksum = _old_part(state)
    data = common
    if pod_level and state.pods:
        data += f',"podEntries":{{{_pod_entries(state.pods)}}}'
    if baselines and state.baselines:
        entries = [_baseline_entry(pod, tuple(held.items())) for pod, held in sorted(state.baselines.items())]
        data += f',"baselines":{{{",".join(entries)}}}'
    # The pending releases that are kept in the file, in JSON; few pods have any, so none is remembered
    pods = []
    for pod, containers in sorted(state.pre_assignments.items()):
        written = [
            f'{quoted(name)}:{{"cpuSet":"{list_text(pre.cpus)}",'
            f'"applyAt":{pre.apply_at.since_boot},"bootId":{quoted(pre.apply_at.boot)}}}'
            for name, pre in sorted(containers.items())
            if pre.is_written
        ]
        if written:
            pods.append(f"{quoted(pod)}:{{{','.join(written)}}}")
    releases = ",".join(pods)
    if releases:
        data += f',"preAssignments":{{{releases}}}'
    return with_data(common, checksum, data)


def cpu_text_v2(state: CPUState) -> str:
    """Return the state in format V2, for a kubelet rolled back to 1.36 or earlier; it has no pod sets.

    >>> cpu_text_v2(CPUState("none", 0b1110000, {}))
    '{"policyName":"none","defaultCpuSet":"4-6","checksum":354655845}'
    """
    common, checksum = _old_part(state)
    return f'{{{common},"checksum":{checksum}}}'


def cpu_text_v3(state: CPUState) -> str:
    """Return the state in format V3, for a kubelet 1.36 with PodLevelResourceManagers.

    >>> cpu_text_v3(CPUState("static", 0b10000001, {}, {"uid": 0b1110}))
    '{"policyName":"static","defaultCpuSet":"0,7","podEntries":{"uid":{"cpuSet":"1-3"}},"checksum":2296372635}'
    """
    members = _old_part(state)[0]
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
    return f'{{{members},"checksum":{legacy_checksum(gotypes.CPU_V3, value, gotypes.CPU_LEGACY_NAME)}}}'


def _old_part(state: CPUState) -> tuple[str, int]:
    """Return what all formats have in common as JSON, without braces, and the checksum of format V2."""
    default = list_text(state.default)
    entries = [_entry(pod, tuple(held.items())) for pod, held in sorted(state.assignments.items())]
    members = f'"policyName":{quoted(state.policy)},"defaultCpuSet":"{default}"'
    if entries:
        members += f',"entries":{{{",".join([entry.json for entry in entries])}}}'
    dump = (
        f"(*state.{gotypes.CPU_LEGACY_NAME}){{PolicyName:(string){state.policy} DefaultCPUSet:(string){default} "
        f"Entries:(map[string]map[string]string)map[{' '.join([entry.dump for entry in entries])}] "
        f"Checksum:(checksum.Checksum)0}}"
    )
    return members, fnv1a_32(dump.encode(errors="surrogatepass"))


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


ContainerIDs: TypeAlias = Mapping[str, tuple[str, str]]
"""The runtime's container id -> pod uid and container name."""
NO_CONTAINERS: ContainerIDs = {}


def load_cpu_state(
    text: str,
    *,
    policy: str,
    pod_level: bool,
    baselines: bool,
    releases: bool = False,
    release: str = NEWEST.name,
    containers: ContainerIDs = NO_CONTAINERS,
    json_v2: bool = False,
) -> CPUState | StartRefusal:
    """Read the CPU manager's state file as the kubelet does when it starts.

    Where the kubelet walks over a map in random order and stops at the first bad set, the order here is that of the
    names.

    Args:
        text: The file.
        policy: The configured CPU manager policy.
        pod_level: Gate PodLevelResourceManagers: pod sets are taken over.
        baselines: Gate InPlacePodVerticalScalingExclusiveCPUs: baselines are taken over, or made from the
            assignments.
        releases: Extension scale-down-delay: pending releases are taken over. A kubelet does not see them.
        release: Of the kubelet, such as ``1.34``.
        containers: Those that the runtime knows. Format V1, which kubelets up to 1.36 read, names containers by id.
        json_v2: Whether complaints about JSON are those of Go 1.27.

    >>> load_cpu_state("{", policy="static", pod_level=False, baselines=False).message[:96]
    'start cpu manager error: could not restore state from checkpoint: unexpected end of JSON input, '
    """
    known = canonical_cpu_state(text, pod_level=pod_level, baselines=baselines, release=release)
    if known is not None and known.policy == policy:
        return known
    # By Go's rules, which answer the same for the text of any state, later.
    rules = state_file_rules(release, pod_level=pod_level)
    checkpoint = read_checkpoint(text, cpu_family(rules.cpu, releases=releases, json_v2=json_v2))
    if isinstance(checkpoint, Unread):
        return not_restored("cpu", checkpoint.message)
    found, version = checkpoint
    try:
        if version == "V1":
            found = {**found, "entries": _by_pod(found["entries"], containers, rules.migration)}
        if found["policyName"] != policy:
            return other_policy("cpu", policy, found["policyName"])
        state = _state(found, rules, baselines=baselines)
        return replace(state, pre_assignments=_releases(found, state)) if releases else state
    except _BadSetError as error:
        return not_restored("cpu", str(error), containers=error.containers)


def canonical_cpu_state(text: str, *, pod_level: bool, baselines: bool, release: str = NEWEST.name) -> CPUState | None:
    """Return the state of which ``text`` is the file; None when it is not what would be written for any.

    >>> text = cpu_text_of("1.37", CPUState("none", 0b110, {}), pod_level=False, baselines=False)
    >>> canonical_cpu_state(text, pod_level=False, baselines=False).default
    6
    >>> canonical_cpu_state(text + " ", pod_level=False, baselines=False)
    """
    rules = state_file_rules(release, pod_level=pod_level)
    if rules.cpu.data:
        found = canonical_data(text, gotypes.CPU_DATA)
    else:
        found = canonical_members(text, gotypes.CPU_STRUCTURES[rules.cpu.written])
    if found is None:
        return None
    try:
        found["podEntries"] = {pod: _mask(one.get("cpuSet", "")) for pod, one in found.get("podEntries", {}).items()}
        state = _state(found, rules, baselines=baselines)
    except (CPUSetSyntaxError, _BadSetError):
        return None
    # Without the gate, and where a file has no baselines, this shows what the strict reader would say.
    return state if cpu_text_of(release, state, pod_level=pod_level, baselines=baselines) == text else None


def _by_pod(entries: Mapping[str, str] | None, containers: ContainerIDs, refusal: str) -> dict[str, dict[str, str]]:
    """Return the entries of format V1 by pod and container, as kubelets up to 1.36 migrate them."""
    found: dict[str, dict[str, str]] = {}
    for container_id, cpus in sorted((entries or {}).items()):
        holder = containers.get(container_id)
        if holder is None:
            problem = f"{refusal}: containerID '{container_id}' not found in initial containers list"
            raise _BadSetError(problem, container_id)
        pod, name = holder
        found.setdefault(pod, {})[name] = cpus
    return found


class _BadSetError(MooringError):
    """A CPU set or a container that cannot be made out; the message is the kubelet's."""

    def __init__(self, problem: str, *containers: str) -> None:
        self.containers = containers
        super().__init__(problem)


def _state(checkpoint: dict[str, gotypes.GoValue], rules: StateFileRules, *, baselines: bool) -> CPUState:
    try:
        default = _mask(checkpoint["defaultCpuSet"])
    except CPUSetSyntaxError as error:
        given = quote(checkpoint["defaultCpuSet"])
        raise _BadSetError(f"could not parse default {rules.default_set} {given}: {error}") from None
    assignments = _masks(checkpoint["entries"], "cpuset")
    # Formats without pod entries or baselines lack the member; an explicit null is the same as none.
    pods = (checkpoint.get("podEntries") or {}) if rules.keeps_pods else {}
    recorded = (checkpoint.get("baselines") or {}) if baselines and rules.keeps_baselines else {}
    known = _masks(
        {
            pod: {name: entry["baseline"] for name, entry in (containers or {}).items()}
            for pod, containers in recorded.items()
        },
        "Baseline cpuset",
    )
    if baselines and rules.keeps_baselines and not recorded:
        # A file without any makes today's assignments the baselines.
        known = {pod: dict(containers) for pod, containers in assignments.items()}
    return CPUState(checkpoint["policyName"], default, assignments, pods, known)


def _releases(checkpoint: dict[str, gotypes.GoValue], state: CPUState) -> dict[str, dict[str, PreAssignment]]:
    """Return the pending releases; one that does not fit its container is left out, as one that was never begun."""
    recorded = {pod: held or {} for pod, held in (checkpoint.get("preAssignments") or {}).items()}
    texts = {pod: {name: one["cpuSet"] for name, one in held.items()} for pod, held in recorded.items()}
    releases: dict[str, dict[str, PreAssignment]] = {}
    for pod, held in _masks({**texts}, "pre-assigned cpuset").items():
        for name, cpus in held.items():
            entry = recorded[pod][name]
            pre = PreAssignment(cpus, Moment(entry["applyAt"], entry["bootId"]), is_written=True)
            own = state.assignments.get(pod, {}).get(name, NO_CPUS)
            if pre.fits(own, state.baselines.get(pod, {}).get(name, NO_CPUS)):
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


@cache
def cpu_family(formats: FileFormats, *, releases: bool = False, json_v2: bool = False) -> FormatFamily:
    """Return the formats of ``cpu_manager_state`` as a release reads them.

    Args:
        formats: of the release.
        releases: extension scale-down-delay: pending releases are a known member of the data.
        json_v2: whether complaints about JSON are those of Go 1.27.
    """
    data = gotypes.CPU_DATA_WITH_RELEASES if releases else gotypes.CPU_DATA
    older = older_formats(gotypes.CPU_STRUCTURES, formats)
    return FormatFamily("cpu manager", "v4", gotypes.CPU_V4, data, older, bool(formats.data), json_v2)
