"""What plugins had to do with a refusal, in plain words (extension plugins)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from mooring.core.bits import list_text
from mooring.explain.reason import Reason
from mooring.plugins.facts import PluginFiltered, PluginMadeRoom


def with_withheld(reason: Reason, facts: Sequence[object]) -> Reason:
    """Return the reason for a refusal with the plugins that withheld CPUs, and why they did."""
    said = withheld_sentences(facts)
    return replace(reason, sentence=f"{reason.sentence} {said}") if said else reason


def withheld_sentences(facts: Sequence[object]) -> str:
    """Return one sentence for each plugin that withheld CPUs from whom was asked about last; empty when none did."""
    found = [fact for fact in facts if isinstance(fact, PluginFiltered)]
    if not found:
        return ""
    last = {fact.plugin: fact for fact in found if fact.container == found[-1].container}
    given = 0
    for fact in facts:
        if isinstance(fact, PluginMadeRoom) and fact.container == found[-1].container:
            given |= fact.cpus
    sentences = []
    for name, fact in last.items():
        cpus = fact.cpus & ~given
        if cpus:
            because = f": {fact.because}" if fact.because else ""
            sentences.append(f"The plugin {name} withholds {list_text(cpus)}{because}.")
    return " ".join(sentences)
