"""Live pages of a cluster: tiles, pods that wait, what fits where, and the page of each node."""
