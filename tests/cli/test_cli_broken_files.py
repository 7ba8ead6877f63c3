"""Every format of file: what is broken is told in one line with file, line, column and field, and with exit code 2."""

from __future__ import annotations

import json
import os
import re
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from tests.cli.command import CORPORA, SMALL, mooring
from tests.discovery import tool_outputs

from mooring.inputs.machines.compact import parse_compact
from mooring.inputs.machines.machineinfo_json import machine_info_json

POD = "apiVersion: v1\nkind: Pod\nmetadata: {name: web}\nspec: {containers: [{name: app}]}\n"
TINY = parse_compact("sockets=1 cores=2")
MESSAGE_CHARS = 500
"""Characters that a line may have besides the name of its folder."""


@dataclass(frozen=True)
class Format:
    """A format, a valid file of it, and texts of that file with what breaks them."""

    command: tuple[str, ...]
    file: str
    text: str
    breaks: dict[str, tuple[str, str, str]] = field(default_factory=dict)
    """What is wrong -> text, what replaces it, and the field or words that the line names."""


LONG = "x" * 10_000_000
KUBELET = """\
kind: KubeletConfiguration
apiVersion: kubelet.config.k8s.io/v1beta1
cpuManagerPolicy: none
maxPods: 110
kubeReserved: {cpu: "1"}
reservedMemory: [{numaNode: 0, limits: {memory: 1Gi}}]
"""
PODS = """\
apiVersion: v1
kind: Pod
metadata: {name: web}
spec:
  containers:
  - name: app
    resources:
      limits: {cpu: 2, memory: 1Gi}
"""
MOORING = "apiVersion: mooring/v1alpha1\nkind: MooringConfiguration\nextensions: [plugins]\npluginBudget: 50ms\n"
PLUGIN = f"{MOORING}plugins:\n- name: spread\n  weight: 1\n"
DEVICES = "apiVersion: mooring/v1alpha1\nkind: NodeDevices\ndevices:\n  example.com/gpu:\n  - id: gpu0\n    numa: [0]\n"
EXTENDER = "apiVersion: mooring/v1alpha1\nkind: ExtenderConfiguration\nunknownNodes: denyExclusive\nmaxRequests: 2\n"
AGENT = (
    "apiVersion: mooring/v1alpha1\nkind: AgentConfiguration\npluginIndex: '10'\nonRejection: fail\n"
    "---\nkind: KubeletConfiguration\ncpuManagerPolicy: none\n"
)
SCENARIO = """\
id: one
machine: small-1s8
kubelet: {maxPods: 3}
steps:
- admit: {metadata: {name: w}, spec: {containers: [{name: "a"}]}}
- remove: w
"""
LINE = json.dumps({"id": "one", "machine": "small-1s8", "kubelet": {"maxPods": 3}, "steps": [{"remove": "x"}]}) + "\n"
INFO = machine_info_json(TINY.info)
TOPOLOGY = """\
apiVersion: topology.node.k8s.io/v1alpha2
kind: NodeResourceTopology
metadata: {name: worker}
zones:
- name: node-0
  type: Node
  costs: [{name: node-0, value: 10}]
  resources: [{name: cpu, capacity: "4"}]
"""
ABOUT = json.dumps(
    {"apiVersion": "mooring/v1alpha1", "kind": "NodeArchive", "node": "a", "parts": [{"name": "machine"}]}, indent=1
)
PLAN = ("plan", *SMALL, "-f", "pod.yaml", "--strict")

