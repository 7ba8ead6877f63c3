"""Bars that compare, as a page: the picture, and the same figures as a table. It has no script."""

from __future__ import annotations

from mooring.views.html.document import page_text
from mooring.views.svg.elements import style_sheet
from mooring.views.svg.plot import Plot, plot_svg


def plot_page_text(plot: Plot) -> str:
    """Return the page."""
    # The styles of the page have the rules of the picture, and the policy allows no other style element.
    return page_text("plot.html", title=plot.title, plot=plot, picture=plot_svg(plot).replace(style_sheet(), ""))
