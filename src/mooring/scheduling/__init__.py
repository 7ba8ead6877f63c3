"""Pods are bound only where the node will admit them: the extender, and what it predicts."""
