"""A decision as a picture: NUMA nodes as columns, one row for each thing that was requested.

The values here say what is drawn, :mod:`mooring.views.decision_rows` fills the rows, and
:mod:`mooring.views.svg.decision` draws them. Every mark has a sign besides its colour.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum


class Mark(Enum):
    """What a provider says about one NUMA node, or what became of the node."""

    PREFERRED = "preferred"
    WITH_OTHERS = "preferred together with others"
    POSSIBLE = "possible with others, not preferred"
    ANY = "no opinion"
    BARRED = "not possible"
    CHOSEN = "chosen"
    REFUSED = "best possible set, rejected"
    LEFT = "not chosen"


SIGNS: Mapping[Mark, str] = {
    Mark.PREFERRED: "✓",
    Mark.WITH_OTHERS: "+",
    Mark.POSSIBLE: "(+)",
    Mark.ANY: "~",
    Mark.BARRED: "×",
    Mark.CHOSEN: "●",
    Mark.REFUSED: "!",
    Mark.LEFT: "",
}
"""One sign for each mark; the legend says what it means."""

REQUIRED_SIGN = "◆"
REQUIRED = "required: earlier containers of the pod have CPUs there, which count"
"""How a NUMA node is marked that every hint must hold."""


@dataclass(frozen=True, slots=True)
class DecisionCell:
    """One NUMA node in one row."""

    mark: Mark
    text: str = ""
    """Such as what is free there."""
    more: str = ""
    """What counts besides, on a line of its own."""
    tooltip: str = ""
    required: bool = False
    """Whether the pod is bound to the NUMA node, because earlier containers of it have CPUs there."""


@dataclass(frozen=True, slots=True)
class DecisionRow:
    """One row: its name, and one cell for each NUMA node."""

    name: str
    cells: tuple[DecisionCell, ...]
    note: str = ""
    """A few words below the name."""


@dataclass(frozen=True, slots=True)
class DecisionPanel:
    """What was decided for one container, or for the pod as a whole."""

    title: str
    nodes: tuple[int, ...]
    """Ids of the NUMA nodes, one for each column."""
    rows: tuple[DecisionRow, ...]
    verdict: str
    """One sentence about the merge, or about what was done."""
    refused: bool


@dataclass(frozen=True, slots=True)
class DecisionView:
    """The whole picture."""

    title: str
    """What became of which pod, with the code."""
    cause: str
    circumstances: str
    panels: tuple[DecisionPanel, ...]
    notes: tuple[str, ...]
    """Sentences below: what can be done, what else is to be known."""
