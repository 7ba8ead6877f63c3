"""What a node publishes, forged as a whole: honest facts, state and a pod with edits in each, up to the verdict.

An input is a list of edits of four bytes: which value of all, and what becomes of it. Digests and checksums are
corrected, so that almost every input is a node about which the engine is asked; by the sum of its bytes the node's pods
may be leaving. The guard of the extender is left out: what it would catch is found here.
"""

from __future__ import annotations

import json
import zlib
from base64 import b64decode, b64encode
from copy import deepcopy
from functools import cache, lru_cache
from hashlib import sha256
from random import Random
from typing import Any

from mooring.cluster.extender.deciding import Decider
from mooring.cluster.extender.possible_nodes import PossibleNodes
from mooring.engine.checkpoint.checksum import data_checksum
from mooring.engine.core.config import KubeletConfig, MooringConfig, ReservedMemory
from mooring.engine.devicemanager.state import Device, DeviceState
from mooring.engine.kubelet.admit import admit, shape_of
from mooring.engine.kubelet.kubelet import Kubelet, StateTexts
from mooring.engine.kubelet.start import start_kubelet
from mooring.inputs.machines.compact import parse_compact
from mooring.inputs.pods.pods import pod_from_object
from mooring.inputs.pods.scheduling_fields import NodeObject
from mooring.monitoring.serve.cluster_html import tile
from mooring.monitoring.serve.cluster_known import NodeNow
from mooring.published.facts_document import facts_document, facts_of
from mooring.published.objects import NodeFacts, NodeState, PodKey, state_document, state_of
from mooring.published.possible_kubelets import NodeKnowledge
from mooring.published.restored import NodeKind, kind_of

_EXTENDED = MooringConfig(extensions=frozenset({"cpu-hotplug"}))
_EDIT = 4
_MOST_EDITS = 8
_NUMBERS = (0, -1, 1, 2, 3, 7, 8, 63, 64, 65, 1023, 4096, 8191, 8192, 2**31, 2**63 - 1, -(2**63), 2**63, 10**30)
_TEXTS = (
    *("", "0", "-1", "1", "100m", "1e308", "0-8191", "0,0-3", "3-1", "99999", "1Gi", "9223372036854775808", "true"),
    *("static", "none", "Static", "None", "pod", "container", "restricted", "best-effort", "single-numa-node"),
    *("v1.31.0", "memory", "hugepages-2Mi", "cpu", "v/gpu", "p0", "a" * 300, "\x00"),
)


def _pod(name: str, cpus: str, memory: str, more: dict[str, str]) -> dict[str, Any]:
    amounts = {"cpu": cpus, "memory": memory, **more}
    containers = [{"name": "c", "resources": {"limits": dict(amounts), "requests": dict(amounts)}}]
    metadata = {"name": name, "namespace": "d", "uid": name}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {"containers": containers}}


@cache
def _honest() -> dict[str, Any]:
    """Return facts, state and a pod, with everything that is text within text opened."""
    config = KubeletConfig(
        cpu_manager_policy="static",
        cpu_manager_policy_options={"distribute-cpus-across-numa": "true"},
        memory_manager_policy="Static",
        topology_manager_policy="best-effort",
        reserved_system_cpus="0",
        kube_reserved={"memory": "924Mi"},
        reserved_memory=(ReservedMemory(0, {"memory": "1Gi"}),),
    )
    facts = NodeFacts(parse_compact("sockets=2 numa=2 cores=4 threads=2 memory=64Gi").info, config, _EXTENDED)
    kubelet = start_kubelet(facts.machine, facts.config, facts.mooring, StateTexts())
    assert isinstance(kubelet, Kubelet)
    for number in range(2):
        kubelet, answer = admit(kubelet, pod_from_object(_pod(f"p{number}", "1", "1Gi", {}), source="honest"))
        assert answer.admitted
    document = facts_document(facts)
    devices = {"v/gpu": (Device("a", (0,)), Device("b", (1,)), Device("x"))}
    held = DeviceState(devices, {"p0": {"c": {"v/gpu": frozenset({"a"})}}})
    keys = tuple(PodKey("d", name, name) for name in ("p0", "p1"))
    state = state_document(NodeState("n", document["metadata"]["name"], kubelet.files, held, keys, offline=8))
    for name, text in state["spec"]["files"].items():
        outer = json.loads(text)
        state["spec"]["files"][name] = {**outer, "data": json.loads(outer["data"])}
    content = json.loads(zlib.decompress(b64decode(document["spec"]["content"])))
    asked = _pod("asked", "2", "20Gi", {"v/gpu": "1"})
    return {
        "facts": content,
        "state": state,
        "pod": asked,
        "bound": [_pod("p1", "1", "1Gi", {}), _pod("new", "1", "1Gi", {})],
    }


