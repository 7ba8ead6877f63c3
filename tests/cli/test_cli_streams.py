"""Real processes and real streams: pipes that close, disks that are full, terminals, signals, imports."""

from __future__ import annotations

import gzip
import json
import os
import pty
import select
import shlex
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from tests.cli.command import CORPORA, EXAMPLES, EXECUTED, NODE, PODS, SMALL, mooring
from tests.cli.given import ALIGNED, given, pod

COMMAND = (sys.executable, "-W", "error", "-m", "mooring")
IMPATIENT, PATIENT = (
    (
        sys.executable,
        "-c",
        f"from mooring.cli import terminal as t; from mooring.command import main; t.PATIENCE = {seconds}; main.main()",
    )
    for seconds in (0, 10**6)
)
"""The command with a bar that appears at once, and with one that never does."""
ENVIRONMENT = {**os.environ, "COLUMNS": "100", "TERM": "xterm-256color", "PYTHONUNBUFFERED": ""}
LONG = CORPORA / "merge.jsonl.gz"
NEEDS_FULL = pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no /dev/full")


def started(*arguments: str | Path, **streams: int) -> subprocess.Popen[bytes]:
    command = [*COMMAND, *map(str, arguments)]
    return subprocess.Popen(command, env=ENVIRONMENT, stdout=streams.get("stdout"), stderr=streams.get("stderr"))


def finished(
    *arguments: str | Path, command: Sequence[str] = COMMAND, **environment: str
) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        [*command, *map(str, arguments)],
        env={**ENVIRONMENT, **environment},
        capture_output=True,
        check=False,
        stdin=subprocess.DEVNULL,
    )


