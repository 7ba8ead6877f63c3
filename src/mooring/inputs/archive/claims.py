"""Claims and slices as an archive has them: what says which device is where and who has it, and nothing else."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from mooring.inputs.pods.dynamic.claims import CLAIM
from mooring.inputs.pods.dynamic.objects import KINDS, objects_of
from mooring.inputs.pods.dynamic.references import claims_of_pod

_RESULT: Final = ("request", "driver", "pool", "device", "adminAccess", "shareID")
_PLACE: Final = re.compile(r"pci[0-9a-f]{4,8}:[0-9a-f]{2}|[0-9a-fA-F]{4,8}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2}\.[0-7]")


def reduced_claims(documents: Iterable[object], pods: Iterable[Mapping[str, Any]], node: str) -> list[dict[str, Any]]:
    """Return the claims that pods name and the slices of a node, reduced.

    Args:
        documents: of the cluster.
        pods: of the node.
        node: its name; slices of other nodes are left out.
    """
    named = {
        (pod["metadata"].get("namespace", "default"), claim)
        for pod in pods
        for claim in claims_of_pod(pod, pod.get("spec", {}))
    }
    found = [one for document in documents for _, one in objects_of(document, KINDS)]
    claims = (one for one in found if one["kind"] == CLAIM)
    slices = (one for one in found if one["kind"] != CLAIM)
    kept = [_claim(one) for one in claims if _key(one) in named]
    return [*kept, *(_slice(one) for one in slices if not node or _is_of(one, node))]


def anonymous_claims(
    objects: list[dict[str, Any]], pods: list[dict[str, Any]], spaces: Mapping[str, str], pools: Mapping[str, str]
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Return objects and pods under made-up names of claims, templates and pools.

    Args:
        objects: from :func:`reduced_claims`.
        pods: reduced, under names and namespaces of their own.
        spaces: namespace -> its made-up name.
        pools: name of a pool -> its made-up name, where it is that of the node.
    """
    names: dict[str, str] = {}

    def renamed(value: object) -> object:
        if isinstance(value, list):
            return [renamed(item) for item in value]
        if not isinstance(value, dict):
            return value
        made: dict[str, object] = {}
        for field, inner in value.items():
            if field in ("resourceClaimName", "resourceClaimTemplateName") and isinstance(inner, str):
                made[field] = names.setdefault(inner, f"claim-{len(names) + 1}")
            else:
                made[field] = renamed(inner)
        return made

    shown = [{**pod, "spec": renamed(pod["spec"]), "status": renamed(pod.get("status", {}))} for pod in pods]
    kept = []
    for one in objects:
        metadata = dict(one["metadata"])
        if one["kind"] == CLAIM:
            metadata["name"] = names.setdefault(metadata["name"], f"claim-{len(names) + 1}")
            metadata["namespace"] = spaces.get(metadata.get("namespace", ""), "namespace-0")
        kept.append(_with_pools({**one, "metadata": metadata}, pools))
    return kept, [pod if pod["status"] else {k: v for k, v in pod.items() if k != "status"} for pod in shown]


def _with_pools(one: dict[str, Any], pools: Mapping[str, str]) -> dict[str, Any]:
    """Return an object with other names of pools and nodes."""
    if one["kind"] == CLAIM:
        results = _results(one)
        for result in results:
            result["pool"] = pools.get(str(result.get("pool")), result.get("pool"))
        return {**one, "status": {**one["status"], "allocation": {"devices": {"results": results}}}} if results else one
    spec = dict(one["spec"])
    pool = _mapping(spec, "pool")
    spec["pool"] = {**pool, "name": pools.get(pool.get("name", ""), pool.get("name", ""))}
    if spec.get("nodeName") in pools:
        spec["nodeName"] = pools[spec["nodeName"]]
    return {**one, "spec": spec}


def _results(one: Mapping[str, Any]) -> list[dict[str, Any]]:
    results = _mapping(_mapping(_mapping(one, "status"), "allocation"), "devices").get("results")
    return [dict(result) for result in results if isinstance(result, dict)] if isinstance(results, list) else []


def _key(one: Mapping[str, Any]) -> tuple[str, str]:
    metadata = _mapping(one, "metadata")
    return str(metadata.get("namespace") or "default"), str(metadata.get("name", ""))


def _claim(one: Mapping[str, Any]) -> dict[str, Any]:
    metadata = _only(_mapping(one, "metadata"), ("name", "namespace", "uid"))
    results = [_only(result, _RESULT) for result in _results(one)]
    status = {"allocation": {"devices": {"results": results}}} if results else {}
    return {"apiVersion": "resource.k8s.io/v1", "kind": CLAIM, "metadata": metadata, "status": status}


def _is_of(one: Mapping[str, Any], node: str) -> bool:
    spec = _mapping(one, "spec")
    return spec.get("nodeName") == node or spec.get("perDeviceNodeSelection") is True


def _slice(one: Mapping[str, Any]) -> dict[str, Any]:
    spec = _mapping(one, "spec")
    kept = _only(spec, ("driver", "nodeName", "pool", "perDeviceNodeSelection"))
    devices = spec.get("devices")
    kept["devices"] = [_device(item) for item in devices if isinstance(item, dict)] if isinstance(devices, list) else []
    metadata = _only(_mapping(one, "metadata"), ("name",))
    return {"apiVersion": "resource.k8s.io/v1", "kind": one["kind"], "metadata": metadata, "spec": kept}


def _device(item: Mapping[str, Any]) -> dict[str, Any]:
    inner = _mapping(item, "basic") or item
    kept = _only(item, ("name", "nodeName")) | _only(inner, ("allowMultipleAllocations",))
    attributes = {name: dict(_location(value)) for name, value in _mapping(inner, "attributes").items()}
    return {**kept, "attributes": {name: value for name, value in attributes.items() if value}}


def _location(value: object) -> Iterator[tuple[str, object]]:
    """Yield the value of an attribute that can say where a device is: a number, a PCI address or a PCIe root."""
    for name, inner in value.items() if isinstance(value, dict) else ():
        items = inner if isinstance(inner, list) else [inner]
        if name in ("int", "ints") or all(isinstance(item, str) and _PLACE.fullmatch(item) for item in items):
            yield name, inner


def _only(content: Mapping[str, Any], names: Iterable[str]) -> dict[str, Any]:
    return {name: content[name] for name in names if content.get(name) is not None}


def _mapping(content: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    value = content.get(name)
    return value if isinstance(value, dict) else {}
