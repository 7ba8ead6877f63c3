"""The state doctor: what is wrong with a kubelet's state files, which pods it concerns, and the smallest repair.

Whether the kubelet starts is always asked of the engine; the checks here explain its answer and find what stands behind
the first error. A repair is text that the kubelet's own writers make from a state that the engine has started on.
"""
