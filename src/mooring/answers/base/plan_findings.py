"""What a plan remarks about itself: what it did not know, what went wrong, which pods it did not ask about."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import reduce
from operator import or_

from mooring.answers.base.answering import OTHER_CORES, RESTART, STATE_FILES, Answer
from mooring.engine.core.bits import CPUMask
from mooring.engine.core.config import KubeletConfig
from mooring.engine.core.cpuset import CPUSet
from mooring.engine.core.decision import Rejection, is_admission_reason, is_decided_reason
from mooring.engine.core.machine import Finding, Machine
from mooring.engine.core.machineinfo import MachineInfo
from mooring.engine.core.pod import Pod
from mooring.engine.cpumanager import options
from mooring.engine.devicemanager.state import Holdings, Preference
from mooring.engine.extensions.owners import CPU_DRIVER, claims_of
from mooring.engine.kubelet.kubelet import Kubelet
from mooring.engine.memorymanager.facts import StartLeftToChance
from mooring.engine.memorymanager.policy import MEMORY, hugepages_type, wrapped_nodes
from mooring.engine.node.settings import Settings
from mooring.engine.topologymanager.merge import NONE, PREFER_CLOSEST, SINGLE_NUMA_NODE
from mooring.explanations.codes import CRASHES, POOL_EMPTY
from mooring.explanations.phrases import plural
from mooring.lazy import lazily

with lazily():
    import mooring.engine.plugins.facts as plugin_facts

HELD_TWICE = "MOOR-312"
"""Code of plans and of the doctor: two pods hold one CPU."""
RESERVED_HELD = "MOOR-313"
"""Code of plans and of the doctor: a pod holds a reserved CPU."""
PREFERRED = "MOOR-526"
DEVICES_NOT_DECLARED = "MOOR-507"
IDLE_OPTION = "MOOR-543"
_BY_NONE = "topology manager policy none does not read it; best-effort, restricted and single-numa-node do"
_BY_SINGLE = "single-numa-node keeps every container on one NUMA node; it has an effect with best-effort and restricted"
_OFF = frozenset({"false", "False", "FALSE", "f", "F", "0"})
"""How a kubelet reads false, for options that it does not read under policy none."""
_WITHOUT_SMT = "each core of this machine has one CPU online"
RECORDED = "MOOR-519"
CLAIMS_ASSUMED = "MOOR-549"
OF_A_STORY = frozenset({RECORDED, RESTART, OTHER_CORES})
"""Codes of findings that the story of a pod has as remarks."""


def machine_findings(machine: Machine, config: KubeletConfig) -> Iterator[Finding]:
    """Return what was noticed about a machine; caches of one that is typed in decide with one option alone."""
    aligns = config.cpu_manager_policy_options.get(options.UNCORE, "false") not in _OFF
    is_idle = machine.origin.format == "compact text" and not aligns
    return (one for one in machine.findings if not (is_idle and one.code == "MOOR-445"))


def chance_findings(facts: Iterable[object]) -> Iterator[Finding]:
    """Say that the kubelet itself starts on these files only when it happens to take the right order."""
    return (
        Finding(
            "warning",
            "memory_manager_state",
            f"the kubelet starts on this file only by chance: it replays the assignments in random order, and NUMA "
            f"{'node' if len(fact.nodes) == 1 else 'nodes'} {', '.join(map(str, fact.nodes))} may end in another group "
            "than before; an order that starts was taken",
            "MOOR-509",
        )
        for fact in facts
        if isinstance(fact, StartLeftToChance)
    )


def wrap_findings(settings: Settings) -> Iterator[Finding]:
    """Name the NUMA nodes whose memory the kubelet miscounts: reservations and huge pages exceed what they have."""
    if settings.memory is None:
        return
    for node in wrapped_nodes(settings.memory.default_nodes):
        tables = settings.memory.default_nodes[node].memory
        memory = tables[MEMORY]
        huge = sum(table.total for resource, table in tables.items() if resource != MEMORY)
        yield Finding(
            "warning",
            f"NUMA node {node}",
            f"has {memory.total} bytes of memory, of which {memory.system_reserved} are reserved and {huge} are "
            "huge pages: the kubelet's unsigned numbers wrap around, and it admits pods for which the node has no "
            "memory; reserve less on this node (reservedMemory)",
            "MOOR-511",
        )


def uncore_findings(settings: Settings) -> Iterator[Finding]:
    """Name the uncore caches whose CPUs the kubelet counts twice (defect shared-uncore)."""
    cpu, topology = settings.cpu, settings.topology
    if cpu is None or topology is None or cpu.rules.distribute or not cpu.rules.uncore:
        return
    if "shared-uncore" in cpu.rules.fixed_defects or not cpu.rules.older.uncore_by_average_size:
        return
    listed = [uncore for caches in topology.uncores_of_node.values() for uncore, _ in caches]
    shared = sorted(uncore for uncore, times in Counter(listed).items() if times > 1)
    if not shared:
        return
    message = (
        "belongs to several NUMA nodes, and prefer-align-cpus-by-uncorecache counts its CPUs twice where it takes all "
        "of them: a container can get fewer CPUs than it requests"
    )
    yield Finding("warning", f"each of the uncore caches {', '.join(map(str, shared))}", message, "MOOR-520")


def idle_findings(settings: Settings) -> Iterator[Finding]:
    """Name the options that are on and change nothing, under the other policies and on this machine.

    Spec: topology-manager.md sections 1 and 3, cpu-manager.md sections 2, 5 and 7.
    """
    config, topology, policy = settings.config, settings.topology, settings.topology_policy
    none, single = policy == NONE, policy == SINGLE_NUMA_NODE
    rows = [("topologyManagerScope", config.topology_manager_scope == "pod", none and _BY_NONE)]
    for name, value in config.topology_manager_policy_options.items():
        by_single = single and name == PREFER_CLOSEST and _BY_SINGLE
        rows.append((name, value not in _OFF, (none and _BY_NONE) or by_single))
    distances = settings.numa.distances
    if distances is not None and not none:
        ids = settings.numa_ids
        far = {row[other] for node, row in distances.items() for other in ids if other != node and other < len(row)}
        rows.append((PREFER_CLOSEST, len(far) < 2, "all NUMA nodes are equally far from each other"))
    if settings.cpu is not None and topology is not None and settings.plugins is None:
        rules, cores = settings.cpu.rules, topology.cpus_per_core == 1 and _WITHOUT_SMT
        apart = rules.distribute and not rules.older.distribute_ignores_sockets
        one_each = topology.num_numa_nodes == topology.num_sockets and "each socket is one NUMA node"
        one = len(topology.numa) == 1 and "the machine has one NUMA node"
        by_none = none and (
            "topology manager policy none names no NUMA nodes to align with; it has an effect with best-effort and "
            "restricted"
        )
        rows += [
            (options.ALIGN_BY_SOCKET, rules.align_by_socket and not apart, by_none or one_each),
            (options.DISTRIBUTE_NUMA, rules.distribute, (single and _BY_SINGLE) or one),
            (options.FULL_PCPUS_ONLY, rules.whole_cores, cores),
            (options.DISTRIBUTE_CORES, rules.spread, cores),
        ]
    return (Finding("info", name, f"has no effect: {why}", IDLE_OPTION) for name, is_on, why in rows if is_on and why)


def pool_findings(begun: Kubelet, answers: Iterable[Answer], kubelet: Kubelet) -> Iterator[Finding]:
    """Name the pod that takes the last CPU of the shared pool, where none is left in the end.

    Args:
        begun: the kubelet before the first answer.
        answers: in order.
        kubelet: the kubelet after all.
    """
    if kubelet.settings.cpu is None or kubelet.node.shared_pool:
        return
    subject, before = "shared pool", begun.node.shared_pool
    left = before
    for answer in answers:
        if before and not answer.decision.shared_pool:
            subject, left = f"{answer.pod.namespace}/{answer.pod.name}", before
        before = answer.decision.shared_pool
    what = f"takes the last CPUs of the shared pool ({left})" if left else "has no CPU from the start"
    message = (
        f"{what}: containers without exclusive CPUs run on the exclusive CPUs of others, and the kubelet does not "
        "start again on this state (default cpuset cannot be empty); reserve CPUs without strict-cpu-reservation, or "
        "place fewer pods"
    )
    yield Finding("warning", subject, message, POOL_EMPTY)


def reserved_findings(answers: Iterable[Answer], kubelet: Kubelet) -> Iterator[Finding]:
    """Name the pods that were given reserved CPUs.

    Where some cores have fewer CPUs online than others, the kubelet counts a core as free although one of its CPUs is
    reserved, and takes the whole core (policy_static.go, takeByTopology; cpu_assignment.go, isCoreFree).
    """
    if kubelet.settings.cpu is None:
        return
    reserved = CPUSet(kubelet.settings.cpu.reserved)
    for answer in answers:
        held = CPUSet()
        for placement in answer.decision.containers.values():
            held |= placement.cpus & reserved
        if held:
            message = (
                f"gets reserved CPUs ({held}): the kubelet divides CPUs by cores to know how many CPUs a core has, and "
                "not all cores have as many online; it does not start again on this state; bring CPUs online, or "
                "take offline all CPUs of a core"
            )
            yield Finding("warning", f"{answer.pod.namespace}/{answer.pod.name}", message, RESERVED_HELD)


def recorded_findings(answers: Iterable[Answer], recorded: Mapping[str, Rejection]) -> Iterator[Finding]:
    """Compare what the status of pods that failed records with the answers, and say where they differ.

    Statuses without a message, as in node archives, are compared by their reasons.
    """
    for answer in answers:
        then, now = recorded.get(answer.pod.uid), answer.decision
        if then is None or answer.never_returns or (now.reason == then.reason and then.message in ("", now.message)):
            continue
        text = then.reason + (f" “{then.message}”" if then.message else "")
        if not is_admission_reason(then.reason):
            message = f"its status records {text}, which is no admission reason; it is asked about as a new pod"
        elif not is_decided_reason(then.reason):
            message = f"its status records {text}, a check of the kubelet that is not made here"
        else:
            here = "admitted" if now.admitted else f"rejected with {now.reason} “{now.message}”"
            message = (
                f"its status records {text}, and here it is {here}: release, configuration, state or other pods were "
                "not the same then"
            )
        yield Finding("warning", f"{answer.pod.namespace}/{answer.pod.name}", message, RECORDED)


def claim_findings(pods: Iterable[Pod], kubelet: Kubelet, claimed: Holdings) -> Iterator[Finding]:
    """Name the pods with claims that may take CPUs, and of which no CPU is known.

    Args:
        pods: that are admitted, or counted.
        kubelet: has the claims that hold CPUs.
        claimed: uid of a pod -> container -> driver -> devices.
    """
    held = {(claim.namespace, claim.name) for claim in claims_of(kubelet.node.cpu).values()}
    for pod in pods:
        given = claimed.get(pod.uid, {}).values()
        is_of_others = given and not any(CPU_DRIVER in devices for devices in given)
        unknown = [*(name for name in pod.claims if (pod.namespace, name) not in held), *pod.unmade_claims]
        if unknown and not is_of_others:
            message = (
                f"claims {', '.join(unknown)}: assumed to take no CPU; the state holds none for them, and the "
                "selectors by which the scheduler chooses devices are not evaluated"
            )
            yield Finding("warning", f"{pod.namespace}/{pod.name}", message, CLAIMS_ASSUMED)


def twice_findings(kubelet: Kubelet) -> Iterator[Finding]:
    """Name the pods that hold a CPU of a pod before them.

    Where some cores have fewer CPUs online than others, the kubelet counts a core as free although one of its CPUs is
    taken, and takes the whole core (policy_static.go, takeByTopology; cpu_assignment.go, isCoreFree).
    """
    node = kubelet.node
    owners: list[tuple[str, int]] = []
    for uid, containers in node.cpu.assignments.items():
        pod = node.active.get(uid)
        if pod is None:
            continue
        own, name = reduce(or_, containers.values(), 0), f"{pod.namespace}/{pod.name}"
        for other, held in owners:
            if own & held:
                cpus = CPUSet(CPUMask(own & held))
                message = f"gets CPUs {cpus}, which {other} has too: the kubelet gives them twice (see the code's page)"
                yield Finding("warning", name, message, HELD_TWICE)
        owners.append((name, own))


def order_findings(facts: Collection[object]) -> Iterator[Finding]:
    """Say which plugins failed to order the pods."""
    return (
        Finding("warning", f"plugin {failed.plugin}", f"failed at {failed.point}: {failed.why}", "MOOR-531")
        for failed in (plugin_facts.failures(facts) if facts else ())
    )


def release_finding(crash: str) -> Finding:
    """Say that the kubelet crashes when it releases what no pod holds any more."""
    cause = crash.removesuffix(": the kubelet crashes here")
    message = f"the kubelet would crash when it releases what no pod holds any more: {cause}"
    return Finding("warning", STATE_FILES, message, "MOOR-510")


def plugin_findings(answers: Iterable[Answer]) -> Iterator[Finding]:
    """Report the plugins that failed, each failure once: the first pod, and how often."""
    first: dict[tuple[str, str, str], str] = {}
    times: dict[tuple[str, str, str], int] = {}
    for answer in answers:
        for failed in answer.decision.plugin_failures:
            key = failed.plugin, failed.point, failed.why
            first.setdefault(key, f"{answer.pod.namespace}/{answer.pod.name}")
            times[key] = times.get(key, 0) + 1
    return (
        Finding(
            "warning",
            f"plugin {plugin}",
            f"failed at {point}, first for {first[plugin, point, why]}{f' ({often} times)' if often > 1 else ''}: "
            f"{why}; its answer was left out",
            "MOOR-531",
        )
        for (plugin, point, why), often in times.items()
    )


def crash_findings(answers: Iterable[Answer], info: MachineInfo) -> Iterator[Finding]:
    """Name the pods on which the kubelet crashes, and the huge pages that the machine does not list.

    A Linux node lists the sizes of huge pages that its kernel supports, also with 0 pages, and its kubelet does not
    crash for lack of one.
    """
    listed = {hugepages_type(pages.page_size) for node in info.topology for pages in node.hugepages}
    for answer in answers:
        if not answer.crash:
            continue
        asked = {name for one in answer.pod.containers for name in one.limits if name.startswith("hugepages-")}
        missing = sorted(asked - listed)
        hint = (
            f"; the machine as it was given lists no {missing[0]}, but a node lists each size that its "
            f"kernel supports: add {missing[0]}=PAGES (0 for none) to the machine's text, or capture the machine"
            if missing
            else ""
        )
        cause = answer.crash.removesuffix(": the kubelet crashes here")
        message = f"crashes the kubelet and is left out: {cause}{hint}"
        yield Finding("warning", f"{answer.pod.namespace}/{answer.pod.name}", message, CRASHES)


def unasked_finding(last: Answer, unasked: Sequence[Pod]) -> Finding:
    """Report the pods after one from which the kubelet would not return: they are not asked about."""
    count = len(unasked)
    return Finding(
        "warning",
        f"{last.pod.namespace}/{last.pod.name}",
        f"the kubelet would not return from this admission, so {plural(count, 'pod')} after it "
        f"{'was' if count == 1 else 'were'} not asked",
        "MOOR-508",
    )


def device_findings(pods: Iterable[Pod], devices: Collection[str]) -> Iterator[Finding]:
    """Say which resources of the pods a plan knows nothing of: their providers may affect the placement."""
    unknown: dict[str, int] = {}
    for pod in pods:
        for name in {name for container in pod.containers for name in container.limits}.difference(devices):
            domain, slash, _ = name.partition("/")
            # Those of Kubernetes itself are no extended resources.
            if slash and domain != "kubernetes.io" and not domain.endswith(".kubernetes.io"):
                unknown[name] = unknown.get(name, 0) + 1
    return (
        Finding(
            "warning",
            name,
            f"{count} pod{' asks' if count == 1 else 's ask'} for this resource, and no devices are declared: it "
            "counts as available, and the NUMA nodes of its devices are not taken into account (declare them in a "
            "document of kind NodeDevices, given with --config)",
            DEVICES_NOT_DECLARED,
        )
        for name, count in sorted(unknown.items())
    )


def preference_findings(pods: Iterable[Pod], preferences: Mapping[str, Preference]) -> Iterator[Finding]:
    """Say of which resources the plugin chooses the devices itself, by a rule that nobody has declared."""
    wanted = {name for pod in pods for container in pod.containers for name in container.limits}
    return (
        Finding(
            "info",
            name,
            "its device plugin chooses among equally near devices itself (GetPreferredAllocation), which no plan can "
            "know; declare its rule in NodeDevices: preferred: packed or aligned",
            PREFERRED,
        )
        for name in sorted(wanted)
        if preferences.get(name) is Preference.PLUGIN
    )
