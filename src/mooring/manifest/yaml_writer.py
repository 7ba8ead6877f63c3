"""Documents as YAML text."""

from __future__ import annotations

import yaml


def yaml_text(document: object) -> str:
    """Return a document of plain values as YAML, members in their order.

    >>> print(yaml_text({"kind": "Plan", "pods": []}), end="")
    kind: Plan
    pods: []
    """
    text: str = yaml.safe_dump(document, sort_keys=False, allow_unicode=True, default_flow_style=False)
    return text
