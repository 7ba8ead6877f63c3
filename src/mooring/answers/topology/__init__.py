"""``mooring topology``: a machine as it is, and as the kubelet sees it."""
