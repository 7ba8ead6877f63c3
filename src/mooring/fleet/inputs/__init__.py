"""Clusters and work from files."""
