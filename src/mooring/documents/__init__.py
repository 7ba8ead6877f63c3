"""Every JSON document that a verb prints, defined once.

A document is a struct: its fields, in their order, are the members, and their descriptions are those of its JSON Schema
(:mod:`mooring.documents.schemas`). Builders that fill a document are in the room of the values that it describes.
Nothing here knows how a value is computed.
"""
