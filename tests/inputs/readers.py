"""What reads bytes from outside, as functions of the bytes: the targets of `make fuzz-inputs`, with their first inputs.

A reader raises a MooringError for input that it does not take, and nothing else (:mod:`tests.inputs.judging`).
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.agent.nri.runtime_side import FOLDER as FRAMES
from tests.agent.nri.runtime_side import read_recording
from tests.cli.test_cli_vendors import ALLOCATABLE, HELD
from tests.configuration.test_configuration_embedded import FOLDER as FILES
from tests.configuration.test_configuration_embedded import GIVEN
from tests.discovery import tool_outputs
from tests.discovery.test_discovery_pasted import PASTED
from tests.inputs import agent_handler, archives, cluster_objects, device_objects, published_nodes

from mooring.agent.interrupts.files import InterruptJournal
from mooring.agent.journal import JournalWriter, read_journal, read_newest
from mooring.agent.nri.connection import MessageType, frame_reader, message_reader
from mooring.agent.nri.messages import TTRPCRequestMessage
from mooring.agent.nri.methods import parse
from mooring.agent.startup import claim_asked
from mooring.answers.base.plan import Question, make_plan
from mooring.answers.base.plan_document import plan_document
from mooring.answers.doctor.diagnosis import diagnose
from mooring.answers.explain import explanation_list
from mooring.cluster.extender.wire import Arguments, BindArguments, PreemptArguments, decoded, node_names
from mooring.engine.core.config import KubeletConfig, MooringConfig
from mooring.engine.core.errors import InputError
from mooring.engine.core.machine import Machine
from mooring.engine.kubelet.kubelet import StateTexts
from mooring.inputs.configuration.devices import listed_resources
from mooring.inputs.configuration.node_configuration import configuration_of
from mooring.inputs.configuration.sources import sources_in
from mooring.inputs.decoding.documents import documents_in
from mooring.inputs.decoding.fields import Document
from mooring.inputs.machines.compact import parse_compact
from mooring.inputs.machines.loader import SHIPPED, load_machine, machine_in
from mooring.inputs.machines.machineinfo_json import parse_machine_info
from mooring.inputs.pods.cluster_objects import bound_nodes
from mooring.inputs.pods.pod_files import active_pods, pods_of
from mooring.inputs.pods.scenario import load_scenarios
from mooring.service.agent_configuration import agent_configuration
from mooring.service.messages import ListPodResourcesResponseMessage, PrepareRequestMessage
from mooring.service.podresources import pods_in

ROOT = Path(__file__).resolve().parent.parent.parent
CORPORA = ROOT / "tests" / "corpora"
EXAMPLES = ROOT / "examples"


@dataclass(frozen=True, slots=True)
class Reader:
    """One way in."""

    name: str
    read: Callable[[bytes], object]
    seeds: Callable[[], Iterable[bytes]]


def _documents(data: bytes) -> list[Document]:
    return documents_in(data, archives.NAME)


def _text(data: bytes) -> str:
    return data.decode(errors="surrogateescape")


def _configuration_file(data: bytes) -> object:
    """What ``--config`` reads of a file in any format: texts of flags, and documents of other tools too."""
    return configuration_of(sources_in(data, archives.NAME), machine=_machine().info).effective()


def _pods(data: bytes) -> object:
    documents = _documents(data)
    return pods_of(documents), active_pods(documents, min(bound_nodes(documents), default=""))


def _plan(data: bytes) -> object:
    """A plan with these pods, and why each of them was refused."""
    plan = make_plan(Question(_machine(), _STATIC, MooringConfig(), tuple(pods_of(_documents(data)))))
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


def _diagnosed(files: StateTexts) -> object:
    return diagnose(Question(_machine(), _STATIC, MooringConfig(), files=files))


def _state_seeds(kind: str) -> list[bytes]:
    files = [json.loads(line).get("files") or {} for line in _recorded("state-files.jsonl.gz", 400)]
    texts = (text for found in files for name, text in found.items() if kind in name and isinstance(text, str))
    return list(dict.fromkeys(text.encode(errors="surrogateescape") for text in texts))


def _journal_body(data: bytes) -> object:
    """A journal with a right checksum around any body, and an agent that starts on it."""
    return agent_handler.resumed(read_journal(agent_handler.sealed(data)))


def _journal_seeds() -> list[bytes]:
    alone, first, second = (JournalWriter().text(agent_handler.busy_state(), each).encode() for each in range(3))
    return [alone, first + b"\n\n" + second + b"\n"]


def _requests(data: bytes) -> Iterator[TTRPCRequestMessage]:
    """Yield the requests in a connection's bytes."""
    messages = message_reader()
    for frame in frame_reader().feed(data):
        for message in messages.feed(frame.payload):
            if message.type == MessageType.REQUEST:
                yield parse(TTRPCRequestMessage, message.body)


def _nri(data: bytes) -> object:
    """A connection's bytes: frames, messages, requests, and an agent that answers them."""
    handler = agent_handler.AgentHandler()
    return [handler.answer(request.method, request.payload) for request in _requests(data)]


def _nri_call(data: bytes) -> object:
    """One call: its method by number, and its payload."""
    method = agent_handler.METHODS[data[0] % len(agent_handler.METHODS)] if data else "Configure"
    return agent_handler.AgentHandler().answer(method, data[1:])


def _nri_seeds() -> list[bytes]:
    return [piece.data for path in sorted(FRAMES.glob("*.txt")) for piece in read_recording(path) if piece.from_runtime]


