"""Programs that watch nodes: live pages, and the shadow beside a real kubelet."""
