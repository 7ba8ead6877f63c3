"""Interrupts follow the pinning (extension irq-affinity): reading /proc/irq, writing, and remembering what was there.

Where an interrupt belongs is decided in :mod:`mooring.engine.extensions.interrupts`; nothing here is in the way of an
answer to the runtime.
"""
