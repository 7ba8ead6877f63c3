"""Options that take a number of seconds."""

from __future__ import annotations

from math import isnan
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from typing import Any


class Seconds(click.FloatRange):
    """A number of seconds between two bounds; click's own range lets ``nan`` through, which no bound excludes."""

    def __init__(self, least: float, most: float) -> None:
        """Take any number from one to the other, both included."""
        super().__init__(least, most)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Return the number that was typed."""
        found: float = super().convert(value, param, ctx)
        if isnan(found):
            self.fail(f"{value} is not a number of seconds", param, ctx)
        return found
