"""Random nodes and pods, and what happens to them."""

from __future__ import annotations

from itertools import product

from hypothesis import strategies as st
from tests.cpumanager.pods import container

from mooring.engine.core.bits import list_text
from mooring.engine.core.config import KubeletConfig
from mooring.engine.core.machineinfo import Cache, Core, MachineInfo, NUMANode
from mooring.engine.core.pod import Container, ContainerKind, Pod, QoS
from mooring.engine.core.release import FeatureGates, resolve_gates
from mooring.engine.cpumanager.options import ALIGN_BY_SOCKET, OPTION_GROUPS, parse_options
from mooring.engine.releases.gates import known_gates

ALPHA = {"CPUManagerPolicyAlphaOptions": True}
POLICIES = ("none", "best-effort", "restricted", "single-numa-node")
SIZES = ("1", "2", "2", "3", "4", "6", "500m")


def legal_options() -> list[tuple[str, ...]]:
    """Return every set of CPU manager options that is accepted."""
    gates = resolve_gates(ALPHA, known_gates("1.37"))
    assert isinstance(gates, FeatureGates)
    names = sorted(OPTION_GROUPS)
    sets = [
        tuple(name for name, on in zip(names, flags, strict=True) if on)
        for flags in product([False, True], repeat=len(names))
    ]
    return [on for on in sets if isinstance(parse_options(dict.fromkeys(on, "true"), gates), tuple)]


LEGAL = legal_options()


@st.composite
def machines(draw: st.DrawFn) -> MachineInfo:
    """Return a machine as hardware is: threads in cores in uncores in nodes in sockets or sockets in nodes."""
    nodes = draw(st.integers(1, 4))
    cores = draw(st.lists(st.integers(1, 2), min_size=nodes, max_size=10))
    ids = list(range(sum(cores)))
    if draw(st.booleans()):
        ids = draw(st.permutations(ids))
    sockets_of_node, nodes_of_socket = draw(st.sampled_from([(1, 1), (1, 2), (1, 4), (2, 1)]))
    made: list[list[Core]] = [[] for _ in range(nodes)]
    for number, count in enumerate(cores):
        node = number % nodes
        own, ids = ids[:count], ids[count:]
        socket = node // nodes_of_socket * sockets_of_node + number // nodes % sockets_of_node
        caches = (Cache(100 + 10 * socket + 2 * node + draw(st.integers(0, 1)), 2**20, "Unified", 3),)
        made[node].append(Core(number, tuple(own), socket, uncore_caches=caches if draw(st.booleans()) else ()))
    total = nodes + draw(st.integers(0, 1))
    return MachineInfo(
        num_cores=sum(cores),
        num_sockets=len({core.socket_id for part in made for core in part}),
        memory_capacity=2**34,
        topology=tuple(
            NUMANode(
                node,
                2**30,
                cores=tuple(made[node]) if node < nodes else (),
                distances=tuple(10 if node == other else 11 + abs(node - other) for other in range(total)),
            )
            for node in range(total)
        ),
    )


@st.composite
def configurations(draw: st.DrawFn, info: MachineInfo) -> KubeletConfig:
    """Return a configuration with which the kubelet starts on the machine."""
    policy = draw(st.sampled_from(POLICIES))
    nodes = sum(1 for node in info.topology if node.cores)
    aligns = policy != "single-numa-node" and info.num_sockets <= nodes
    options = draw(st.sampled_from([on for on in LEGAL if aligns or ALIGN_BY_SOCKET not in on]))
    cpus = sorted(thread for node in info.topology for core in node.cores for thread in core.thread_ids)
    reserved = draw(st.sets(st.sampled_from(cpus), min_size=1, max_size=2))
    return KubeletConfig(
        cpu_manager_policy="static",
        cpu_manager_policy_options=dict.fromkeys(options, "true"),
        topology_manager_policy=policy,
        topology_manager_scope=draw(st.sampled_from(["container", "pod"])),
        topology_manager_policy_options=draw(st.sampled_from([{}, {"prefer-closest-numa-nodes": "true"}])),
        reserved_system_cpus=list_text(sum(1 << cpu for cpu in reserved)),
        feature_gates=ALPHA,
    )


@st.composite
def containers(draw: st.DrawFn) -> tuple[Container, ...]:
    """Return init containers and sidecars, then apps."""
    kinds = draw(st.lists(st.sampled_from([ContainerKind.INIT, ContainerKind.SIDECAR]), max_size=2))
    kinds += [ContainerKind.APP] * draw(st.integers(1, 2))
    return tuple(
        container(f"{kind.value}{index}", draw(st.sampled_from(SIZES)), kind=kind) for index, kind in enumerate(kinds)
    )


def pods(uid: str) -> st.SearchStrategy[Pod]:
    qos = st.sampled_from([QoS.GUARANTEED] * 4 + [QoS.BURSTABLE])
    return st.builds(Pod, st.just(uid), st.just(uid), containers=containers(), qos=qos)
