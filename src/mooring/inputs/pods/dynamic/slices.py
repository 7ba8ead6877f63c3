"""ResourceSlice objects: the devices that drivers offer.

Source: resource.k8s.io/v1 of v1.37. A pool is what its slices of the highest generation say, and while a driver writes
a new generation the slices of an older one are out of date. An attribute without a domain belongs to the driver's.
v1beta1 has the fields of a device one level deeper, under ``basic``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from mooring.engine.core.dynamic import Attributes, AttributeValue, DynamicDevice
from mooring.engine.core.errors import InputError
from mooring.inputs.decoding.fields import (
    as_mapping,
    flag_at,
    inside,
    list_at,
    mapping_at,
    name_at,
    text_at,
    wrong_kind,
)

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
    try:
        name = text_at(mapping_at(obj, "metadata"), "name")
        try:
            return _slice(name, mapping_at(obj, "spec"))
        except InputError as error:
            raise inside(error, "spec") from None
    except InputError as error:
        raise error.at(source) from None


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


def _slice(name: str, spec: Mapping[str, Any]) -> ResourceSlice:
    driver, node = name_at(spec, "driver"), text_at(spec, "nodeName")
    pool = mapping_at(spec, "pool")
    generation = pool.get("generation", 0)
    if type(generation) is not int:
        raise wrong_kind(generation, "a whole number", "pool.generation")
    try:
        pool_name = name_at(pool, "name")
    except InputError as error:
        raise inside(error, "pool") from None
    devices = []
    for index, item in enumerate(list_at(spec, "devices")):
        try:
            fields = as_mapping(item)
            devices.append((text_at(fields, "nodeName") or node, _device(driver, pool_name, fields)))
        except InputError as error:
            raise inside(error, f"devices[{index}]") from None
    return ResourceSlice(name, driver, pool_name, generation, node, tuple(devices))


def _device(driver: str, pool: str, fields: Mapping[str, Any]) -> DynamicDevice:
    inner = mapping_at(fields, "basic") or fields
    return DynamicDevice(
        driver,
        pool,
        name_at(fields, "name"),
        _attributes(driver, mapping_at(inner, "attributes")),
        flag_at(inner, "allowMultipleAllocations", default=False),
    )


def _attributes(driver: str, content: Mapping[str, Any]) -> Attributes:
    found: dict[str, AttributeValue] = {}
    for name, item in content.items():
        field = f"attributes.{name:.80}"
        if not isinstance(item, dict):
            raise wrong_kind(item, "a mapping", field)
        for value in _values(item, field):
            found[name if "/" in name else f"{driver}/{name}"] = value
    return found


def _values(item: Mapping[str, Any], field: str) -> Iterator[AttributeValue]:
    """Yield the value of an attribute; nothing for one of a kind that this release does not know."""
    for name, value in item.items():
        kind = _KINDS.get(name.removesuffix("s"))
        if kind is None:
            continue
        place, values = f"{field}.{name:.20}", value if name.endswith("s") else [value]
        if not isinstance(values, list):
            raise wrong_kind(value, "a list", place)
        for one in values:
            if type(one) is not kind:
                raise wrong_kind(one, _WORDS[kind], place)
        yield tuple(values) if name.endswith("s") else values[0]
