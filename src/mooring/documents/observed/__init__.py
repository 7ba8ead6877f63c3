"""What was observed of kubelets, as documents: the counts of a shadow, and recordings."""
