"""A kubelet that does not start: which changes make it start, each of them run."""
