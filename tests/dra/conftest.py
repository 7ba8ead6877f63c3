from __future__ import annotations

from tests.agent.conftest import node, patience

__all__ = ["node", "patience"]
