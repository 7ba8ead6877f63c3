"""Machines from the outside world: sysfs, snapshots, cAdvisor JSON, shipped shapes, a line of text.

Everything ends as one :class:`mooring.engine.core.machine.Machine`, made by
:func:`mooring.inputs.machines.loader.load_machine`.
What the kubelet sees (``cadvisor``) and what the hardware is (``hardware``) are read apart and compared
(``differences``). ``capture`` reads off a computer what a node archive needs.
"""