FORMATS = {
    "kubelet configuration": Format(
        (*PLAN, "--config", "FILE"),
        "k.yaml",
        KUBELET,
        {
            "type": ("maxPods: 110", "maxPods: many", "maxPods"),
            "list": ("cpuManagerPolicy: none", "cpuManagerPolicy: [none]", "cpuManagerPolicy"),
            "value": ("cpuManagerPolicy: none", "cpuManagerPolicy: Static", "did you mean static?"),
            "field": ("maxPods", "maxPod", "did you mean maxPods?"),
            "quantity": ('"1"', '"one"', "'one' is not a quantity"),
            "version": ("k8s.io/v1beta1", LONG, "apiVersion"),
            "nested": ("memory: 1Gi", "memory: 1G1", "reservedMemory[0].limits.memory"),
            "nan": ("maxPods: 110", "maxPods: .nan", ".nan is not a number"),
        },
    ),
    "pods": Format(
        ("plan", *SMALL, "--strict", "-f", "FILE"),
        "p.yaml",
        PODS,
        {
            "type": ("name: app", "name: 5", "spec.containers[0].name"),
            "field": ("limits:", "limit:", "did you mean limits?"),
            "quantity": ("cpu: 2", "cpu: 2 cores", "spec.containers[0].resources.limits.cpu"),
            "negative": ("cpu: 2", "cpu: -2", "spec.containers[0].resources.limits.cpu"),
            "digits": ("cpu: 2", f"cpu: '{'9' * 400}'", "does not fit into 64 bits"),
            "name": ("name: web", "name: A_b", "metadata.name"),
            "container": ("name: app", "name: A_b", "spec.containers[0].name: 'A_b' is not a valid name; write a-b"),
            "long": ("name: app", f"name: {LONG}", "spec.containers[0].name"),
            "kind": ("kind: Pod", "kind: ''", "kind"),
        },
    ),
    "MooringConfiguration": Format(
        (*PLAN, "--config", "FILE"),
        "m.yaml",
        MOORING,
        {
            "type": ("[plugins]", "plugins", "extensions"),
            "value": ("[plugins]", "[plugin]", "did you mean plugins?"),
            "field": ("pluginBudget", "pluginBudge", "did you mean pluginBudget?"),
            "duration": ("50ms", "50", "pluginBudget"),
            "negative": ("50ms", "-50ms", "pluginBudget"),
            "long": ("[plugins]", f"[{LONG}]", "extensions[0]"),
        },
    ),
    "plugin options": Format(
        (*PLAN, "--config", "FILE"),
        "g.yaml",
        PLUGIN,
        {
            "name": ("spread", "no-such-plugin", "plugins[0].name"),
            "weight": ("weight: 1", "weight: 1000", "plugins[0].weight"),
            "type": ("weight: 1", "weight: heavy", "plugins[0].weight"),
            "field": ("weight", "wait", "plugins[0].wait"),
        },
    ),
    "devices": Format(
        (*PLAN, "--config", "FILE"),
        "d.yaml",
        DEVICES,
        {
            "type": ("[0]", "0", "devices.example.com/gpu[0].numa"),
            "negative": ("[0]", "[-2]", "devices.example.com/gpu[0].numa"),
            "id": ("id: gpu0", "id: ''", "devices.example.com/gpu[0].id"),
            "field": ("devices:", "device:", "devices"),
        },
    ),
    "extender": Format(
        ("extender", "--check", "--config", "FILE"),
        "x.yaml",
        EXTENDER,
        {
            "value": ("denyExclusive", "denyExclusiv", "did you mean denyExclusive?"),
            "count": ("maxRequests: 2", "maxRequests: -2", "maxRequests"),
            "field": ("maxRequests", "maxRequest", "did you mean maxRequests?"),
        },
    ),
    "agent": Format(
        ("agent", *SMALL, "--state-dir", "state", "--config", "FILE"),
        "a.yaml",
        AGENT,
        {"type": ("'10'", "ten", "pluginIndex"), "field": ("onRejection", "onRejectoin", "did you mean onRejection?")},
    ),
    "scenario": Format(
        ("replay", "FILE"),
        "s.yaml",
        SCENARIO,
        {
            "type": ("maxPods: 3", "maxPods: three", "kubelet.maxPods"),
            "step": ("remove: w", "removed: w", "steps[1]"),
            "pod": ('"a"', '""', "steps[0].admit.spec.containers[0].name"),
        },
    ),
    "scenario line": Format(
        ("replay", "FILE"),
        "s.jsonl",
        LINE,
        {"type": ('"maxPods": 3', '"maxPods": "3"', "kubelet.maxPods"), "step": ('"remove"', '"removed"', "steps[0]")},
    ),
    "MachineInfo": Format(
        ("plan", "-f", "pod.yaml", "--machine", "FILE"),
        "i.json",
        INFO,
        {
            "type": ('"num_cores": 2', '"num_cores": "2"', "num_cores"),
            "negative": ('"memory_capacity": ', '"memory_capacity": -', "memory_capacity"),
            "missing": ('"num_cores"', '"num_core"', "num_cores"),
            "nested": ('"socket_id": 0', '"socket_id": null', "topology[0].cores[0].socket_id"),
            "nan": ('"num_cores": 2', '"num_cores": NaN', "NaN"),
        },
    ),
    "lscpu": Format(
        ("topology", "--machine", "FILE"),
        "l.json",
        tool_outputs.lscpu_json(TINY),
        {
            "type": ('"core": 1', '"core": "one"', "cpus[1].core"),
            "negative": ('"core": 1', '"core": -1', "cpus[1].core"),
            "twice": ('"cpu": 1', '"cpu": 0', "cpus[1].cpu"),
        },
    ),
    "hwloc": Format(
        ("topology", "--machine", "FILE"),
        "h.xml",
        tool_outputs.lstopo(TINY),
        {
            "type": ('os_index="1"', 'os_index="one"', "object.os_index"),
            "set": ('cpuset="0x00000003"', 'cpuset="3"', "object.cpuset"),
            "version": ('version="2.0"', 'version="1.0"', "topology.version"),
        },
    ),
    "NodeResourceTopology": Format(
        ("topology", "--machine", "FILE"),
        "n.yaml",
        TOPOLOGY,
        {
            "type": ("value: 10", "value: ten", "zones[0].costs[0].value"),
            "quantity": ('"4"', '"four"', "zones[0].resources[0].capacity"),
            "negative": ('"4"', '"-4"', "zones[0].resources[0].capacity"),
            "name": ("node-0\n", "rack\n", "zones[0].name"),
        },
    ),
    "node archive": Format(
        ("plan", "-f", "pod.yaml", "--node", "."),
        "mooring-node.json",
        ABOUT,
        {
            "type": ('"node": "a"', '"node": 5', "node"),
            "nested": ('"name": "machine"', '"name": 5', "parts[0].name"),
            "version": ("v1alpha1", "v9", "apiVersion"),
        },
    ),
}
IN_ALL = ("empty", "binary", "cut", "twice", "deep")
CASES = [
    (name, what)
    for name, one in FORMATS.items()
    for what in (*IN_ALL, *one.breaks)
    if (name, what) != ("scenario line", "twice")  # lines are written by programs, and read faster this way
]


