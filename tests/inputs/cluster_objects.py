"""Objects that the API server hands out, as readers of their bytes: pods, claims, and what nodes publish."""

from __future__ import annotations

import json
import zlib
from base64 import b64decode, b64encode
from hashlib import sha256
from pathlib import Path
from typing import Any

import msgspec
import yaml

from mooring.agent.pods.api import kubelet_uid
from mooring.agent.pods.resolve import pod_of_object, wanted_pod
from mooring.cluster.dra.cdi import allocation_of
from mooring.cluster.dra.driver import is_allocated, is_asked_for
from mooring.cluster.extender.pods import Shapes, seen_pod
from mooring.engine.core.config import KubeletConfig, MooringConfig
from mooring.engine.core.errors import InputError
from mooring.engine.devicemanager.state import DeviceState
from mooring.engine.kubelet.admit import admit
from mooring.engine.kubelet.kubelet import Kubelet, StateTexts
from mooring.engine.kubelet.start import start_kubelet
from mooring.inputs.decoding.documents import documents_in
from mooring.inputs.machines.compact import parse_compact
from mooring.inputs.pods.pod_files import pods_of
from mooring.published.facts_document import digest_of, facts_document, facts_of
from mooring.published.objects import NodeFacts, NodeState, PodKey, state_document, state_of
from mooring.published.restored import kind_of, restored

NAME = "API server"


def _read(name: str) -> Any:
    return yaml.safe_load((Path(__file__).parent / name).read_text(encoding="utf-8"))


class _Metadata(msgspec.Struct):
    name: str
    namespace: str
    uid: str
    annotations: dict[str, str] = {}


class _Claim(msgspec.Struct):
    metadata: _Metadata
    status: dict[str, Any] | None = None


def claim(data: bytes) -> object:
    """Read a claim, as far as the server's own checks let it pass: an object with metadata."""
    try:
        found = msgspec.json.decode(data, type=_Claim)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
    content = msgspec.to_builtins(found)
    return (
        is_asked_for(content, "node-1"),
        is_allocated(content),
        allocation_of(content, "cpu.mooring", "node-1", lambda name: 6 if name.startswith("cpu") else 0),
    )


def claim_seeds() -> list[bytes]:
    """Return one with every field that is read."""
    return [json.dumps(_read("api-claim.yaml")).encode()]


def pod(data: bytes) -> object:
    """Read a pod as the agent and as the extender do."""
    found: list[object] = []
    content = _mapping(data)
    for read in (
        lambda: kubelet_uid(content),
        lambda: pod_of_object(content, source=NAME),
        lambda: wanted_pod(content, source=NAME),
        lambda: seen_pod(data, Shapes()),
    ):
        try:
            found.append(read())
        except InputError as error:
            found.append(str(error))
    return found


_POD = _read("api-pod.yaml")


def pod_seeds() -> list[bytes]:
    """Return one with every field that is read."""
    return [json.dumps(_POD).encode()]


_FACTS = NodeFacts(
    parse_compact("sockets=1 numa=2 cores=4 threads=2").info,
    KubeletConfig(cpu_manager_policy="static", reserved_system_cpus="0"),
    MooringConfig(),
)
_KIND = kind_of(digest_of(_FACTS), _FACTS)


def node_facts(data: bytes) -> object:
    """Read facts with this content, under the right name, and understand them."""
    packed = b64encode(zlib.compress(data, 1)).decode()
    document = {**facts_document(_FACTS), "metadata": {"name": sha256(data).hexdigest()}}
    found = facts_of({**document, "spec": {**document["spec"], "content": packed}})
    return kind_of(document["metadata"]["name"], found)


def facts_seeds() -> list[bytes]:
    """Return the content of one."""
    return [zlib.decompress(b64decode(facts_document(_FACTS)["spec"]["content"]))]


def node_state(data: bytes) -> object:
    """Read a state, and start its node."""
    found = state_of(_mapping(data))
    assert not isinstance(_KIND, str), _KIND
    return restored(_KIND, found, {})


def state_seeds() -> list[bytes]:
    """Return a node with a pod and a device."""
    started = start_kubelet(_FACTS.machine, _FACTS.config, _FACTS.mooring, StateTexts())
    assert isinstance(started, Kubelet)
    [pinned] = pods_of(documents_in(json.dumps({"apiVersion": "v1", "kind": "Pod", **_POD}).encode(), NAME))
    files = admit(started, pinned)[0].files
    devices = DeviceState({}, {"u": {"c": {"vendor/gpu": frozenset({"g0"})}}})
    state = NodeState("node-1", digest_of(_FACTS), files, devices, (PodKey("default", "p", "u"),), 7, 2, {})
    return [msgspec.json.encode(state_document(state))]


def _mapping(data: bytes) -> dict[str, Any]:
    try:
        return msgspec.json.decode(data, type=dict[str, Any])
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        raise InputError("is no object", source=NAME) from None
