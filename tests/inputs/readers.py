"""What reads bytes from outside, as functions of the bytes: the targets of `make fuzz-inputs`, with their first inputs.

A reader raises a MooringError for input that it does not take, and nothing else (:mod:`tests.inputs.judging`).
"""

from __future__ import annotations

import gzip
import io
import json
import tarfile
import tempfile
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache
from itertools import islice
from pathlib import Path
from typing import Any

import msgspec
from tests.agent.nri import recordings
from tests.inputs import agent_handler

from mooring.agent.claims import claim_asked
from mooring.agent.nri.frames import FrameReader, MessageReader, MessageType
from mooring.agent.nri.methods import parse
from mooring.agent.nri.ttrpc import TTRPCRequestMessage
from mooring.agent.storage.journal import JournalWriter, read_journal
from mooring.checkpoint.device_file import held_devices
from mooring.configuration.node_configuration import configuration_of
from mooring.core.config import KubeletConfig, MooringConfig
from mooring.core.errors import InputError
from mooring.core.machine import Machine
from mooring.decoding.documents import documents_in
from mooring.discovery.archive import read_archive
from mooring.discovery.compact import parse_compact
from mooring.discovery.loader import load_machine, machine_of
from mooring.discovery.machineinfo_json import parse_machine_info
from mooring.discovery.shipped import SHIPPED
from mooring.dra.allocation import allocation_of, is_allocated, is_asked_for
from mooring.kubelet.kubelet import StateTexts
from mooring.manifest.pod_files import active_pods, pods_of
from mooring.manifest.pods import DEFAULT_GATES
from mooring.manifest.scenario import load_scenarios
from mooring.planner.doctor.diagnosis import diagnose
from mooring.planner.doctor.diagnosis_document import diagnosis_document
from mooring.planner.nodearchive.reader import open_node
from mooring.planner.plan import make_plan
from mooring.planner.plan_document import explanation_list, plan_document
from mooring.planner.question import Question
from mooring.scheduling.wire import Arguments, BindArguments, PreemptArguments, decoded, node_names
from mooring.service.claims_messages import PrepareRequestMessage
from mooring.service.podresources import pods_in
from mooring.service.podresources_messages import ListPodResourcesResponseMessage

ROOT = Path(__file__).resolve().parent.parent.parent
CORPORA = ROOT / "tests" / "corpora"
EXAMPLES = ROOT / "examples"
NAME = "input"


@dataclass(frozen=True, slots=True)
class Reader:
    """One way in."""

    name: str
    read: Callable[[bytes], object]
    seeds: Callable[[], Iterable[bytes]]


def _configuration(data: bytes) -> object:
    return configuration_of(documents_in(data, NAME))


def _pods(data: bytes) -> object:
    documents = documents_in(data, NAME)
    return pods_of(documents), active_pods(documents, choose=lambda nodes: min(nodes, default=""))


def _plan(data: bytes) -> object:
    """A plan with these pods, and why each of them was refused."""
    plan = make_plan(Question(_machine(), _STATIC, MooringConfig(), tuple(pods_of(documents_in(data, NAME)))))
    return plan_document(plan), explanation_list(plan)


def _yaml_seeds(*names: str) -> list[bytes]:
    return [path.read_bytes() for name in names for path in sorted(EXAMPLES.glob(name))]


def _recorded(name: str, most: int) -> list[bytes]:
    with gzip.open(CORPORA / name, "rb") as lines:
        return list(islice(lines, 0, None, 7))[:most]


@cache
def _machine() -> Machine:
    return load_machine("sockets=1 numa=2 cores=4 threads=2")


_STATIC = KubeletConfig(
    cpu_manager_policy="static",
    memory_manager_policy="Static",
    reserved_system_cpus="0",
    topology_manager_policy="restricted",
)


def _cpu_file(data: bytes) -> object:
    return _diagnosed(StateTexts(cpu=data.decode(errors="surrogateescape")))


def _memory_file(data: bytes) -> object:
    return _diagnosed(StateTexts(memory=data.decode(errors="surrogateescape")))


def _diagnosed(files: StateTexts) -> object:
    found = diagnose(Question(_machine(), _STATIC, MooringConfig(), files=files))
    return diagnosis_document(found, [], {})


def _state_seeds(kind: str) -> list[bytes]:
    found: dict[bytes, None] = {}
    for line in _recorded("state-files.jsonl.gz", 400):
        for name, text in (json.loads(line).get("files") or {}).items():
            if kind in name and isinstance(text, str):
                found[text.encode(errors="surrogateescape")] = None
    return list(found)


