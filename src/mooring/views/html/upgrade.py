"""``mooring upgrade -o html``: what another release of the kubelet changes on one node or on several, as a page."""

from __future__ import annotations

from mooring.documents.upgrade import UpgradeDocument, UpgradeListDocument
from mooring.views.html.document import page_text
from mooring.views.svg.elements import style_sheet
from mooring.views.svg.picture import svg_text
from mooring.views.view import NodeView


def upgrade_page(document: UpgradeDocument, verdict: str, view: NodeView | None) -> str:
    """Return the page of one node; it has no script.

    Args:
        document: what the new release changes.
        verdict: the same in a sentence.
        view: the node after the start of the new kubelet; None if it does not start.
    """
    # The styles of the page have the rules of the picture already, and the policy allows no other style element.
    picture = "" if view is None else svg_text(view, _PICTURE_WIDTH).replace(style_sheet(), "")
    title = f"{document.node or document.machine}: kubelet {document.from_} to {document.to}"
    return page_text("upgrade.html", title=title, upgrade=document, verdict=verdict, picture=picture)


def upgrades_page(document: UpgradeListDocument) -> str:
    """Return the page of several nodes, with a row for each; it has no script."""
    safe = sum(node.safe for node in document.nodes)
    # Nodes of one cluster come from the same files, so that most findings are about all of them.
    found = [one for place, one in enumerate(document.findings) if one not in document.findings[:place]]
    return page_text("upgrades.html", title="Kubelet upgrade", nodes=document.nodes, safe=safe, found=found)


_PICTURE_WIDTH = 1144
"""Pixels that the page has for the picture."""
