"""A live cluster as input: its objects, and its nodes as they are now."""
