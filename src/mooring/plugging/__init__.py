"""Plugins from outside: found by their entry points, made of their settings, and held to their budget of time.

The rooms below only ask (:mod:`mooring.engine.plugins`); files, threads and clocks are here.
"""