def _call_seeds() -> list[bytes]:
    methods = agent_handler.METHODS
    calls = (one for data in _nri_seeds() for one in _requests(data) if one.method in methods)
    return list(dict.fromkeys(bytes([methods.index(one.method)]) + one.payload for one in calls))


def _machine_seeds() -> list[bytes]:
    lines = (CORPORA / "machines.jsonl").read_bytes().splitlines()
    return [line for line in lines if len(line) < 4000][:40]


def _scenario(data: bytes) -> object:
    with archives.in_memory(data) as path:
        return list(load_scenarios(path))


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


def _extender(data: bytes) -> object:
    found: list[object] = []
    for shape in (Arguments, PreemptArguments, BindArguments):
        try:
            body = decoded(data, shape)
            found.append(node_names(body) if isinstance(body, Arguments) else body)
        except InputError as error:
            found.append(str(error))
    return found


def _agent_configuration_seeds() -> list[bytes]:
    return [
        b"apiVersion: mooring/v1alpha1\nkind: AgentConfiguration\nonRejection: evict\nmetricsAddress: 127.0.0.1:9477\n",
        b"{apiVersion: mooring/v1alpha1, kind: AgentConfiguration, stateDir: /var/lib/mooring, irqAffinity: 'on'}\n",
        b"apiVersion: mooring/v1alpha1\nkind: AgentConfiguration\nnodeName: n\npluginIndex: '50'\nlogLevel: debug\n",
        *_yaml_seeds("*kubelet*.yaml"),
    ]


def _machine_text_seeds() -> list[bytes]:
    """What other tools write about a machine."""
    machine = load_machine("sockets=2 numa=2 cores=2 threads=2")
    tools = (
        tool_outputs.lscpu_json,
        tool_outputs.lscpu_parsable,
        tool_outputs.lscpu_extended,
        tool_outputs.numactl,
        tool_outputs.capabilities,
        tool_outputs.lstopo,
    )
    return [*(tool(machine).encode() for tool in tools), *(text.encode() for text in PASTED.values())]


def _interrupts(data: bytes) -> object:
    """The file of original affinities, in a folder of its own."""
    folder = Path(_temporary().name)
    (folder / "interrupts.json").write_bytes(data)
    return InterruptJournal(folder, "boot").read()


@cache
def _temporary() -> TemporaryDirectory[str]:
    return TemporaryDirectory()


def _interrupts_seeds() -> list[bytes]:
    rows = {"24": {"name": "nvme0q1", "original": "0-3", "ours": ["0", "0-1"]}}
    return [json.dumps({"kind": "InterruptJournal", "version": 1, "boot": "boot", "interrupts": rows}).encode()]


READERS = (
    Reader(
        "configuration",
        lambda data: configuration_of(_documents(data)),
        lambda: _yaml_seeds("*kubelet*.yaml", "plugins/*kubelet.yaml"),
    ),
    Reader(
        "configuration-file",
        _configuration_file,
        lambda: [file.read_bytes() for file in sorted(FILES.iterdir())] + [one[0].encode() for one in GIVEN.values()],
    ),
    Reader(
        "podresources-dump",
        lambda data: [listed_resources(one.content) for one in _documents(data)],
        lambda: [json.dumps(one).encode() for one in (ALLOCATABLE, HELD)],
    ),
    Reader("pods", _pods, lambda: _yaml_seeds("*.yaml", "plugins/*pods.yaml", "node/pods.json")),
    Reader("plan", _plan, lambda: _yaml_seeds("*.yaml", "plugins/*pods.yaml")),
    Reader("scenario", _scenario, _scenario_seeds),
    Reader("cpu-state", lambda data: _diagnosed(StateTexts(cpu=_text(data))), lambda: _state_seeds("cpu")),
    Reader("memory-state", lambda data: _diagnosed(StateTexts(memory=_text(data))), lambda: _state_seeds("memory")),
    Reader("device-record", device_objects.record, device_objects.record_seeds),
    Reader("dynamic-objects", device_objects.dynamic, device_objects.dynamic_seeds),
    Reader("journal", lambda data: read_newest(_text(data)), _journal_seeds),
    Reader("journal-body", _journal_body, lambda: [agent_handler.body_of(_journal_seeds()[0])]),
    Reader("nri-connection", _nri, _nri_seeds),
    Reader("nri-call", _nri_call, _call_seeds),
    Reader("archive", archives.read, archives.seeds),
    Reader("archive-file", archives.read_with_file, archives.file_seeds),
    Reader("machineinfo", lambda data: parse_machine_info(data, archives.NAME), _machine_seeds),
    Reader("compact", lambda data: parse_compact(_text(data)), lambda: [one.text.encode() for one in SHIPPED.values()]),
    Reader("podresources", pods_in, _podresources_seeds),
    Reader("claim", cluster_objects.claim, cluster_objects.claim_seeds),
    Reader("claim-request", lambda data: claim_asked(parse(PrepareRequestMessage, data)), _claim_request_seeds),
    Reader("extender", _extender, _extender_seeds),
    Reader("api-pod", cluster_objects.pod, cluster_objects.pod_seeds),
    Reader("node-facts", cluster_objects.node_facts, cluster_objects.facts_seeds),
    Reader("node-state", cluster_objects.node_state, cluster_objects.state_seeds),
    Reader("node-verdict", published_nodes.verdict, published_nodes.seeds),
    Reader(
        "agent-configuration",
        lambda data: agent_configuration(_documents(data), archives.NAME),
        _agent_configuration_seeds,
    ),
    Reader("machine-text", lambda data: machine_in(data, archives.NAME), _machine_text_seeds),
    Reader("interrupt-journal", _interrupts, _interrupts_seeds),
)
"""All of them."""
