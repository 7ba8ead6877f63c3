"""What people write, as core values: kubelet configurations, pods, workloads, scenarios.

Files are read as Kubernetes reads them (:mod:`mooring.manifest.documents`) and turned into values with the
API server's defaults applied. Whatever cannot be understood becomes an
:class:`~mooring.core.errors.InputError` that names file, field and remedy; whatever is odd but understood
becomes a :class:`~mooring.core.machine.Finding`. Nothing is decided here.
"""
