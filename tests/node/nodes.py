"""Small machines and configurations."""

from __future__ import annotations

from mooring.engine.core.config import KubeletConfig, MooringConfig
from mooring.engine.core.decision import StartRefusal
from mooring.engine.core.machineinfo import Core, HugePages, MachineInfo, NUMANode
from mooring.engine.node import Node
from mooring.engine.node.settings import Settings, build_settings

GIB = 2**30


def machine(
    nodes: int = 2,
    cores: int = 4,
    *,
    threads: int = 2,
    sockets: int | None = None,
    memory: int = 8 * GIB,
    distances: bool = True,
    ids: tuple[int, ...] = (),
    hugepages: tuple[HugePages, ...] = (),
) -> MachineInfo:
    """Return NUMA nodes of ``cores`` cores; sibling threads are far apart, one socket a node by default.

    Args:
        nodes: how many NUMA nodes.
        cores: of each node.
        threads: of each core.
        sockets: how many sockets the nodes lie on.
        memory: of each node.
        distances: whether there is a distance table.
        ids: of the nodes; 0 to n-1 by default.
        hugepages: pools of the whole machine.
    """
    names = ids or tuple(range(nodes))
    total, sockets = nodes * cores, sockets or nodes
    row_length = max(names) + 1
    return MachineInfo(
        num_cores=total * threads,
        num_sockets=sockets,
        memory_capacity=memory * nodes,
        hugepages=hugepages,
        topology=tuple(
            NUMANode(
                node_id=name,
                memory=memory,
                cores=tuple(
                    Core(core, tuple(core + thread * total for thread in range(threads)), position * sockets // nodes)
                    for core in range(position * cores, (position + 1) * cores)
                ),
                distances=tuple(10 if name == other else 20 for other in range(row_length)) if distances else None,
            )
            for position, name in enumerate(names)
        ),
    )


def config(
    policy: str = "none",
    scope: str = "container",
    *,
    options: dict[str, str] | None = None,
    reserved: str = "0",
    gates: dict[str, bool] | None = None,
) -> KubeletConfig:
    """Return a configuration with the static CPU policy; alpha and beta options are allowed."""
    return KubeletConfig(
        cpu_manager_policy="static",
        cpu_manager_policy_options=options or {},
        topology_manager_policy=policy,
        topology_manager_scope=scope,
        reserved_system_cpus=reserved,
        feature_gates={"CPUManagerPolicyAlphaOptions": True, **(gates or {})},
    )


def node(policy: str = "none", scope: str = "container", *, info: MachineInfo | None = None, **more: object) -> Node:
    """Return a fresh node; further arguments are those of :func:`config`."""
    return Node.fresh(info or machine(), config(policy, scope, **more))  # type: ignore[arg-type]


def refusal(kubelet: KubeletConfig, info: MachineInfo | None = None, *fixed: str) -> StartRefusal:
    """Return why no settings can be made of a configuration."""
    settings = build_settings(kubelet, MooringConfig(fixed_defects=frozenset(fixed)), info or machine())
    assert isinstance(settings, StartRefusal)
    return settings


def settings_of(
    kubelet: KubeletConfig, info: MachineInfo | None = None, mooring: MooringConfig | None = None
) -> Settings:
    settings = build_settings(kubelet, mooring or MooringConfig(), info or machine())
    assert isinstance(settings, Settings), settings
    return settings
