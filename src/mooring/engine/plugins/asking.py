"""Asking a plugin: whatever it does, an answer of the right kind comes back, or a failure that names it.

At the observing points plugins are notified which containers got CPUs and which released some, after it was decided and
stored. They get the difference between two states that were in force, not what was tried in between: a pod that was
rejected had CPUs for a moment in which nothing could have used them, and a what-if question puts no state in force.

Source: CPU Manager Plugin Model (proposal), allocate and deallocate; spec: resize.md section 7.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Literal, TypeAlias, TypeVar, cast

from mooring.engine.core.bits import NO_CPUS, CPUMask
from mooring.engine.core.config import ChosenPlugin, OutOfTimeError, PluginChoice, Watch
from mooring.engine.core.cpuset import CPUSet
from mooring.engine.core.decision import Observer
from mooring.engine.core.errors import clean, shortened
from mooring.engine.cpumanager.state import CPUState
from mooring.engine.plugins.facts import PluginFailed
from mooring.engine.plugins.values import Change, Room, Selected, Withheld, text_of
from mooring.lazy import dataclass, field

T = TypeVar("T")

HIGHEST = 2.0**53
"""No score is further from 0: below it sums and weights are exact for whole numbers, and never become infinite."""
LONGEST_REASON = 200
"""Characters of a plugin's reason, or of what it raised, that are kept."""

Understand = Callable[[object], T]
"""Turns an answer into what the host works with, or raises :class:`BadAnswerError`."""


class BadAnswerError(Exception):
    """An answer that is not of the kind that is requested; the message is a sentence about it."""


@dataclass(slots=True)
class Asking:
    """Questions about one container or pod, while they are asked; another question makes another one."""

    choice: PluginChoice
    pod: str
    """Its uid; empty for the system's own."""
    container: str
    observer: Observer | None
    now: tuple[str, str] = ("", "")
    """Plugin and point that are being asked."""
    failed: set[str] = field(default_factory=set)
    """Plugins that have failed; they are not asked again about this."""
    is_watched: bool = False
    """Whether plugins work in a thread of their own."""
    is_over: bool = False
    """Whether the answers are no longer awaited."""

    def of(self, point: str) -> list[ChosenPlugin]:
        """Return who implements a point and has not failed yet, in order."""
        asked = [one for one in self.choice.plugins if point in one.points and one.name not in self.failed]
        for one in asked:
            if self.choice.has_given_up(one.name):
                self.fail(one.name, point, "it ran out of time before and is not asked any more")
        return [one for one in asked if one.name not in self.failed]

    def ask(self, plugin: ChosenPlugin, point: str, understand: Understand[T], **arguments: object) -> T | None:
        """Return a plugin's answer; None when it has no opinion, or when it failed."""
        if self.is_over:
            raise OutOfTimeError
        self.now = (plugin.name, point)
        try:
            answer = plugin.points[point](**arguments)
            return None if answer is None else understand(answer)
        except BadAnswerError as error:
            self.fail(plugin.name, point, str(error))
        except BaseException as error:  # a plugin that ends the process ends itself only
            if isinstance(error, KeyboardInterrupt) and not self.is_watched:
                # A person stops the program; in a thread of its own only the plugin raises this.
                raise
            first = [*text_of(str, error).splitlines(), ""][0][:LONGEST_REASON]
            self.fail(plugin.name, point, f"it raised {_name(error)}: {clean(first)}")
        return None

    def fail(self, plugin: str, point: str, why: str) -> None:
        """Leave a plugin out from here on."""
        self.failed.add(plugin)
        if self.observer is not None:
            self.observer(PluginFailed(self.pod, self.container, plugin, point, shortened(why)))

    def within_budget(self, work: Callable[[], T]) -> T | None:
        """Do work that asks plugins; None when they took too long. Shipped plugins are not watched."""
        watch = self.choice.watch
        if watch is None or all(plugin.is_shipped for plugin in self.choice.plugins):
            return work()
        # The observer belongs to the caller: it receives nothing from another thread, and nothing late.
        observer, facts = self.observer, list[object]()
        self.observer, self.is_watched = facts.append, True
        done: list[T] = []
        try:
            watch(lambda: done.append(work()), self.choice.budget)
        except OutOfTimeError:
            self.is_over = True
            facts = [*facts, self._out_of_time(watch)]
        else:
            self.observer, self.is_watched = observer, False
        if observer is not None:
            for fact in facts:
                observer(fact)
        return None if self.is_over else done[0]

    def _out_of_time(self, watch: Watch) -> PluginFailed:
        """Leave the plugin that is being asked out from here on; who did not come with Mooring is given up."""
        name, point = self.now
        if not name:
            # The machine was too busy to ask any plugin: no plugin is given up for that.
            names = ", ".join(plugin.name for plugin in self.choice.plugins)
            why = f"no plugin was asked within {self.choice.budget / 1e6:g} ms"
            return PluginFailed(self.pod, self.container, names, "", why)
        if not any(plugin.name == name and plugin.is_shipped for plugin in self.choice.plugins):
            watch.give_up(name)
        why = f"it was not done after {self.choice.budget / 1e6:g} ms"
        return PluginFailed(self.pod, self.container, name, point, why)


def as_cpus(answer: object) -> CPUSet:
    """Understand a set of CPUs."""
    if type(answer) is not CPUSet or type(answer.mask) is not int or answer.mask < 0:
        raise BadAnswerError(f"it answered with {_kind(answer)} where a CPUSet belongs")
    return answer


