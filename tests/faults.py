"""The kubelet's text of what is wrong at a start."""

from __future__ import annotations

from mooring.engine.core.decision import Fault, StartRefusal


def text_of(found: object) -> object:
    """Return the text of faults, nothing for none, and everything else as it is."""
    if isinstance(found, Fault):
        return found.text
    if isinstance(found, tuple) and all(isinstance(one, Fault) for one in found):
        return StartRefusal.of("", *found).message if found else ""
    return "" if found is None else found


def inner_text(refusal: StartRefusal) -> str:
    """Return what is wrong with a state file, without the kubelet's words around it."""
    return refusal.message.partition("checkpoint: ")[2].partition(", please drain this node")[0]


def read_text(found: object) -> str:
    """Return the text of faults."""
    text = text_of(found)
    assert isinstance(text, str), found
    return text
