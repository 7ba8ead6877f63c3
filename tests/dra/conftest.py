from __future__ import annotations

from tests.agent.conftest import node

__all__ = ["node"]
