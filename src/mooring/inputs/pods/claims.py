"""ResourceClaim objects.

Source: resource.k8s.io/v1 of v1.37, ``status.allocation.devices.results`` and ``status.reservedFor``; v1beta1 and
v1beta2 have the same form there.

ResourceSlice objects: the devices that drivers offer.

Source: resource.k8s.io/v1 of v1.37. A pool is what its slices of the highest generation say, and while a driver writes
a new generation the slices of an older one are out of date. An attribute without a domain belongs to the driver's.
v1beta1 has the fields of a device one level deeper, under ``basic``.

Which claims a pod has, and which of its containers uses what of them.

Source: core/v1 of v1.37: PodResourceClaim and PodResourceClaimStatus (KEP-4381): a claim is named directly, or made for
the pod from a template, and then the status tells its name. PodExtendedResourceClaimStatus (KEP-5004): the scheduler
makes one claim for the extended resources of a pod that drivers serve.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any, Final

from mooring.engine.core.pod import AttributeValue, ClaimedDevice, ClaimUse, Container, DynamicDevice, ResourceClaim
from mooring.inputs.decoding import fields as reading
from mooring.inputs.decoding.fields import each_at, list_at, mapping_at, name_at, text_at, within
from mooring.lazy import dataclass, replace

CLAIM: Final = "ResourceClaim"


def claim_of(obj: Mapping[str, Any], *, source: str) -> ResourceClaim:
    """Return the claim that an object describes.

    Args:
        obj: of kind ResourceClaim.
        source: where it comes from, for messages.

    Raises:
        InputError: a field has another form.
    """
    with within(source=source):
        metadata, status = mapping_at(obj, "metadata"), mapping_at(obj, "status")
        name, namespace, uid = name_at(metadata, "name"), text_at(metadata, "namespace"), text_at(metadata, "uid")
        with within("status"):
            allocation = status.get("allocation")
            given = mapping_at(mapping_at(status, "allocation"), "devices")
            with within("allocation.devices.results"):
                devices = tuple(
                    ClaimedDevice(
                        text_at(fields, "request"),
                        name_at(fields, "driver"),
                        name_at(fields, "pool"),
                        name_at(fields, "device"),
                        reading.flag_at(fields, "adminAccess", default=False),
                        text_at(fields, "shareID"),
                    )
                    for fields in map(reading.as_mapping, list_at(given, "results"))
                )
            users = map(reading.as_mapping, list_at(status, "reservedFor"))
            pods = frozenset(text_at(user, "uid") for user in users if text_at(user, "resource") == "pods")
    return ResourceClaim(namespace or "default", name, uid, allocation is not None, devices, pods)


SLICE: Final = "ResourceSlice"
_WORDS: Final[Mapping[type, str]] = {int: "a whole number", bool: "true or false", str: "a string"}
_KINDS: Final[Mapping[str, type]] = {"int": int, "bool": bool, "string": str, "version": str}


@dataclass(frozen=True, slots=True)
class ResourceSlice:
    """Part of a pool of devices."""

    name: str
    driver: str
    pool: str
    generation: int
    node: str
    """The only node that has the devices; empty when a selector or each device says which."""
    devices: tuple[tuple[str, DynamicDevice], ...]
    """Node, empty as above, and device."""


def slice_of(obj: Mapping[str, Any], *, source: str) -> ResourceSlice:
    """Return the slice that an object describes.

    Args:
        obj: of kind ResourceSlice.
        source: where it comes from, for messages.

    Raises:
        InputError: a field has another form.
    """
    with within(source=source):
        name = text_at(mapping_at(obj, "metadata"), "name")
        with within("spec"):
            spec = mapping_at(obj, "spec")
            driver, node = name_at(spec, "driver"), text_at(spec, "nodeName")
            pool = mapping_at(spec, "pool")
            generation = pool.get("generation", 0)
            if type(generation) is not int:
                raise reading.wrong_kind(generation, "a whole number", "pool.generation")
            with within("pool"):
                pool_name = name_at(pool, "name")
            devices = each_at(
                spec,
                "devices",
                lambda one: (text_at(one, "nodeName") or node, _published_device(driver, pool_name, one)),
            )
            return ResourceSlice(name, driver, pool_name, generation, node, tuple(devices))


def current_devices(slices: Iterable[ResourceSlice], node: str = "") -> tuple[DynamicDevice, ...]:
    """Return the devices of the newest generation of each pool, by driver, pool and name.

    Args:
        slices: of any drivers.
        node: whose devices; empty for all of them, those of no single node included.
    """
    found = list(slices)
    newest: dict[tuple[str, str], int] = {}
    for one in found:
        pool = one.driver, one.pool
        newest[pool] = max(one.generation, newest.get(pool, one.generation))
    devices = {
        (device.driver, device.pool, device.name): device
        for one in found
        if one.generation == newest[one.driver, one.pool]
        for place, device in one.devices
        if not node or place == node
    }
    return tuple(devices[key] for key in sorted(devices))


def _published_device(driver: str, pool: str, fields: Mapping[str, Any]) -> DynamicDevice:
    inner = mapping_at(fields, "basic") or fields
    found: dict[str, AttributeValue] = {}
    for name, item in mapping_at(inner, "attributes").items():
        field = f"attributes.{name:.80}"
        if not isinstance(item, dict):
            raise reading.wrong_kind(item, "a mapping", field)
        for value in _values(item, field):
            found[name if "/" in name else f"{driver}/{name}"] = value
    return DynamicDevice(
        driver, pool, name_at(fields, "name"), found, reading.flag_at(inner, "allowMultipleAllocations", default=False)
    )


def _values(item: Mapping[str, Any], field: str) -> Iterator[AttributeValue]:
    """Yield the value of an attribute; nothing for one of a kind that this release does not know."""
    for name, value in item.items():
        kind = _KINDS.get(name.removesuffix("s"))
        if kind is None:
            continue
        place, values = f"{field}.{name:.20}", value if name.endswith("s") else [value]
        if not isinstance(values, list):
            raise reading.wrong_kind(value, "a list", place)
        for one in values:
            if type(one) is not kind:
                raise reading.wrong_kind(one, _WORDS[kind], place)
        yield tuple(values) if name.endswith("s") else values[0]


_CLAIMS: Final = "resourceClaims"
_CLAIM_STATUSES: Final = "resourceClaimStatuses"
_EXTENDED: Final = "extendedResourceClaimStatus"


def claims_of_pod(obj: Mapping[str, Any], spec: Mapping[str, Any]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the names of a pod's claims, and what it calls those that are still to be made from templates.

    Args:
        obj: the pod; its status tells the names of claims that were made.
        spec: of it.

    Raises:
        InputError: a field has another form.

    >>> claims = [{"name": name, "resourceClaimTemplateName": "each"} for name in ("own", "gpu")]
    >>> status = {"resourceClaimStatuses": [{"name": "own", "resourceClaimName": "a-own-1"}]}
    >>> claims_of_pod({"status": status}, {"resourceClaims": claims})
    (('a-own-1',), ('gpu',))
    """
    names, extended = _names(obj, spec), text_at(_extended(obj), "resourceClaimName")
    claims = dict.fromkeys(claim for claim in (*names.values(), extended) if claim)
    return tuple(claims), tuple(name for name, claim in names.items() if not claim)


