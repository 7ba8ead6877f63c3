"""``mooring plan``: what a node does with pods."""
