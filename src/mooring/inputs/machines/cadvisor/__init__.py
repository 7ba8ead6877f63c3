"""The kubelet's view of a machine: what cAdvisor reads from sysfs and /proc, gaps and mistakes included.

Source: cAdvisor library 0.60.5, the version in kubelet v1.37.1. :mod:`.machine` puts the view together.
"""
