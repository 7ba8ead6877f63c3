"""A sheet of characters, each with the name of a style."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby

FRAMES = {"light": tuple("╭─╮│╰╯"), "heavy": tuple("┏━┓┃┗┛"), "dashed": tuple("┌╌┐╎└┘")}
"""Corner, horizontal, corner, vertical, corner, corner."""


class Canvas:
    """Characters at coordinates; what is drawn later covers what was drawn earlier, what lies outside is cut off."""

    def __init__(self, width: int, height: int) -> None:
        self._chars = [[" "] * width for _ in range(height)]
        self._styles = [[""] * width for _ in range(height)]

    def write(self, x: int, y: int, text: str, style: str = "") -> None:
        """Write ``text`` from (x, y) to the right; every character must be one column wide."""
        if not 0 <= y < len(self._chars):
            return
        for column, char in enumerate(text, start=x):
            if 0 <= column < len(self._chars[y]):
                self._chars[y][column] = char
                self._styles[y][column] = style

    def frame(self, x: int, y: int, width: int, height: int, lines: tuple[str, ...], style: str) -> None:
        """Draw a frame with ``lines``, one of :data:`FRAMES`."""
        left, across, right, down, low_left, low_right = lines
        self.write(x, y, left + across * (width - 2) + right, style)
        for row in range(y + 1, y + height - 1):
            self.write(x, row, down, style)
            self.write(x + width - 1, row, down, style)
        self.write(x, y + height - 1, low_left + across * (width - 2) + low_right, style)

    def lines(self) -> Iterator[list[tuple[str, str]]]:
        """Yield every line as runs of text in one style, without trailing blanks."""
        for chars, styles in zip(self._chars, self._styles, strict=True):
            pairs = list(zip(chars, styles, strict=True))
            while pairs and pairs[-1] == (" ", ""):
                pairs.pop()
            yield [("".join(char for char, _ in run), style) for style, run in groupby(pairs, key=lambda pair: pair[1])]
