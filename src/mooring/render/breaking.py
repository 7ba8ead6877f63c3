"""Texts that a table breaks where it makes sense."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from rich.console import Console, ConsoleOptions
from rich.measure import Measurement
from rich.segment import Segment

from mooring.render.console import STYLES


@dataclass(frozen=True, slots=True)
class Breaking:
    """A text that a table may break after certain signs only: CPU lists after commas, names after slashes."""

    text: str
    after: str = ","
    style: str = ""

    def __rich_measure__(self, console: Console, options: ConsoleOptions) -> Measurement:
        """Tell the table the narrowest and the widest form."""
        del console
        narrowest = max(len(part) for part in self._parts(len(self.text) or 1))
        return Measurement(narrowest, max(len(self.text), 1)).with_maximum(options.max_width)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[Segment]:
        """Yield the lines."""
        del console
        line = ""
        for part in self._parts(options.max_width):
            if line and len(line) + len(part) > options.max_width:
                yield from (Segment(line, STYLES[self.style]), Segment.line())
                line = ""
            line += part
        yield from (Segment(line, STYLES[self.style]), Segment.line())

    def _parts(self, longest: int) -> Iterator[str]:
        """Yield the pieces; one that is longer than a whole line is cut where the line ends."""
        *front, last = self.text.split(self.after)
        for piece in (*(part + self.after for part in front), last):
            yield from (piece[start : start + longest] for start in range(0, max(len(piece), 1), longest))
