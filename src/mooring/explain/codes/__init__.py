"""Stable codes of everything that Mooring reports, each with a page.

MOOR-1xx: what became of a pod. 2xx: why the kubelet would not start. 3xx: state files. 4xx: how the kubelet's view of
a machine differs from the machine. 5xx: what was noticed in the input. 6xx: isolation of a machine. A code is never
given to anything else.
"""
