"""Slices, claims and the containers that use them, read from objects as the API server gives them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.values import cases, refusal

from mooring.engine.core.pod import ClaimedDevice, ClaimUse, DynamicDevice
from mooring.inputs.decoding.fields import Document
from mooring.inputs.pods.claims import KINDS, claim_of, current_devices, objects_of, slice_of
from mooring.inputs.pods.cluster_objects import dynamic_objects
from mooring.inputs.pods.pods import pod_from_object

WIRE = Path(__file__).resolve().parents[3] / "shared/wire"
GIVEN = "dra-capacity-without-request-policy.yaml"
recorded = pytest.mark.skipif(not WIRE.is_dir(), reason="the recordings of the API are not here")


def objects(name: str, kind: str) -> list[dict[str, Any]]:
    with (WIRE / name).open(encoding="utf-8") as file:
        return [one for one in yaml.safe_load_all(file) if one["kind"] == kind]


@recorded
def test_recorded_claims_say_what_they_were_given() -> None:
    claims = [claim_of(one, source="recording") for one in objects(GIVEN, "ResourceClaim")]
    given = {claim.name: [device.id for device in claim.devices] for claim in claims}
    assert given == {"c1": ["node-a/numa0"], "c2": ["node-a/numa1"], "c3": [], "c4": []}
    assert [claim.is_allocated for claim in claims] == [True, True, False, False]
    assert claims[0].pods == {"1f549f9b-6db7-4efb-b824-fe7887453f13"}
    assert claims[0].devices[0].share == "1b0d8b63-d8f9-49e5-b8d0-2b05604280f1"


@recorded
def test_recorded_slices_have_their_attributes_under_full_names() -> None:
    slices = [slice_of(one, source="recording") for one in objects("dra-consumable-capacity.yaml", "ResourceSlice")]
    devices = current_devices(slices, "node-a")
    assert [(one.id, one.is_shared) for one in devices] == [("node-a/numa0", True), ("node-a/numa1", True)]
    assert devices[1].attributes["cpu.mooring.test/numaNodeID"] == 1
    assert current_devices(slices, "node-b") == ()


def slice_object(**spec: Any) -> dict[str, Any]:
    pool = {"name": "p", "generation": 3, "resourceSliceCount": 1}
    return {"metadata": {"name": "s"}, "spec": {"driver": "gpu.example.com", "pool": pool, "nodeName": "n", **spec}}


def test_attributes_of_every_kind_and_list_are_read_and_unknown_kinds_left_out() -> None:
    attributes = {
        "resource.kubernetes.io/numaNode": {"ints": [5, 4]},
        "model": {"string": "x"},
        "resource.kubernetes.io/pcieRoot": {"strings": ["pci0000:00"]},
        "driverVersion": {"version": "1.2.3"},
        "fast": {"bool": True},
        "later": {"duration": "1s"},
    }
    made = slice_of(slice_object(devices=[{"name": "g0", "attributes": attributes}]), source="s")
    assert current_devices([made]) == (
        DynamicDevice(
            "gpu.example.com",
            "p",
            "g0",
            {
                "resource.kubernetes.io/numaNode": (5, 4),
                "gpu.example.com/model": "x",
                "resource.kubernetes.io/pcieRoot": ("pci0000:00",),
                "gpu.example.com/driverVersion": "1.2.3",
                "gpu.example.com/fast": True,
            },
        ),
    )


def test_only_the_newest_generation_of_a_pool_counts() -> None:
    older = slice_object(devices=[{"name": "gone"}], pool={"name": "p", "generation": 2, "resourceSliceCount": 1})
    found = [slice_of(one, source="s") for one in (older, slice_object(devices=[{"name": "here"}]))]
    assert [one.name for one in current_devices(found)] == ["here"]


def test_a_device_can_name_its_own_node_and_v1beta1_has_its_fields_deeper() -> None:
    devices = [{"name": "a", "nodeName": "other"}, {"name": "b", "basic": {"attributes": {"numa": {"int": 1}}}}]
    made = slice_of(slice_object(devices=devices, nodeName=None, perDeviceNodeSelection=True), source="s")
    assert [one.name for one in current_devices([made], "other")] == ["a"]
    assert current_devices([made])[1].attributes == {"gpu.example.com/numa": 1}


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
    claim = claim_of({"metadata": {"name": "c"}, "status": status}, source="c")
    assert claim.devices == (ClaimedDevice("a/b", "d", "p", "x", admin_access=True),)
    assert claim.namespace == "default"


@pytest.mark.parametrize(("content", "words"), cases(__file__, "refused-claims.yaml", "object", "says"))
def test_another_form_is_bad_input_with_the_field(content: Any, words: str) -> None:
    assert words in refusal(dynamic_objects, [Document(content, "f", 1, 1)])


@pytest.mark.parametrize("content", [None, [], {"kind": {}, "items": []}, {"kind": "List", "items": "x"}, {"items": 7}])
def test_what_is_no_object_is_passed_over(content: Any) -> None:
    assert list(objects_of(content, KINDS)) == []
