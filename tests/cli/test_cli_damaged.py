"""Damaged input through whole commands: an answer or one clear line, never anything else, and nothing half written."""

from __future__ import annotations

import copy
import gzip
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.cli.command import CORPORA, EXAMPLES, NODE, Answered, mooring
from tests.values import cases, unpack

few = settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)

PODS = list(yaml.safe_load_all((EXAMPLES / "pods.yaml").read_text()))
CONFIG = yaml.safe_load((EXAMPLES / "kubelet.yaml").read_text())
RICH_CONFIG = {
    **CONFIG,
    "memoryManagerPolicy": "Static",
    "reservedMemory": [{"numaNode": 0, "limits": {"memory": "2548Mi"}}],
    "featureGates": {"PodLevelResourceManagers": True},
    "topologyManagerPolicyOptions": {"prefer-closest-numa-nodes": "true"},
    "topologyManagerScope": "pod",
    "maxPods": 5,
}
DEVICES = {
    "apiVersion": "mooring/v1alpha1",
    "kind": "NodeDevices",
    "devices": {"example.com/nic": [{"id": "nic-0", "numa": [0]}], "example.com/gpu": {"pci": {"class": "03"}}},
}
VALUES: list[Any] = [
    *(None, True, 0, -1, 2**63, -(2**70), 10**30, 1e308),
    *("", "0", "-1", "1n", "1.5", "1e400", "0-3", "3-1", "0-99999999"),
    *("9999999999999999999999Ei", "0x10", "²", "a/b", "none", "static", "Static", "x" * 300, "\x1b[31m\n", "\udcff"),
    *([], {}, [[]], ["a"], [None], {"a": None}, {"cpu": "-1"}, {"cpu": -2}, {"memory": "1e30"}, {"hugepages-2Mi": "1"}),
]


def spots(document: Any) -> Iterator[tuple[Any, Any]]:
    """Yield every place of a document that holds a value: its container and the key or index."""
    keys = document if isinstance(document, dict) else range(len(document)) if isinstance(document, list) else ()
    for key in list(keys):
        yield document, key
        yield from spots(document[key])


@st.composite
def damaged(draw: st.DrawFn, document: Any, most: int = 3) -> Any:
    """Return a copy of a document with values replaced, removed, or moved from elsewhere."""
    found = copy.deepcopy(document)
    for _ in range(draw(st.integers(0, most))):
        places = list(spots(found))
        container, key = places[draw(st.integers(0, len(places) - 1))]
        action = draw(st.sampled_from(["replace", "replace", "remove", "move", "add"]))
        if action == "replace":
            container[key] = copy.deepcopy(draw(st.sampled_from(VALUES)))
        elif action == "remove":
            del container[key]
        elif action == "move":
            other, name = places[draw(st.integers(0, len(places) - 1))]
            container[key] = copy.deepcopy(other[name])
        elif isinstance(container, dict):
            container[draw(st.sampled_from(["x", "", "cpu", "memory", "hugepages-1Gi", "a" * 80]))] = copy.deepcopy(
                draw(st.sampled_from(VALUES))
            )
        if not list(spots(found)):
            break
    return found


@st.composite
def damaged_bytes(draw: st.DrawFn, data: bytes) -> bytes:
    """Return data that is cut short or has a few other bytes."""
    if draw(st.booleans()):
        return data[: draw(st.integers(0, len(data)))]
    found = bytearray(data)
    for _ in range(draw(st.integers(1, 4))):
        found[draw(st.integers(0, len(found) - 1))] = draw(st.integers(0, 255))
    return bytes(found)


def dumped(document: Any) -> bytes:
    return json.dumps(document).encode("utf-8", "surrogatepass")


def check(answered: Answered) -> None:
    """Fail unless the command answered, or complained in one printable line."""
    assert answered.code in (0, 1, 2), answered.err
    assert "Traceback" not in answered.err
    if answered.code == 2:
        assert answered.out == ""
        assert answered.complaint.startswith("mooring: ")
        assert answered.complaint.isprintable()
    else:
        assert answered.out
        assert all(line.isprintable() for line in answered.err.splitlines())


