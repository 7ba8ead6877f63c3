"""``mooring status``: what the agent of a node says of itself, or what a shadow has counted."""
