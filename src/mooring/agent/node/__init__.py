"""What else the agent finds on its node: the kubelet, another agent, CPUs that go offline and come online."""
