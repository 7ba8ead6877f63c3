"""``mooring migrate``: from the kubelet's managers to the agent, on paper."""
