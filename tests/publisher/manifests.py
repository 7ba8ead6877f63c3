"""A strict reader of Kubernetes manifests: the API's own fields and types, and what each container has to say."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import msgspec
from lightkube.core.exceptions import LoadResourceError
from lightkube.core.resource_registry import resource_registry

_SAID = ("resources", "securityContext")


def mistakes(document: dict[str, Any]) -> list[str]:
    """Return what is wrong with a manifest, each with its place."""
    try:
        read = msgspec.convert(document, resource_registry.load(document["apiVersion"], document["kind"]))
    except (LoadResourceError, msgspec.ValidationError) as error:
        return [str(error)]
    return list(_unread(document, msgspec.to_builtins(read), ""))


def _unread(written: Any, read: Any, place: str) -> Iterator[str]:
    """Yield the fields that the API does not have, and containers that do not say what they may have and do."""
    if isinstance(written, dict):
        if re.search(r"ontainers\[\d+\]$", place):
            yield from (f"{place}.{name}: missing" for name in _SAID if name not in written)
        for name, part in written.items():
            if name not in read:
                yield f"{place}.{name}: unknown"
            else:
                yield from _unread(part, read[name], f"{place}.{name}")
    elif isinstance(written, list):
        for number, (one, other) in enumerate(zip(written, read, strict=True)):
            yield from _unread(one, other, f"{place}[{number}]")
