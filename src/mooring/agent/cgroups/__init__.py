"""Control groups: what the kernel lets a container use, read, written and verified.

The runtime applies what the agent answers; these modules correct what the runtime cannot (a container that is just
starting, the quota of a pod's group) and read back what became of it. Both versions of control groups, and both of
them side by side. :class:`~mooring.agent.cgroups.protocol.CGroups` is what the agent needs of a node,
:class:`~mooring.agent.cgroups.protocol.KernelCGroups` what writes to the kernel.

Source: kernel Documentation/admin-guide/cgroup-v2.rst, cgroup-v1/cpusets.rst, scheduler/sched-bwc.rst, and what kernels
6.1 and 6.18 were seen to do.
"""
