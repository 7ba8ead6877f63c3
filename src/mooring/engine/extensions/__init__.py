"""What no released kubelet does.

Resizes of exclusive CPUs and memory, scale-down delays, claims, hidden threads, mixed sets, CPU hotplug, interrupts,
and plugins' part in the choice of CPUs.

The managers below know nothing of this room: it changes their states by rules of its own, and enters their decisions
at the seams that they name (:mod:`mooring.engine.cpumanager.policy`). Each extension is off until a
MooringConfiguration names it.
"""
