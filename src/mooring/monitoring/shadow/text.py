"""``mooring shadow -o text``: how often the engine decided as the kubelet, for people.

``mooring record -o text``: what was recorded of each node, for people.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import date, timedelta

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.text import Text

from mooring.cli.terminal import text_for
from mooring.engine.core.errors import clean
from mooring.explanations.phrases import plural
from mooring.monitoring.shadow.judge import RecordingDocument
from mooring.published.shadow_document import ShadowDocument, WouldBePart
from mooring.views.console import STYLES, Breaking, new_table

_INDENT = (0, 0, 0, 2)
_MOST = 10
_DAYS = 7


def shadow_text(found: ShadowDocument, to: str = "") -> str:
    """Return the text for a terminal of the present width, or for the file ``to``."""
    return text_for(Group(*_parts(found)), to)


def _parts(found: ShadowDocument) -> Iterator[RenderableType]:
    total = found.agreed + found.differs + found.unknown
    yield Text.assemble(
        (clean(found.node), STYLES["title"]),
        f": kubelet {found.release}, {plural(total, 'decision')} since {found.since}",
    )
    yield Text(f"agreed {found.agreed}, differs {found.differs}, cannot tell {found.unknown}", "bold")
    if found.predicted:
        yield Text(f"predicted: {plural(found.predicted, 'pod')}, {found.came_true} of them correctly")
    if found.counts:
        yield Text("")
        table = new_table("VERDICT", "KUBELET", "CAUSE")
        table.add_column("COUNT", justify="right")
        for one in found.counts:
            table.add_row(one.verdict, one.event, one.cause or "-", str(one.count))
        yield Padding(table, _INDENT)
    for decision in found.differences[-_MOST:]:
        name = clean(decision.pod) or "kubelet"
        yield Breaking(
            f"{name} {decision.event}: {decision.cause}: the kubelet has {clean(decision.kubelet)}, "
            f"the engine {clean(decision.engine)}"
        )
    if found.would_be is not None:
        yield Text("")
        yield from _would_be(found, found.would_be)


def _would_be(found: ShadowDocument, other: WouldBePart) -> Iterator[RenderableType]:
    first, begun = str(date.fromisoformat(found.observed_at[:10]) - timedelta(days=_DAYS - 1)), other.since[:10]
    days = [one for one in other.days if one.day >= first]
    when = f"In the last {_DAYS} days" if begun <= first else f"Since {begun}"
    yield Text(
        f"{when} the kubelet refused {plural(sum(one.refused for one in days), 'pod')}; with the other "
        f"configuration {plural(sum(one.refusals for one in days), 'pod')} would have been refused."
    )
    for words, names in (("only then refused", other.refused), ("only then admitted", other.admitted)):
        if names:
            yield Breaking(f"{words}: {', '.join(clean(one) for one in names[-_MOST:])}")


def recording_text(found: RecordingDocument, to: str = "") -> str:
    """Return the text for a terminal of the present width, or for the file ``to``."""
    table = new_table("NODE", "KUBELET", "FOLDER")
    for name in ("SCENARIOS", "LEFT OUT", "AGREED", "DIFFERS", "CANNOT TELL"):
        table.add_column(name, justify="right")
    for one in found.nodes:
        counts = (one.scenarios, one.left_out, one.agreed, one.differs, one.unknown)
        table.add_row(clean(one.node), one.release or "-", clean(one.folder), *map(str, counts))
    return text_for(table, to)
