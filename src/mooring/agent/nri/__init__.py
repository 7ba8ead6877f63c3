"""The Node Resource Interface in Python: multiplexer, ttRPC, messages, and a plugin that answers a runtime.

Knows nothing about Mooring and could stand alone. Source: containerd/nri 0.8 to 0.12, api.proto and the adaptation's
multiplexer; containerd/ttrpc, the protocol.
"""