@few
@given(data=st.data())
def test_damaged_manifests(data: st.DataObject) -> None:
    items = [data.draw(damaged(item, 1)) for item in data.draw(st.lists(st.sampled_from(PODS), min_size=1, max_size=3))]
    text = dumped({"kind": "List", "apiVersion": "v1", "items": items})
    check(
        mooring(
            "plan", "-f", "-", *NODE, "-o", data.draw(st.sampled_from(["text", "wide", "json", "yaml"])), stdin=text
        )
    )


@few
@given(data=st.data())
def test_damaged_configurations(data: st.DataObject, tmp_path: Path) -> None:
    config = data.draw(damaged(data.draw(st.sampled_from([CONFIG, RICH_CONFIG])), 2))
    devices = data.draw(damaged(DEVICES, 1))
    (tmp_path / "kubelet.json").write_bytes(dumped(config))
    (tmp_path / "devices.json").write_bytes(dumped(devices))
    machine = data.draw(st.sampled_from(["small-1s8", "xeonmax-9460-2s-snc4-flat", "i7-1370p"]))
    options = ("--machine", machine, "--config", tmp_path / "kubelet.json", "--config", tmp_path / "devices.json")
    verb = data.draw(st.sampled_from(["plan", "show"]))
    check(mooring(verb, "-f", EXAMPLES / "pods.yaml", *options))


@few
@given(data=st.data())
def test_damaged_machines(data: st.DataObject, tmp_path: Path) -> None:
    whole = mooring("topology", "--machine", "sockets=2 cores=4 l3=2 memory=4Gi", "-o", "machineinfo").document
    (tmp_path / "node.json").write_bytes(dumped(data.draw(damaged(whole, 2))))
    node = ("--machine", tmp_path / "node.json")
    form = data.draw(st.sampled_from(["text", "json", "yaml", "machineinfo"]))
    check(mooring("topology", *node, "-o", form))
    check(mooring("plan", "-f", EXAMPLES / "pods.yaml", *node, *NODE[2:]))
    check(mooring("show", *node, "-o", data.draw(st.sampled_from(["terminal", "svg"]))))


@pytest.fixture(scope="module")
def recorded() -> list[dict[str, Any]]:
    """Return recorded scenarios of many kinds."""
    found = []
    for name in ("admission-lifecycle-restart", "state-files", "admission-devices", "merge"):
        with gzip.open(CORPORA / f"{name}.jsonl.gz", "rt", encoding="utf-8") as file:
            found += [json.loads(next(file)) for _ in range(8)]
    return found


