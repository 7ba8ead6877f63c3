"""Defects that Mooring had, or would have without one of its lines, put back one at a time: the world finds each."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tests.world.files import OS
from tests.world.threads import threads

from mooring.agent import agent, reconcile, state_holder, store
from mooring.agent.adapter import RuntimeAdapter
from mooring.agent.effects import WriteAssigned
from mooring.agent.executor import AssignedFiles
from mooring.agent.nri import plugin
from mooring.agent.nri.session import Session
from mooring.agent.reactor import create_container, desired
from mooring.agent.reactor.hotplug import is_news
from mooring.agent.reactor.recovery import Stored
from mooring.agent.state_holder import StateHolder
from mooring.agent.store import JournalFile, Store
from mooring.cluster.dra import driver
from mooring.cluster.dra.cdi import CDISpecs
from mooring.cluster.dra.driver import Driver
from mooring.cluster.extender import deciding
from mooring.cluster.extender.binding import Binder, ClusterPodAPI
from mooring.cluster.extender.claims import ClaimView
from mooring.cluster.extender.known_node import BoundPod, KnownNode
from mooring.cluster.extender.pods import ClusterPods
from mooring.cluster.extender.service import ExtenderMetrics
from mooring.cluster.extender.view import ClusterView
from mooring.engine.extensions.owners import OwnerKind, StateOwner, claims_of
from mooring.engine.node import claims, providers
from mooring.inputs.pods.claims import claim_of
from mooring.published import possible_kubelets, restored
from mooring.published.publisher import Pace
from mooring.service import lease
from mooring.service.apiserver import ClusterError
from mooring.service.lease import Election


class NoLock:
    """A lock that keeps nobody out."""

    def acquire(self, *_: object, **__: object) -> bool:
        threads().step()
        return True

    def release(self) -> None:
        pass

    def __enter__(self) -> bool:
        return self.acquire()

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


def _no_sandboxes(_holder: Any, _cgroups: Any, last: Any, **_: Any) -> Any:
    return last, True


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
    "sandboxes that end unreported stay": (
        agent,
        "verify_sandboxes",
        _no_sandboxes,
    ),
    "no reply replaces one that is late": (Session, "_expire", _nothing),
    "lost answers are not made up for": (RuntimeAdapter, "lost", _nothing),
    "pending releases never end": (agent, "release", _nothing),
    "CPUs that come online are not noticed": (reconcile, "is_news", _only_fewer),
    "files of assigned CPUs stay": (AssignedFiles, "do", _keeps_files),
    "a closed session keeps its thread": (Session, "close", _without_deadlines),
    "a state that could not be written is not written again": (StateHolder, "write_again", _nothing),
    "state files do not follow": (StateHolder, "write_files", _nothing),
    "control groups are not verified": (agent, "verify", _nothing),
    "the folder stays locked": (Store, "unlock", _nothing),
}
"""Of the agent, by name: where the product's line is, its name, what takes its place."""


def _comes_once(connect: Any, handler: Any, options: Any, observer: Any, stop: Any) -> None:
    plugin.run_given_plugin(Session(connect(), None, options), handler, options, observer)
    stop.wait()


WIRE_DEFECTS: dict[str, tuple[object, str, object]] = {
    "a runtime that says nothing is not asked whether it is there": (plugin, "QUIET_SECONDS", 1e9),
    "a plugin that was refused comes never again": (agent, "run_plugin", _comes_once),
}
"""Of what the agent makes of a connection on which anything can come."""


def _as_waiting(self: Any, asked: Any, read: Any = Binder._read_pod) -> Any:  # noqa: SLF001 - as above
    seen = read(self, asked)
    return None if seen is None else replace(seen, node="")


def _revive(self: Any, listed: Any) -> None:
    self._put_listed(listed)
    self._lists -= 1


def _surely_ordered(self: Any, listed: Any) -> None:
    for seen in listed:
        self.put(seen)


def _only_known_names(self: Any, names: Any) -> None:
    for uid, entry in self.pods.items():
        entry.current = uid in names
        entry.named = entry.named or entry.current


def _no_answer_is_no(self: Any, asked: Any, bind: Any = ClusterPodAPI.bind) -> None:
    try:
        bind(self, asked)
    except ClusterError as error:
        raise ClusterError(str(error), code=400) from None


