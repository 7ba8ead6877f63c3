"""The device manager's record against Go's own writing, checksum and errors.

``device_record_vectors.jsonl``: lines of Go's encoding/json and k8s.io/apimachinery v0.37.1 (util/dump) with structures
of the kubelet's names. First what is written with the dump that is hashed, then texts with what reading says.
"""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from mooring.engine.checkpoint.device_file import DeviceRecord, HeldDevices, device_record, device_text
from mooring.engine.devicemanager.state import Device

VECTORS = Path(__file__).with_name("device_record_vectors.jsonl").read_text(encoding="utf-8")
LINES = [json.loads(line) for line in VECTORS.splitlines()]
WRITTEN = [text for text, told in LINES if not told.startswith("err=")]
READ = [(text, told) for text, told in LINES if told.startswith("err=")]


@pytest.mark.parametrize("text", WRITTEN)
def test_what_a_kubelet_writes_has_the_checksum_that_it_expects(text: str) -> None:
    record = device_record(text)
    assert (record.is_there, record.problem) == (True, "")
    content = json.loads(text)["Data"]
    assert {one.uid for one in record.held} <= {entry["PodUID"] for entry in content["PodDeviceEntries"] or ()}
    assert record.registered == {
        name: frozenset(ids or ()) for name, ids in (content["RegisteredDevices"] or {}).items()
    }


@pytest.mark.parametrize("text", WRITTEN)
def test_one_changed_byte_is_corruption(text: str) -> None:
    for old, new in (('"g1"', '"g2"'), ('"Checksum":', '"Checksum":1'), ("GPU-2", "GPU-3"), ('"x"', '"z"')):
        if old in text:
            assert device_record(text.replace(old, new, 1)).problem == "checkpoint is corrupted"


@pytest.mark.parametrize(("text", "told"), READ)
def test_texts_that_nobody_wrote_fail_with_gos_words(text: str, told: str) -> None:
    found = re.match(r"err=(.*?) sum=(\d+) ok=(\w+) dump=", told)
    assert found is not None
    error = found[1]
    assert device_record(text).problem == ("checkpoint is corrupted" if error == "<nil>" else error)


@pytest.mark.parametrize(("text", "told"), [one for one in READ if one[1].startswith("err=<nil>")])
def test_texts_in_another_spelling_have_gos_checksum(text: str, told: str) -> None:
    found = re.search(r"sum=(\d+)", told)
    assert found is not None
    spelled = "{}" if text == "null" else text
    with_sum = f'{spelled[:-1]}{"," if spelled != "{}" else ""}"Checksum":{found[1]}}}'
    assert device_record(with_sum).problem == ""


def test_a_device_near_several_nodes_is_one_and_one_near_none_has_no_node() -> None:
    held = HeldDevices("u", "c", "v/gpu", {-1: ("a",), 0: ("b", "c"), 3: ("c",)}, b"\x0a\x01x")
    assert held.devices == (Device("a"), Device("b", (0,)), Device("c", (0, 3)))
    record = device_record(device_text([held], {"v/gpu": ["d", "b"]}))
    assert record == DeviceRecord(True, (held,), {"v/gpu": frozenset({"b", "d"})})


@pytest.mark.parametrize("answer", [b"\x0a\x05x", b"\xff", b"\x00", b"\x0b", b"\x0a"])
def test_an_entry_whose_answer_is_no_message_is_passed_over(answer: bytes) -> None:
    kept, dropped = HeldDevices("u", "c", "v/gpu", {0: ("a",)}), HeldDevices("w", "c", "v/gpu", {0: ("b",)}, answer)
    assert [one.uid for one in device_record(device_text([dropped, kept], {})).held] == ["u"]


def test_without_a_file_nothing_is_held() -> None:
    assert device_record(None) == DeviceRecord()
