"""One file about one node: what ``mooring collect`` packs, and every verb reads again with ``--node``."""

OF_ARCHIVE = "MOOR-583"
"""Code of the finding that names the node archive that a question is about."""
