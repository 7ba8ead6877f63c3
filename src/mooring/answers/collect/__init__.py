"""``mooring collect``: machine, configuration, state and pods of a node in one file."""
