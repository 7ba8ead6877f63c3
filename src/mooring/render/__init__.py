"""Pictures of a machine with the owners of its CPUs, and of a decision.

A picture is made in steps that know nothing of each other: values become a :class:`~mooring.render.view.NodeView`
(:mod:`mooring.render.build`), its boxes and cells get a place (:mod:`mooring.render.layout`), and a renderer draws
them (:mod:`mooring.render.terminal`, :mod:`mooring.render.svg.picture`). Tables for plans are in
:mod:`mooring.render.placements`, the picture of a decision is in :mod:`mooring.render.decision`.
"""
