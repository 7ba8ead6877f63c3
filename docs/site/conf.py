"""Sphinx settings of the documentation site; scripts/build_site.py lays out its source."""

from pathlib import Path

project = "Mooring"
author = "The Mooring maintainers"
html_title = "Mooring"
extensions = ["myst_parser"]
root_doc = "index"
html_theme = "furo"
html_theme_options = {"navigation_with_keys": True, "sidebar_hide_name": False}
html_copy_source = False
html_show_sourcelink = False
html_show_sphinx = False
myst_heading_anchors = 4
myst_links_external_new_tab = True
html_search_scorer = str(Path(__file__).with_name("scorer.js"))
highlight_language = "text"
suppress_warnings = ["misc.highlighting_failure"]
