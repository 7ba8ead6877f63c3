"""Documents against their schemas."""

from __future__ import annotations

import json
from functools import cache
from typing import Any

import msgspec
from jsonschema import Draft202012Validator

from mooring.documents.schemas import document_type, schema


@cache
def validator(kind: str) -> Draft202012Validator:
    return Draft202012Validator(schema(kind))


def complaints(kind: str, document: Any) -> list[str]:
    """Return what a schema says against a document: as text, as a struct, or as plain values read from JSON."""
    text = msgspec.json.encode(document)
    found = [f"{error.json_path}: {error.message[:200]}" for error in validator(kind).iter_errors(json.loads(text))]
    if not found and msgspec.json.encode(msgspec.json.decode(text, type=document_type(kind))) != text:
        found.append("the struct does not hold all of it, or in another order")
    return found
