"""The planner: what a node would do with these pods, with no cluster.

It runs the engine of :mod:`mooring.engine.node` between state files, scenarios and pictures, and decides nothing
itself.
"""
