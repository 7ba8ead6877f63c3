"""Run a built executable as a node without Python would: away from the clone, without PATH, in an empty home folder.

    python scripts/release/try_executable.py EXECUTABLE...

Prints a line for each: size, and the processor time of the fastest of five starts. Exit code 1: an answer was wrong.
"""

from __future__ import annotations

import json
import os
import re
import resource
import subprocess
import sys
import tempfile
from pathlib import Path

from mooring import __version__

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
STARTS = 5


class WrongAnswerError(Exception):
    """What the program printed is not what it should have; the text has both."""


def answer(program: Path, *words: str, code: int = 0, home: Path) -> str:
    """Return the output of a command line; raises :class:`WrongAnswerError` when the exit code is another one."""
    environment = {"HOME": str(home), "TMPDIR": str(home)}
    done = subprocess.run(  # noqa: S603 - the program that was built
        [program, *words], cwd=home, env=environment, capture_output=True, text=True, check=False
    )
    if done.returncode != code:
        raise WrongAnswerError(f"{' '.join(words)}: exit code {done.returncode}, not {code}: {done.stderr.strip()}")
    return done.stdout + done.stderr


def expect(text: str, found: str) -> None:
    """Raise :class:`WrongAnswerError` unless a text is in an answer."""
    if text not in found:
        raise WrongAnswerError(f"{text!r} is not in {found!r:.300}")


def try_program(program: Path, home: Path) -> None:
    """Ask what a node asks: a picture, a real plan, an archive, the verbs of each extra."""
    expect(f"mooring {__version__} ", answer(program, "--version", home=home))
    extras = json.loads(answer(program, "version", "-o", "json", home=home))["extras"]
    if {name for name, there in extras.items() if not there} != {"fleet"}:
        raise WrongAnswerError(f"all extras but fleet should be there: {extras}")
    node = str(home / "node.tar.gz")
    expect("Ask about it", answer(program, "collect", "--to", node, home=home))
    answer(program, "show", "--node", node, "-o", "svg", home=home)
    plan: tuple[str, ...] = ("plan", "-f", str(EXAMPLES / "pods.yaml"), "--machine", "epyc-7763-2s-nps4")
    plan = (*plan, "--config", str(EXAMPLES / "kubelet.yaml"), "-o", "json")
    reasons = {pod["reason"] for pod in json.loads(answer(program, *plan, code=1, home=home))["pods"]}
    if "TopologyAffinityError" not in reasons:
        raise WrongAnswerError(f"no pod is rejected with TopologyAffinityError: {reasons}")
    answer(program, *plan[:-1], "html", "--to", str(home / "plan.html"), code=1, home=home)
    for verb in ("agent", "dra", "extender", "publish"):
        expect(f"Usage: mooring {verb}", answer(program, verb, "--help", home=home))
    # Each imports what its extra installs before it fails.
    for words in (("agent", "--config", "none.yaml"), ("dra", "--agent", "none.sock", "--kubeconfig", "none")):
        line = answer(program, *words, code=2, home=home)
        if ("is missing" in line and "the package" in line) or "Traceback" in line:
            raise WrongAnswerError(line)
    pods = ["--cluster", str(EXAMPLES / "fleet" / "cluster.yaml"), "-f", str(EXAMPLES / "fleet" / "day.yaml")]
    expect("kube-mooring[fleet]", answer(program, "fleet", "simulate", *pods, code=2, home=home))
    plugin = home / "kubectl-mooring"
    plugin.symlink_to(program)
    expect("Usage: kubectl mooring plan", answer(plugin, "plan", "--help", home=home))
    completion = home / "kubectl_complete-mooring"
    completion.symlink_to(program)
    expect("plan\t", answer(completion, "pl", home=home))


def start_seconds(program: Path, home: Path) -> float:
    """Return the processor time of ``--version``, the least of :data:`STARTS`."""
    times = []
    for _ in range(STARTS):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        answer(program, "--version", home=home)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        times.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    return min(times)


def needed_glibc(folder: Path) -> str:
    """Return the newest version of glibc that a file of the folder asks for, as its symbols say."""
    files = [path for path in folder.rglob("*") if path.is_file() and path.read_bytes()[:4] == b"\x7fELF"]
    listed = subprocess.run(["readelf", "-VW", *files], capture_output=True, text=True, check=True)  # noqa: S603, S607 - binutils
    versions = {tuple(map(int, found.split("."))) for found in re.findall(r"GLIBC_(\d+\.\d+)", listed.stdout)}
    return ".".join(map(str, max(versions)))


def main(programs: list[Path]) -> int:
    """Try each program."""
    for program in programs:
        with tempfile.TemporaryDirectory() as home:
            try:
                try_program(program, Path(home))
            except WrongAnswerError as error:
                print(f"{program.name}: {error}", file=sys.stderr)
                return 1
            seconds = start_seconds(program, Path(home))
        beside = program.parent / "_internal"
        size = sum(os.lstat(path).st_size for path in [program, *beside.rglob("*")])
        needs = f", needs glibc {needed_glibc(program.parent)}" if beside.is_dir() else ""
        print(f"{program}: {size / 1e6:.1f} MB, starts in {seconds * 1000:.0f} ms of processor time{needs}")
    return 0


if __name__ == "__main__":
    sys.exit(main([Path(word).absolute() for word in sys.argv[1:]]))
