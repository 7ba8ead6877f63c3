"""Capacity: how many more pods of a shape fit on a node, how fragmented it is, and which evictions would make room.

Everything here asks the engine: nodes are values, so that a question costs one admission and leaves nothing behind.
"""
