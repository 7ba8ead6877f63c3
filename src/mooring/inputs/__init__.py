"""What is read: machines, pods, configurations and node archives become values of the engine."""
