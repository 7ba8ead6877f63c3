"""Machines in the files that other tools write: lscpu, lstopo, numactl, libvirt, NodeResourceTopology.

Each reader returns a :class:`mooring.inputs.machines.formats.description.Description`. It becomes a tree of sysfs
files, so that both views of the machine are read by the same rules as those of a captured computer.
"""
