"""What a node publishes in the cluster: the documents, where their content comes from, and how they are written."""
