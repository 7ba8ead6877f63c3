"""Booting the guest and reading what it says."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

from tests.e2e.guest.inside import MARK

SCRIPTS = Path(__file__).resolve().parents[3] / "scripts"
INSIDE = Path(__file__).resolve().parent
SECONDS = 600
"""A boot with all steps takes about two minutes of one core; others may be on the machine."""
NODES = 8
CPUS_OF_NODE = 8


@dataclass(frozen=True)
class Boot:
    """What a guest said before it powered off, or was ended."""

    results: Mapping[str, Mapping[str, Any]]
    """By name of the step."""
    console: str
    ended: bool
    """Whether it powered off by itself."""


def e2e_guest() -> Any:
    """Return the script that makes the guest, as a module."""
    if str(SCRIPTS) not in sys.path:
        sys.path.append(str(SCRIPTS))
    return import_module("e2e_guest")


def boot(guest: Any, image: bytes) -> Boot:
    """Run one guest to its end."""
    folder = Path(tempfile.mkdtemp(prefix="mooring-guest-"))
    try:
        initrd = folder / "initrd"
        initrd.write_bytes(image)
        console = folder / "console"
        with console.open("wb") as out, (folder / "qemu").open("wb") as errors:
            process = subprocess.Popen(command(guest, initrd), stdin=subprocess.DEVNULL, stdout=out, stderr=errors)
            try:
                process.wait(SECONDS)
                ended = True
            except subprocess.TimeoutExpired:
                ended = False
            finally:
                process.kill()
                process.wait()
        text = console.read_text(encoding="utf-8", errors="replace").replace("\r", "")
        if not text.strip():
            text = (folder / "qemu").read_text(encoding="utf-8", errors="replace")
        return Boot(dict(read_results(text)), text, ended)
    finally:
        shutil.rmtree(folder)


def command(guest: Any, initrd: Path) -> Sequence[str]:
    """Return the command line of QEMU: 2 sockets, 64 CPUs, 8 NUMA nodes with distances, emulated by one thread.

    KVM is not asked for: a guest of an unmodified kernel does not run on every machine that offers it.
    """
    devices = ["-nodefaults", "-no-user-config", "-display", "none", "-no-reboot", "-serial", "stdio"]
    machine = ["-machine", "q35", "-accel", "tcg,thread=single", "-cpu", "Icelake-Server", "-m", "2G"]
    processors = ["-smp", f"{NODES * CPUS_OF_NODE},sockets=2,cores=16,threads=2"]
    kernel = ["-kernel", str(guest.kernel), "-initrd", str(initrd)]
    words = "console=ttyS0 quiet loglevel=1 panic=-1"
    return [guest.qemu, *devices, *machine, *processors, *_numa(), *kernel, "-append", words]


def _numa() -> Iterator[str]:
    for node in range(NODES):
        yield from ("-object", f"memory-backend-ram,id=m{node},size=256M")
        first = node * CPUS_OF_NODE
        yield from ("-numa", f"node,nodeid={node},cpus={first}-{first + CPUS_OF_NODE - 1},memdev=m{node}")
    for one in range(NODES):
        for other in range(NODES):
            if one != other:
                near = one // (NODES // 2) == other // (NODES // 2)
                yield from ("-numa", f"dist,src={one},dst={other},val={12 if near else 32}")


def read_results(console: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield name and result of the steps that a console shows; a line that was cut is none."""
    for line in console.splitlines():
        _, found, text = line.partition(MARK)
        if found:
            try:
                result = json.loads(text)
            except json.JSONDecodeError:
                continue
            yield result["step"], result
