"""Objects of a cluster that describe pods: Kubernetes' own workloads, other operators' templates, virtual machines."""
