"""Judging what a kubelet did between observations: orders of events, and where they depart from the engine."""
