"""Trials that have finished, in a folder: a run that was broken off goes on where it ended.

A trial is found again by a digest of all that its figures depend on: cluster, work, strategy, seed, and Mooring's own
source code. The folder can be shared by runs, copied and emptied.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import fields, is_dataclass, replace
from enum import Enum
from functools import lru_cache
from hashlib import blake2b
from pathlib import Path

import msgspec

import mooring
from mooring.engine.core.errors import InputError
from mooring.fleet.trials.running import Figures, FleetTrial

_BYTES = 16


class FinishedTrials:
    """Figures of trials in a folder."""

    def __init__(self, folder: str) -> None:
        """Make the folder where it is missing.

        Args:
            folder: its path.

        Raises:
            InputError: it cannot be made or written.
        """
        self._folder = Path(folder)
        self._parts = Digests()
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            writable = os.access(self._folder, os.W_OK)
        except OSError as error:
            raise InputError(f"cannot be made: {error.strerror}", source=folder, remedy="name a folder") from None
        if not writable:
            raise InputError("cannot be written", source=folder, remedy="name a folder of your own")

    def find(self, trial: FleetTrial) -> Figures | None:
        """Return the figures of a trial; None where it has not finished, or its file is not whole."""
        try:
            found = msgspec.json.decode(self._file(trial).read_bytes(), type=Figures)
        except (OSError, msgspec.MsgspecError):
            return None
        return replace(found, variant=trial.variant)

    def keep(self, trial: FleetTrial, figures: Figures) -> None:
        """Write the figures of a trial; a file is there whole or not at all."""
        file = self._file(trial)
        half = file.with_suffix(f".{os.getpid()}")
        half.write_bytes(msgspec.json.encode(figures))
        half.replace(file)

    def _file(self, trial: FleetTrial) -> Path:
        parts = (trial.cluster, trial.work, trial.strategy, trial.seed, program_digest())
        return self._folder / f"{self._parts.of(parts)}.json"


class Digests:
    """Digests of values; what several values share is read once."""

    def __init__(self) -> None:
        """Begin without any."""
        self._known: dict[int, tuple[object, bytes]] = {}

    def of(self, value: object) -> str:
        """Return the digest of a value, the same in every process."""
        return self._digest(value).hex()

    def _digest(self, value: object) -> bytes:
        # A value stays alive beside its digest, so that no other one gets its identity.
        known = self._known.get(id(value))
        if known is None:
            known = self._known[id(value)] = value, blake2b(self._bytes(value), digest_size=_BYTES).digest()
        return known[1]

    def _bytes(self, value: object) -> bytes:
        if isinstance(value, Enum):
            return repr((type(value).__name__, value.name)).encode()
        if is_dataclass(value) and not isinstance(value, type):
            named = [(one.name, getattr(value, one.name)) for one in fields(value) if one.repr or one.compare]
            return type(value).__name__.encode() + b"".join(name.encode() + self._digest(part) for name, part in named)
        if isinstance(value, Mapping):
            pairs = sorted(self._digest(key) + self._digest(part) for key, part in value.items())
            return b"mapping" + b"".join(pairs)
        if isinstance(value, (set, frozenset)):
            return b"set" + b"".join(sorted(self._digest(part) for part in value))
        if isinstance(value, (tuple, list)):
            return b"list" + b"".join(self._digest(part) for part in value)
        return repr(value).encode()


@lru_cache(maxsize=1)
def program_digest() -> str:
    """Return a digest of Mooring's source code: another program may find other figures."""
    root, digest = Path(mooring.__file__).parent, blake2b(digest_size=_BYTES)
    for file in sorted(root.rglob("*.py")):
        digest.update(file.relative_to(root).as_posix().encode() + file.read_bytes())
    return digest.hexdigest()
