"""The gRPC API says what the JSON form says, byte for byte as any client of the kubelet reads it."""

from __future__ import annotations

import socket
import stat
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.protobuf.json_format import MessageToDict
from msgspec import to_builtins
from tests.agent.nri.runtime_side import RuntimeSide
from tests.agent.outside.nodes import STATIC, Told, busy, partitioned, pod, snapshot_of, started
from tests.agent.whole_agent import Node, start
from tests.agent.whole_agent import pod as place_of
from tests.service.message_tables import build_messages

from mooring.agent.nri.types import Event
from mooring.agent.status import Published
from mooring.documents.of_kubelet import pod_resources_document
from mooring.engine.core.errors import InputError
from mooring.engine.kubelet.kubelet import Kubelet
from mooring.service import messages
from mooring.service.logs import Log
from mooring.service.podresources import serve_pod_resources

# From the specification (pod-level.md section 5): a table of its own, so that a wrong one of the server cannot agree
# with itself.
MESSAGES: Mapping[str, type[Any]] = build_messages(
    "read",
    {
        "Node": "1 ID int64",
        "Topology": "1 nodes repeated Node",
        "Memory": "1 memory_type string\n2 size uint64\n3 topology Topology",
        "Devices": "1 resource_name string\n2 device_ids repeated string\n3 topology Topology",
        "Container": "1 name string\n2 devices repeated Devices\n3 cpu_ids repeated int64\n4 memory repeated Memory",
        "Pod": "1 name string\n2 namespace string\n3 containers repeated Container\n4 cpu_ids repeated int64\n"
        "5 memory repeated Memory",
        "List": "1 pod_resources repeated Pod",
        "Get": "1 pod_resources Pod",
        "Allocatable": "1 devices repeated Devices\n2 cpu_ids repeated int64\n3 memory repeated Memory",
    },
)


def decoded(data: bytes, name: str) -> dict[str, Any]:
    return MessageToDict(MESSAGES[name].FromString(data), preserving_proto_field_name=True)


def without_defaults(value: Any) -> Any:
    """Return a document without what protobuf does not write: empty lists and texts. A node ID of 0 is empty too."""
    if isinstance(value, list):
        return [without_defaults(one) for one in value]
    if isinstance(value, dict):
        return {name: without_defaults(one) for name, one in value.items() if one not in ([], "", "0")}
    return value


@pytest.fixture
def path(tmp_path: Path) -> str:
    # Short: with the process's number in it, the path of a socket ends at 107 characters.
    return str(tmp_path / "s" / "pr.sock")


@pytest.fixture
def channel(path: str) -> Iterator[grpc.Channel]:
    with grpc.insecure_channel(f"unix:{path}", [("grpc.default_authority", "localhost")]) as found:
        yield found


def ask(channel: grpc.Channel, method: str, request: bytes = b"") -> bytes:
    call = channel.unary_unary(
        f"/v1.PodResourcesLister/{method}", request_serializer=bytes, response_deserializer=bytes
    )
    return call(request, timeout=60)


def named(name: str, namespace: str) -> bytes:
    return b"".join(bytes((tag, len(text))) + text.encode() for tag, text in ((10, name), (18, namespace)))


NODES: dict[str, Callable[[], Told]] = {
    "busy": busy,
    "partitioned": partitioned,
    "empty": started,
    "none": lambda: started(replace(STATIC, cpu_manager_policy="none")).admit(pod("db", 3)),
}


@pytest.mark.parametrize("name", NODES)
def test_the_answers_are_those_of_the_json_form(name: str, path: str, channel: grpc.Channel) -> None:
    told = NODES[name]()
    document = to_builtins(pod_resources_document(told.kubelet.node))
    service = serve_pod_resources(path, lambda: told.kubelet.node, Log("test"))
    try:
        assert decoded(ask(channel, "List"), "List") == without_defaults(document["List"])
        allocatable = decoded(ask(channel, "GetAllocatableResources"), "Allocatable")
        assert allocatable == without_defaults(document["GetAllocatableResources"])
        for each in document["List"]["pod_resources"]:
            answer = ask(channel, "Get", named(each["name"], each["namespace"]))
            assert decoded(answer, "Get")["pod_resources"] == without_defaults(each)
    finally:
        service.close()


def test_a_pod_that_is_not_there_is_reported_in_the_kubelets_words(path: str, channel: grpc.Channel) -> None:
    service = serve_pod_resources(path, lambda: busy().kubelet.node, Log("test"))
    try:
        with pytest.raises(grpc.RpcError) as refused:
            ask(channel, "Get", named("db", "other"))
    finally:
        service.close()
    assert refused.value.code() is grpc.StatusCode.UNKNOWN
    assert refused.value.details() == "pod db in namespace other not found"


