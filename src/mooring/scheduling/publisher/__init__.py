"""Publishing a node: from what its managers say to objects of the cluster, on every change and now and then."""
