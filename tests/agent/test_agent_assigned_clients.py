"""The example clients of the protocol, each on files as the agent writes them."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from tests.agent.sets import assigned
from tests.patience import until

from mooring.agent.effects import WriteAssigned
from mooring.agent.executor import AssignedFiles
from mooring.engine.core.cpuset import CPUSet

EXAMPLES = Path(__file__).parents[2] / "examples" / "assigned"
HERE = sorted(os.sched_getaffinity(0))
CLIENTS = ("python", "c", "shell")


@pytest.fixture
def files(tmp_path: Path) -> AssignedFiles:
    return AssignedFiles(tmp_path / "assigned")


def tell(files: AssignedFiles, *cpus: int) -> str:
    text = str(CPUSet.of(*cpus))
    assert files.do(WriteAssigned("c1", assigned(text), makes=True)) == ""
    return text


@pytest.fixture
def sleeper() -> Iterator[subprocess.Popen[bytes]]:
    # It ends with its input: at the end of the test, and with the tests themselves whatever becomes of them.
    with subprocess.Popen([sys.executable, "-c", "import sys; sys.stdin.read()"], stdin=subprocess.PIPE) as made:
        yield made


def words(client: str, folder: Path, scratch: Path, sleeper: int) -> list[str]:
    if client == "python":
        return [sys.executable, str(EXAMPLES / "follow.py"), str(folder)]
    if client == "shell":
        if shutil.which("taskset") is None:
            pytest.skip("no taskset")
        return ["sh", str(EXAMPLES / "follow.sh"), str(sleeper), str(folder)]
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("no compiler")
    program = scratch / "follow"
    flags = ["-O2", "-Wall", "-Wextra", "-Werror", "-o"]
    subprocess.run([compiler, *flags, str(program), str(EXAMPLES / "follow.c")], check=True)
    return [str(program), str(folder)]


@pytest.mark.skipif(len(HERE) < 2, reason="one CPU cannot be lost")
@pytest.mark.parametrize("client", CLIENTS)
def test_a_client_follows_every_change_of_its_cpus(
    files: AssignedFiles, tmp_path: Path, sleeper: subprocess.Popen[bytes], client: str
) -> None:
    one, other = HERE[:2]
    tell(files, one)
    command = words(client, files.folder / "c1", tmp_path, sleeper.pid)
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as follows:
        assert follows.stdout is not None
        pinned = sleeper.pid if client == "shell" else follows.pid
        try:
            assert follows.stdout.readline() == f"CPUs: {one}\n"
            for cpus in ((one, other), (other,)):
                tell(files, *cpus)
                said = follows.stdout.readline()
                assert CPUSet.parse(said.removeprefix("CPUs: ").strip()) == CPUSet.of(*cpus)
            # A thread that the program has waited for may be there for a moment longer.
            until(lambda: _pinned(pinned, client) == {other}, f"it runs on CPU {other}")
            tell(files)
            assert follows.stdout.readline() == "CPUs: those of everybody\n"
        finally:
            follows.kill()


def _pinned(pid: int, client: str) -> set[int]:
    """Return the CPUs of a process; of the Python client those of its threads beside the first."""
    if client != "python":
        return os.sched_getaffinity(pid)
    found: set[int] = set()
    for task in Path(f"/proc/{pid}/task").iterdir():
        if int(task.name) != pid:
            with suppress(ProcessLookupError):
                found |= os.sched_getaffinity(int(task.name))
    return found
