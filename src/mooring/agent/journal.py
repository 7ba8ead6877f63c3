"""The journal: everything that a restart of the agent must know, in one text.

It holds the texts of both state files too, so that one atomic replacement changes all that counts. Pods are kept as the
engine saw them, because a restart may find no pod source, and exactly: the engine must get the same amounts again. The
checksum is over the bytes of the body as they stand.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

import msgspec

from mooring.agent.nri.types import LinuxResources, PodSandbox
from mooring.agent.reactor.desired import list_of, node_set_of, nodes_of, set_of
from mooring.agent.reactor.recovery import Stored
from mooring.agent.state import LIVE, AgentState, KnownContainer, LastSeen, Phase, Setting
from mooring.documents.plan import learn
from mooring.engine.core.bits import list_text
from mooring.engine.core.cpuset import CPUSet
from mooring.engine.core.errors import MooringError
from mooring.engine.core.pod import ClaimUse, Container, ContainerKind, Pod, PodResources, QoS, ResourceList
from mooring.engine.core.quantity import Quantity, QuantityFormat
from mooring.engine.kubelet.kubelet import StateTexts

KIND = "AgentJournal"
VERSION = 1
_HEAD = f'{{"kind":"{KIND}",'
"""Of every record. Within one it cannot be: there every quote of a text has a backslash before it."""


class ContainerRow(msgspec.Struct, frozen=True, omit_defaults=True):
    """What the runtime knows of one container. A restart asks the runtime; this is for what it does not list."""

    sandbox: str
    pod: str
    name: str
    cpus: str
    mems: str
    cgroup: str = ""
    pid: int = 0
    claims: tuple[str, ...] = ()


class SandboxRow(msgspec.Struct, frozen=True, omit_defaults=True):
    """One sandbox, for the same."""

    pod: str
    name: str
    namespace: str
    parent: str = ""
    cgroup: str = ""
    pid: int = 0


class _Body(msgspec.Struct, frozen=True, omit_defaults=True):
    cpu: str | None
    memory: str | None
    pods: list[msgspec.Raw]
    containers: dict[str, ContainerRow]
    claims: dict[str, list[str]] = {}
    offline: str = ""
    displaced: dict[str, dict[int, int]] = {}
    sandboxes: dict[str, SandboxRow] = {}
    sequence: int = 0


class _Envelope(msgspec.Struct, frozen=True):
    kind: str
    version: int
    checksum: str
    body: msgspec.Raw


class JournalError(MooringError):
    """A text that is no whole journal; the message says why, in a few words."""


class JournalWriter:
    """Makes journals. What a pod and a container come to is made once and kept while they do not change."""

    def __init__(self) -> None:
        self._made: dict[str, tuple[Pod, msgspec.Raw]] = {}
        self._rows: dict[str, tuple[KnownContainer, ContainerRow]] = {}

    def text(self, state: AgentState, sequence: int = 0) -> str:
        """Return the journal of a state as one line; the number is 0 for one that is alone in its file."""
        # Until the first Synchronize the pods are remembered and not active, and what runs is only what ran.
        pods = {**state.remembered, **state.kubelet.node.active}
        boxes = {**state.last_seen.sandboxes, **state.sandboxes}
        made = {
            uid: known
            if (known := self._made.get(uid)) is not None and known[0] is pod
            else (pod, msgspec.Raw(msgspec.json.encode(text_of_pod(pod))))
            for uid, pod in pods.items()
        }
        self._made = made
        body = msgspec.json.encode(
            _Body(
                state.kubelet.files.cpu,
                state.kubelet.files.memory,
                [raw for _, raw in made.values()],
                self._containers(state),
                {uid: sorted(pods) for uid, pods in sorted(state.claim_users.items())},
                list_text(state.kubelet.node.cpu.offline),
                {uid: dict(pairs) for uid, pairs in state.kubelet.node.cpu.displaced.items()},
                {
                    one.id: SandboxRow(one.uid, one.name, one.namespace, one.cgroup_parent, one.cgroups_path, one.pid)
                    for one in boxes.values()
                },
                sequence,
            )
        )
        envelope = _Envelope(KIND, VERSION, _checksum(body), msgspec.Raw(body))
        return msgspec.json.encode(envelope).decode()

    def _containers(self, state: AgentState) -> dict[str, ContainerRow]:
        made: dict[str, tuple[KnownContainer, ContainerRow]] = {}
        for one in (*state.last_seen.containers.values(), *state.containers.values()):
            if one.phase in LIVE:
                known = self._rows.get(one.id)
                if known is None or known[0] is not one:
                    cpus, mems = list_of(one.record.cpus.mask), nodes_of(one.record.mems)
                    row = ContainerRow(one.sandbox_id, one.uid, one.name, cpus, mems, one.cgroup, one.pid, one.claims)
                    known = one, row
                made[one.id] = known
        self._rows = made
        return {id_: row for id_, (_, row) in made.items()}


def read_newest(text: str) -> tuple[Stored, str]:
    """Return the newest whole record of a journal's file, and in words what of the file is damaged.

    Raises:
        JournalError: no record is whole.
    """
    found: list[Stored] = []
    problems: list[str] = []
    for each in records_in(text, _HEAD):
        try:
            found.append(read_journal(each))
        except JournalError as error:
            problems.append(str(error))
    if not found:
        raise JournalError(problems[0])
    newest = max(found, key=lambda one: one.sequence)
    if newest.sequence and len(found) == 1 and not problems:
        problems.append("one is missing")
    return newest, problems[0] if problems else ""


def read_journal(text: str) -> Stored:
    """Return what one record says.

    Raises:
        JournalError: it is not whole.
    """
    try:
        envelope = msgspec.json.decode(text.encode(errors="surrogateescape"), type=_Envelope)
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        raise JournalError(f"no journal: {error}") from None
    if envelope.kind != KIND:
        raise JournalError(f"kind {envelope.kind!r:.60} instead of {KIND}")
    if envelope.version != VERSION:
        raise JournalError(f"version {envelope.version} is not known, only {VERSION}")
    raw = bytes(envelope.body)
    if _checksum(raw) != envelope.checksum:
        raise JournalError("the checksum is wrong")
    try:
        body = msgspec.json.decode(raw, type=_Body)
        pods = [pod_of_text(msgspec.json.decode(one, type=PodText)) for one in body.pods]
        offline = CPUSet.parse(body.offline).mask
        last_seen = _last_seen(body)
    except (msgspec.MsgspecError, MooringError, ValueError, RecursionError) as error:
        raise JournalError(f"it cannot be understood: {error}") from None
    return Stored(
        StateTexts(body.cpu, body.memory),
        {pod.uid: pod for pod in pods},
        claim_users={uid: frozenset(pods) for uid, pods in body.claims.items()},
        offline=offline,
        displaced=body.displaced,
        last_seen=last_seen,
        sequence=body.sequence,
    )


def _last_seen(body: _Body) -> LastSeen:
    boxes = {
        id_: PodSandbox(
            id_, one.pod, one.name, one.namespace, cgroup_parent=one.parent, cgroups_path=one.cgroup, pid=one.pid
        )
        for id_, one in body.sandboxes.items()
    }
    containers = {
        id_: KnownContainer(
            id=id_,
            sandbox_id=one.sandbox,
            uid=one.pod,
            name=one.name,
            # Its group is asked before anything is made of it.
            phase=Phase.RUNNING,
            record=Setting(set_of(one.cpus), node_set_of(one.mems)),
            asked=LinuxResources(),
            pid=one.pid,
            cgroup=one.cgroup,
            claims=one.claims,
        )
        for id_, one in body.containers.items()
    }
    return LastSeen(boxes, containers)


def _checksum(body: bytes) -> str:
    return f"sha256:{hashlib.sha256(body).hexdigest()}"


def records_in(text: str, head: str) -> tuple[str, ...]:
    """Return the one or two texts in a file that may be records.

    Args:
        text: of the file, whole or damaged.
        head: with which each record begins, and which is nowhere within one.
    """
    starts = dict.fromkeys((0, max(text.rfind(head), 0)))
    return tuple(text[start:].partition("\n")[0] for start in starts)


Amounts = dict[str, str | list[str]]


class ContainerText(msgspec.Struct, frozen=True, omit_defaults=True):
    """One container."""

    name: str
    kind: str = "app"
    requests: Amounts = {}
    limits: Amounts = {}
    claims: list[tuple[str, str]] = []


class PodText(msgspec.Struct, frozen=True, omit_defaults=True):
    """One pod."""

    uid: str
    name: str
    namespace: str
    qos: str
    containers: list[ContainerText] = []
    resources: tuple[Amounts, Amounts] | None = None
    overhead: Amounts = {}
    annotations: dict[str, str] = {}
    scale_down_grace: int | None = None
    priority: int = 0
    claims: tuple[str, ...] = ()


learn(_Envelope, _Body, PodText)


def text_of_pod(pod: Pod) -> PodText:
    """Return a pod as a document."""
    return PodText(
        uid=pod.uid,
        name=pod.name,
        namespace=pod.namespace,
        qos=pod.qos.value,
        containers=[
            ContainerText(
                one.name,
                one.kind.value,
                _texts(one.requests),
                _texts(one.limits),
                [(use.claim, use.request) for use in one.claims],
            )
            for one in pod.containers
        ],
        resources=None if pod.resources is None else (_texts(pod.resources.requests), _texts(pod.resources.limits)),
        overhead=_texts(pod.overhead),
        annotations=dict(pod.annotations),
        scale_down_grace=pod.scale_down_grace,
        priority=pod.priority,
        claims=pod.claims,
    )


def pod_of_text(text: PodText) -> Pod:
    """Return the pod of a document.

    Raises:
        ValueError: an amount, a kind or a class is none.
        MooringError: an amount's text is no quantity.
    """
    return Pod(
        uid=text.uid,
        name=text.name,
        namespace=text.namespace,
        containers=tuple(
            Container(
                one.name,
                ContainerKind(one.kind),
                _amounts(one.requests),
                _amounts(one.limits),
                claims=tuple(ClaimUse(claim, request) for claim, request in one.claims),
            )
            for one in text.containers
        ),
        qos=QoS(text.qos),
        resources=text.resources and PodResources(_amounts(text.resources[0]), _amounts(text.resources[1])),
        overhead=_amounts(text.overhead),
        annotations=text.annotations,
        scale_down_grace=text.scale_down_grace,
        priority=text.priority,
        claims=text.claims,
    )


def _texts(resources: ResourceList) -> Amounts:
    """Return amounts as people write them where that says everything, else their parts."""
    texts = {resource: str(quantity) for resource, quantity in resources.items()}
    return {
        resource: text if _parts(Quantity.parse(text)) == _parts(resources[resource]) else _parts(resources[resource])
        for resource, text in texts.items()
    }


def _parts(quantity: Quantity) -> list[str]:
    return [str(quantity.nano), quantity.format.value, "fast" if quantity.fast else "", str(quantity.scale)]


def _amounts(texts: Mapping[str, Any]) -> ResourceList:
    found = {}
    for resource, text in texts.items():
        if isinstance(text, str):
            found[resource] = Quantity.parse(text)
        else:
            nano, form, fast, scale = text
            found[resource] = Quantity(int(nano), QuantityFormat(form), bool(fast), int(scale))
    return found
