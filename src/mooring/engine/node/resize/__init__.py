"""Resizing pods in place: what can never be, what the managers answer, and which pods wait for room."""
