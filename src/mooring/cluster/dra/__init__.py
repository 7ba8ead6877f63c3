"""CPUs as devices: the driver of dynamic resource allocation."""
