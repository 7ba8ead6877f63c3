"""Objects of dynamic resource allocation, as core values: slices, claims, and which container uses which claim."""
