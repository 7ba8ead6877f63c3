"""The kubelet with its files: started on them, asked about pods, and taken through sequences of events.

The engine (:mod:`mooring.engine.node`) decides on values. This room keeps the checkpoint files beside the values, and
holds the one function that asks about a pod; what callers want differently is an argument.
"""
