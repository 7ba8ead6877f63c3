"""The NodeResourceTopology of a node, v1alpha2: what the ecosystem's topology-aware schedulers read.

Source: k8stopologyawareschedwg/noderesourcetopology-api, v1alpha2; names of zones, attributes and costs as its other
publishers write them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from mooring.core.machineinfo import MachineInfo
from mooring.node import Node
from mooring.scheduling.fingerprint import ATTRIBUTE, METHOD, METHOD_ATTRIBUTE, fingerprint
from mooring.scheduling.values import NodeState
from mooring.scheduling.zones import Amount, Zone, exclusive_cpus_of, zones_of

GROUP: Final = "topology.node.k8s.io"
VERSION: Final = "v1alpha2"
API_VERSION: Final = f"{GROUP}/{VERSION}"
KIND: Final = "NodeResourceTopology"
PLURAL: Final = "noderesourcetopologies"
FACTS_ATTRIBUTE: Final = "mooring.dev/facts"
SEQUENCE_ATTRIBUTE: Final = "mooring.dev/sequence"
ALLOCATABLE_ATTRIBUTE: Final = "mooring.dev/exclusiveCPUsAllocatable"
AVAILABLE_ATTRIBUTE: Final = "mooring.dev/exclusiveCPUsAvailable"


def topology_document(info: MachineInfo, node: Node, state: NodeState) -> dict[str, Any]:
    """Return the NodeResourceTopology object of a node.

    Args:
        info: its machine.
        node: as it decides.
        state: the same as it is published.
    """
    return {
        "apiVersion": API_VERSION,
        "kind": KIND,
        "metadata": {"name": state.node},
        "attributes": [{"name": name, "value": value} for name, value in _attributes(node, state)],
        "zones": [_zone(zone) for zone in zones_of(info, node)],
    }


def _attributes(node: Node, state: NodeState) -> Iterator[tuple[str, str]]:
    config, exclusive = node.settings.config, exclusive_cpus_of(node)
    yield "topologyManagerPolicy", config.topology_manager_policy
    yield "topologyManagerScope", config.topology_manager_scope
    for name, options in (
        ("topologyManagerPolicyOptions", config.topology_manager_policy_options),
        ("cpuManagerPolicyOptions", config.cpu_manager_policy_options),
    ):
        if options:
            yield name, _listed(options)
    yield "cpuManagerPolicy", config.cpu_manager_policy
    yield "memoryManagerPolicy", config.memory_manager_policy
    yield ATTRIBUTE, fingerprint((pod.namespace, pod.name) for pod in state.pods)
    yield METHOD_ATTRIBUTE, METHOD
    yield ALLOCATABLE_ATTRIBUTE, str(exclusive.allocatable)
    yield AVAILABLE_ATTRIBUTE, str(exclusive.available)
    yield FACTS_ATTRIBUTE, state.facts
    yield SEQUENCE_ATTRIBUTE, str(state.sequence)


def _listed(options: Mapping[str, str]) -> str:
    return ",".join(f"{name}={value}" for name, value in sorted(options.items()))


def _zone(zone: Zone) -> dict[str, Any]:
    return {
        "name": f"node-{zone.node}",
        "type": "Node",
        "costs": [{"name": f"node-{node}", "value": distance} for node, distance in zone.costs.items()],
        "resources": [_resource(amount) for amount in zone.amounts],
    }


def _resource(amount: Amount) -> dict[str, str]:
    return {
        "name": amount.resource,
        "capacity": str(amount.capacity),
        "allocatable": str(amount.allocatable),
        "available": str(amount.available),
    }
