"""Damaged input through whole commands: an answer or one clear line, never anything else, and nothing half written."""

from __future__ import annotations

import copy
import gzip
import json
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.cli.command import CORPORA, EXAMPLES, NODE, Answered, mooring

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
    *(
        None,
        True,
        0,
        -1,
        2**63,
        -(2**70),
        10**30,
        1e308,
        "",
        "0",
        "-1",
        "1n",
        "1.5",
        "1e400",
        "0-3",
        "3-1",
        "0-99999999",
    ),
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
    answered = mooring(*(str(big) if word == "BIG" else word for word in command))
    assert (answered.code, answered.out) == (2, "")
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
def test_sysfs_with_missing_and_contradictory_files(
    data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("tree")
    with tarfile.open(MACHINES / "qemu-a-2s4c2t-2n" / "qemu-a-2s4c2t-2n.tar.gz") as archive:
        archive.extractall(folder, filter="data")
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