def broken(one: Format, what: str) -> tuple[bytes, str]:
    """Return the broken file, and what the line names."""
    if what in one.breaks:
        text, other, named = one.breaks[what]
        assert text in one.text, "the table is wrong"
        return one.text.replace(text, other, 1).encode(), named
    is_json, is_xml = one.text.startswith("{"), one.text.startswith("<")
    if what == "cut":
        return (one.text[: len(one.text) // 2] if is_json or is_xml else f"{one.text}tail: {{").encode(), "not valid"
    if what == "twice":
        first = '{"same": 1, "same": 2, ' if is_json else "same: 1\nsame: 2\n"
        text = (
            first + one.text.removeprefix("{") if not is_xml else one.text.replace("<object ", "<object type='a' ", 1)
        )
        return text.encode(), "duplicate attribute" if is_xml else "'same'"
    if what == "deep":
        inner = "<a>" * 300 if is_xml else '{"deep": ' + "[" * 20_000 if is_json else f"{one.text}deep: {'[' * 300}"
        return inner.encode(), ""
    return {"empty": b"", "binary": b"\x00\x01\xfe\xff" * 99}[what], ""


@pytest.mark.parametrize(("name", "what"), CASES)
def test_what_is_broken_has_its_place(name: str, what: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "pod.yaml").write_text(POD)
    one = FORMATS[name]
    data, named = broken(one, what)
    (tmp_path / one.file).write_bytes(data)
    answered = mooring(*(one.file if word == "FILE" else word for word in one.command))
    told = answered.complaint
    assert answered.code == 2, told[:2000]
    assert answered.out == ""
    assert len(told) < MESSAGE_CHARS
    assert not re.search(r"regular expression|regex|pattern|Traceback|\n", told)
    place = "(:[0-9]+(:[0-9]+)?)?" if what in ("empty", "binary", "missing") else ":[0-9]+:[0-9]+"
    assert re.match(rf"mooring: (\.: )?{re.escape(one.file)}{place}: ", told), told
    assert named in told


@pytest.mark.parametrize("name", FORMATS)
def test_the_file_that_is_broken_is_whole_before(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one = FORMATS[name]
    if name == "agent":
        return  # it would run
    monkeypatch.chdir(tmp_path)
    (tmp_path / "pod.yaml").write_text(POD)
    (tmp_path / one.file).write_text(one.text)
    told = mooring(*(one.file if word == "FILE" else word for word in one.command)).err
    assert f"mooring: {one.file}" not in told


@pytest.mark.parametrize(
    ("words", "name"),
    [
        (("plan", *SMALL, "-f", "."), "pod.yaml"),
        (("replay", "pipe.jsonl"), "pipe.jsonl"),
        (("replay", "case.yaml"), "case.yaml"),
        (("replay", "."), "recording-1.jsonl"),
        (("replay", "some.jsonl"), "machines.jsonl"),
    ],
)
def test_a_named_pipe_is_refused_and_never_waited_for(
    words: tuple[str, ...], name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    os.mkfifo(name)
    (tmp_path / "some.jsonl").write_text('{"id": "a", "machine": "small-1s8"}\n')
    answered = mooring(*words, code=2)
    assert (
        f"{name}: is a pipe, socket or device; name a file, or pass the content on standard input: -"
        in answered.complaint
    )


@pytest.mark.parametrize("words", [("plan", *SMALL, "-f"), ("replay", "--machines", str(CORPORA / "machines.jsonl"))])
def test_a_pipe_of_the_shell_is_read(words: tuple[str, ...]) -> None:
    content = POD.encode() if words[0] == "plan" else b'{"id":"a","machine":"small-1s8","kubelet":{},"steps":[]}\n'
    read, write = os.pipe()
    os.write(write, content)
    os.close(write)
    try:
        answered = mooring(*words, f"/dev/fd/{read}")
    finally:
        os.close(read)
    assert (answered.code, "mooring: " in answered.err) == (0, False)


MACHINE_OF_KUBEVIRT = """\
apiVersion: kubevirt.io/v1
kind: VirtualMachineInstance
metadata: {name: vm}
spec:
  domain: {memory: {guest: 1Gi}, devices: {filesystems: [{name: NAME}]}}
  volumes: [{name: NAME}]
"""
INSTANCE_TYPES = """\
apiVersion: instancetype.kubevirt.io/v1beta1
kind: VirtualMachineClusterInstancetype
metadata: {name: NAME}
spec: {cpu: {guest: 2}, memory: {guest: 1Gi}}
---
apiVersion: kubevirt.io/v1
kind: VirtualMachine
metadata: {name: vm}
spec: {instancetype: {name: NAME}, template: {spec: {domain: {}}}}
"""


@pytest.mark.parametrize("value", ["true", "5", "[a]", "{a: b}"])
@pytest.mark.parametrize(
    ("option", "text"),
    [
        ("-f", POD.replace("name: app", "name: VALUE")),
        ("-f", POD.replace("[{name: app}]", "VALUE")),
        ("-f", POD.replace("name: app", "name: app, args: VALUE, command: VALUE, env: VALUE")),
        ("-f", MACHINE_OF_KUBEVIRT.replace("NAME", "VALUE")),
        ("-f", INSTANCE_TYPES.replace("NAME", "VALUE")),
        ("--machine", TOPOLOGY.replace("kind: NodeResourceTopology", "kind: VALUE")),
        ("--machine", "kind: List\nitems: [{kind: VALUE}]\n"),
    ],
)
def test_a_value_of_any_other_type_is_never_a_defect(option: str, text: str, value: str, tmp_path: Path) -> None:
    (tmp_path / "file.yaml").write_text(text.replace("VALUE", value))
    given = {"--machine": SMALL[1], "-f": str(tmp_path / "pod.yaml"), option: str(tmp_path / "file.yaml")}
    (tmp_path / "pod.yaml").write_text(POD)
    answered = mooring("plan", *(word for pair in given.items() for word in pair))
    assert (answered.code in (0, 2), "internal error" in answered.err) == (True, False), answered.err
