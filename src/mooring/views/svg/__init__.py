"""Pictures as SVG: self-contained, deterministic texts for light and dark grounds, without scripts.

:mod:`mooring.views.svg.elements` has the vocabulary; nodes, decisions and comparisons are drawn with it.
"""
