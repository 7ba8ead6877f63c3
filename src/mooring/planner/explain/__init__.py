"""A decision as a story: what was asked, what each manager would have liked, what was chosen, and by which rule.

A story is made from the facts of one answer of a plan and never from a guess. It is told as text, as a document and as
a picture.
"""
