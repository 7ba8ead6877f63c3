"""``mooring replay``: machines by name, by text and by file; comparing; what is not supported."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.cli.command import CORPORA, mooring

NAME = "admission-cpu-packed.jsonl.gz"


@pytest.fixture(scope="module")
def lines() -> list[dict[str, Any]]:
    """Return the first recorded scenarios of a file."""
    with gzip.open(CORPORA / NAME, "rt", encoding="utf-8") as file:
        return [json.loads(next(file)) for _ in range(4)]


def write(path: Path, scenarios: list[dict[str, Any]]) -> Path:
    path.write_text("".join(f"{json.dumps(scenario)}\n" for scenario in scenarios))
    return path


def beside(folder: Path) -> Path:
    """Put the machines beside the scenarios."""
    target = folder / "my-machines.jsonl"
    target.write_bytes((CORPORA / "machines.jsonl").read_bytes())
    return target


def test_answers_have_the_form_of_the_recordings(lines: list[dict[str, Any]], tmp_path: Path) -> None:
    file = write(tmp_path / "some.jsonl", lines)
    beside(tmp_path)
    answered = mooring("replay", file, "-o", "jsonl")
    told = [json.loads(line) for line in answered.out.splitlines()]
    assert [answer["id"] for answer in told] == [line["id"] for line in lines]
    assert [set(answer) for answer in told] == [{"id", "expect"}] * len(lines)
    for answer, line in zip(told, lines, strict=True):
        for step, recorded in zip(answer["expect"]["steps"], line["expect"]["steps"], strict=True):
            assert {name: step[name] for name in recorded} == recorded


def test_agreement_is_counted(lines: list[dict[str, Any]], tmp_path: Path) -> None:
    beside(tmp_path)
    silent = {key: value for key, value in lines[0].items() if key != "expect"}
    file = write(tmp_path / "some.jsonl", [*lines, silent])
    answered = mooring("replay", file, "--check")
    assert (answered.code, answered.out) == (
        0,
        "some.jsonl: 5 scenarios, 4 agree, 0 differ, 1 have no recorded answer, 0 not supported\n",
    )


def test_differences_are_reported_field_by_field(lines: list[dict[str, Any]], tmp_path: Path) -> None:
    beside(tmp_path)
    wrong = json.loads(json.dumps(lines[0]))
    wrong["expect"]["steps"][0]["sharedPool"] = "0-1"
    wrong["expect"]["steps"][0]["containers"]["c0"]["cpus"] = "1000"
    file = write(tmp_path / "some.jsonl", [wrong, lines[1]])
    answered = mooring("replay", file, "--check")
    assert answered.code == 1
    told = answered.out.splitlines()
    assert [line.partition(": recorded")[0] for line in told[:2]] == [
        f"{wrong['id']}: steps[0].containers.c0.cpus",
        f"{wrong['id']}: steps[0].sharedPool",
    ]
    assert told[-1] == "some.jsonl: 2 scenarios, 1 agree, 1 differ, 0 not supported"
    both = mooring("replay", file, "--check", "-o", "jsonl")
    assert (both.code, len(both.out.splitlines())) == (1, 2)
    assert both.err.splitlines() == told[:2]


def test_every_file_is_looked_at_whatever_the_first_one_says(lines: list[dict[str, Any]], tmp_path: Path) -> None:
    beside(tmp_path)
    wrong = {**lines[0], "expect": {"start": {"sharedPool": "7"}}}
    first, second = write(tmp_path / "a.jsonl", [wrong]), write(tmp_path / "b.jsonl", [lines[1]])
    answered = mooring("replay", first, second, "--check")
    assert answered.code == 1
    assert [line.partition(":")[0] for line in answered.out.splitlines()][-2:] == ["a.jsonl", "b.jsonl"]


def test_a_scenario_that_crashes_the_kubelet_is_not_supported(tmp_path: Path) -> None:
    node = {"node_id": 3, "memory": 2**30, "distances": [10], "cores": [{"core_id": 0, "thread_ids": [0, 1]}]}
    other = {**node, "node_id": 7, "cores": [{"core_id": 1, "thread_ids": [2, 3]}]}
    info = {"num_cores": 4, "num_sockets": 1, "memory_capacity": 2**31, "topology": [node, other]}
    scenario = {
        "id": "gap",
        "machine": "gap",
        "machines": [{"name": "gap", "info": info}],
        "kubelet": {
            "cpuManagerPolicy": "static",
            "reservedSystemCPUs": "0",
            "topologyManagerPolicy": "restricted",
            "topologyManagerPolicyOptions": {"prefer-closest-numa-nodes": "true"},
        },
        "steps": [{"admit": web("1")}],
    }
    answered = mooring("replay", write(tmp_path / "gap.jsonl", [scenario]), "-o", "jsonl")
    assert answered.code == 1
    (answer,) = [json.loads(line) for line in answered.out.splitlines()]
    assert set(answer) == {"id", "unsupported"}
    assert answer["unsupported"].startswith("the kubelet would crash: ")
    assert answered.err == f"gap: not supported: {answer['unsupported']}\n"
    counted = mooring("replay", tmp_path / "gap.jsonl")
    assert counted.out.endswith("gap.jsonl: 1 scenario, 1 not supported\n")


def web(cpu: str) -> dict[str, Any]:
    limits = {"cpu": cpu, "memory": "64Mi"}
    return {
        "metadata": {"name": "web", "uid": "u1"},
        "spec": {"containers": [{"name": "c", "resources": {"limits": limits}}]},
    }


STATIC = {"cpuManagerPolicy": "static", "reservedSystemCPUs": "0"}


@pytest.mark.parametrize(
    ("machine", "pool", "cpu"),
    [
        ("small-1s8", "0-7", 4),
        ("cores=4", "0-3", 1),
        ("sockets=2 cores=4 threads=2", "0-7", 4),
        ("mine", "0-1", 1),
    ],
)
def test_a_scenario_by_hand_names_its_machine_in_many_ways(machine: str, pool: str, cpu: int, tmp_path: Path) -> None:
    info = {
        "num_cores": 2,
        "num_sockets": 1,
        "memory_capacity": 2**30,
        "topology": [{"node_id": 0, "memory": 2**30, "cores": [{"core_id": 0, "thread_ids": [0, 1]}]}],
    }
    scenario = {"machine": machine, "kubelet": STATIC, "steps": [{"admit": web("1")}]}
    if machine == "mine":
        scenario["machines"] = [{"name": "mine", "info": info}]
    (tmp_path / "by-hand.yaml").write_text(yaml.safe_dump(scenario))
    answered = mooring("replay", tmp_path / "by-hand.yaml")
    assert answered.code == 0
    assert answered.out.startswith(f"by-hand: started, shared pool {pool}\n  admit default/web: admitted; c {cpu}\n")


def test_machines_can_be_files_of_other_kinds(tmp_path: Path) -> None:
    described = json.loads(mooring("topology", "--machine", "cores=4", "-o", "machineinfo").out)
    (tmp_path / "laptop.json").write_text(json.dumps(described))
    (tmp_path / "by-hand.yaml").write_text(yaml.safe_dump({"machine": "laptop", "kubelet": STATIC}))
    answered = mooring("replay", tmp_path / "by-hand.yaml", "--machines", tmp_path / "laptop.json")
    assert (answered.code, answered.out.splitlines()[0]) == (0, "by-hand: started, shared pool 0-3")


def test_standard_input_holds_lines(lines: list[dict[str, Any]]) -> None:
    text = "".join(f"{json.dumps(line)}\n" for line in lines[:2]).encode()
    answered = mooring("replay", "-", "--machines", CORPORA / "machines.jsonl", "--check", stdin=text)
    assert (answered.code, answered.out) == (0, "standard input: 2 scenarios, 2 agree, 0 differ, 0 not supported\n")


def test_merges_have_results(tmp_path: Path) -> None:
    with gzip.open(CORPORA / "merge.jsonl.gz", "rt") as file:
        merges = [json.loads(next(file)) for _ in range(5)]
    path = write(tmp_path / "merge.jsonl", merges)
    told = [json.loads(line) for line in mooring("replay", path, "-o", "jsonl").out.splitlines()]
    assert told == [{"id": merge["id"], "result": merge["result"]} for merge in merges]
    words = mooring("replay", path).out.splitlines()
    assert words[0] == "merge-00000: no mask, not preferred, not admitted"
    merges[2]["result"]["preferred"] = not merges[2]["result"]["preferred"]
    answered = mooring("replay", write(path, merges), "--check")
    assert answered.code == 1
    assert answered.out.startswith("merge-00002: result.preferred: recorded ")


@pytest.mark.parametrize(
    ("scenario", "complaint"),
    [
        ({"id": "x", "machine": "nope"}, "x: machine: no machine is called 'nope'; name a machine of a file"),
        ({"id": "x"}, "x: machine: is missing; name a machine"),
        ({"id": "x", "machine": "cores=none"}, "x: machine: 'none' is not a count"),
        ({"id": "x", "machine": "m", "machines": {"m": 1}}, "x: machines: must be a list of machine descriptions"),
        (
            {"id": "x", "machine": "m", "machines": [{"name": "m", "info": 3}]},
            "x: machines[0].info: must be a mapping, not a whole number",
        ),
        ({"id": "x", "machine": "m", "steps": [{"admit": 1}]}, "steps[0].admit: must be a mapping"),
    ],
)
def test_a_scenario_that_cannot_be_run_is_bad_input(scenario: dict[str, Any], complaint: str, tmp_path: Path) -> None:
    file = write(tmp_path / "bad.jsonl", [scenario])
    answered = mooring("replay", file)
    assert (answered.code, answered.out) == (2, "")
    assert answered.complaint.startswith(f"mooring: {file}")
    assert complaint in answered.complaint


def test_a_damaged_line_ends_it_after_the_answers_before(lines: list[dict[str, Any]], tmp_path: Path) -> None:
    beside(tmp_path)
    file = write(tmp_path / "cut.jsonl", lines[:1])
    file.write_text(f'{file.read_text()}{{"id": "cut')
    answered = mooring("replay", file, "-o", "jsonl")
    assert answered.code == 2
    assert json.loads(answered.out)["id"] == lines[0]["id"]
    assert answered.complaint.startswith(f"mooring: {file}:2:8: not valid JSON")
