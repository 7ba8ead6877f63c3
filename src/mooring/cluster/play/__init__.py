"""``mooring play``: nodes of a described cluster at a real API server; the engine decides about their pods."""
