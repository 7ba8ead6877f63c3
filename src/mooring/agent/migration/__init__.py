"""From a kubelet that manages CPUs and memory to the agent: what happens at each step, before any is done."""
