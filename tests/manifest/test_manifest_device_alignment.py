"""How CPUs and memory follow devices, as MooringConfiguration and a pod's annotation say it."""

from __future__ import annotations

from typing import Any

import pytest

from mooring.engine.core.config import DEVICE_ALIGNMENT, DeviceAlignment, DeviceAlignments, DeviceClass, MooringConfig
from mooring.engine.core.errors import InputError
from mooring.inputs.configuration.mooring_config import mooring_config
from mooring.inputs.pods.defaults import PodGates
from mooring.inputs.pods.pods import pod_from_object
from mooring.published.facts_document import mooring_document

FOLLOW, REQUIRE, IGNORE = DeviceAlignment.FOLLOW, DeviceAlignment.REQUIRE, DeviceAlignment.IGNORE


def read(alignment: Any, *extensions: str) -> MooringConfig:
    content = {"extensions": list(extensions or [DEVICE_ALIGNMENT]), "deviceAlignment": alignment}
    return mooring_config(content, source="test")


def test_default_and_classes_are_read() -> None:
    fpgas = {"alignment": "ignore", "resources": ["vendor.example/fpga-*"]}
    found = read({"default": "require", "classes": {"gpus": "follow", "fpgas": fpgas}})
    classes = {"gpus": DeviceClass(FOLLOW), "fpgas": DeviceClass(IGNORE, ("vendor.example/fpga-*",))}
    assert found.device_alignments == DeviceAlignments(REQUIRE, classes)


def test_everything_follows_by_default() -> None:
    found = mooring_config({"extensions": [DEVICE_ALIGNMENT]}, source="test")
    assert found.device_alignments == DeviceAlignments(FOLLOW, {})


def test_what_is_published_reads_the_same() -> None:
    found = read({"default": "ignore", "classes": {"nics": "require", "x": {"resources": ["vendor.example/x"]}}})
    assert mooring_config(mooring_document(found), source="published") == found
    plain = mooring_config({}, source="test")
    assert "deviceAlignment" not in mooring_document(plain)


@pytest.mark.parametrize(
    ("alignment", "message"),
    [
        ({"default": "always"}, r"deviceAlignment\.default: 'always' is not known; known are ignore, follow, require"),
        (
            {"classes": {"gpu": "follow"}},
            r"deviceAlignment\.classes\.gpu: is not one of the known classes acc.*; write",
        ),
        ({"classes": {"gpus": "folow"}}, r"classes\.gpus\.alignment: 'folow' is not known; did you mean follow"),
        ({"classes": {"gpus": {"resource": "x"}}}, r"classes\.gpus\.resource: is not known; did you mean resources"),
        ({"classes": {"gpus": {"resources": [7]}}}, r"classes\.gpus\.resources\[0\]"),
        ({"defaults": "follow"}, r"deviceAlignment\.defaults: is not known; did you mean default"),
        ("follow", r"deviceAlignment"),
    ],
)
def test_anything_else_is_refused_with_its_field(alignment: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        read(alignment)


def test_without_the_extension_the_field_is_refused() -> None:
    with pytest.raises(InputError, match=r"deviceAlignment: needs the extension device-alignment; name device-align"):
        read({"default": "follow"}, "mixed-cpus")


def manifest(text: str) -> dict[str, Any]:
    return {
        "metadata": {"name": "web", "annotations": {"mooring/device-alignment": text}},
        "spec": {"containers": [{"name": "c"}]},
    }


def test_a_bad_annotation_is_refused_with_the_extension_and_passed_over_without_it() -> None:
    known = PodGates.of({}, [DEVICE_ALIGNMENT])
    with pytest.raises(
        InputError, match=r"^pods.yaml: metadata.annotations.mooring/device-alignment: 'x' is not an al"
    ):
        pod_from_object(manifest("gpus=x"), source="pods.yaml", gates=known)
    assert pod_from_object(manifest("gpus=x"), source="pods.yaml").name == "web"
    assert pod_from_object(manifest("gpus=require"), source="pods.yaml", gates=known).annotations
