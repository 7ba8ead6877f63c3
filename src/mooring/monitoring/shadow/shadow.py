"""The shadow of a kubelet: observes it, waits until a change is complete, judges, counts, and never writes to the node.

The files of the kubelet change at once, objects of the API server later. So a change is judged when nothing has changed
for a while and the outcome of every pod is known, or when waiting longer would not help.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, Protocol

from mooring.engine.core.config import KubeletConfig
from mooring.engine.core.errors import MooringError
from mooring.engine.core.machine import Finding
from mooring.inputs.decoding.fields import Report, ignore
from mooring.monitoring.shadow import orders
from mooring.monitoring.shadow.interval import JudgedInterval
from mooring.monitoring.shadow.judge import add, count_other, judge, now_text, write_counts
from mooring.monitoring.shadow.judgement import Agreement, KubeletEvent
from mooring.monitoring.shadow.recording import minimal_scenario, recorded_scenario
from mooring.monitoring.shadow.reports import ShadowFolder
from mooring.monitoring.shadow.sources import BoundPods
from mooring.monitoring.shadow.unseen import ObservedNode, ObservedPod, engine_on
from mooring.published.observation import Observation
from mooring.published.restored import holds_all
from mooring.published.shadow_document import ShadowDocument, WouldBePart

LOOKING: Final = 0.25
"""Seconds between two observations; one without a change reads three inodes."""
QUIET: Final = 1.0
"""Seconds without a change after which a change is judged."""
PATIENCE: Final = 15.0
"""Seconds that the outcome of a pod is waited for."""
PACKING: Final = 600.0
"""Seconds between two archives of the node: differences that follow one another need one."""


class ObservedKubelet(Protocol):
    """See :class:`mooring.published.kubelet_source.KubeletSource`."""

    @property
    def starts(self) -> int:
        """How often the kubelet has started, counted from 1."""

    def observe(self) -> Observation | None:
        """Return what there is now, the same object while nothing changes."""


@dataclass(slots=True)
class Shadow:
    """Watches one kubelet; used by one thread."""

    source: ObservedKubelet
    pods: BoundPods
    tally: ShadowDocument
    folder: ShadowFolder | None = None
    proposed: KubeletConfig | None = None
    """The configuration that the kubelet might have instead."""
    anonymous: bool = False
    """Whether what is kept has no names of pods: scenarios made-up ones, the tally uids, which kubectl can look up."""
    report: Report = ignore
    alias: str = "node"
    """Name of the node in an anonymous recording."""
    packed: Callable[[Sequence[Mapping[str, Any]]], bytes] | None = None
    """Packs the node with these pods, as ``mooring collect`` does."""
    quiet: float = QUIET
    """See :data:`QUIET`."""
    clock: Callable[[], float] = time.monotonic
    today: Callable[[], str] = now_text
    """Now, as RFC 3339."""
    moment: Callable[[], float] = time.time
    """The same in seconds since 1970, for recordings."""
    said: Callable[[str], object] = print
    """Receives every judgement and prediction as a line."""
    would_be: orders.WouldBe | None = None
    _before: ObservedNode | None = None
    _newest: tuple[Observation, int, ObservedNode] | None = None
    """The last observation, changes of the API server's pods by then, and what is made of both: while nothing changes,
    nothing is computed again."""
    _changed: float = 0.0
    _looks: list[ObservedNode] = field(default_factory=list)
    """Since what was judged last."""
    _first: float = 0.0
    """When the first of them was, of a kubelet that has started since the first after that."""
    _differed: float = -1.0
    """When the newest observation was made of those in which a kubelet that started seems to differ."""
    _started: tuple[int, float] = (1, 0.0)
    """How often the kubelet has started, and when the last start was noticed."""
    _blind: bool = False
    _archived: float = float("-inf")
    """When the node was packed last."""
    _predicted: dict[str, bool] = field(default_factory=dict)
    """Uid of a pod that is not decided -> whether the engine would admit it."""

    def step(self, *, last: bool = False) -> None:
        """Observe once, and judge what is due."""
        now = self.clock()
        seen = self._look()
        if seen is None:
            return
        if self._before is None:
            self._begin(seen)
        elif self._looks:
            is_settled = now - self._changed >= self.quiet and not _is_open(self._before, seen)
            is_late = now - self._first >= PATIENCE or last
            if is_late or (is_settled and self._differed != self._changed):
                intervals = judge(self._before, *self._looks)
                # A kubelet publishes the rejection of a running pod only after its containers have exited: one that
                # started and seems to differ may not have published all (status_manager.go, mergePodStatus).
                said = {one.verdict for interval in intervals for one in interval.judgements}
                has_started = self._looks[-1].starts != self._before.starts
                if is_late or not (has_started and Agreement.DIFFERS in said):
                    self._judged(self._before, self._looks, intervals)
                else:
                    self._differed = self._changed

    def _look(self) -> ObservedNode | None:
        changes = self.pods.changes
        try:
            found = self.source.observe()
        except MooringError as error:
            self.tally.blind += 1
            if not self._blind:
                self.report(Finding("warning", "kubelet", str(error)))
            self._blind = True
            return None
        if found is None:
            return None
        if self._blind:
            self.report(Finding("info", "kubelet", "is observed again"))
        self._blind = False
        starts = self.source.starts
        if (newest := self._newest) is not None:
            before, of, seen = newest
            if found is before and (changes, starts) == (of, seen.starts):
                return seen
        keys = [key.uid for key in found.state.pods if key.uid]
        pods = self.pods.snapshot()
        holding = [
            uid for uid in keys if found.node is not None and uid in pods and holds_all(found.node, pods[uid].pod)
        ]
        seen = ObservedNode(found.facts, found.state, starts, pods, frozenset(holding), self.moment(), found.left)
        if self._before is not None and seen.starts != self._before.starts and self._is_starting(self._before, seen):
            return seen
        self._newest, self._changed = (found, changes, seen), self.clock()
        # The outcome of pods that are observed undecided for the first time is predicted.
        new = [uid for uid in orders.undecided(seen) if uid not in self._predicted]
        for uid, admits, line in orders.predictions(seen, new) if new else ():
            self._predicted[uid] = admits
            self.said(line)
        self._add(seen)
        return seen

    def _is_starting(self, before: ObservedNode, seen: ObservedNode) -> bool:
        """Return whether a kubelet that has just started has not read all of its pods yet, or written its files."""
        if self._started[0] != seen.starts:
            self._started = (seen.starts, self.clock())
        if isinstance(engine_on(seen, seen.pods), str) and self.clock() - self._started[1] < PATIENCE:
            return True
        first = self._looks[0] if self._looks else before
        there = (before.held | first.held) - seen.listed
        return any(uid in seen.pods and not (seen.pods[uid].leaving or seen.pods[uid].reason) for uid in there)

    def _add(self, seen: ObservedNode) -> None:
        """Keep an observation until it is judged, in place of the one before if only the API server changed."""
        if self._before is None:
            return
        newest = self._looks[-1] if self._looks else self._before
        if not self._looks or newest.starts != seen.starts:
            # What a kubelet that has started decides first belongs to its start: it has all the patience again.
            self._first = self._changed
        elif (self._looks[-1].state, self._looks[-1].starts) == (seen.state, seen.starts):
            seen = replace(seen, at=self._looks.pop().at)
        self._looks.append(seen)

    def _begin(self, seen: ObservedNode) -> None:
        self._before = seen
        self.tally.release = seen.facts.mooring.release.tag
        self.said(f"watching {seen.state.node}, kubelet {self.tally.release}")
        before, self.tally.would_be = self.tally.would_be, None
        if self.proposed is None:
            return
        node = orders.would_be(seen, self.proposed)
        if isinstance(node, str):
            self.report(Finding("warning", "--would-be", node))
            return
        self.would_be, digest = node, orders.configuration_digest(self.proposed)
        # Counts of an earlier configuration are not continued.
        is_same = before is not None and before.configuration == digest
        self.tally.would_be = before if is_same else WouldBePart(0, [], [], self.today(), [], digest)

    def _judged(self, before: ObservedNode, looks: list[ObservedNode], intervals: Iterable[JudgedInterval]) -> None:
        after = looks[-1]
        pods = {uid: one for look in (before, *looks) for uid, one in look.pods.items()}
        refused, at = [uid for uid, one in pods.items() if one.reason], self.today()
        for interval in intervals:
            said = interval.judgements
            add(self.tally, (replace(one, name=one.uid) for one in said) if self.anonymous else said, at)
            for one in interval.judgements:
                self.said(one.line())
                if one.event in (KubeletEvent.ADMITTED, KubeletEvent.REFUSED) and one.uid in self._predicted:
                    self.tally.predicted += 1
                    admits = self._predicted.pop(one.uid)
                    self.tally.came_true += admits == (one.event is KubeletEvent.ADMITTED)
            if self.would_be is not None:
                self._ask_other(*orders.after_steps(self.would_be, interval.steps, refused), at)
            if self.folder is not None and (interval.judgements or interval.steps):
                self._keep(self.folder, interval, pods)
        if self.would_be is not None:
            self._ask_other(*orders.reconciled(self.would_be, after), at)
        self.tally.release = after.facts.mooring.release.tag
        if self.folder is not None:
            try:
                write_counts(self.folder.path, self.tally)
            except MooringError as error:
                self.report(Finding("warning", "recording", str(error)))
        self._before, self._looks = after, []
        self._predicted = {uid: admits for uid, admits in self._predicted.items() if not after.pods[uid].leaving}
        held = after.held
        self.pods.forget([uid for uid, one in after.pods.items() if one.leaving and uid not in held])

    def _ask_other(self, node: orders.WouldBe, answers: Iterable[orders.WouldBeAnswer], at: str) -> None:
        """Continue with the node of the other configuration, and count what it answered."""
        self.would_be = node
        if self.tally.would_be is not None:
            named = (replace(one, name=one.uid) for one in answers) if self.anonymous else answers
            count_other(self.tally.would_be, named, at)

    def _keep(self, folder: ShadowFolder, interval: JudgedInterval, pods: Mapping[str, ObservedPod]) -> None:
        begin = interval.begin
        node = self.alias if self.anonymous else interval.before.state.node
        content = recorded_scenario(node, interval, pods, anonymous=self.anonymous)
        verdicts = {one.verdict for one in interval.judgements}
        try:
            if verdicts <= folder.keeps and content is not None:
                folder.record(content, begin.facts, begin.state.facts)
            elif verdicts <= folder.keeps and verdicts - {Agreement.AGREED}:
                folder.left_out += 1
            if Agreement.DIFFERS in verdicts:
                shown = [] if content is None else [minimal_scenario(content, begin.facts), content]
                where = folder.difference(
                    interval.judgements, shown, begin.facts, begin.state.facts, anonymous=self.anonymous
                )
                self.report(Finding("warning", "difference", f"kept in {where.name}"))
                if self.packed is not None and self.clock() - self._archived >= PACKING:
                    self._archived = self.clock()
                    # Objects of a list do not name their kind.
                    folder.archive(where, self.packed([{"kind": "Pod", **one.content} for one in pods.values()]))
        except MooringError as error:
            self.report(Finding("warning", "recording", str(error)))


def watch(shadows: Sequence[Shadow], stopping: threading.Event, seconds: float | None = None) -> None:
    """Watch until stopped, or for a time; what is not judged yet is judged then."""
    begun = time.monotonic()
    while not stopping.is_set() and (seconds is None or time.monotonic() - begun < seconds):
        for one in shadows:
            one.step()
        stopping.wait(LOOKING)
    for one in shadows:
        one.step(last=True)


def _is_open(before: ObservedNode, seen: ObservedNode) -> bool:
    """Return whether a pod, its outcome, or its place in the kubelet's list is not known yet."""
    if any(key.uid not in seen.pods for key in seen.state.pods):
        return True
    here = {uid: one for uid, one in seen.pods.items() if not one.leaving}
    # Files that stay as they are hide a new pod of the shared pool until the kubelet is asked for its list again.
    started = (uid for uid, one in here.items() if one.ran and not before.runs(uid))
    return any(uid not in seen.listed for uid in started) or any(not seen.is_decided(uid) for uid in here)
