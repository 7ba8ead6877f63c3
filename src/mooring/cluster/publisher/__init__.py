"""``mooring publish``: the publisher of a node as a program."""
