"""Verbs about Mooring itself."""