def test_a_reader_that_goes_away_is_no_error() -> None:
    process = started("replay", LONG, "-o", "jsonl", stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdout is not None
    assert json.loads(process.stdout.readline())["id"] == "merge-00000"
    process.stdout.close()
    assert process.wait() == 141
    assert process.stderr is not None
    assert process.stderr.read() == b""
    process.stderr.close()


@pytest.mark.long
@pytest.mark.parametrize("command", [("plan", *PODS, *NODE, "-o", "json"), ("--help",), ("topology", *NODE[:2])])
def test_a_pipe_that_nobody_reads_has_its_own_exit_code(command: tuple[str, ...]) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    process = started(*command, stdout=writing, stderr=subprocess.PIPE)
    os.close(writing)
    _, err = process.communicate()
    assert (process.returncode, err) == (141, b"")


@pytest.mark.long
@NEEDS_FULL
@pytest.mark.parametrize(
    ("command", "where"),
    [
        (("topology", *SMALL), b"standard output"),
        (("--help",), b"standard output"),
        (("plan", "--help"), b"standard output"),
        (("--version",), b"standard output"),
        (("topology", *SMALL, "--to", "/dev/full"), b"/dev/full: --to"),
    ],
)
def test_a_full_disk_is_reported(command: tuple[str, ...], where: bytes) -> None:
    with Path("/dev/full").open("wb") as full:
        process = started(*command, stdout=full.fileno(), stderr=subprocess.PIPE)
        _, err = process.communicate()
    assert process.returncode == 2
    assert err.startswith(b"mooring: " + where + b": ")
    assert b"cannot be written: no space left on device; " in err
    assert err.count(b"\n") == 1


def test_closed_standard_output_is_reported() -> None:
    script = f"exec {' '.join(COMMAND)} topology --machine small-1s8 >&-"
    done = subprocess.run(["/bin/sh", "-c", script], env=ENVIRONMENT, capture_output=True, check=False)
    assert done.returncode == 2
    assert done.stderr == b"mooring: standard output: is closed; redirect it to a file\n"


@pytest.mark.long
@pytest.mark.parametrize("redirected", [pytest.param("2>/dev/full", marks=NEEDS_FULL), "2>&-", "2</dev/null"])
@pytest.mark.parametrize(("verb", "code"), [(("plan", *PODS, *SMALL), 1), (("plan", "-f", "missing.yaml"), 2), ((), 2)])
def test_an_answer_outlives_a_full_standard_error(verb: Sequence[str], code: int, redirected: str) -> None:
    whole = finished(*verb)
    assert (whole.returncode, whole.stderr != b"") == (code, True)
    script = f"exec {shlex.join([*COMMAND, *verb])} {redirected}"
    done = subprocess.run(["/bin/sh", "-c", script], env=ENVIRONMENT, stdout=subprocess.PIPE, check=False)
    assert (done.returncode, done.stdout) == (code, whole.stdout)


@pytest.mark.long
def test_an_answer_outlives_the_reader_of_standard_error() -> None:
    whole = finished("plan", *PODS, *SMALL)
    reading, writing = os.pipe()
    os.close(reading)
    process = started("plan", *PODS, *SMALL, stdout=subprocess.PIPE, stderr=writing)
    os.close(writing)
    out, _ = process.communicate()
    assert (process.returncode, out) == (whole.returncode, whole.stdout)


def test_devices_stay_devices() -> None:
    done = finished("topology", *SMALL, "--to", os.devnull)
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")
    assert not Path(os.devnull).is_file()


def on_terminal(
    arguments: Sequence[str | Path], *, command: Sequence[str] = COMMAND, out: int | None = None, **environment: str
) -> tuple[int, bytes]:
    """Run with a terminal as standard error, and as standard output unless ``out`` is another one."""
    mine, theirs = pty.openpty()
    process = subprocess.Popen(
        [*command, *map(str, arguments)],
        env={**ENVIRONMENT, **environment},
        stdin=subprocess.DEVNULL,
        stdout=theirs if out is None else out,
        stderr=theirs,
    )
    os.close(theirs)
    shown = b""
    while True:
        readable, _, _ = select.select([mine], [], [], 60)
        try:
            data = os.read(mine, 65536) if readable else b""
        except OSError:  # the other end is closed
            data = b""
        if not data:
            break
        shown += data
    os.close(mine)
    return process.wait(), shown


@pytest.mark.long
def test_a_terminal_gets_colours_unless_they_are_not_wanted() -> None:
    command = ("plan", *PODS, *NODE)
    code, coloured = on_terminal(command)
    assert code == 1
    assert b"\x1b[1m" in coloured
    _, plain = on_terminal(command, NO_COLOR="1")
    assert b"\x1b" not in plain
    assert plain.replace(b"\r\n", b"\n") == finished(*command).stdout


@pytest.mark.long
def test_a_bar_shows_the_progress_and_leaves_the_answers_alone(tmp_path: Path) -> None:
    with (tmp_path / "answers").open("wb") as file:
        code, shown = on_terminal(("replay", LONG, "-o", "jsonl"), command=IMPATIENT, out=file.fileno())
    assert code == 0
    assert b"merge.jsonl.gz" in shown
    assert b"/5000" in shown
    answers = (tmp_path / "answers").read_bytes()
    assert b"\x1b" not in answers
    assert len(answers.splitlines()) == 5000


@pytest.mark.long
def test_lines_are_printed_above_the_bar(tmp_path: Path) -> None:
    with gzip.open(LONG, "rt") as file:
        merges = [json.loads(next(file)) for _ in range(30)]
    merges[-1]["result"]["numa"] = [99]
    (tmp_path / "wrong.jsonl").write_text("".join(f"{json.dumps(merge)}\n" for merge in merges))
    code, shown = on_terminal(("replay", tmp_path / "wrong.jsonl", "--check"), command=IMPATIENT)
    assert code == 1
    assert b"merge-00029: result.numa: recorded [99], answered null\r\n" in shown
    assert shown.endswith(b"wrong.jsonl: 30 scenarios, 29 agree, 1 differ, 0 not supported\r\n")


@pytest.mark.long
def test_short_runs_have_no_bar() -> None:
    code, shown = on_terminal(("replay", CORPORA / "real-kubelet.jsonl.gz", "--check"), command=PATIENT)
    assert (code, b"\x1b" in shown) == (0, False)
    assert shown.endswith(b"12 scenarios, 12 agree, 0 differ, 0 not supported\r\n")


@pytest.mark.long
def test_nobody_watches_a_pipe() -> None:
    done = finished("replay", CORPORA / "real-kubelet.jsonl.gz", "--check", command=IMPATIENT)
    assert (done.returncode, done.stderr) == (0, b"")


def test_an_interrupt_ends_it_quietly() -> None:
    process = started("replay", *[LONG] * 50, "-o", "jsonl", stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdout is not None
    process.stdout.readline()
    process.send_signal(signal.SIGINT)
    _, err = process.communicate()
    assert (process.returncode, err) == (130, b"\n")


@pytest.mark.long
@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "utf-8"])
def test_any_encoding_of_the_terminal_will_do(encoding: str) -> None:
    for command in (("plan", *PODS, *NODE), ("show", *SMALL), ("topology", *SMALL)):
        done = finished(*command, PYTHONIOENCODING=encoding)
        assert done.returncode in (0, 1)
        assert done.stderr == b""
        done.stdout.decode(encoding)


