"""The node agent: the engine live, as an NRI plugin beside containerd.

A thin shell: events of the runtime come in, the engine decides, adjustments of containers go out. The kubelet of the
node runs with CPU manager policy ``none`` and memory manager policy ``None``.
"""