CLUSTER_DEFECTS: dict[str, tuple[object, str, object]] = {
    "a bind is repeated without asking where the pod is": (Binder, "_read_pod", _as_waiting),
    "a conflict counts as not bound": (
        Binder,
        "_settle_conflict",
        lambda self, asked: self.view.not_bound(asked.PodUID),
    ),
    "a bind without an answer counts as not bound": (ClusterPodAPI, "bind", _no_answer_is_no),
    "a bind counts when it is confirmed": (ClusterPods, "assume", _nothing),
    "binds to one node have no lock": (ClusterView, "lock_of", lambda _self, _node, **_: NoLock()),
    "a new holder does not read what others bound": (ClusterView, "read_pods", _nothing),
    "pods that end while their node is read live again": (ClusterPods, "end_list", _revive),
    "listed pods count as bound in the order of the list": (ClusterPods, "_put_listed", _surely_ordered),
    "pods that a state names first are not noted": (KnownNode, "_take_names", _only_known_names),
    "pods that leave count as gone": (BoundPod, "is_over", lambda self, *_: self.gone is not None or self.leaving),
    "deleted pods stay": (ClusterView, "drop_pod", _nothing),
    "pods that a list lacks stay": (ClusterPods, "replace", lambda self, listed: self._put_listed(listed)),
    "reservations of pods that are gone stay": (KnownNode, "over", lambda *_: ()),
    "broken promises are not counted": (ExtenderMetrics, "refused", _nothing),
    "facts that were dropped are not listed again": (ClusterView, "misses_facts", lambda _self: False),
    "an expired version is asked for again": (ClusterError, "is_expired", property(lambda _self: False)),
    "a standby decides too": (Election, "leads", property(lambda _self: True)),
    "a Lease is taken over at once": (lease, "DURATION", 0),
    "binds do not look at the Lease": (Binder, "_may_bind", lambda _self: True),
    "a state that could not be written waits for the heartbeat": (
        Pace,
        "failed",
        lambda self, now, *_: self.written(now),
    ),
}
"""Of extender and publisher."""


CLAIMS_DEFECTS: dict[str, tuple[object, str, object]] = {
    "half files of a killed driver stay": (CDISpecs, "tidy", _nothing),
    "unprepared claims keep their files": (CDISpecs, "remove", _nothing),
    "calls that the kubelet gave up are done": (driver, "_WAITING", -1),
    "claims that the agent lost are not given again": (Driver, "restore", _nothing),
    "CPUs of deleted claims are not released": (driver, "_SWEEP_PERIOD", 1e9),
    "a driver forgets what it has prepared": (CDISpecs, "all", lambda _self: iter(())),
    "containers are created with claims that they have not": (create_container, "why_not_claimed", _nothing),
    "containers do not get the CPUs of their claims": (desired, "claimed_cpus", lambda _state: {}),
    "others stay on the CPUs of a claim": (create_container, "enforced", lambda _before, after: (after, ())),
    "pods of claims are not remembered": (Stored, "claim_users", property(lambda _self: {}, _nothing)),
}
"""Of the driver of claims, and of the agent that gives them."""


def _only_watched(self: Any, content: Any, *, listed: bool = False, put: Any = ClaimView.put_claim) -> Any:
    is_bind = threads().task.name.startswith("mooring-bind")
    return claim_of(content, source="API server") if is_bind else put(self, content, listed=listed)


def _unclaimed(*given: Any, started_on: Any = restored.started_on) -> Any:
    kubelet = started_on(*given)
    for uid in () if isinstance(kubelet, str) else claims_of(kubelet.node.cpu):
        kubelet = kubelet.release(uid)
    return kubelet


DEVICES_DEFECTS: dict[str, tuple[object, str, object]] = {
    "bound pods do not count beside their devices": (ClaimView, "given_to", lambda *_: {}),
    "CPUs are promised away from allocated devices": (deciding, "asked_node", lambda kubelet, _shape: kubelet),
    "binds do not read claims": (ClaimView, "put_claim", _only_watched),
    "claims in the state are taken for stale": (
        providers,
        "state_owner",
        lambda key, part="": StateOwner(OwnerKind.CONTAINER, key, part),
    ),
    "claims of a published state do not count": (possible_kubelets, "started_on", _unclaimed),
    "unprepared claims keep their CPUs": (claims, "release", lambda node, *_: node),
}
"""Of the extender with claims, and of the engine that gives CPUs to them."""


def put_back(name: str) -> None:
    """Bring a defect back into this process."""
    where, what, instead = {**DEFECTS, **WIRE_DEFECTS, **CLUSTER_DEFECTS, **CLAIMS_DEFECTS, **DEVICES_DEFECTS}[name]
    getattr(where, what)  # a defect of something that has another name by now would be none
    setattr(where, what, instead)