@pytest.mark.long
def test_documents_are_utf_8_whatever_the_terminal() -> None:
    done = finished("plan", "-f", EXAMPLES / "pods.yaml", *NODE, "-o", "json", PYTHONIOENCODING="ascii")
    assert "“" not in done.stdout.decode("utf-8")
    assert json.loads(done.stdout)["kind"] == "Plan"
    assert " · " in finished("show", *SMALL, "-o", "svg", PYTHONIOENCODING="ascii").stdout.decode("utf-8")


@pytest.mark.long
def test_names_that_are_not_utf_8_can_be_reported(tmp_path: Path) -> None:
    lines = (CORPORA / "machines.jsonl").read_bytes().splitlines()
    described = json.loads(lines[0])["info"]
    path = os.fsencode(tmp_path) + b"/m\xff.json"
    Path(os.fsdecode(path)).write_bytes(json.dumps(described).encode())
    for form in ("json", "yaml", "text"):
        done = finished("topology", "--machine", os.fsdecode(path), "-o", form)
        assert (done.returncode, done.stderr) == (0, b"")
        done.stdout.decode("utf-8")
    missing = finished("plan", "-f", os.fsdecode(path + b".yaml"))
    assert missing.returncode == 2
    assert rb"m\udcff.json.yaml: cannot be read: no such file" in missing.stderr


ENGINE = ("mooring.engine.node", "mooring.engine.cpumanager", "mooring.answers.base.plan")
NEVER = {"asyncio", "grpc", "importlib.metadata", "jsonschema", "ssl", "h11", "mooring.agent", "mooring.service.http"}
IMPORTS = [
    (("--version",), ("rich", "yaml", "msgspec", "mooring.engine.core", *ENGINE)),
    (("--help",), ("rich", "yaml", "msgspec", "mooring.engine.core", "mooring.inputs.machines", *ENGINE)),
    (("plan", "--help"), ("rich", "yaml", "msgspec", "mooring.inputs.machines", *ENGINE)),
    (("replay", "--help"), ("rich", "yaml", "mooring.inputs.machines", *ENGINE)),
    (("topology", *SMALL, "-o", "json"), ("rich", "yaml", "mooring.views", "mooring.inputs.pods", *ENGINE)),
    (("topology", *SMALL, "-o", "machineinfo"), ("rich", "yaml", "mooring.views", "mooring.inputs.pods", *ENGINE)),
    (("topology", *SMALL, "-o", "yaml"), ("rich", "mooring.views", *ENGINE)),
    (("topology", *SMALL), ("yaml", *ENGINE)),
    (("plan", *PODS, *NODE), ()),
    (("plan", *PODS, *NODE, "-o", "json"), ("rich", "svg")),
    (("show", *SMALL, "-o", "svg"), ("yaml",)),
]


@pytest.mark.parametrize(("command", "unwanted"), IMPORTS, ids=[" ".join(command)[:40] for command, _ in IMPORTS])
def test_a_verb_loads_only_what_it_needs(command: tuple[str, ...], unwanted: tuple[str, ...]) -> None:
    script = (
        "import sys; from mooring.command.main import run; import os\n"
        f"sys.stdout = open(os.devnull, 'w'); run(sys.argv[1:])\n{EXECUTED}"
        "print('\\n'.join(executed), file=sys.stderr)"
    )
    done = finished(*command, command=(sys.executable, "-c", script))
    assert done.returncode == 0
    assert set(done.stderr.decode().split()) & {*NEVER, *unwanted} == set()


def test_importing_mooring_loads_nothing_of_it() -> None:
    script = "import sys, mooring; print([name for name in sys.modules if name.startswith('mooring.')])"
    assert finished(command=(sys.executable, "-c", script)).stdout.strip() == b"[]"


def test_many_warnings_with_one_message_are_one_line(tmp_path: Path) -> None:
    memory = {"memoryManagerPolicy": "Static", "reservedMemory": [{"numaNode": 0, "limits": {"memory": "100Mi"}}]}
    pods = [pod(f"p{number}", 1, limits={"hugepages-1Gi": "1Gi"}) for number in range(8)]
    asked = given(tmp_path, *pods, machine="cores=16 memory=32Gi", kubelet=ALIGNED | memory)
    told = mooring("plan", *asked).err.splitlines()
    assert [line.count("hugepages-1Gi") > 0 and line.split(": ")[1] for line in told] == [
        "default/p0 and 7 more (-o json lists them)"
    ]
    found = mooring("plan", *asked, "-o", "json").document["findings"]
    assert len({one["subject"] for one in found}) >= 8
