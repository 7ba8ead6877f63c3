"""Bars made of signs, so that they read without colour."""

from __future__ import annotations

from collections.abc import Sequence

from rich.text import Text

from mooring.render.console import STYLES

BAR_WIDTH = 20
"""Columns of a bar where there is room."""

NARROWEST_BAR = 8
"""Columns below which a bar says nothing and is left out."""


def bar(parts: Sequence[tuple[int, str, str]], total: int, width: int = BAR_WIDTH) -> Text:
    """Return a bar of ``width`` columns for ``total``: per part its amount, its sign and its style name.

    An amount above zero shows at least one sign as long as there is room; rounding goes to the largest remainder.

    >>> bar([(1, "#", "reserved"), (50, "█", ""), (49, "·", "")], 100, 10).plain
    '#█████····'
    """
    if total <= 0:
        return Text("")
    exact = [amount * width / total for amount, _, _ in parts]
    lengths = [max(1, int(share)) if share else 0 for share in exact]
    wanted = min(width, round(sum(exact)))
    while sum(lengths) != wanted and any(lengths):
        grow = sum(lengths) < wanted
        error = [share - length for share, length in zip(exact, lengths, strict=True)]
        candidates = [index for index, length in enumerate(lengths) if exact[index] and (grow or length > 1)]
        if not candidates:
            break
        chosen = (max if grow else min)(candidates, key=lambda index: error[index])
        lengths[chosen] += 1 if grow else -1
    pieces = ((sign * length, STYLES[style]) for (_, sign, style), length in zip(parts, lengths, strict=True))
    return Text.assemble(*pieces)
