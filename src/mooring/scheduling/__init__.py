"""Pods go only where the node will accept them: what nodes publish, and who asks it before a pod is bound."""
