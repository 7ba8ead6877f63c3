"""Files of distributions and cloud providers, as layers of the kubelet's configuration.

Each vendor has a table of its fields; :mod:`mooring.inputs.configuration.formats` says which document is whose. What a
vendor decides by itself and documents is a layer of its own; what it does not document is reported.
"""
