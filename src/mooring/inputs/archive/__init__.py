"""One file about one node: what ``mooring collect`` packs, and every verb reads again with ``--node``."""
