"""Mooring's own document: what a node may do beyond, or better than, kubelet v1.37.1."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mooring.core.config import EXTENSIONS, FIXABLE_DEFECTS, RESERVED_EXTENSIONS, MooringConfig
from mooring.core.errors import InputError
from mooring.manifest.fields import list_at, nearest, text_at, wrong_kind

KIND = "MooringConfiguration"
API_VERSION = "mooring/v1alpha1"
_FIELDS = frozenset({"apiVersion", "kind", "extensions", "fixedDefects"})


def mooring_config(content: Mapping[str, Any], *, source: str) -> MooringConfig:
    """Return what the document switches on.

    Raises:
        InputError: another version, an unknown field, or an unknown name; the known ones are told.

    >>> sorted(mooring_config({"fixedDefects": ["odd-uncore"]}, source="example").fixed_defects)
    ['odd-uncore']
    """
    try:
        _check(content)
        return MooringConfig(_extensions(content), _names(content, "fixedDefects", FIXABLE_DEFECTS))
    except InputError as error:
        raise error.at(source) from None


def _check(content: Mapping[str, Any]) -> None:
    version = text_at(content, "apiVersion", API_VERSION)
    if version != API_VERSION:
        raise InputError(f"{version!r:.60} is not supported", field="apiVersion", remedy=f"write {API_VERSION}")
    for field in content:
        if field not in _FIELDS:
            raise _unknown(field, _FIELDS, "")


def _extensions(content: Mapping[str, Any]) -> frozenset[str]:
    names = _names(content, "extensions", EXTENSIONS | RESERVED_EXTENSIONS)
    for name in sorted(names - EXTENSIONS):
        raise InputError(f"{name} is not available in this version", field="extensions", remedy="leave it out")
    return names


def _names(content: Mapping[str, Any], field: str, known: frozenset[str]) -> frozenset[str]:
    names = list_at(content, field)
    for index, name in enumerate(names):
        if not isinstance(name, str):
            raise wrong_kind(name, "a text", f"{field}[{index}]")
        if name not in known:
            raise _unknown(name, known, f"{field}[{index}]")
    return frozenset(names)


def _unknown(name: str, known: frozenset[str], field: str) -> InputError:
    close = nearest(name, known)
    remedy = f"did you mean {close}?" if close else f"known are {', '.join(sorted(known))}"
    return InputError(f"{name!r:.60} is not known", field=field, remedy=remedy)
