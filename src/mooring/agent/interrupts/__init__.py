"""Interrupts follow the pinning (extension irq-affinity): a look at /proc/irq, writes, a memory of what was there.

Where an interrupt belongs is decided in :mod:`mooring.extensions.interrupts`; nothing here is in the way of an answer
to the runtime.
"""
