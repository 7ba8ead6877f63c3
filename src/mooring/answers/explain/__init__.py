"""``mooring explain``: why a pod was placed there, or rejected."""
