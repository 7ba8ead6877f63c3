"""The pods of this node as far as they are known, for one thread that learns and others that ask."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Mapping

from mooring.core.pod import Pod

MOST_REMEMBERED = 512
"""Uids that are remembered as missed."""


class KnownPods:
    """Pods by uid.

    A reader may wait for a pod that is about to become known: the kubelet's watch and the agent's get it at
    about the same time, and whose comes first is chance.
    """

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._pods: dict[str, Pod] = {}
        self._missed: OrderedDict[str, None] = OrderedDict()
        self._live = False
        self._misses = 0

    def replace_all(self, pods: Mapping[str, Pod]) -> None:
        """Learn everything that there is; what is not among it is gone."""
        with self._changed:
            self._pods = dict(pods)
            self._live = True
            self._changed.notify_all()

    def put(self, pod: Pod) -> None:
        """Learn of a pod, or of a change of it."""
        with self._changed:
            self._pods[pod.uid] = pod
            self._changed.notify_all()

    def drop(self, uid: str) -> None:
        """Learn that a pod is gone."""
        with self._changed:
            self._pods.pop(uid, None)

    def stale(self) -> None:
        """Learn that no more changes arrive for now: no reader waits any longer, what is known stays."""
        with self._changed:
            self._live = False
            self._changed.notify_all()

    def fresh(self) -> None:
        """Learn that changes arrive again."""
        with self._changed:
            self._live = True

    @property
    def is_live(self) -> bool:
        """Whether changes arrive."""
        with self._changed:
            return self._live

    @property
    def misses(self) -> int:
        """How often a pod was asked for in vain."""
        with self._changed:
            return self._misses

    def __len__(self) -> int:
        with self._changed:
            return len(self._pods)

    def find(self, uid: str, patience: float = 0.0) -> Pod | None:
        """Return a pod, waiting for at most ``patience`` seconds, and only the first time that this uid is missed."""
        with self._changed:
            if uid not in self._pods and self._live and uid not in self._missed and patience > 0:
                self._changed.wait_for(lambda: uid in self._pods or not self._live, patience)
            found = self._pods.get(uid)
            if found is not None:
                self._missed.pop(uid, None)
                return found
            self._misses += 1
            # A reader that does not wait takes nothing from one that would.
            if patience > 0:
                self._missed[uid] = None
                if len(self._missed) > MOST_REMEMBERED:
                    self._missed.popitem(last=False)
            return None
