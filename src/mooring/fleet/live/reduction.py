"""Objects of a cluster as an archive has them: what decides, and nothing else.

Everything is taken from lists of names: what is not on one, such as the environment of a container or an annotation,
is left out, whatever it is.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from mooring.fleet.live.objects import BUDGET, NODE, POD, TOPOLOGY, ClusterObjects, Content
from mooring.inputs.archive.claims import reduced_claims
from mooring.inputs.archive.reduction import reduced_configuration, reduced_pods
from mooring.inputs.pods.cluster_objects import KINDS as DYNAMIC
from mooring.published.objects import FACTS, STATE

_NODE_SPEC: Final = ("taints", "unschedulable")
_NODE_STATUS: Final = ("allocatable", "capacity")
_POD_METADATA: Final = ("labels", "creationTimestamp", "deletionTimestamp")
_POD_SPEC: Final = ("nodeName", "nodeSelector", "affinity", "tolerations", "topologySpreadConstraints")
_OWNER: Final = ("apiVersion", "kind", "name", "uid", "controller")
_STATUS: Final = ("name", "allocatedResources", "resources")
_TOPOLOGY: Final = ("topologyPolicies", "attributes", "zones")


def reduced_objects(objects: ClusterObjects) -> dict[str, list[dict[str, Any]]]:
    """Return kind -> objects, reduced, in the order of namespace and name; claims and slices are under one kind.

    Raises:
        InputError: an object is none of Kubernetes.
    """
    pods = [_pod(one) for one in objects.of(POD)]
    claims = [{"kind": "List", "items": list(objects.of(kind))} for kind in sorted(DYNAMIC)]
    found: dict[str, list[dict[str, Any]]] = {
        NODE: [_node(one) for one in objects.of(NODE)],
        POD: pods,
        BUDGET: [_budget(one) for one in objects.of(BUDGET)],
        "ResourceClaim": reduced_claims(claims, pods, ""),
        FACTS: [_own(one) for one in objects.of(FACTS)],
        STATE: [_own(one) for one in objects.of(STATE)],
        TOPOLOGY: [_with_name(one) | _only(one, _TOPOLOGY) for one in objects.of(TOPOLOGY)],
    }
    return {kind: sorted(items, key=_order) for kind, items in found.items()}


def reduced_configz(objects: ClusterObjects) -> dict[str, dict[str, Any]]:
    """Return name of a node -> its kubelet's configuration, with the fields that decide."""
    return {name: reduced_configuration(content) for name, content in sorted(objects.configz.items())}


def _node(content: Content) -> dict[str, Any]:
    status = _mapping(content, "status")
    ready = [
        _only(one, ("type", "status")) for one in _mappings(status.get("conditions")) if one.get("type") == "Ready"
    ]
    kept = _only(status, _NODE_STATUS) | {"conditions": ready}
    kept |= {"nodeInfo": _only(_mapping(status, "nodeInfo"), ("kubeletVersion",))}
    found = _with_name(content)
    found["metadata"] |= _only(_mapping(content, "metadata"), ("labels",))
    return {**found, "spec": _only(_mapping(content, "spec"), _NODE_SPEC), "status": kept}


def _pod(content: Content) -> dict[str, Any]:
    """Return a pod as a node archive has it, with what the scheduler and a drain read."""
    [found] = reduced_pods([content])
    metadata, spec, status = (_mapping(content, part) for part in ("metadata", "spec", "status"))
    found["metadata"] |= _only(metadata, _POD_METADATA)
    owners = [_only(one, _OWNER) for one in _mappings(metadata.get("ownerReferences"))]
    if owners:
        found["metadata"]["ownerReferences"] = owners
    found["spec"] |= _only(spec, _POD_SPEC)
    volumes = [one for one in _mappings(spec.get("volumes")) if one.get("persistentVolumeClaim")]
    if volumes:
        found["spec"]["volumes"] = [
            {"persistentVolumeClaim": _only(_mapping(one, "persistentVolumeClaim"), ("claimName",))} for one in volumes
        ]
    told = found.setdefault("status", {})
    told |= _only(status, ("allocatedResources", "resources"))
    for field in ("containerStatuses", "initContainerStatuses"):
        items = [_only(one, _STATUS) for one in _mappings(status.get(field))]
        if items:
            told[field] = items
    return found


def _budget(content: Content) -> dict[str, Any]:
    found = _with_name(content)
    spec = _only(_mapping(content, "spec"), ("selector",))
    return {**found, "spec": spec, "status": _only(_mapping(content, "status"), ("disruptionsAllowed",))}


def _own(content: Content) -> dict[str, Any]:
    return {**_with_name(content), "spec": content.get("spec")}


def _with_name(content: Content) -> dict[str, Any]:
    metadata = _only(_mapping(content, "metadata"), ("name", "namespace"))
    return {**_only(content, ("apiVersion", "kind")), "metadata": metadata}


def _order(content: Mapping[str, Any]) -> tuple[str, str, str]:
    metadata = _mapping(content, "metadata")
    return str(content.get("kind", "")), str(metadata.get("namespace", "")), str(metadata.get("name", ""))


def _only(content: Mapping[str, Any], names: Iterable[str]) -> dict[str, Any]:
    return {name: content[name] for name in names if content.get(name) is not None}


def _mapping(content: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    value = content.get(name)
    return value if isinstance(value, dict) else {}


def _mappings(value: object) -> list[Mapping[str, Any]]:
    return [one for one in value if isinstance(one, dict)] if isinstance(value, list) else []
