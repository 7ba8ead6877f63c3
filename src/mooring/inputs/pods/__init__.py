"""What runs on a node, as core values: pods, workloads, scenarios.

Documents (:mod:`mooring.inputs.decoding`) become values with the API server's defaults applied. Whatever cannot be
understood
becomes an :class:`~mooring.engine.core.errors.InputError` that names file, field and remedy; whatever is odd but
understood becomes a :class:`~mooring.engine.core.machine.Finding`. Nothing is decided here.
"""
