"""Reading off a computer what a node archive needs."""
