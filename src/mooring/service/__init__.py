"""What every daemon needs: logs, HTTP, sockets, gRPC, the service manager, options and the API server."""
