"""Where running pods go: what fits into a live cluster, and what a drain and an upgrade of its nodes move."""
