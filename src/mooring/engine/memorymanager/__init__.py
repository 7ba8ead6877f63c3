"""The memory manager: memory tables per NUMA node, hints, blocks; policies None and Static.

Source: kubelet v1.37.1, pkg/kubelet/cm/memorymanager; spec: memory-manager.md.
"""
