"""What the PodResources API answers: the recorded answer of a kubelet, and a server that answers as one."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from google.protobuf import json_format
from google.protobuf.message import Message

from mooring.service import messages
from mooring.service.grpc_server import serve
from mooring.service.grpc_socket import CallLimits, CallRefusedError, Method, Methods
from mooring.service.logs import Log
from mooring.service.podresources import ListedClaimDevice, PodResourcesClient, PodResourcesError, pods_in

RECORDING = Path(__file__).resolve().parents[3] / "shared/wire/podresources-list-with-dra.json"
GIVEN = ListedClaimDevice(
    "default", "cl", "cpu.mooring.test", "node-real", "numa0", "170ccf29-8ce7-4d20-8b83-1b3eaa23a1e8"
)


@pytest.mark.skipif(not RECORDING.exists(), reason="the recordings of the API are not here")
def test_the_recorded_answer_names_claim_driver_pool_device_and_share() -> None:
    message = messages.ListPodResourcesResponseMessage()
    json_format.ParseDict(json.loads(RECORDING.read_bytes())["List"], message, ignore_unknown_fields=True)
    pods = {pod.name: pod for pod in pods_in(message.SerializeToString())}
    assert pods["dra"].containers[0].dynamic == (GIVEN,)
    assert pods["dra"].containers[0].dynamic[0].id == "node-real/numa0"
    assert pods["g1"].containers[0].dynamic == ()


Answer = Callable[[messages.GetPodResourcesRequestMessage], Message]


@pytest.fixture
def kubelet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[Answer | None], PodResourcesClient]]:
    path, ends = str(tmp_path_factory.mktemp("k") / "s"), list[Callable[[], object]]()

    def started(answer: Answer | None) -> PodResourcesClient:
        methods: Methods = {} if answer is None else {"Get": Method(messages.GetPodResourcesRequestMessage, answer)}
        ends.append(serve(path, messages.PODRESOURCES_SERVICE, methods, Log("test"), CallLimits()))
        client = PodResourcesClient(path)
        ends.append(client.close)
        return client

    yield started
    # A server waits for its clients.
    for end in reversed(ends):
        end()


def test_one_pod_is_asked_for_by_its_name(kubelet: Callable[[Answer | None], PodResourcesClient]) -> None:
    def answer(request: messages.GetPodResourcesRequestMessage) -> Message:
        containers = [messages.ContainerResourcesMessage(name=request.pod_namespace)]
        return messages.GetPodResourcesResponseMessage(
            pod_resources=messages.PodResourcesMessage(name=request.pod_name, namespace="seen", containers=containers)
        )

    found = kubelet(answer).get("shop", "web")
    assert found is not None
    assert (found.name, found.namespace, found.containers[0].name) == ("web", "seen", "shop")


def test_a_pod_that_the_kubelet_does_not_know_yet_is_none(
    kubelet: Callable[[Answer | None], PodResourcesClient],
) -> None:
    def answer(request: messages.GetPodResourcesRequestMessage) -> Message:
        raise CallRefusedError("UNKNOWN", f"pod {request.pod_name} in namespace {request.pod_namespace} not found")

    assert kubelet(answer).get("shop", "web") is None


def test_a_kubelet_that_does_not_know_the_question_will_not_learn_it(
    kubelet: Callable[[Answer | None], PodResourcesClient],
) -> None:
    with pytest.raises(PodResourcesError) as caught:
        kubelet(None).get("shop", "web")
    assert not caught.value.is_transient


def test_a_kubelet_that_is_away_can_answer_later(tmp_path_factory: pytest.TempPathFactory) -> None:
    client = PodResourcesClient(str(tmp_path_factory.mktemp("k") / "none"))
    with pytest.raises(PodResourcesError) as caught:
        client.get("shop", "web", timeout=0.2)
    client.close()
    assert caught.value.is_transient
