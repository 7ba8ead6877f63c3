"""YAML and JSON to plain values, as Kubernetes decodes them: documents, typed fields, quantities, unknown fields.

Files are bounded and read safely (:mod:`mooring.inputs.decoding.files`). What cannot be understood becomes an
:class:`~mooring.engine.core.errors.InputError` that names file, line, field and remedy. No kind of document is known
here; only the tables of fields and of values (:mod:`mooring.inputs.decoding.api_fields`) name kinds.
"""
