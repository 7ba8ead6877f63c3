"""Pictures of a machine with the owners of its CPUs, and of a decision.

A picture is made in steps that know nothing of each other: values become a :class:`~mooring.views.view.NodeView`
(:mod:`mooring.views.build`), its boxes and cells get a place (:mod:`mooring.views.layout`), and a renderer draws
them (:mod:`mooring.views.terminal`, :mod:`mooring.views.svg.picture`). Tables for plans are in
:mod:`mooring.views.tables`, the picture of a decision is in :mod:`mooring.views.decision`.
"""
