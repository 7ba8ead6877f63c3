"""Pods of a live cluster that move: to make room for more, because their nodes are drained, or upgraded."""
