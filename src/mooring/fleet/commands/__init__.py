"""The verbs of ``mooring fleet``: each answers one question about a cluster."""
