"""The feature gates that a release of the kubelet recognises: default, stage, lock, and the gates that each needs.

A name outside of a release's gates is refused as ``unrecognized feature gate``; a locked gate and, from 1.35 on, a
missing need stop the kubelet whether or not a manager reads the gate (:mod:`mooring.engine.core.gates`).

Source: the histories :mod:`mooring.engine.releases.gate_history` and :mod:`mooring.engine.releases.gate_needs`.
"""

from __future__ import annotations

from functools import cache

from mooring.engine.core.gates import Gate, KnownGates, Stage
from mooring.engine.releases.gate_history import GATE_HISTORY
from mooring.engine.releases.gate_needs import GATE_NEEDS
from mooring.engine.releases.history import standing

_REMOVED = "removed"
_NOTHING = "nothing"


@cache
def known_gates(release: str) -> KnownGates:
    """Return the gates of a release such as ``1.34``.

    >>> known_gates("1.31").gates["InPlacePodVerticalScaling"]
    Gate(default=False, stage=<Stage.ALPHA: 'alpha'>, locked=False, needs=())
    >>> known_gates("1.37").gates["InPlacePodVerticalScaling"]
    Gate(default=True, stage=<Stage.GA: 'GA'>, locked=True, needs=())
    >>> ["MemoryManager" in known_gates(name).gates for name in ("1.35", "1.36")]
    [True, False]
    """
    gates = {}
    for name, history in GATE_HISTORY.items():
        words = standing(history, release)
        if words not in ("", _REMOVED):
            needs = GATE_NEEDS.get(name)
            gates[name] = _gate(words, "" if needs is None else standing(needs, release))
    return KnownGates.of(gates)


@cache
def _gate(words: str, needs: str) -> Gate:
    """Return a gate made of the words of its two histories; few differ, so that most gates share one."""
    stage, switch, *lock = words.split(" ")
    return Gate(switch == "on", Stage(stage), bool(lock), () if needs in ("", _NOTHING) else tuple(needs.split(" ")))
