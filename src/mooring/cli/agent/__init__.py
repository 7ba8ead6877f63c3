"""Verbs about the agent: it runs, shows its status, and takes over from a kubelet."""
