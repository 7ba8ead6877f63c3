"""Running a scenario inside a guest of any shape, and reading what it reports. For new scenarios this is all there is:

1. Write ``tests/e2e/guest/NAME.py``, imported in the guest as ``tests.e2e.guest.NAME``. It runs there as root, alone on
   a kernel with cgroup v2, with Mooring, the folders ``tests/e2e/guest`` and ``tests/e2e/containerd``, and no network,
   no pytest. Functions called ``step_...`` are its steps; they run in the order of the file and return what is worth
   telling. A step that raises has failed, and the next one runs. :mod:`tests.e2e.guest.report` runs them: its
   ``tell(kind, ...)`` reports more than a step's result, ``values()`` is what the host has handed over.
2. On the host, :func:`run` boots a guest for it: ``ran = run("NAME", Shape(sockets=1, cores=8, threads=2, nodes=2))``.
   ``ran.steps`` has the results by name, ``ran.told(kind)`` the documents of a kind, ``ran.console`` what kernel and
   programs said. Every line arrives at once, so that a guest that hangs has told how far it came.
3. With ``containers=True`` the guest has containerd, runc and an image (``sh``, ``sleep``, ``cat`` and so on);
   :class:`tests.e2e.guest.node.Node` starts containerd and the agent, runs pods as the kubelet does and looks at
   containers as the kernel sees them (:mod:`tests.e2e.guest.sight`). ``Node.create(..., mounts=...)`` lets a container
   read folders of the guest.
4. A test parametrised over :func:`steps_of` shows each step by its name; see ``test_e2e_guest.py``.

Environment of the host:

* ``MOORING_E2E_NUMA``: nothing boots unless it is set. ``full`` lets the scenarios run at their full size.
* ``MOORING_E2E_NUMA_EDITIONS``: one or more of ``own``, ``newer`` and ``newest``: kernel and QEMU of the machine's
  Debian or of its backports, or the kernel of Debian's unstable suite with the latter.
* ``MOORING_E2E_NUMA_KEEP``: a folder to which console and reports of the last guest are copied.
* ``MOORING_E2E_NUMA_ACCEL``: ``tcg``, ``kvm`` or ``auto`` (default). ``auto`` takes KVM when ``/dev/kvm`` can be opened
  and a guest with it comes up, else TCG. An emulated guest of 64 CPUs is ten to fifty times slower: steps must wait
  for what they expect, with long patience, and measure no time.

In an emulated guest one thread of the host is all CPUs in turn. Starting a program costs 10 to 50 ms and one in Go
several times that, so that the fewer processes a scenario starts, the better.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from tests.e2e.containerd.images import BUSYBOX, write_image
from tests.e2e.guest.report import IMAGE, OVERLAY, VALUES_FILE, read_lines

ROOT = Path(__file__).resolve().parents[3]
DEVICES = "tests/agent/devices/made_up_podresources.py"
MODULES = (
    *("tests/patience.py", "tests/agent/small_node.py", "tests/node/nodes.py", "tests/service/message_tables.py"),
    DEVICES,
)
"""Modules beside the folders that they need."""
FOLDERS = tuple((name, ROOT / name) for name in ("tests/e2e/guest", "tests/e2e/containerd"))
ACCELERATOR = "MOORING_E2E_NUMA_ACCEL"
KVM = Path("/dev/kvm")
CPU_MODEL = "Nehalem"
"""Of an emulated guest. Newer ones have wide vectors, which libraries use and which are slow to emulate."""
KVM_SECONDS = 20
"""Seconds within which a guest on KVM comes up; it takes one where KVM works."""


@dataclass(frozen=True, slots=True)
class Shape:
    """A machine. CPUs are numbered with the threads of a core together, and nodes are as large as one another."""

    sockets: int = 2
    cores: int = 16
    """In each socket."""
    threads: int = 2
    nodes: int = 8
    node_memory: int = 256
    """MiB."""
    devices: bool = False
    """Whether each NUMA node has a PCIe root of its own with a display controller and a network card."""

    @property
    def cpus(self) -> int:
        return self.sockets * self.cores * self.threads


BIG = Shape()
"""64 CPUs on 8 NUMA nodes."""


@dataclass(frozen=True, slots=True)
class Ran:
    """What a guest said before it powered off, or was ended."""

    lines: Sequence[Mapping[str, Any]]
    """Everything that the scenario reported, in order."""
    console: str
    ended: bool
    """Whether it powered off by itself, with the scenario's exit code 0."""
    steps: Mapping[str, Mapping[str, Any]] = field(init=False)
    """Results by name of the step: ``ok``, ``told``, ``seconds``, ``skipped``."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "steps", {line["step"]: line for line in self.told("step")})

    def told(self, kind: str) -> list[Mapping[str, Any]]:
        """Return the reports of a kind."""
        return [line for line in self.lines if line.get("kind") == kind]

    def check(self, step: str) -> None:
        """Fail unless a step was reached and went well; its result is printed. One that was not judged is skipped."""
        result = self.steps.get(step)
        assert result is not None, f"the guest did not come to this step:\n{self.console[-3000:]}"
        print(f"{step}: {result['told']} ({result['seconds']} s)")
        assert result["ok"], result["told"]
        if result.get("skipped"):
            pytest.skip(result["told"])


def e2e_guest() -> Any:
    """Return the script that makes guests, as a module."""
    if str(ROOT / "scripts") not in sys.path:
        sys.path.append(str(ROOT / "scripts"))
    return import_module("e2e_guest")


def why_not() -> str:
    """Return why no guest is to boot, or the empty text."""
    return (
        "" if os.environ.get("MOORING_E2E_NUMA") else "guests run for minutes: make e2e-numa, e2e-resize or e2e-systemd"
    )


def is_full() -> bool:
    """Tell whether scenarios are to run at full size."""
    return os.environ.get("MOORING_E2E_NUMA") == "full"


def steps_of(scenario: str) -> dict[str, Callable[[], str]]:
    """Return the steps of a scenario by name, in the order of the file."""
    return dict(import_module("tests.e2e.guest.report").steps_of(f"tests.e2e.guest.{scenario}"))


def run(
    scenario: str,
    shape: Shape = BIG,
    *,
    edition: str = "own",
    containers: bool = False,
    systemd: bool = False,
    values: Mapping[str, Any] | None = None,
    files: Mapping[str, bytes] | None = None,
    seconds: float = 600,
) -> Ran:
    """Boot a guest, run a scenario in it and wait for its end.

    Args:
        scenario: name of a module in this folder.
        shape: of the machine.
        edition: of kernel and QEMU, ``own``, ``newer`` or ``newest``.
        containers: whether containerd, runc and an image are to be there, and what the agent imports.
        systemd: whether systemd is to be the first process; then CRI-O and crun are there too.
        values: handed to the scenario; anything that JSON can say.
        files: more files, by path in the guest.
        seconds: after which the guest is ended.

    Raises:
        e2e_guest.UnavailableError: this machine cannot have such a guest.
    """
    script = e2e_guest()
    guest = script.guest(edition)
    contents = {
        VALUES_FILE: json.dumps({"scenario": f"tests.e2e.guest.{scenario}", **(values or {})}).encode(),
        **{f"{script.APPLICATION}/{name}": (ROOT / name).read_bytes() for name in MODULES},
        **(files or {}),
    }
    archives = []
    with tempfile.TemporaryDirectory(prefix="mooring-guest-") as temporary:
        folder = Path(temporary)
        if systemd:
            rooted = import_module("e2e_guest_systemd")
            guest = rooted.rooted(guest)
            contents = {**rooted.contents("tests.e2e.guest.report"), **contents}
        elif containers:
            archives.append(script.runtime())
        if containers:
            tar = folder / "image.tar"
            write_image(tar, BUSYBOX, script.debian_parts().busybox)
            contents |= {IMAGE: tar.read_bytes(), OVERLAY: guest.overlay.read_bytes()}
        initrd = folder / "initrd"
        initrd.write_bytes(script.image(guest, "tests.e2e.guest.report", FOLDERS, archives=archives, contents=contents))
        return _boot(command(guest, initrd, shape, folder / "reports", accelerator(guest)), folder, seconds)


def command(guest: Any, initrd: Path, shape: Shape, reports: Path, accelerated: str) -> Sequence[str]:
    """Return the command line of QEMU: console on standard output, reports in a file."""
    devices = ["-nodefaults", "-no-user-config", "-display", "none", "-no-reboot"]
    serials = ["-serial", "stdio", "-serial", f"file:{reports}"]
    # One thread for all CPUs: with more the guest has hung, and two cores of the host gain nothing by it.
    accel, cpu = ("kvm", "host") if accelerated == "kvm" else ("tcg,thread=single", CPU_MODEL)
    machine = ["-machine", "q35", "-accel", accel, "-cpu", cpu, "-m", f"{shape.nodes * shape.node_memory}M"]
    processors = ["-smp", f"{shape.cpus},sockets={shape.sockets},cores={shape.cores},threads={shape.threads}"]
    kernel = ["-kernel", str(guest.kernel), "-initrd", str(initrd)]
    # Where the host gives it little time, a guest takes its timer for broken unless it is told not to check.
    words = "console=ttyS0 quiet loglevel=1 panic=-1 mitigations=off audit=0 rcupdate.rcu_expedited=1 no_timer_check"
    hardware = [*machine, *processors, *_numa(shape), *_devices(shape)]
    return [*guest.qemu, *devices, *serials, *hardware, *kernel, "-append", words]


def _numa(shape: Shape) -> Iterator[str]:
    size = shape.cpus // shape.nodes
    for node in range(shape.nodes):
        yield from ("-object", f"memory-backend-ram,id=m{node},size={shape.node_memory}M")
        yield from ("-numa", f"node,nodeid={node},cpus={node * size}-{node * size + size - 1},memdev=m{node}")
    for one in range(shape.nodes):
        for other in range(shape.nodes):
            if one != other:
                near = one * shape.sockets // shape.nodes == other * shape.sockets // shape.nodes
                yield from ("-numa", f"dist,src={one},dst={other},val={12 if near else 32}")


def _devices(shape: Shape) -> Iterator[str]:
    """Yield PCI devices on every NUMA node; no driver of the guest takes them."""
    for node in range(shape.nodes if shape.devices else 0):
        # The firmware numbers the buses behind a root from its own number on.
        yield from ("-device", f"pxb-pcie,id=root{node},bus=pcie.0,bus_nr={16 * (node + 1)},numa_node={node}")
        for place, device in enumerate(("bochs-display", "e1000e,romfile=")):
            port = f"port{node}{place}"
            yield from ("-device", f"pcie-root-port,id={port},bus=root{node},chassis={2 * node + place + 1}")
            yield from ("-device", f"{device},bus={port}")


@cache
def accelerator(guest: Any) -> str:
    """Return ``kvm`` or ``tcg``: what is asked for, else what works.

    A device node says little: where the host is a guest itself, an unmodified kernel may never come up on its KVM.
    """
    asked = os.environ.get(ACCELERATOR, "auto")
    if asked != "auto":
        return asked
    if not os.access(KVM, os.R_OK | os.W_OK):
        return "tcg"
    words = "console=ttyS0 panic=-1"
    trial = [*guest.qemu, "-nodefaults", "-no-user-config", "-display", "none", "-no-reboot", "-serial", "stdio"]
    trial += ["-machine", "q35", "-accel", "kvm", "-cpu", "host", "-m", "512M", "-smp", "2"]
    with tempfile.TemporaryFile() as out:
        process = subprocess.Popen(
            [*trial, "-kernel", str(guest.kernel), "-append", words],
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.DEVNULL,
        )
        try:
            # Without a root file system the kernel panics at the end of its boot, and QEMU ends.
            process.wait(KVM_SECONDS)
        except subprocess.TimeoutExpired:
            return "tcg"
        finally:
            process.kill()
            process.wait()
        out.seek(0)
        return "kvm" if b"Kernel panic" in out.read() else "tcg"


def _boot(words: Sequence[str], folder: Path, seconds: float) -> Ran:
    console, reports = folder / "console", folder / "reports"
    with console.open("wb") as out, (folder / "qemu").open("wb") as errors:
        process = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=out, stderr=errors)
        try:
            process.wait(seconds)
            ended = True
        except subprocess.TimeoutExpired:
            ended = False
        finally:
            process.kill()
            process.wait()
    text = console.read_text(encoding="utf-8", errors="replace").replace("\r", "")
    if not text.strip():
        text = (folder / "qemu").read_text(encoding="utf-8", errors="replace")
    kept = os.environ.get("MOORING_E2E_NUMA_KEEP")
    if kept:
        for path in (console, reports):
            if path.exists():
                shutil.copy(path, kept)
    said = reports.read_text(encoding="utf-8", errors="replace") if reports.exists() else ""
    return Ran(list(read_lines(said)), text, ended and "GUEST-RC=0" in text)
