"""Where the kubelet's view of a machine departs from the hardware: one module for CPUs, caches and NUMA nodes each."""
