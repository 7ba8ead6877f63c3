"""Comparing: the same pods or the same trace under several configurations, option sets or machines.

Each variant is run through the engine on its own; what became of it is measured, and the variants are ranked. Nothing
is guessed: a combination of options is legal when the kubelet starts with it.
"""
