"""A live cluster: its nodes as they are now, and what would fit, be drained or survive an upgrade."""
