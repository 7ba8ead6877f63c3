"""The hardware of a machine as hwloc 2.14 finds it in the same files. :mod:`.machine` puts the view together."""
