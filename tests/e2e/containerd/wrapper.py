"""An OCI runtime that plays a large machine on a small one: it writes down the cpuset that was asked for and gives runc
one that the machine has.

Run as a program by containerd, with the paths filled in by :func:`write_wrapper`.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

_PROGRAM = """#!{python} -ISE
import json, os, sys
RUNC, LOG, CPUS, MEMS = {runc!r}, {log!r}, {cpus!r}, {mems!r}

def tell(verb, ident, cpu):
    line = json.dumps({{"verb": verb, "id": ident, "cpus": cpu.get("cpus", ""), "mems": cpu.get("mems", "")}})
    log = os.open(LOG, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    os.write(log, line.encode() + b"\\n")
    os.close(log)

def real(cpu):
    if cpu.get("cpus"):
        cpu["cpus"] = CPUS
    if cpu.get("mems"):
        cpu["mems"] = MEMS

words = sys.argv[1:]
if "create" in words:
    path = os.path.join(words[words.index("--bundle") + 1], "config.json")
    with open(path) as file:
        config = json.load(file)
    cpu = config.get("linux", {{}}).get("resources", {{}}).get("cpu") or {{}}
    tell("create", words[-1], cpu)
    real(cpu)
    with open(path, "w") as file:
        json.dump(config, file)
elif "update" in words:
    wanted = json.load(sys.stdin)
    cpu = wanted.get("cpu") or {{}}
    tell("update", words[-1], cpu)
    real(cpu)
    read, write = os.pipe()
    os.write(write, json.dumps(wanted).encode())
    os.close(write)
    os.dup2(read, 0)
os.execv(RUNC, [RUNC, *words])
"""


@dataclass(frozen=True, slots=True)
class Asked:
    """What containerd asked of its OCI runtime for a container."""

    verb: str
    id: str
    cpus: str
    mems: str


def write_wrapper(folder: Path, runc: Path, *, python: Path, cpus: str, mems: str) -> Path:
    """Write the program and return its path; what it writes down is read with :func:`asked`.

    Args:
        folder: gets the program and its log.
        runc: the real one.
        python: the interpreter for the program.
        cpus: what every cpuset becomes.
        mems: what every set of memory nodes becomes.
    """
    program = folder / "wrapped-runc"
    values = {"python": python, "runc": str(runc), "log": str(folder / "asked.jsonl"), "cpus": cpus, "mems": mems}
    program.write_text(_PROGRAM.format(**values), encoding="utf-8")
    program.chmod(0o755)
    return program


def asked(folder: Path) -> list[Asked]:
    """Return everything that was asked so far, in order."""
    log = folder / "asked.jsonl"
    lines = log.read_text(encoding="utf-8").splitlines() if log.exists() else []
    return [Asked(**json.loads(line)) for line in lines]
