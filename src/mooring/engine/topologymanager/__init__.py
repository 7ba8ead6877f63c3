"""The topology manager: hints, their merging under a policy, distances, options.

It knows nothing of pods and of what a hint is about; asking providers in the right order is the node's work
(:mod:`mooring.engine.node`).
"""

from mooring.engine.topologymanager.hints import Hint, Hints
from mooring.engine.topologymanager.plain import MergeResult, merge_hints

__all__ = ["Hint", "Hints", "MergeResult", "merge_hints"]
