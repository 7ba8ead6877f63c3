"""Pictures of the terminal as plain text."""

from __future__ import annotations

from mooring.render.console import plain
from mooring.render.terminal import picture
from mooring.render.view import NodeView


def terminal_text(view: NodeView, width: int = 100) -> str:
    """Return the whole picture as plain text for ``width`` columns."""
    return plain(picture(view, width), width)
