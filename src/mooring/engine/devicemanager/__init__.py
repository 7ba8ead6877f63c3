"""The device manager as a provider of hints: devices with NUMA affinity, facts in, device ids out. No drivers.

Source: kubelet v1.37.1, pkg/kubelet/cm/devicemanager; spec: topology-manager.md section 7.
"""
