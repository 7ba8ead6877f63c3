"""Messages of the wire and plain values."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

from google.protobuf import json_format
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.agent.nri.runtime_messages import container_to, pod_to, update_from
from tests.service.message_tables import build_messages

from mooring.agent.nri import messages, types
from mooring.agent.nri.messages import NRIContainerMessage
from mooring.agent.nri.methods import adjustment_to, container_from, pod_from, resources_from, resources_to, update_to

WIRE = Path(__file__).parent / "wire"
REQUESTS = {
    "nri-configure.json": "ConfigureRequest",
    "nri-create-container-besteffort.json": "ContainerRequest",
    "nri-create-container-guaranteed.json": "ContainerRequest",
    "nri-run-pod-sandbox.json": "StateChangeEvent",
    "nri-start-container.json": "StateChangeEvent",
    "nri-stop-container.json": "ContainerRequest",
    "nri-synchronize-after-plugin-restart.json": "SynchronizeRequest",
    "nri-update-container-resize-cpu-up.json": "UpdateContainerRequest",
}

texts = st.text(max_size=12)
maps = st.dictionaries(texts, texts, max_size=3)
unsigned = st.none() | st.integers(0, 2**64 - 1)
signed = st.none() | st.integers(-(2**63), 2**63 - 1)
resources = st.builds(types.LinuxResources, texts, texts, unsigned, signed, unsigned, signed)
pods = st.builds(
    types.PodSandbox,
    texts,
    texts,
    texts,
    texts,
    maps,
    maps,
    texts,
    texts,
    st.integers(0, 2**32 - 1),
    resources,
    resources,
)
containers = st.builds(
    types.RuntimeContainer,
    texts,
    texts,
    texts,
    st.sampled_from(types.ContainerState),
    st.integers(0, 2**32 - 1),
    maps,
    maps,
    resources,
    texts,
)


def numbered(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return an object with the numbers of its enums, which samples write as names."""
    states = {f"CONTAINER_{one.name}": one.value for one in types.ContainerState}
    numbers = {**states, **{one.name: one.value for one in types.Event}}
    return {name: numbers[value] if name in ("state", "event") else value for name, value in pairs}


def request_of(name: str) -> Any:
    """Return the request of a sample, without the fields that the plugin never reads."""
    document = json.loads((WIRE / name).read_text(encoding="utf-8"), object_pairs_hook=numbered)
    return json_format.ParseDict(
        document["request"], getattr(messages, f"{REQUESTS[name]}Message")(), ignore_unknown_fields=True
    )


def again(message: Any) -> Any:
    return type(message).FromString(message.SerializeToString())


@settings(deadline=None, max_examples=60)
@given(pods)
def test_a_pod_is_the_same_after_the_wire_but_for_a_uid_that_nobody_gave(pod: types.PodSandbox) -> None:
    assert pod_from(again(pod_to(pod))) == replace(pod, uid=pod.uid or pod.id)


@settings(deadline=None, max_examples=60)
@given(containers)
def test_a_container_is_the_same_after_the_wire(container: types.RuntimeContainer) -> None:
    assert container_from(again(container_to(container))) == container


@settings(deadline=None, max_examples=40)
@given(texts, resources, st.booleans())
def test_an_update_is_the_same_after_the_wire(container: str, wanted: types.LinuxResources, ignore: bool) -> None:
    update = types.ContainerUpdate(container, wanted, ignore)
    assert update_from(again(update_to(update))) == update


def test_what_is_not_set_is_absent_and_a_zero_is_present() -> None:
    assert resources_to(types.LinuxResources()).SerializeToString() == b""
    assert not resources_to(types.LinuxResources(cpus="1")).HasField("memory")
    zero = again(resources_to(types.LinuxResources(quota=0, memory_limit=0)))
    assert zero.cpu.HasField("quota")
    assert resources_from(zero) == types.LinuxResources(quota=0, memory_limit=0)


def test_an_adjustment_carries_its_parts_and_nothing_else() -> None:
    assert adjustment_to(types.ContainerAdjustment()).SerializeToString() == b""
    message = adjustment_to(
        types.ContainerAdjustment(
            types.LinuxResources(cpus="2-3", mems="1", quota=-1),
            environment={"A": "1"},
            mounts=[types.Mount("/etc/x", "/run/x")],
            annotations={"k": "v"},
        )
    )
    assert json_format.MessageToDict(message, preserving_proto_field_name=True) == {
        "annotations": {"k": "v"},
        "mounts": [{"destination": "/etc/x", "type": "bind", "source": "/run/x", "options": ["bind", "ro"]}],
        "env": [{"key": "A", "value": "1"}],
        "linux": {"resources": {"cpu": {"cpus": "2-3", "mems": "1", "quota": {"value": "-1"}}}},
    }


def test_a_state_of_a_later_release_is_unknown() -> None:
    assert container_from(NRIContainerMessage(id="c", state=99)).state is types.ContainerState.UNKNOWN


def test_fields_of_a_later_release_are_skipped_and_kept() -> None:
    later = build_messages("later", {"Container": "1 id string\n700 future string\n701 more repeated int64"})
    payload = later["Container"](id="c", future="x", more=[1, 2]).SerializeToString()
    message = NRIContainerMessage.FromString(payload)
    assert container_from(message).id == "c"
    assert message.SerializeToString() == payload


def test_a_guaranteed_container_as_containerd_tells_it() -> None:
    message = request_of("nri-create-container-guaranteed.json")
    pod, container = pod_from(message.pod), container_from(message.container)
    assert (pod.name, pod.namespace) == ("guar", "default")
    assert pod.cgroup_parent == f"/mytest/kubepods/pod{pod.uid}"
    assert pod.labels["io.kubernetes.pod.uid"] == pod.uid
    assert pod.pod_resources == types.LinuxResources(shares=1024, quota=100000, period=100000, memory_limit=64 << 20)
    # The CRI fills in zeros where nothing is set.
    assert pod.overhead == types.LinuxResources(shares=0, quota=0, period=0, memory_limit=0)
    assert container.pod_sandbox_id == pod.id
    assert container.name == "a"
    assert (container.state, container.pid) == (types.ContainerState.UNKNOWN, 0)
    assert container.resources == types.LinuxResources(shares=1024, quota=100000, period=100000, memory_limit=64 << 20)
    assert container.cgroups_path == f"{pod.cgroup_parent}/{container.id}"


def test_a_resize_as_containerd_tells_it() -> None:
    message = request_of("nri-update-container-resize-cpu-up.json")
    assert resources_from(message.linux_resources).quota == 120000
    assert container_from(message.container).resources.cpus == "1"


def test_synchronize_tells_assignments_and_pids() -> None:
    message = request_of("nri-synchronize-after-plugin-restart.json")
    found = [container_from(container) for container in message.containers]
    assert found
    assert {container.resources.cpus for container in found} == {"0", "1"}
    assert all(container.state is types.ContainerState.RUNNING and container.pid for container in found)
    assert {container.pod_sandbox_id for container in found} <= {pod.id for pod in message.pods}