def with_claims(obj: Mapping[str, Any], spec: Mapping[str, Any], containers: list[Container]) -> list[Container]:
    """Return a pod's containers with what they use of its claims.

    Args:
        obj: the pod.
        spec: of it.
        containers: of it, init containers first.

    Raises:
        InputError: a field has another form.
    """
    names, extended = _names(obj, spec), _extended(obj)
    if not names and not extended:
        return containers
    uses = {container.name: list[ClaimUse]() for container in containers}
    for field in ("initContainers", "containers"):
        for index, item in enumerate(list_at(spec, field)):
            with within(f"spec.{field}[{index}].resources"):
                asked = mapping_at(reading.as_mapping(item), "resources")
                used = each_at(asked, "claims", lambda one: (text_at(one, "name"), text_at(one, "request")))
                uses[item["name"]] += (ClaimUse(names[name], request) for name, request in used if names.get(name))
    # What a driver serves of extended resources.
    with within(f"status.{_EXTENDED}"):
        claim = text_at(extended, "resourceClaimName")
        for item in list_at(extended, "requestMappings"):
            fields = reading.as_mapping(item)
            if claim:
                use = ClaimUse(claim, text_at(fields, "requestName"))
                uses.setdefault(text_at(fields, "containerName"), []).append(use)
    return [replace(one, claims=tuple(dict.fromkeys(uses[one.name]))) if uses[one.name] else one for one in containers]


def _extended(obj: Mapping[str, Any]) -> Mapping[str, Any]:
    status = reading.part_at(obj, "status")
    with within("status"):
        found = mapping_at(status, _EXTENDED) if status.get(_EXTENDED) else {}
        text_at(found, "resourceClaimName")
    return found


def _names(obj: Mapping[str, Any], spec: Mapping[str, Any]) -> dict[str, str]:
    """Return the pod's own name of a claim -> the claim's, empty while nothing tells it."""
    if not spec.get(_CLAIMS):
        return {}
    made = dict(_entries(reading.part_at(obj, "status"), _CLAIM_STATUSES, "status"))
    return {name: claim or made.get(name, "") for name, claim in _entries(spec, _CLAIMS, "spec")}


def _entries(parent: Mapping[str, Any], field: str, place: str) -> Iterable[tuple[str, str]]:
    with within(place):
        return each_at(parent, field, lambda one: (text_at(one, "name"), text_at(one, "resourceClaimName")))


KINDS: Final = frozenset({CLAIM, SLICE})
_DEEPEST: Final = 8
"""Lists inside lists."""


def objects_of(
    content: object, kinds: Collection[str], place: str = "", depth: int = 0
) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield place and content of the objects of some kinds; what is no object is passed over."""
    if not isinstance(content, dict) or depth > _DEEPEST:
        return
    kind = content.get("kind")
    if not isinstance(kind, str):
        return
    if kind in kinds:
        yield place, content
    elif kind.endswith("List"):
        items = content.get("items")
        single = kind.removesuffix("List")
        for index, item in enumerate(items if isinstance(items, list) else ()):
            # The items of a ResourceClaimList need not name their kind.
            named = {"kind": single, **item} if single and isinstance(item, dict) else item
            yield from objects_of(named, kinds, f"{place}.items[{index}]".lstrip("."), depth + 1)
