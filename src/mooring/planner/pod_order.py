"""The order in which several new pods are asked for: as they are given, or as plugins say (extension plugins)."""

from __future__ import annotations

from collections.abc import Sequence

from mooring.core.machine import Finding
from mooring.core.pod import Pod
from mooring.kubelet.kubelet import Kubelet
from mooring.plugins.host import failures


def in_order(kubelet: Kubelet, pods: Sequence[Pod]) -> tuple[Sequence[Pod], tuple[Finding, ...]]:
    """Return the pods in their order, and which plugins failed to tell one."""
    plugins = kubelet.settings.plugins
    if plugins is None:
        return pods, ()
    facts: list[object] = []
    ordered = plugins.ordered(pods, facts.append)
    return ordered, tuple(
        Finding("warning", f"plugin {failed.plugin}", f"failed at {failed.point}: {failed.why}", "MOOR-531")
        for failed in failures(facts)
    )
