"""The scheduler extender: before a pod is bound, the engine predicts which nodes would admit it."""
