"""What is wrong with a kubeconfig that the client cannot use, in words that name the field.

Only asked when the client has failed, whose own words are those of a program: ``KeyError: 'clusters'``, or that a file
is missing without saying which.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from mooring.core.errors import InputError

_SECTIONS = {"contexts": "context", "clusters": "cluster", "users": "user"}
"""Lists of named entries, and the key in each that holds what is named (client-go, tools/clientcmd/api/v1)."""
_FILES = {"cluster": ("certificate-authority",), "user": ("client-certificate", "client-key")}
"""Files that are read when a connection is opened; a token file may come later."""
_PRINT = "compare it with what kubectl config view prints"


def refuse_kubeconfig(path: str, context: str | None = None) -> None:
    """Look for a mistake in a kubeconfig.

    Args:
        path: of the file. A relative path in it is seen from its folder, as kubectl sees it.
        context: that is used; the current one by default.

    Raises:
        InputError: there is one that a person can mend; returns when none of these is found.
    """
    try:
        text = Path(path).read_text(encoding="utf-8")
    except (OSError, ValueError):
        return
    try:
        _refuse(_document(text), Path(path).parent, context)
    except InputError as error:
        raise error.at(path) from None


def _document(text: str) -> Mapping[str, Any]:
    try:
        found = yaml.safe_load(text)
    except yaml.MarkedYAMLError as error:
        line = "" if error.problem_mark is None else f" in line {error.problem_mark.line + 1}"
        raise InputError(f"is no YAML{line}: {error.problem}", remedy=_PRINT) from None
    except yaml.YAMLError as error:
        raise InputError(f"is no YAML: {error}", remedy=_PRINT) from None
    if not isinstance(found, dict):
        raise InputError("is no kubeconfig: it has no fields", remedy=_PRINT)
    return found


def _refuse(document: Mapping[str, Any], folder: Path, context_name: str | None) -> None:
    name = context_name or document.get("current-context")
    if not isinstance(name, str) or not name:
        raise InputError("names no context", field="current-context", remedy="kubectl config use-context NAME sets it")
    context = _entry(document, "contexts", name, "current-context")
    for section in ("clusters", "users"):
        kind = _SECTIONS[section]
        wanted = context.get(kind)
        if not isinstance(wanted, str):
            raise InputError(f"names no {kind}", field=f"contexts[{name}].{kind}", remedy=_PRINT)
        entry = _entry(document, section, wanted, f"contexts[{name}].{kind}")
        for field in _FILES[kind]:
            _refuse_file(entry, field, f"{section}[{wanted}]", folder)


def _entry(document: Mapping[str, Any], section: str, name: str, asked_by: str) -> Mapping[str, Any]:
    entries = document.get(section)
    if not isinstance(entries, list) or not all(isinstance(one, dict) for one in entries):
        raise InputError("is no list of entries", field=section, remedy=_PRINT)
    for one in entries:
        if one.get("name") == name:
            found = one.get(_SECTIONS[section])
            if isinstance(found, dict):
                return found
            raise InputError("has no fields", field=f"{section}[{name}].{_SECTIONS[section]}", remedy=_PRINT)
    raise InputError(
        f"{name!r:.80} is not among {section}", field=asked_by, remedy=f"add it there, or name one of {section}"
    )


def _refuse_file(entry: Mapping[str, Any], field: str, where: str, folder: Path) -> None:
    named = entry.get(field)
    if named is None or entry.get(f"{field}-data"):
        return
    if not isinstance(named, str):
        raise InputError("is no path", field=f"{where}.{field}", remedy="name a file")
    try:
        (folder / named).read_bytes()
    except (OSError, ValueError) as error:
        words = (getattr(error, "strerror", None) or str(error)).lower()
        raise InputError(f"{named} cannot be read: {words}", field=f"{where}.{field}", remedy="name another") from None