def test_many_clients_get_the_newest_state_while_it_changes(path: str, channel: grpc.Channel) -> None:
    told = started()
    published = Published(snapshot_of(told))
    service = serve_pod_resources(path, lambda: published.snapshot().state.kubelet.node, Log("test"))
    states: list[Kubelet] = [told.kubelet]
    try:
        with ThreadPoolExecutor(4) as clients:
            asked = [clients.submit(ask, channel, "List") for _ in range(10)]
            for count in range(5):
                states.append(told.admit(pod(f"p{count}", 2)).kubelet)
                published.publish(snapshot_of(told))
                asked += [clients.submit(ask, channel, "List") for _ in range(5)]
            known = [without_defaults(to_builtins(pod_resources_document(one.node))["List"]) for one in states]
            assert all(decoded(each.result(), "List") in known for each in asked)
        assert decoded(ask(channel, "List"), "List") == known[-1]
    finally:
        service.close()


def test_the_socket_has_its_permissions_and_goes_with_the_service(path: str) -> None:
    Path(path).parent.mkdir()
    dead = socket.socket(socket.AF_UNIX)
    dead.bind(path)
    dead.close()
    service = serve_pod_resources(path, lambda: started().kubelet.node, Log("test"))
    try:
        assert stat.S_IMODE(Path(path).stat().st_mode) == 0o660
        with pytest.raises(InputError, match="another process listens there already"):
            serve_pod_resources(path, lambda: started().kubelet.node, Log("test"))
    finally:
        service.close()
    assert list(Path(path).parent.iterdir()) == []


# A client of the kubelet's API asks the running agent while containers come, are resized, and go.


METHODS = {"List": "ListPodResources", "Get": "GetPodResources", "GetAllocatableResources": "AllocatableResources"}


class Exporter:
    """What an exporter does: the three calls of the API, on the agent's socket."""

    def __init__(self, path: str) -> None:
        self.channel = grpc.insecure_channel(f"unix:{path}", [("grpc.default_authority", "localhost")])

    def ask(self, method: str, **asked: str) -> dict[str, Any]:
        request, response = (getattr(messages, f"{METHODS[method]}{what}Message") for what in ("Request", "Response"))
        call: Any = self.channel.unary_unary(
            f"/{messages.PODRESOURCES_SERVICE}/{method}",
            request_serializer=lambda message: message.SerializeToString(),
            response_deserializer=response.FromString,
        )
        return MessageToDict(call(request(**asked), timeout=60), preserving_proto_field_name=True)

    def listed(self) -> dict[str, tuple[list[str], list[tuple[str, str]]]]:
        """Return CPUs and memory (size and node) of the first container, by pod."""
        pods = self.ask("List").get("pod_resources", [])
        return {one["name"]: shown(one["containers"][0]) for one in pods}


def shown(container: dict[str, Any]) -> tuple[list[str], list[tuple[str, str]]]:
    memory = [
        (one["size"], node.get("ID", "0"))
        for one in container.get("memory", [])
        for node in one["topology"]["nodes"]
        if one["memory_type"] == "memory"
    ]
    return container.get("cpu_ids", []), memory


@pytest.fixture
def both(node: Node) -> Iterator[tuple[RuntimeSide, Exporter]]:
    node.kubelet = (
        "memoryManagerPolicy: Static\n"
        "evictionHard: {memory.available: 100Mi}\n"
        "reservedMemory: [{numaNode: 0, limits: {memory: 100Mi}}]\n"
    )
    _, runtime = node.connected(f"podResourcesSocket: {node.folder}/pr.sock")
    exporter = Exporter(str(node.folder / "pr.sock"))
    yield runtime, exporter
    exporter.channel.close()


def test_the_api_follows_the_lives_of_containers(node: Node, both: tuple[RuntimeSide, Exporter]) -> None:
    runtime, exporter = both
    assert exporter.listed() == {}
    allocatable = exporter.ask("GetAllocatableResources")
    assert allocatable["cpu_ids"] == [str(cpu) for cpu in range(1, 8)]
    assert {one["memory_type"] for one in allocatable["memory"]} >= {"memory"}
    own = start(node, runtime, "own", 2)
    start(node, runtime, "other", 0)
    assert exporter.listed() == {"own": (["1", "2"], [(str(2**28), "0")]), "other": ([], [])}
    found = exporter.ask("Get", pod_name="own", pod_namespace="default")["pod_resources"]
    assert shown(found["containers"][0]) == (["1", "2"], [(str(2**28), "0")])
    runtime.stop(place_of("own"), own)
    runtime.state_change(Event.REMOVE_CONTAINER, place_of("own"), own)
    runtime.state_change(Event.STOP_POD_SANDBOX, place_of("own"))
    assert exporter.listed() == {"other": ([], [])}
    with pytest.raises(grpc.RpcError) as refused:
        exporter.ask("Get", pod_name="own", pod_namespace="default")
    assert refused.value.details() == "pod own in namespace default not found"
    assert exporter.ask("GetAllocatableResources") == allocatable


def test_the_socket_goes_with_the_agent(node: Node, both: tuple[RuntimeSide, Exporter]) -> None:
    assert (node.folder / "pr.sock").is_socket()
    node.agents.pop().close()
    assert not (node.folder / "pr.sock").exists()
    with pytest.raises(grpc.RpcError):
        both[1].ask("List")
