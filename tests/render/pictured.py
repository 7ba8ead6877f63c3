"""Pictures of the terminal as plain text."""

from __future__ import annotations

from mooring.views.console import plain
from mooring.views.terminal import picture
from mooring.views.view import NodeView


def terminal_text(view: NodeView, width: int = 100) -> str:
    """Return the whole picture as plain text for ``width`` columns."""
    return plain(picture(view, width), width)
