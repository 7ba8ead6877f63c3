"""A cluster over time: a model of the scheduler before nodes that decide as their kubelets do."""

from typing import Final

MOST_SECONDS: Final = 100 * 365 * 86_400
"""A hundred years: no work lasts longer, and sums of such times are exact enough to be told apart."""
