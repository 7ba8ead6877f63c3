"""Defects that Mooring had, or would have without one of its lines, put back one at a time: the world finds each."""

from __future__ import annotations

from typing import Any

from tests.world.files import OS

from mooring.agent import agent, cpu_hotplug, state_holder
from mooring.agent.adapter import RuntimeAdapter
from mooring.agent.effects import WriteAssigned
from mooring.agent.executor import AssignedFiles
from mooring.agent.nri.session import Session
from mooring.agent.reactor.hotplug import is_news
from mooring.agent.state_holder import StateHolder
from mooring.agent.storage import store
from mooring.agent.storage.store import JournalFile, Store


class NoLock:
    """A lock that keeps nobody out."""

    def acquire(self, *_: object, **__: object) -> bool:
        return True

    def release(self) -> None:
        pass

    def __enter__(self) -> bool:
        return True

    def __exit__(self, *_: object) -> None:
        pass


def _nothing(*_: Any, **__: Any) -> Any:
    return None


def _no_words(*_: Any, **__: Any) -> str:
    return ""


def _one_slot(self: Any, data: bytes, write: Any = JournalFile._write_in_place) -> bool:  # noqa: SLF001 - a defect is put into it
    self._next = 0
    return bool(write(self, data))


def _keeps_files(self: Any, effect: Any, do: Any = AssignedFiles.do) -> str:
    return str(do(self, effect)) if isinstance(effect, WriteAssigned) else ""


def _only_fewer(state: Any, online: int, is_news: Any = is_news) -> bool:
    return bool(is_news(state, online)) and bool(state.kubelet.node.cpu.default & ~online)


def _without_deadlines(self: Any) -> None:
    self._connection.close()


DEFECTS: dict[str, tuple[object, str, object]] = {
    "events are decided without the lock": (state_holder, "RLock", NoLock),
    "the journal is not synced": (OS, "fdatasync", _nothing),
    "a new journal's name is not synced": (OS, "fsync", _nothing),
    "the journal is not written": (Store, "write", _no_words),
    "the journal has one slot": (JournalFile, "_write_in_place", _one_slot),
    "half files of a killed agent stay": (Store, "_tidy", _nothing),
    "a half description of the machine stays": (store, "MACHINE_FILE", "nothing"),
    "sandboxes that end unreported stay": (agent, "verify_sandboxes", lambda _holder, _cgroups, last: last),
    "no reply replaces one that is late": (Session, "_expire", _nothing),
    "lost answers are not made up for": (RuntimeAdapter, "lost", _nothing),
    "pending releases never end": (agent, "release", _nothing),
    "CPUs that come online are not noticed": (cpu_hotplug, "is_news", _only_fewer),
    "files of assigned CPUs stay": (AssignedFiles, "do", _keeps_files),
    "a closed session keeps its thread": (Session, "close", _without_deadlines),
    "a state that could not be written is not written again": (StateHolder, "write_again", _nothing),
    "state files do not follow": (StateHolder, "write_files", _nothing),
    "control groups are not verified": (agent, "verify", _nothing),
    "the folder stays locked": (Store, "unlock", _nothing),
}
"""By name: where the product's line is, its name, what takes its place."""


def put_back(name: str) -> None:
    """Bring a defect back into this process."""
    where, what, instead = DEFECTS[name]
    setattr(where, what, instead)
