"""What Mooring's programs speak with outside: the API server, and messages of the kubelet's sockets."""
