"""The kubelet's rules: pure values and functions, without files, clock, environment, logging or randomness."""
