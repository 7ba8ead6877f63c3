"""The kubelet releases that the engine can decide as, and everything that differs between them, as data.

:mod:`~mooring.engine.releases.catalog` has the releases, :mod:`~mooring.engine.releases.rules` the named rules of
older kubelets with
source and span. ``MooringConfig.release`` chooses one; :mod:`mooring.engine.node.settings` passes what they need to the
managers. The managers see :class:`mooring.engine.core.release.ReleaseRules` and never this room.

Source: spec: releases.md.
"""
