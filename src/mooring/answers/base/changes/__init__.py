"""Changes: one small thing about a question made otherwise, by hand or found by searching.

A change is a value. It applies to a :class:`~mooring.answers.base.plan.Question` and gives another one, which is
answered like any other: by the engine.
"""
