"""``mooring show``: a machine and the owners of its CPUs as a picture."""
