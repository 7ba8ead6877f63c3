"""Every format of file: what is broken is told in one line with file, line, column and field, and with exit code 2."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest
import yaml
from tests.cli.command import CORPORA, SMALL, mooring, typed
from tests.discovery.tool_outputs import lscpu_json, lstopo

from mooring.inputs.machines.compact import parse_compact
from mooring.inputs.machines.machineinfo_json import machine_info_json

POD = "apiVersion: v1\nkind: Pod\nmetadata: {name: web}\nspec: {containers: [{name: app}]}\n"
TINY = parse_compact("sockets=1 cores=2")
MESSAGE_CHARS = 500
"""Characters that a line may have besides the name of its folder."""


FORMATS = {one["name"]: one for one in yaml.safe_load(Path(__file__).with_name("broken-files.yaml").read_text("utf-8"))}
MADE = {"MachineInfo": machine_info_json(TINY.info), "lscpu": lscpu_json(TINY), "hwloc": lstopo(TINY)}
"""Files that another tool makes."""
IN_ALL = ("empty", "binary", "cut", "twice", "deep")
CASES = [
    (name, what)
    for name, one in FORMATS.items()
    for what in (*IN_ALL, *one["breaks"])
    if (name, what) != ("scenario line", "twice")  # lines are written by programs, and read faster this way
]


def whole(name: str) -> str:
    """Return the valid file of a format."""
    return str(FORMATS[name].get("text") or MADE[name])


def broken(name: str, what: str) -> tuple[bytes, str]:
    """Return the broken file, and what the line names."""
    valid, breaks = whole(name), FORMATS[name]["breaks"]
    if what in breaks:
        text, other, named = breaks[what]
        assert text in valid, "the table is wrong"
        other = other.replace("LONG", "x" * 10_000_000).replace("NINES", "9" * 400)
        return valid.replace(text, other, 1).encode(), named
    is_json, is_xml = valid.startswith("{"), valid.startswith("<")
    if what == "cut":
        return (valid[: len(valid) // 2] if is_json or is_xml else f"{valid}tail: {{").encode(), "not valid"
    if what == "twice":
        first = '{"same": 1, "same": 2, ' if is_json else "same: 1\nsame: 2\n"
        text = first + valid.removeprefix("{") if not is_xml else valid.replace("<object ", "<object type='a' ", 1)
        return text.encode(), "duplicate attribute" if is_xml else "'same'"
    if what == "deep":
        inner = "<a>" * 300 if is_xml else '{"deep": ' + "[" * 20_000 if is_json else f"{valid}deep: {'[' * 300}"
        return inner.encode(), ""
    return {"empty": b"", "binary": b"\x00\x01\xfe\xff" * 99}[what], ""


@pytest.mark.parametrize(("name", "what"), CASES)
def test_what_is_broken_has_its_place(name: str, what: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "pod.yaml").write_text(POD)
    file = FORMATS[name]["file"]
    data, named = broken(name, what)
    (tmp_path / file).write_bytes(data)
    answered = mooring(*typed(FORMATS[name]["asked"].replace("FILE", file)))
    told = answered.complaint
    assert answered.code == 2, told[:2000]
    assert answered.out == ""
    assert len(told) < MESSAGE_CHARS
    assert not re.search(r"regular expression|regex|pattern|Traceback|\n", told)
    place = "(:[0-9]+(:[0-9]+)?)?" if what in ("empty", "binary", "missing") else ":[0-9]+:[0-9]+"
    assert re.match(rf"mooring: (\.: )?{re.escape(file)}{place}: ", told), told
    assert named in told


@pytest.mark.parametrize("name", FORMATS)
def test_the_file_that_is_broken_is_whole_before(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = FORMATS[name]["file"]
    if name == "agent":
        return  # it would run
    monkeypatch.chdir(tmp_path)
    (tmp_path / "pod.yaml").write_text(POD)
    (tmp_path / file).write_text(whole(name))
    assert f"mooring: {file}" not in mooring(*typed(FORMATS[name]["asked"].replace("FILE", file))).err


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
        ("--machine", whole("NodeResourceTopology").replace("kind: NodeResourceTopology", "kind: VALUE")),
        ("--machine", "kind: List\nitems: [{kind: VALUE}]\n"),
    ],
)
def test_a_value_of_any_other_type_is_never_a_defect(option: str, text: str, value: str, tmp_path: Path) -> None:
    (tmp_path / "file.yaml").write_text(text.replace("VALUE", value))
    given = {"--machine": SMALL[1], "-f": str(tmp_path / "pod.yaml"), option: str(tmp_path / "file.yaml")}
    (tmp_path / "pod.yaml").write_text(POD)
    answered = mooring("plan", *(word for pair in given.items() for word in pair))
    assert (answered.code in (0, 2), "internal error" in answered.err) == (True, False), answered.err
