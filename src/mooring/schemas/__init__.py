"""JSON Schemas of the documents that ``-o json`` prints, one file a kind, as data of the package.

Draft 2020-12. What several documents share stands in ``common.json``, which they name by its relative path.
"""

from __future__ import annotations

import json
from functools import cache
from importlib.resources import files
from typing import Any

from mooring.core.errors import InputError

COMMON = "common"
_SUFFIX = ".json"


@cache
def kinds() -> tuple[str, ...]:
    """Return every kind of document in text order.

    >>> "Plan" in kinds(), "common" in kinds()
    (True, False)
    """
    names = (entry.name for entry in files("mooring.schemas").iterdir())
    found = (name.removesuffix(_SUFFIX) for name in names if name.endswith(_SUFFIX))
    return tuple(sorted(name for name in found if name != COMMON))


def schema(kind: str) -> dict[str, Any]:
    """Return the schema of a kind of document, or with :data:`COMMON` what they share.

    Raises:
        InputError: there is no such kind.

    >>> schema("Plan")["properties"]["kind"]
    {'const': 'Plan'}
    """
    if kind != COMMON and kind not in kinds():
        raise InputError("is no kind of document", source=kind, remedy=f"kinds are {', '.join(kinds())}")
    found: dict[str, Any] = json.loads((files("mooring.schemas") / f"{kind}{_SUFFIX}").read_text(encoding="utf-8"))
    return found
