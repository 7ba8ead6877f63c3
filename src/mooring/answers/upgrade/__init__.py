"""Upgrades: what another release of the kubelet does with a node's state files, pods and configuration.

Nothing here decides: every answer, example and advice comes from plans under both releases. What the data of
:mod:`mooring.engine.releases` says of gates, options and fields is listed beside them.
"""
