"""The report about a simulation: heat maps of the nodes, pictures of their states, explanations of pods."""
