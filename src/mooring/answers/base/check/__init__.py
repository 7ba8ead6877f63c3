"""A check of manifests: do these pods fit on these node types? As SARIF and as JUnit XML, for continuous integration.

A check runs nothing itself: it puts the plans of several node types together, and names the places in the manifests.
"""