@few
@given(data=st.data())
def test_damaged_scenarios(data: st.DataObject, recorded: list[dict[str, Any]]) -> None:
    scenario = data.draw(damaged(data.draw(st.sampled_from(recorded))))
    form = data.draw(st.sampled_from([(), ("--check",), ("-o", "jsonl"), ("-o", "jsonl", "--check")]))
    answered = mooring("replay", "-", "--machines", CORPORA / "machines.jsonl", *form, stdin=dumped(scenario))
    assert answered.code in (0, 1, 2), answered.err
    if answered.code == 2:
        assert answered.complaint.startswith("mooring: standard input")


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with the state files of the example."""
    folder = tmp_path_factory.mktemp("state")
    mooring("plan", "-f", EXAMPLES / "pods.yaml", *NODE, "--save-state", folder)
    return folder


@few
@given(data=st.data())
def test_damaged_state_files_are_for_the_kubelet_to_judge(data: st.DataObject, saved: Path, tmp_path: Path) -> None:
    for name in ("cpu_manager_state", "memory_manager_state"):
        (tmp_path / name).write_bytes(data.draw(damaged_bytes((saved / name).read_bytes())))
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    answered = mooring("plan", "-f", EXAMPLES / "pods.yaml", *NODE, "--state", tmp_path)
    check(answered)
    assert answered.code in (0, 1)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


@few
@given(data=st.data())
def test_damaged_bytes_of_any_input(data: st.DataObject, tmp_path: Path) -> None:
    source = data.draw(st.sampled_from([EXAMPLES / "pods.yaml", EXAMPLES / "kubelet.yaml", CORPORA / "machines.jsonl"]))
    text = source.read_bytes()[:20_000]
    file = tmp_path / source.name
    file.write_bytes(data.draw(damaged_bytes(text)))
    commands: dict[str, tuple[str | Path, ...]] = {
        "pods.yaml": ("plan", "-f", file, *NODE),
        "kubelet.yaml": ("plan", "-f", EXAMPLES / "pods.yaml", *NODE[:2], "--config", file),
        "machines.jsonl": ("topology", "--machine", f"{file}#T-1S1N4-smt1"),
    }
    check(mooring(*commands[source.name]))


@few
@given(data=st.data())
def test_damaged_compressed_files(data: st.DataObject, tmp_path: Path) -> None:
    packed = gzip.compress(b'{"id": "x", "machine": "small-1s8"}\n' * 50, mtime=0)
    (tmp_path / "x.jsonl.gz").write_bytes(data.draw(damaged_bytes(packed)))
    answered = mooring("replay", tmp_path / "x.jsonl.gz", "-o", "jsonl")
    assert answered.code in (0, 1, 2)
    if answered.code == 2:
        assert answered.complaint.startswith(f"mooring: {tmp_path / 'x.jsonl.gz'}")


TRAPS = {
    "laughs": "a: &a [x,x,x,x,x,x,x,x,x]\n"
    + "".join(f"{chr(98 + i)}: &{chr(98 + i)} [{','.join(['*' + chr(97 + i)] * 9)}]\n" for i in range(9))
    + "kind: Pod\nmetadata: {name: a}\nspec: {containers: *j}\n",
    "cycle": "kind: Pod\nmetadata: {name: a}\nspec: &s\n  containers: [*s]\n",
    "cyclic list": "kind: List\nitems: &i\n- {kind: List, items: *i}\n",
    "deep": "[" * 100_000,
    "deep mapping": '{"a":' * 100_000,
    "replicas": "kind: Deployment\nmetadata: {name: a}\n"
    "spec: {replicas: 1000000000, template: {spec: {containers: [{name: c}]}}}",
    "long number": "kind: Pod\nmetadata: {name: a}\n"
    f"spec: {{containers: [{{name: c, resources: {{limits: {{cpu: {'9' * 5000}}}}}}}]}}",
}


@pytest.mark.parametrize("name", TRAPS)
@pytest.mark.parametrize("option", ["-f", "--active", "--config", "replay"])
def test_traps_are_refused_at_once(name: str, option: str, tmp_path: Path) -> None:
    (tmp_path / "trap.yaml").write_text(TRAPS[name])
    if option == "replay":
        answered = mooring("replay", tmp_path / "trap.yaml")
    else:
        others: tuple[str | Path, ...] = () if option == "-f" else ("-f", EXAMPLES / "pods.yaml")
        answered = mooring("plan", *others, option, tmp_path / "trap.yaml", *NODE[: 2 if option == "--config" else 4])
    assert (answered.code, answered.out) == (2, "")
    assert answered.complaint.startswith(f"mooring: {tmp_path / 'trap.yaml'}")


@pytest.mark.parametrize(
    "command",
    [
        ("plan", "-f", "BIG", *NODE),
        ("plan", "-f", str(EXAMPLES / "pods.yaml"), "--machine", "BIG"),
        ("plan", "-f", str(EXAMPLES / "pods.yaml"), *NODE[:2], "--config", "BIG"),
        ("replay", "BIG"),
        ("replay", str(CORPORA / "real-kubelet.jsonl.gz"), "--machines", "BIG"),
    ],
)
@pytest.mark.parametrize("suffix", ["", ".json", ".jsonl", ".yaml"])
def test_files_of_a_gigabyte_are_not_read(command: tuple[str, ...], suffix: str, tmp_path: Path) -> None:
    big = tmp_path / f"big{suffix}"
    with big.open("wb") as file:
        file.truncate(2**30)
    answered = mooring(*(str(big) if word == "BIG" else word for word in command), code=2)
    assert answered.complaint.startswith(f"mooring: {big}")


def test_a_pod_in_two_files_is_reported_with_both(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text(json.dumps(PODS[1]))
    (tmp_path / "b.json").write_text(json.dumps(PODS[1]))
    complaint = mooring("plan", "-f", tmp_path, *NODE).complaint
    assert complaint.startswith(
        f"mooring: {tmp_path / 'b.json'}: the pod ai/inference has the uid ai_inference, as has "
    )
    assert complaint.endswith(f"{tmp_path / 'a.json'}; rename one of them or remove it")


MACHINES = EXAMPLES.parent.parent / "shared" / "machines"
DAMAGE = (None, b"", b"0-99999999\n", b"-1\n", b"\xff\n", b"99999999999999999999\n", b"0\n", b"1,0\n")
"""What becomes of a file of sysfs; None removes it."""


@pytest.mark.skipif(not MACHINES.is_dir(), reason="the machines are not beside the repository")
@settings(few, max_examples=8)
@given(data=st.data())
def test_sysfs_with_missing_and_wrong_files(data: st.DataObject, tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.mktemp("tree")
    unpack(MACHINES / "qemu-a-2s4c2t-2n" / "qemu-a-2s4c2t-2n.tar.gz", folder)
    files = sorted(path for path in folder.rglob("*") if path.is_file() and not path.is_symlink())
    for _ in range(data.draw(st.integers(1, 6))):
        file, damage = data.draw(st.sampled_from(files)), data.draw(st.sampled_from(DAMAGE))
        if damage is None:
            file.unlink(missing_ok=True)
        elif file.exists():
            file.write_bytes(damage)
    root = next((path for path in (folder, *folder.iterdir()) if (path / "sys").is_dir()), folder)
    for form in ("text", "json", "machineinfo"):
        check(mooring("topology", "--machine", root, "-o", form))
    check(mooring("plan", "-f", EXAMPLES / "pods.yaml", "--machine", root, *NODE[2:]))


# ``mooring replay``: machines by name, by text and by file; comparing; what is not supported.


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


def test_every_file_is_looked_at_whatever_the_first_one_says(lines: list[dict[str, Any]], tmp_path: Path) -> None:
    beside(tmp_path)
    wrong = {**lines[0], "expect": {"start": {"sharedPool": "7"}}}
    first, second = write(tmp_path / "a.jsonl", [wrong]), write(tmp_path / "b.jsonl", [lines[1]])
    answered = mooring("replay", first, second, "--check", code=1)
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
    answered = mooring("replay", write(tmp_path / "gap.jsonl", [scenario]), "-o", "jsonl", code=1)
    (answer,) = [json.loads(line) for line in answered.out.splitlines()]
    assert set(answer) == {"id", "unsupported"}
    assert answer["unsupported"].startswith("the kubelet would crash: ")
    assert answered.err == f"gap: not supported: {answer['unsupported']}\n"
    assert mooring("replay", tmp_path / "gap.jsonl").out.endswith("gap.jsonl: 1 scenario, 1 not supported\n")


def web(cpu: str) -> dict[str, Any]:
    limits = {"cpu": cpu, "memory": "64Mi"}
    return {
        "metadata": {"name": "web", "uid": "u1"},
        "spec": {"containers": [{"name": "c", "resources": {"limits": limits}}]},
    }


STATIC = {"cpuManagerPolicy": "static", "reservedSystemCPUs": "0"}


@pytest.mark.parametrize(
    ("machine", "pool", "cpu"),
    [("small-1s8", "0-7", 4), ("cores=4", "0-3", 1), ("sockets=2 cores=4 threads=2", "0-7", 4), ("mine", "0-1", 1)],
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
    answered = mooring("replay", tmp_path / "by-hand.yaml", code=0)
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
    assert mooring("replay", path).out.splitlines()[0] == "merge-00000: no mask, not preferred, not admitted"
    merges[2]["result"]["preferred"] = not merges[2]["result"]["preferred"]
    answered = mooring("replay", write(path, merges), "--check", code=1)
    assert answered.out.startswith("merge-00002: result.preferred: recorded ")


@pytest.mark.parametrize(("scenario", "complaint"), cases(__file__, "refused-scenarios.yaml", "scenario", "says"))
def test_a_scenario_that_cannot_be_run_is_bad_input(scenario: dict[str, Any], complaint: str, tmp_path: Path) -> None:
    file = write(tmp_path / "bad.jsonl", [scenario])
    answered = mooring("replay", file, code=2)
    assert answered.complaint.startswith(f"mooring: {file}")
    assert complaint in answered.complaint


def test_a_damaged_line_ends_it_after_the_answers_before(lines: list[dict[str, Any]], tmp_path: Path) -> None:
    beside(tmp_path)
    file = write(tmp_path / "cut.jsonl", lines[:1])
    file.write_text(f'{file.read_text()}{{"id": "cut')
    answered = mooring("replay", file, "-o", "jsonl")
    assert (answered.code, json.loads(answered.out)["id"]) == (2, lines[0]["id"])
    assert answered.complaint.startswith(f"mooring: {file}:2:8: not valid JSON")
