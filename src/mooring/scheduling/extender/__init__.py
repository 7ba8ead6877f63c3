"""The scheduler extender: before a pod is bound, the engine says which nodes would admit it."""
