"""The shadow of a kubelet: it looks, waits until what it sees is settled, judges, counts, and never writes to the node.

The files of the kubelet change at once, the API server tells of it later. So a change is judged when nothing has
changed for a while and the outcome of every pod is known, or when waiting longer would not help.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Final, Protocol

from mooring.core.config import KubeletConfig
from mooring.core.errors import MooringError
from mooring.core.machine import Finding
from mooring.decoding.fields import Report, ignore
from mooring.publisher.observation import Observation
from mooring.publisher.restored import holds
from mooring.shadow.folder import ShadowFolder
from mooring.shadow.judgement import Agreement
from mooring.shadow.judging import Stretch, judge
from mooring.shadow.observed import ObservedNode, ObservedPod
from mooring.shadow.pods import BoundPods
from mooring.shadow.recording import recorded_scenario, smallest
from mooring.shadow.tally import Tally
from mooring.shadow.would_be import WouldBe, after_steps, would_be

LOOKING: Final = 0.25
"""Seconds between two looks; one at which nothing has changed reads three inodes."""
QUIET: Final = 1.0
"""Seconds without a change after which a change is judged."""
PATIENCE: Final = 15.0
"""Seconds that the outcome of a pod is waited for."""


class ObservedKubelet(Protocol):
    """See :class:`mooring.publisher.kubelet_source.KubeletSource`."""

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
    tally: Tally
    folder: ShadowFolder | None = None
    proposed: KubeletConfig | None = None
    """The configuration that the kubelet might have instead."""
    anonymous: bool = False
    report: Report = ignore
    clock: Callable[[], float] = time.monotonic
    said: Callable[[str], object] = print
    """Receives every judgement as a line."""
    would_be: WouldBe | None = None
    _before: ObservedNode | None = None
    _newest: tuple[Observation, int] | None = None
    _changed: float = 0.0
    _looks: list[ObservedNode] = field(default_factory=list)
    """Since what was judged last."""
    _first: float = 0.0
    """When the first of them was."""
    _blind: bool = False

    def run(self, stopping: threading.Event, seconds: float | None = None) -> None:
        """Watch until told to stop, or for a time; what is not judged yet is judged then."""
        begun = self.clock()
        while not stopping.is_set() and (seconds is None or self.clock() - begun < seconds):
            self.step()
            stopping.wait(LOOKING)
        self.step(last=True)

    def step(self, *, last: bool = False) -> None:
        """Look once, and judge what is due."""
        now = self.clock()
        seen = self._look()
        if seen is None:
            return
        if self._before is None:
            self._begin(seen)
        elif self._looks:
            is_settled = now - self._changed >= QUIET and not _is_open(seen)
            if is_settled or now - self._first >= PATIENCE or last:
                self._judge(self._before, self._looks)

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
            self.report(Finding("info", "kubelet", "can be seen again"))
        self._blind = False
        keys = [key.uid for key in found.state.pods if key.uid]
        holding = [uid for uid in keys if found.node is not None and holds(found.node, uid) is not None]
        starts, pods = self.source.starts, self.pods.snapshot()
        seen = ObservedNode(found.facts, found.state, starts, pods, frozenset(holding))
        if self._before is not None and seen.starts != self._before.starts and self._is_starting(self._before, seen):
            return seen
        if self._newest is None or found is not self._newest[0] or changes != self._newest[1]:
            self._newest, self._changed = (found, changes), self.clock()
            self._add(seen)
        return seen

    def _is_starting(self, before: ObservedNode, seen: ObservedNode) -> bool:
        """Tell whether a kubelet that has just started has not read all of its pods yet."""
        first = self._looks[0] if self._looks else before
        there = (before.held | first.held) - seen.listed
        return any(uid in seen.pods and not (seen.pods[uid].leaving or seen.pods[uid].reason) for uid in there)

    def _add(self, seen: ObservedNode) -> None:
        """Keep a look until it is judged; where only the API server told something new, in place of the one before."""
        if self._before is None:
            return
        if not self._looks:
            self._first = self._changed
        elif (self._looks[-1].state, self._looks[-1].starts) == (seen.state, seen.starts):
            del self._looks[-1]
        self._looks.append(seen)

    def _begin(self, seen: ObservedNode) -> None:
        self._before = seen
        self.tally.release = seen.facts.mooring.release.tag
        self.said(f"watching {seen.state.node}, kubelet {self.tally.release}")
        if self.proposed is not None:
            node = would_be(seen, self.proposed)
            if isinstance(node, str):
                self.report(Finding("warning", "--would-be", node))
            else:
                self.would_be = node

    def _judge(self, before: ObservedNode, looks: list[ObservedNode]) -> None:
        after = looks[-1]
        pods = {uid: one for look in (before, *looks) for uid, one in look.pods.items()}
        refused = [uid for uid, one in pods.items() if one.reason]
        for stretch in judge(before, *looks):
            self.tally.add(stretch.judgements)
            for one in stretch.judgements:
                self.said(one.line())
            if self.would_be is not None:
                self.would_be = after_steps(self.would_be, stretch.steps, refused)
            if self.folder is not None and stretch.judgements:
                self._keep(self.folder, stretch, pods)
        self.tally.release = after.facts.mooring.release.tag
        self._before, self._looks = after, []
        self.pods.forget([uid for uid, one in after.pods.items() if one.leaving and uid not in after.held])

    def _keep(self, folder: ShadowFolder, stretch: Stretch, pods: Mapping[str, ObservedPod]) -> None:
        state, facts = stretch.before.state, stretch.before.facts
        name = f"{state.node}-{datetime.now(UTC):%Y%m%dT%H%M%S.%fZ}"
        content = recorded_scenario(name, stretch, pods, anonymous=self.anonymous)
        verdicts = {one.verdict for one in stretch.judgements}
        try:
            if content is not None and verdicts == {Agreement.AGREED}:
                folder.record(content, facts, state.facts)
            if Agreement.DIFFERS in verdicts:
                shown = [] if content is None else [smallest(content, facts), content]
                where = folder.difference(stretch.judgements, shown, facts, state.facts)
                self.report(Finding("warning", "difference", f"kept in {where.name}"))
        except MooringError as error:
            self.report(Finding("warning", "recording", str(error)))


def _is_open(seen: ObservedNode) -> bool:
    """Tell whether the outcome of a pod, or a pod, is not known yet."""
    if any(key.uid not in seen.pods for key in seen.state.pods):
        return True
    return any(not seen.is_decided(uid) for uid, one in seen.pods.items() if not one.leaving)


def now_text() -> str:
    """Return the time as RFC 3339."""
    return f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}"
