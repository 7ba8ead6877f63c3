"""Configurations as documents: the way back from what :mod:`mooring.manifest` reads.

Every field is written, those at their defaults too: whoever reads it may have other defaults.
"""

from __future__ import annotations

from typing import Any

from mooring.core.config import KubeletConfig, MooringConfig, with_defaults
from mooring.core.plugins import PluginChoice
from mooring.manifest import kubelet_config as kubelet
from mooring.manifest import mooring_config as mooring


def kubelet_document(config: KubeletConfig) -> dict[str, Any]:
    """Return a KubeletConfiguration with the fields that the managers read.

    >>> kubelet_document(KubeletConfig(cpu_manager_policy="static"))["cpuManagerPolicy"]
    'static'
    """
    plain = with_defaults(config)
    document: dict[str, Any] = {
        "apiVersion": kubelet.API_VERSION,
        "kind": kubelet.KIND,
        "cpuManagerPolicy": plain.cpu_manager_policy,
        "cpuManagerPolicyOptions": dict(plain.cpu_manager_policy_options),
        "cpuManagerReconcilePeriod": f"{plain.cpu_manager_reconcile_period_ns}ns",
        "memoryManagerPolicy": plain.memory_manager_policy,
        "reservedMemory": [
            {"numaNode": entry.numa_node, "limits": dict(entry.limits)} for entry in plain.reserved_memory
        ],
        "topologyManagerPolicy": plain.topology_manager_policy,
        "topologyManagerScope": plain.topology_manager_scope,
        "topologyManagerPolicyOptions": dict(plain.topology_manager_policy_options),
        "reservedSystemCPUs": plain.reserved_system_cpus,
        "kubeReserved": dict(plain.kube_reserved),
        "systemReserved": dict(plain.system_reserved),
        "kubeReservedCgroup": plain.kube_reserved_cgroup,
        "systemReservedCgroup": plain.system_reserved_cgroup,
        "mergeDefaultEvictionSettings": plain.merge_default_eviction_settings,
        "cpuCFSQuota": plain.cpu_cfs_quota,
        "cpuCFSQuotaPeriod": f"{plain.cpu_cfs_quota_period_ns}ns",
        "featureGates": dict(plain.feature_gates),
        "maxPods": plain.max_pods,
    }
    if plain.eviction_hard is not None:
        document["evictionHard"] = dict(plain.eviction_hard)
    return document


def mooring_document(config: MooringConfig) -> dict[str, Any]:
    """Return a MooringConfiguration.

    >>> mooring_document(MooringConfig(fixed_defects=frozenset({"odd-uncore"})))["fixedDefects"]
    ['odd-uncore']
    """
    return {
        "apiVersion": mooring.API_VERSION,
        "kind": mooring.KIND,
        "extensions": sorted(config.extensions),
        "fixedDefects": sorted(config.fixed_defects),
        **_plugin_fields(config.plugins),
    }


def _plugin_fields(choice: PluginChoice) -> dict[str, Any]:
    """Return which plugins decide, and how they are set; whoever cannot load the same ones cannot predict the node."""
    if not choice.plugins:
        return {}
    plugins = [
        {
            "name": plugin.name,
            "settings": dict(plugin.settings),
            "placement": plugin.placement.value,
            "weight": plugin.weight,
        }
        for plugin in choice.plugins
    ]
    return {"plugins": plugins, "pluginBudget": f"{choice.budget}ns"}
