"""What pods hold of devices: asked of the kubelet, and of the slices of drivers (extension device-alignment)."""
