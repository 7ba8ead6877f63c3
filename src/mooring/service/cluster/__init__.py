"""The API server: connections, lists and watches."""
