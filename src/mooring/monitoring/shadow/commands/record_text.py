"""``mooring record -o text``: what was recorded of each node, for people."""

from __future__ import annotations

from mooring.cli.terminal import text_for
from mooring.documents.observed.recording import RecordingDocument
from mooring.engine.core.errors import clean
from mooring.views.console import new_table


def recording_text(found: RecordingDocument, to: str = "") -> str:
    """Return the text for a terminal of the present width, or for the file ``to``."""
    table = new_table("NODE", "KUBELET", "FOLDER")
    for name in ("SCENARIOS", "LEFT OUT", "AGREED", "DIFFERS", "CANNOT TELL"):
        table.add_column(name, justify="right")
    for one in found.nodes:
        counts = (one.scenarios, one.left_out, one.agreed, one.differs, one.unknown)
        table.add_row(clean(one.node), one.release or "-", clean(one.folder), *map(str, counts))
    return text_for(table, to)
