"""A client of the kubelet's API asks the running agent while containers come, are resized, and go."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import grpc
import pytest
from google.protobuf.json_format import MessageToDict
from tests.agent.nri.runtime_side import RuntimeSide
from tests.agent.whole_agent import Node, pod, start

from mooring.agent.nri.types import Event
from mooring.service import messages

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
    node.agent(f"podResourcesSocket: {node.folder}/pr.sock")
    runtime = node.listening.next()
    runtime.synchronize()
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
    runtime.stop(pod("own"), own)
    runtime.state_change(Event.REMOVE_CONTAINER, pod("own"), own)
    runtime.state_change(Event.STOP_POD_SANDBOX, pod("own"))
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
