"""How a node is configured, as core values: the kubelet's configuration and flags, Mooring's document, devices.

:mod:`mooring.inputs.configuration.node_configuration` puts the documents of one node together. Nothing is decided here:
whether a policy, an option or a reservation makes sense is for the kubelet's own checks (:mod:`mooring.engine.node`).
"""
