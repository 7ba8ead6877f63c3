"""Commands of the node agent: run it, show its status, migrate a node to it."""