def as_withheld(answer: object) -> Withheld:
    """Understand an answer of ``filter_cpus``."""
    if type(answer) is Withheld:
        return Withheld(as_cpus(answer.cpus), _text(answer.because), answer.as_siblings is True)
    return Withheld(as_cpus(answer))


def as_room(answer: object) -> Room:
    """Understand an answer of ``post_filter``."""
    return Room(as_cpus(answer.cpus), _text(answer.because)) if type(answer) is Room else Room(as_cpus(answer))


def as_selected(answer: object) -> Selected:
    """Understand an answer of ``select_cpus``."""
    cpus, hidden = (answer.cpus, answer.hidden) if type(answer) is Selected else (answer, CPUSet())
    return Selected(as_cpus(cpus), as_cpus(hidden))


def as_scores(answer: object) -> Mapping[int, float]:
    """Understand an answer of ``pre_score``."""
    if type(answer) is not dict:
        raise BadAnswerError(f"it answered with {_kind(answer)} where a dict of CPUs and scores belongs")
    for cpu in answer:
        if type(cpu) is not int:
            raise BadAnswerError(f"it scored {_kind(cpu)} where the number of a CPU belongs")
    return {cpu: as_score(score) for cpu, score in answer.items()}


def as_score(answer: object) -> float:
    """Understand one score."""
    if type(answer) is not int and type(answer) is not float:
        raise BadAnswerError(f"it scored with {_kind(answer)} where a number belongs")
    if not -HIGHEST <= answer <= HIGHEST:
        # Not a number is not between them either.
        raise BadAnswerError("it scored with a number that is not between -2^53 and 2^53")
    return float(answer)


def as_order(answer: object) -> Sequence[str]:
    """Understand an answer of ``sort_pods``."""
    if type(answer) not in {list, tuple}:
        raise BadAnswerError(f"it answered with {_kind(answer)} where a list of uids belongs")
    if any(type(uid) is not str for uid in cast("Sequence[object]", answer)):
        raise BadAnswerError("it answered with a list of other things than uids")
    return cast("Sequence[str]", answer)


def as_nodes(answer: object) -> frozenset[int]:
    """Understand an answer of ``choose_affinity``."""
    if type(answer) is not frozenset or any(type(node) is not int or not 0 <= node < 64 for node in answer):
        raise BadAnswerError(f"it answered with {_kind(answer)} where a frozenset of NUMA nodes belongs")
    return answer


def _text(answer: object) -> str:
    if type(answer) is not str:
        raise BadAnswerError(f"it gave {_kind(answer)} for a reason")
    return clean(" ".join(answer.split()))[:LONGEST_REASON]


def _name(given: object) -> str:
    """Return the name of its type."""
    return clean(text_of(getattr, type(given), "__name__"))


def _kind(answer: object) -> str:
    name = _name(answer)
    return f"{'an' if name[:1].lower() in 'aeio' else 'a'} {name}"


Point = Literal["allocated", "deallocated"]


Notice: TypeAlias = tuple[Point, Change]
"""One notification of plugins."""


def changes_between(before: CPUState, after: CPUState) -> tuple[Notice, ...]:
    """Return the containers that lost and that got CPUs from one state to the next; released CPUs come first.

    A container that moved is named twice; the partition of a pod has no container.

    >>> before = CPUState("static", 0, {"moved": {"app": 0b0011}, "ended": {"app": 0b0100}, "kept": {"app": 0b1000}})
    >>> held = {"kept": {"app": 0b1000}, "moved": {"app": 0b0110}}
    >>> after = CPUState("static", 0, held, pods={"whole": 0b110000})
    >>> [(point, one.uid, one.container, str(one.cpus)) for point, one in changes_between(before, after)]
    ... # doctest: +NORMALIZE_WHITESPACE
    [('deallocated', 'moved', 'app', '0'), ('deallocated', 'ended', 'app', '2'),
     ('allocated', 'whole', '', '4-5'), ('allocated', 'moved', 'app', '2')]
    """
    if before is after:
        return ()
    old, new = _held(before), _held(after)
    lost = [Change(*who, CPUSet(cpus & ~new.get(who, NO_CPUS))) for who, cpus in old.items()]
    got = [Change(*who, CPUSet(cpus & ~old.get(who, NO_CPUS))) for who, cpus in new.items()]
    return (*(("deallocated", one) for one in lost if one.cpus), *(("allocated", one) for one in got if one.cpus))


def _held(state: CPUState) -> dict[tuple[str, str], CPUMask]:
    held = {(uid, ""): cpus for uid, cpus in state.pods.items()}
    for uid, containers in state.assignments.items():
        held.update(((uid, container), cpus) for container, cpus in containers.items())
    return held


def notify(choice: PluginChoice, changes: Iterable[Notice], observer: Observer | None = None) -> None:
    """Tell plugins; one that fails, or has no time, is named to the observer and changes nothing."""
    for point, change in changes:
        asking = Asking(choice, change.uid, change.container, observer)
        if asking.of(point):
            asking.within_budget(partial(_tell, asking, point, change))


def _tell(asking: Asking, point: Point, change: Change) -> None:
    for plugin in asking.of(point):
        # Whatever is returned means nothing.
        asking.ask(plugin, point, lambda _answer: None, change=change)