def verdict(data: bytes) -> object:
    """Ask about a pod and a node with these edits, as filter, prioritize and the page of a cluster do."""
    world = _edited(json.loads(_honest_text()), data)
    kind = _kind(json.dumps(world["facts"], separators=(",", ":")))
    if isinstance(kind, str):
        return kind
    state = state_of(_closed(world["state"], kind.digest))
    asked, *others = (pod_from_object(one, source="input") for one in (world["pod"], *world["bound"]) if _is_pod(one))
    bound = {pod.uid: pod for pod in others}
    leaving = tuple(bound) if sum(data) % 2 else ()
    outlook = _nodes().of(NodeKnowledge(kind, state, bound, leaving, tuple(bound)))
    decider, shape = _decider(), shape_of(asked)
    tiles = [tile(NodeNow(NodeObject("n"), view.kubelet, kind, state, (), ())) for view in outlook.views]
    return decider.verdict(outlook, shape), decider.merit(outlook, shape), tiles


@cache
def _nodes() -> PossibleNodes:
    """Return what an extender keeps about all of its nodes."""
    return PossibleNodes()


@cache
def _decider() -> Decider:
    return Decider()


@lru_cache(256)
def _kind(content: str) -> NodeKind | str:
    facts = _object(content.encode())
    return kind_of(facts["metadata"]["name"], facts_of(facts))


@cache
def _honest_text() -> str:
    return json.dumps(_honest())


def _is_pod(content: Any) -> bool:
    """Tell whether an API server would store this: a pod with metadata and a specification."""
    return isinstance(content, dict) and all(isinstance(content.get(part), dict) for part in ("metadata", "spec"))


def seeds() -> list[bytes]:
    """Return no edit, one that renames a NUMA node, and some by chance."""
    draw = Random(37)  # noqa: S311 - the same inputs everywhere
    return [b"", _renamed(), *(draw.randbytes(_EDIT * count) for count in (1, 1, 2, 2, 3, 4) for _ in range(5))]


def _renamed() -> bytes:
    """Return the edit that calls NUMA node 1 of the facts number 2."""
    wanted = ("facts", "machine", "topology", 1, "node_id")
    place = next(number for number, path in enumerate(_places(_honest())) if path == wanted)
    return place.to_bytes(2, "big") + bytes([0, _NUMBERS.index(2)])


def _places(value: object, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    found = [path] if path else []
    entries = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, part in entries:
        found += _places(part, (*path, key))
    return found


def _inner(world: dict[str, Any]) -> list[tuple[Any, ...]]:
    return [path for path in _places(world) if len(path) > 1]


@cache
def _honest_places() -> list[tuple[Any, ...]]:
    return _inner(_honest())


def _edited(world: dict[str, Any], data: bytes) -> dict[str, Any]:
    for start in range(0, min(len(data) // _EDIT, _MOST_EDITS) * _EDIT, _EDIT):
        place, what, which = int.from_bytes(data[start : start + 2], "big"), data[start + 2], data[start + 3]
        places = _inner(world) if start else _honest_places()
        *parents, key = places[place % len(places)]
        parent: Any = world
        for step in parents:
            parent = parent[step]
        _change(parent, key, what, which)
    return world


def _change(parent: Any, key: Any, what: int, which: int) -> None:
    """Change one value: mostly to another of its type."""
    value = parent[key]
    if what >= 240:
        parent[key] = (None, 0, "", [], {}, True)[which % 6]
    elif isinstance(value, bool):
        parent[key] = not value
    elif isinstance(value, int):
        parent[key] = _NUMBERS[which % len(_NUMBERS)] if what < 128 else value + which - 128
    elif isinstance(value, str):
        parent[key] = _TEXTS[which % len(_TEXTS)]
    elif isinstance(value, list) and value:
        if what < 80:
            del value[which % len(value)]
        elif what < 160:
            value.insert(0, deepcopy(value[which % len(value)]))
        else:
            value.extend(deepcopy(value) * (which % 8))
    elif isinstance(value, dict) and value:
        names = list(value)
        if what < 80:
            del value[names[which % len(names)]]
        else:
            value[_TEXTS[what % len(_TEXTS)]] = deepcopy(value[names[which % len(names)]])


def _object(raw: bytes) -> dict[str, Any]:
    """Return a NodeFacts object under the digest of its content."""
    spec = {"encoding": "zlib+base64", "content": b64encode(zlib.compress(raw, 1)).decode()}
    return {
        "apiVersion": "mooring.dev/v1alpha1",
        "kind": "NodeFacts",
        "metadata": {"name": sha256(raw).hexdigest()},
        "spec": spec,
    }


def _closed(state: Any, digest: str) -> Any:
    """Return a state about these facts, its files texts again with their checksums."""
    spec = state.get("spec") if isinstance(state, dict) else None
    if not isinstance(spec, dict):
        return state
    files: dict[str, Any] = spec["files"] if isinstance(spec.get("files"), dict) else {}
    for name, outer in files.items():
        if isinstance(outer, dict):
            text = json.dumps(outer.get("data"), separators=(",", ":"))
            files[name] = json.dumps({**outer, "data": text, "dataChecksum": data_checksum(text)})
    spec["facts"] = digest
    return state