_DEVICE_RECORD = json.dumps(
    {
        "Data": {
            "PodDeviceEntries": [
                {
                    "PodUID": "u1",
                    "ContainerName": "c",
                    "ResourceName": "nvidia.com/gpu",
                    "DeviceIDs": {"-1": ["a"], "0": ["b", "c"]},
                    "AllocResp": "EgA=",
                }
            ],
            "RegisteredDevices": {"nvidia.com/gpu": ["a", "b", "c"]},
        },
        "Checksum": 3290171,
    }
).encode()


def _journal(data: bytes) -> object:
    return read_journal(data.decode(errors="surrogateescape"))


def _journal_body(data: bytes) -> object:
    """A journal with a right checksum around any body, and an agent that starts on it."""
    return agent_handler.resumed(read_journal(agent_handler.sealed(data)))


def _journal_seeds() -> list[bytes]:
    return [JournalWriter().text(agent_handler.busy_state()).encode()]


def _nri(data: bytes) -> object:
    """A connection's bytes: frames, messages, requests, and an agent that answers them."""
    handler = agent_handler.AgentHandler()
    messages = MessageReader()
    for frame in FrameReader().feed(data):
        for message in messages.feed(frame.payload):
            if message.type == MessageType.REQUEST:
                request = parse(TTRPCRequestMessage, message.body)
                handler.answer(request.method, request.payload)
    return None


def _nri_call(data: bytes) -> object:
    """One call: its method by number, and its payload."""
    method = agent_handler.METHODS[data[0] % len(agent_handler.METHODS)] if data else "Configure"
    return agent_handler.AgentHandler().answer(method, data[1:])


def _nri_seeds() -> list[bytes]:
    return [
        piece.data
        for path in sorted(recordings.FOLDER.glob("*.txt"))
        for piece in recordings.read_recording(path)
        if piece.from_runtime
    ]


def _call_seeds() -> list[bytes]:
    found: dict[bytes, None] = {}
    for data in _nri_seeds():
        messages = MessageReader()
        for frame in FrameReader().feed(data):
            for message in messages.feed(frame.payload):
                if message.type == MessageType.REQUEST:
                    request = parse(TTRPCRequestMessage, message.body)
                    if request.method in agent_handler.METHODS:
                        number = agent_handler.METHODS.index(request.method)
                        found[bytes([number]) + request.payload] = None
    return list(found)


def _archive(data: bytes) -> object:
    """A machine and a node, from the bytes of an archive."""
    with tempfile.NamedTemporaryFile(suffix=".tar") as file:
        file.write(data)
        file.flush()
        archive = open_node(file.name)
        machine = machine_of(read_archive(file.name))
        return machine, archive.configuration(), archive.state(), archive.pods(DEFAULT_GATES), archive.findings()


def _archive_seeds() -> list[bytes]:
    return [_tar({path: text}) for path, text in list(_node_files().items())[:20]] + [_tar(_node_files())]


@cache
def _node_files() -> dict[str, bytes]:
    folder = EXAMPLES / "node"
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def _tar(files: dict[str, bytes]) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as archive:
        for name, content in files.items():
            about = tarfile.TarInfo(name)
            about.size = len(content)
            archive.addfile(about, io.BytesIO(content))
    return out.getvalue()


def _sysfs(data: bytes) -> object:
    """The example node with one file replaced: which one, by number, and its new content. Some 100 are read anew."""
    if len(data) < 2:
        return None
    files = dict(_node_files())
    names = sorted(files)
    files[names[int.from_bytes(data[:2], "big") % len(names)]] = data[2:]
    return _archive(_tar(files))


def _sysfs_seeds() -> list[bytes]:
    files = _node_files()
    return [number.to_bytes(2, "big") + files[name] for number, name in enumerate(sorted(files))]


def _machine_seeds() -> list[bytes]:
    lines = (CORPORA / "machines.jsonl").read_bytes().splitlines()
    return [line for line in lines if len(line) < 20_000][:40]


def _compact(data: bytes) -> object:
    return parse_compact(data.decode(errors="surrogateescape"))


def _scenario(data: bytes) -> object:
    with tempfile.NamedTemporaryFile(suffix=".jsonl") as file:
        file.write(data)
        file.flush()
        return list(load_scenarios(file.name))


def _scenario_seeds() -> list[bytes]:
    return _recorded("admission-devices.jsonl.gz", 15) + _recorded("admission-topology.jsonl.gz", 15)


def _podresources_seeds() -> list[bytes]:
    """An answer with every field that is read, made by its own messages."""
    answer = ListPodResourcesResponseMessage()
    pod = answer.pod_resources.add(name="p", namespace="default")
    container = pod.containers.add(name="c")
    container.cpu_ids.extend([1, 2, 300])
    device = container.devices.add(resource_name="nvidia.com/gpu")
    device.device_ids.extend(["a", "b"])
    device.topology.nodes.add(ID=1)
    return [answer.SerializeToString()]


