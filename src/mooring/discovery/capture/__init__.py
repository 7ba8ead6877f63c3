"""Reading off a computer what a node archive needs, and writing the archive."""
