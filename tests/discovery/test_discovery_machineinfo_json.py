"""cAdvisor JSON is read strictly, written in full, and never answered with anything but InputError when it is wrong."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.values import cases

from mooring.engine.core.errors import InputError
from mooring.engine.core.topology import discover_topology
from mooring.inputs.machines.machineinfo_json import (
    machine_info_document,
    machine_info_json,
    machines_of_lines,
    parse_machine_info,
    parse_machine_lines,
)

CORPORA = Path(__file__).parents[1] / "corpora"
LINES = [
    (path.name, line)
    for path in (CORPORA / "machines.jsonl", CORPORA / "real-kubelet-machines.jsonl")
    for line in path.read_bytes().splitlines()
]
NAMES = [json.loads(line)["name"] for _, line in LINES]
SMALL = b"""{"name": "m", "note": "n", "info": {
 "num_cores": 2, "num_sockets": 1, "memory_capacity": 4096, "hugepages": [], "topology": [{
  "node_id": 0, "memory": 4096, "hugepages": [{"page_size": 4, "num_pages": 1}], "distances": [10], "cores": [{
   "core_id": 0, "socket_id": 0, "thread_ids": [0, 1],
   "uncore_caches": [{"id": 3, "size": 1, "type": "Unified", "level": 3}]}]}]}}"""


@pytest.mark.parametrize(("file", "line"), LINES, ids=NAMES)
def test_every_machine_of_the_corpora_is_read_whole(file: str, line: bytes) -> None:
    raw: dict[str, Any] = json.loads(line)
    described = parse_machine_info(line, file)
    assert described.name == raw["name"]
    topology = discover_topology(described.info)
    cores = [core for node in raw["info"]["topology"] for core in node.get("cores") or []]
    assert topology.num_cpus == raw["info"]["num_cores"]
    assert topology.num_cores == len(cores)
    assert set(topology.places) == {cpu for core in cores for cpu in core["thread_ids"]}
    assert [node.distances for node in described.info.topology] == [
        tuple(row) if (row := node.get("distances")) is not None else None for node in raw["info"]["topology"]
    ]


@pytest.mark.parametrize("line", [line for _, line in LINES], ids=NAMES)
def test_what_is_written_reads_back_the_same(line: bytes) -> None:
    info = parse_machine_info(line, "corpus").info
    assert parse_machine_info(machine_info_json(info).encode(), "written").info == info


def test_the_written_form_has_null_for_every_list_that_holds_nothing() -> None:
    document = machine_info_document(parse_machine_info(b'{"num_cores": 0, "topology": null}', "x").info)
    assert document["topology"] is None
    assert document["hugepages"] is None
    assert document["memory_by_type"] == {}
    assert document["cloud_provider"] == "Unknown"


def test_the_envelope_is_optional_and_machineinfo_is_another_name_for_info() -> None:
    info = json.dumps(json.loads(SMALL)["info"]).encode()
    bare = parse_machine_info(info, "x")
    renamed = parse_machine_info(b'{"name": "m", "machineInfo": ' + info + b"}", "x")
    assert bare.info == renamed.info == parse_machine_info(SMALL, "x").info
    assert (bare.name, renamed.name) == ("", "m")


def test_unknown_members_and_missing_optional_ones_do_no_harm() -> None:
    described = parse_machine_info(b'{"num_cores": 1, "new": [{}], "topology": [{"node_id": 4}]}', "x")
    assert described.info.topology[0].cores == ()


@pytest.mark.parametrize(
    ("document", "error"),
    [
        *cases(__file__, "refused-machineinfo.yaml", "text", "says"),
        (b"\xff\xfe", "m.json: the text is UTF-16"),
        (b'{"a":' * 50_000, "m.json:1:"),
    ],
)
def test_a_wrong_document_is_refused_in_one_line_that_names_the_field(document: str | bytes, error: str) -> None:
    with pytest.raises(InputError) as caught:
        parse_machine_info(document.encode() if isinstance(document, str) else document, "m.json")
    message = str(caught.value)
    assert message.startswith(error)
    assert "\n" not in message


def test_a_line_is_found_by_its_name() -> None:
    data = (CORPORA / "machines.jsonl").read_bytes()
    assert parse_machine_lines(data, "machines.jsonl", "hybrid-24").info.num_cores == 24
    assert [described.name for described in machines_of_lines(data, "machines.jsonl")] == [
        json.loads(line)["name"] for line in data.splitlines()
    ]


def test_the_only_machine_of_a_file_needs_no_name() -> None:
    assert parse_machine_lines(b"\n" + SMALL.replace(b"\n", b"") + b"\n", "x.jsonl", "").name == "m"


@pytest.mark.parametrize(
    ("text", "name", "error"), cases(__file__, "refused-machine-lines.yaml", "text", "name", "says")
)
def test_a_file_without_the_machine_says_which_it_has(text: str, name: str, error: str) -> None:
    with pytest.raises(InputError) as caught:
        parse_machine_lines(text.encode(), "x.jsonl", name)
    assert str(caught.value).startswith(error)


@pytest.mark.parametrize(
    ("change", "finding"),
    [
        ('"core_id": -1, ', "m.json:3:29: -1 is negative: the kubelet numbers cores by their first CPU"),
        (
            '"thread_ids": [0], "core_id": 9}, {',
            "m.json:3:64: CPU 0 is in another core, too: the kubelet keeps the last",
        ),
    ],
)
def test_what_cadvisor_does_not_write_is_named_with_its_place(change: str, finding: str) -> None:
    document = f'{{"num_cores": 1,\n "topology": [\n  {{"node_id": 0, "cores": [{{{change}"thread_ids": [0]}}]}}]}}'
    told = parse_machine_info(document.encode(), "m.json")
    assert [(one.message, one.code) for one in told.findings] == [(finding, "MOOR-464")]
    assert parse_machine_info(document.replace(change, "").encode(), "m.json").findings == ()


def test_a_node_that_is_there_twice_and_a_machine_without_cpus_are_named() -> None:
    twice = b'{"num_cores": 2, "topology": [{"node_id": 0, "cores": [{"thread_ids": [0]}]}, {"node_id": 0}]}'
    assert parse_machine_info(twice, "m.json").findings[0].message == (
        "m.json:1:80: NUMA node 0 is there twice: the kubelet adds its CPUs up and takes the last memory"
    )
    empty = b'\n{"num_cores": 0, "topology": []}'
    assert parse_machine_info(empty, "m.json", 4).findings[0].message == (
        "m.json:5:18: there are no CPUs: the kubelet does not start"
    )
