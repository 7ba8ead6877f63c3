"""Slices, claims and the containers that use them, read from objects as the API server gives them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.values import cases, refusal

from mooring.engine.core.pod import ClaimedDevice, ClaimUse, DynamicDevice, ResourceClaim
from mooring.inputs.archive.claims import DeviceFacts, node_devices
from mooring.inputs.decoding.documents import load_documents
from mooring.inputs.decoding.fields import Document
from mooring.inputs.machines.compact import parse_compact
from mooring.inputs.pods.cluster_objects import dynamic_objects
from mooring.inputs.pods.pods import pod_from_object

WIRE = Path(__file__).resolve().parents[3] / "shared/wire"
GIVEN = "dra-capacity-without-request-policy.yaml"
recorded = pytest.mark.skipif(not WIRE.is_dir(), reason="the recordings of the API are not here")


def read(*contents: Any) -> tuple[tuple[ResourceClaim, ...], tuple[Any, ...]]:
    return dynamic_objects(Document(content, "f", 1, 1) for content in contents)


def offered(slices: tuple[Any, ...], node: str = "") -> list[str]:
    """Return the ids of the devices that the node of the slices has."""
    state, _ = node_devices(DeviceFacts(slices=slices, node=node), parse_compact("cores=2"), ())
    return [one.id for listed in state.devices.values() for one in listed]


@recorded
def test_recorded_claims_say_what_they_were_given() -> None:
    claims, _ = dynamic_objects(load_documents(WIRE / GIVEN))
    given = {claim.name: [device.id for device in claim.devices] for claim in claims}
    assert given == {"c1": ["node-a/numa0"], "c2": ["node-a/numa1"], "c3": [], "c4": []}
    assert [claim.is_allocated for claim in claims] == [True, True, False, False]
    assert claims[0].pods == {"1f549f9b-6db7-4efb-b824-fe7887453f13"}
    assert claims[0].devices[0].share == "1b0d8b63-d8f9-49e5-b8d0-2b05604280f1"


@recorded
def test_recorded_slices_have_their_attributes_under_full_names() -> None:
    _, slices = dynamic_objects(load_documents(WIRE / "dra-consumable-capacity.yaml"))
    devices = {one.id: one for made in slices for _, one in made.devices}
    assert offered(slices, "node-a") == ["node-a/numa0", "node-a/numa1"]
    assert all(one.is_shared for one in devices.values())
    assert devices["node-a/numa1"].attributes["cpu.mooring.test/numaNodeID"] == 1
    assert offered(slices, "node-b") == []


def slice_object(**spec: Any) -> dict[str, Any]:
    pool = {"name": "p", "generation": 3, "resourceSliceCount": 1}
    spec = {"driver": "gpu.example.com", "pool": pool, "nodeName": "n", **spec}
    return {"kind": "ResourceSlice", "metadata": {"name": "s"}, "spec": spec}


def test_attributes_of_every_kind_and_list_are_read_and_unknown_kinds_left_out() -> None:
    attributes = {
        "resource.kubernetes.io/numaNode": {"ints": [5, 4]},
        "model": {"string": "x"},
        "resource.kubernetes.io/pcieRoot": {"strings": ["pci0000:00"]},
        "driverVersion": {"version": "1.2.3"},
        "fast": {"bool": True},
        "later": {"duration": "1s"},
    }
    _, (made,) = read(slice_object(devices=[{"name": "g0", "attributes": attributes}]))
    named: dict[str, Any] = {
        "resource.kubernetes.io/numaNode": (5, 4),
        "gpu.example.com/model": "x",
        "resource.kubernetes.io/pcieRoot": ("pci0000:00",),
        "gpu.example.com/driverVersion": "1.2.3",
        "gpu.example.com/fast": True,
    }
    assert made.devices == (("n", DynamicDevice("gpu.example.com", "p", "g0", named)),)


def test_only_the_newest_generation_of_a_pool_counts() -> None:
    older = slice_object(devices=[{"name": "gone"}], pool={"name": "p", "generation": 2, "resourceSliceCount": 1})
    _, slices = read(older, slice_object(devices=[{"name": "here"}]))
    assert offered(slices) == ["p/here"]


def test_a_device_can_name_its_own_node_and_v1beta1_has_its_fields_deeper() -> None:
    devices = [{"name": "a", "nodeName": "other"}, {"name": "b", "basic": {"attributes": {"numa": {"int": 1}}}}]
    _, slices = read(slice_object(devices=devices, nodeName=None, perDeviceNodeSelection=True))
    assert offered(slices, "other") == ["p/a"]
    assert slices[0].devices[1][1].attributes == {"gpu.example.com/numa": 1}


def test_a_container_uses_the_claims_that_it_names_by_the_pods_names() -> None:
    given = yaml.safe_load((Path(__file__).parent / "pod-with-claims.yaml").read_text(encoding="utf-8"))
    pod = pod_from_object(given, source="pod")
    assert {container.name: container.claims for container in pod.containers} == {
        "setup": (ClaimUse("web-own-x1"),),
        "app": (ClaimUse("shared", "a"), ClaimUse("web-own-x1")),
        "late": (),
        "plain": (ClaimUse("web-extended-1", "container-2-request-0"),),
    }
    assert pod.claims == ("shared", "web-own-x1", "web-extended-1")


def test_a_claim_says_which_devices_are_for_administration() -> None:
    results = [{"request": "a/b", "driver": "d", "pool": "p", "device": "x", "adminAccess": True}]
    status = {"allocation": {"devices": {"results": results}}}
    (claim,), _ = read({"kind": "ResourceClaim", "metadata": {"name": "c"}, "status": status})
    assert claim.devices == (ClaimedDevice("a/b", "d", "p", "x", admin_access=True),)
    assert claim.namespace == "default"


@pytest.mark.parametrize(("content", "words"), cases(__file__, "refused-claims.yaml", "object", "says"))
def test_another_form_is_bad_input_with_the_field(content: Any, words: str) -> None:
    assert words in refusal(read, content)


@pytest.mark.parametrize("content", [None, [], {"kind": {}, "items": []}, {"kind": "List", "items": "x"}, {"items": 7}])
def test_what_is_no_object_is_passed_over(content: Any) -> None:
    assert read(content) == ((), ())