class _Metadata(msgspec.Struct):
    name: str
    namespace: str
    uid: str
    annotations: dict[str, str] = {}


class _Claim(msgspec.Struct):
    metadata: _Metadata
    status: Any = None


def _claim(data: bytes) -> object:
    """A claim as the API server has it, as far as the server's own checks let it pass: an object with metadata."""
    try:
        claim = msgspec.json.decode(data, type=_Claim)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
    content = msgspec.to_builtins(claim)
    return (
        is_asked_for(content, "node-1"),
        is_allocated(content),
        allocation_of(content, "cpu.mooring", "node-1", lambda name: 6 if name.startswith("cpu") else 0),
    )


def _claim_request(data: bytes) -> object:
    """The payload of Prepare on the agent's socket for claims."""
    return claim_asked(parse(PrepareRequestMessage, data))


def _claim_request_seeds() -> list[bytes]:
    request = PrepareRequestMessage(uid="u1", namespace="default", name="c", pods=["p1"])
    request.shares.add(request="r", device="cpu0", count=2, within="0-3", wished="1,2")
    return [request.SerializeToString()]


def _extender_seeds() -> list[bytes]:
    pod = {"metadata": {"name": "p", "uid": "u"}, "spec": {"containers": []}}
    return [
        json.dumps(body).encode()
        for body in (
            {"Pod": pod, "Nodes": None, "NodeNames": ["n1", "n2"]},
            {"Pod": pod, "Nodes": {"metadata": {}, "items": [{"metadata": {"name": "n1"}}]}},
            {"Pod": pod, "NodeNameToMetaVictims": {"n1": {"Pods": [{"UID": "v"}], "NumPDBViolations": 1}}},
            {"Pod": pod, "NodeNameToVictims": {"n1": {"Pods": [{"metadata": {"uid": "v"}}]}}},
            {"PodName": "p", "PodNamespace": "default", "PodUID": "u", "Node": "n1"},
        )
    ]


_CLAIM = {
    "metadata": {
        "name": "c",
        "namespace": "default",
        "uid": "u",
        "annotations": {"mooring/allocate": "immediate", "mooring/node": "node-1"},
    },
    "status": {
        "allocation": {
            "devices": {
                "results": [
                    {
                        "request": "r",
                        "driver": "cpu.mooring",
                        "pool": "node-1",
                        "device": "cpu0",
                        "consumedCapacity": {"dra.cpu/cpu": "2"},
                        "shareID": "s",
                    },
                ],
                "config": [{"opaque": {"driver": "other", "parameters": {}}}],
            }
        },
        "reservedFor": [{"resource": "pods", "name": "p", "uid": "p1"}],
    },
}


def _extender(data: bytes) -> object:
    found: list[object] = []
    for shape in (Arguments, PreemptArguments, BindArguments):
        try:
            body = decoded(data, shape)
            found.append(node_names(body) if isinstance(body, Arguments) else body)
        except InputError as error:
            found.append(str(error))
    return found


READERS = (
    Reader("configuration", _configuration, lambda: _yaml_seeds("*kubelet*.yaml", "plugins/*kubelet.yaml")),
    Reader("pods", _pods, lambda: _yaml_seeds("*.yaml", "plugins/*pods.yaml", "node/pods.json")),
    Reader("plan", _plan, lambda: _yaml_seeds("*.yaml", "plugins/*pods.yaml")),
    Reader("scenario", _scenario, _scenario_seeds),
    Reader("cpu-state", _cpu_file, lambda: _state_seeds("cpu")),
    Reader("memory-state", _memory_file, lambda: _state_seeds("memory")),
    Reader(
        "device-checkpoint", lambda data: held_devices(data.decode(errors="surrogateescape")), lambda: [_DEVICE_RECORD]
    ),
    Reader("journal", _journal, _journal_seeds),
    Reader("journal-body", _journal_body, lambda: [agent_handler.body_of(seed) for seed in _journal_seeds()]),
    Reader("nri-connection", _nri, _nri_seeds),
    Reader("nri-call", _nri_call, _call_seeds),
    Reader("archive", _archive, _archive_seeds),
    Reader("archive-file", _sysfs, _sysfs_seeds),
    Reader("machineinfo", lambda data: parse_machine_info(data, NAME), _machine_seeds),
    Reader("compact", _compact, lambda: [one.text.encode() for one in SHIPPED.values()]),
    Reader("podresources", pods_in, _podresources_seeds),
    Reader("claim", _claim, lambda: [json.dumps(_CLAIM).encode()]),
    Reader("claim-request", _claim_request, _claim_request_seeds),
    Reader("extender", _extender, _extender_seeds),
)
"""All of them."""
