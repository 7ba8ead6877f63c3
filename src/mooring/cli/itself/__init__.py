"""Verbs about Mooring itself: what is installed, and how shells complete it."""
