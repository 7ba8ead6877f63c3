"""A cluster over time: a model of the scheduler before nodes that decide as their kubelets do."""
