"""Metrics of the resource managers: their names, their labels, and how facts are counted."""
