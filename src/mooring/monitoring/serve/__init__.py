"""Live pages of a node and of a cluster: read-only, and for each person only what they may list."""
