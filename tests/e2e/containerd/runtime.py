"""A real container runtime for tests, private and leaving nothing behind; here containerd, in ``tests/e2e/crio`` CRI-O.

* :func:`running` starts one in a private mount namespace and takes everything away at the end:
  ``with running(parts, folder) as node: ...``; ``parts`` come from ``scripts/e2e_parts.py`` (:func:`parts_named`).
* :class:`tests.e2e.containerd.cri.Client` (``node.cri``) is the kubelet's side: pods, containers, updates, exec.
* :func:`read_cgroup` reads a file of a container's cgroup, on cgroup v1 and v2.

``node.restart(signal)`` ends containerd as an operator or a crash would and starts it again over the same containers.
The folder's path must be short: the paths of Unix sockets end at 107 characters.
"""

from __future__ import annotations

import contextlib
import importlib.util
import itertools
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.e2e.containerd.cri import Client, CRIError
from tests.e2e.containerd.images import BUSYBOX, PAUSE, write_image
from tests.patience import until

CGROUPS = Path("/sys/fs/cgroup")
UNIFIED = (CGROUPS / "cgroup.controllers").exists()
RUN_FOLDER = Path("/run/containerd")
"""Where shims and runc keep their state whatever the configuration says; it is in the private ``/run``."""

SCRIPT = Path(__file__).resolve().parents[3] / "scripts" / "e2e_parts.py"

_ID_LENGTH = 64
"""Of the names of containers' and sandboxes' cgroups."""
_POLITE = 10.0
"""Seconds for taking away pods in good order, when a test has left some; what is left then is killed."""
_PRIVATE_RUN = f"""\
set -e
cd /run
mount -n -t tmpfs -o mode=755 tmpfs /run
find . -mindepth 1 -maxdepth 1 ! -name {RUN_FOLDER.name} | while read -r one; do
  if [ -L "$one" ]; then cp -P "$one" /run
  elif [ -d "$one" ]; then mkdir "/run/$one" && mount -n -c --rbind "$one" "/run/$one"
  else touch "/run/$one" && mount -n -c --bind "$one" "/run/$one"
  fi || [ ! -e "$one" ]
done
mkdir {RUN_FOLDER}
hostname mooring-e2e
echo ready
exec sleep 1000000
"""
"""Covers ``/run`` by one with all of the machine's and :data:`RUN_FOLDER`; the working folder is the machine's.

A mount point in a folder of the machine is not safe: another process that removes the folder detaches the mount.
"""
_numbers = itertools.count(1)

_CONFIGURATION = """\
version = 3
root = "{folder}/root"
state = "{folder}/state"
disabled_plugins = ["io.containerd.internal.v1.tracing", "io.containerd.tracing.processor.v1.otlp"]
[grpc]
  address = "{folder}/c.sock"
[ttrpc]
  address = "{folder}/c.ttrpc"
[plugins.'io.containerd.cri.v1.images']
  snapshotter = "overlayfs"
  [plugins.'io.containerd.cri.v1.images'.pinned_images]
    sandbox = "{pause}"
[plugins.'io.containerd.cri.v1.runtime']
  restrict_oom_score_adj = true
  enable_cdi = true
  cdi_spec_dirs = ["{folder}/cdi"]
  netns_mounts_under_state_dir = true
  [plugins.'io.containerd.cri.v1.runtime'.cni]
    bin_dirs = ["{folder}/cni/bin"]
    conf_dir = "{folder}/cni/net.d"
  [plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc]
    runtime_type = "io.containerd.runc.v2"
    runtime_path = "{shim}"
    [plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc.options]
      BinaryName = "{binary}"
      SystemdCgroup = false
[plugins.'io.containerd.internal.v1.opt']
  path = "{folder}/opt"
[plugins.'io.containerd.nri.v1.nri']
  disable = false
  socket_path = "{folder}/nri.sock"
  plugin_path = "{folder}/nri/plugins"
  plugin_config_path = "{folder}/nri/conf.d"
  plugin_registration_timeout = "5s"
  plugin_request_timeout = "{request_timeout}"
"""


def why_not() -> str:
    """Return why containers cannot run on this machine, or the empty text."""
    if not sys.platform.startswith("linux") or os.geteuid() != 0:
        return "needs root on Linux"
    if shutil.which("unshare") is None or shutil.which("nsenter") is None:
        return "needs unshare and nsenter (util-linux)"
    controllers = (CGROUPS / "cgroup.controllers").read_text(encoding="utf-8").split() if UNIFIED else []
    if "cpuset" not in controllers and not os.access(CGROUPS / "cpuset" / "cgroup.procs", os.W_OK):
        return "no writable cpuset cgroup"
    return ""


def parts_named(name: str) -> Any:
    """Return the parts of one containerd, ``debian`` or ``built``; raises ``e2e_parts.UnavailableError``."""
    return e2e_parts().PARTS[name]()


def e2e_parts() -> Any:
    """Return the script that fetches the parts, as a module."""
    loaded = sys.modules.get("e2e_parts")
    if loaded is not None:
        return loaded
    spec = importlib.util.spec_from_file_location("e2e_parts", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["e2e_parts"] = module
    spec.loader.exec_module(module)
    return module


def read_cgroup(path: str, controller: str, name: str) -> str:
    """Return a file of a cgroup.

    Args:
        path: of the cgroup, as the runtime tells it.
        controller: for example ``cpuset``; its tree on cgroup v1.
        name: of the file.
    """
    return cgroup_file(path, controller, name).read_text(encoding="utf-8").strip()


def cgroup_file(path: str, controller: str, name: str) -> Path:
    """Return the path of a file of a cgroup; see :func:`read_cgroup`."""
    root = CGROUPS if UNIFIED else CGROUPS / controller
    return root / path.lstrip("/") / name


@dataclass(slots=True)
class Runtime:
    """A container runtime that runs: containerd, or the CRI-O of ``tests/e2e/crio``."""

    name: str
    parts: Any
    folder: Path
    cgroup_parent: str
    """Every pod's cgroup belongs below this one."""
    holder: subprocess.Popen[bytes]
    """Keeps the private mount namespace."""
    command: Sequence[str]
    """Starts it, within that namespace."""
    environment: Mapping[str, str]
    """What it needs besides the environment of the tests."""
    booted: str = ""
    """Stands in its log once more when it has started; the empty text stands there always."""
    cgroup_prefix: str = ""
    """What it puts before a container's id in the name of the container's cgroup."""
    stops_first: bool = False
    """As for :class:`tests.e2e.containerd.cri.Client`."""
    patience: float = 30.0
    """Seconds that a call of the kubelet may take."""
    _process: subprocess.Popen[bytes] | None = None
    _clients: list[Client] = field(default_factory=list)

    @property
    def nri_socket(self) -> Path:
        return self.folder / "nri.sock"

    @property
    def plugin_folder(self) -> Path:
        """Programs here are started by the runtime when it starts."""
        return self.folder / "nri" / "plugins"

    @property
    def cri_socket(self) -> Path:
        return self.folder / "c.sock"

    @property
    def cri(self) -> Client:
        """The kubelet's side; the same client as long as the runtime runs."""
        if not self._clients:
            self._clients.append(Client(self.cri_socket, timeout=self.patience, stops_first=self.stops_first))
        return self._clients[0]

    @property
    def log(self) -> str:
        return (self.folder / "log").read_text(encoding="utf-8", errors="replace")

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def container_cgroup(self, pod: Any, container: str) -> str:
        return f"{pod.cgroup_parent}/{self.cgroup_prefix}{container}"

    def cpus_of(self, pod: Any, container: str) -> str:
        """Return the CPUs that a container's cgroup has."""
        return read_cgroup(self.container_cgroup(pod, container), "cpuset", "cpuset.cpus")

    def start(self) -> None:
        """Start the runtime and wait until it serves."""
        before = self.log.count(self.booted) if (self.folder / "log").exists() else 0
        with (self.folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [*inside(self.holder), *self.command],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={**os.environ, **self.environment},
                start_new_session=True,
            )
        if self.booted:
            until(lambda: self._ended() or self.log.count(self.booted) > before, f"{self.name} has booted")
        until(lambda: self._ended() or self._answers(), f"{self.name} answers", seconds=60)
        if self._ended():
            raise RuntimeError(f"{self.name} did not start:\n{self.log[-3000:]}")

    def kill(self, sign: signal.Signals = signal.SIGKILL) -> None:
        """End the runtime; its containers live on."""
        for client in self._clients:
            client.close()
        self._clients.clear()
        if self._process is not None:
            self._process.send_signal(sign)
            self._process.wait(timeout=30)
            self._process = None

    def restart(self, sign: signal.Signals = signal.SIGTERM) -> None:
        self.kill(sign)
        self.start()

    def left_over(self) -> tuple[set[int], list[Path]]:
        """Return the processes of containers and shims, and the cgroups of containers: none once all pods are removed.

        The cgroups of pods are not the runtime's: a kubelet makes and removes them.
        """
        found = set(_sharing_namespace(self.holder.pid)) - {self.pid}
        folders, size = _cgroup_folders(self.cgroup_parent), len(self.cgroup_prefix) + _ID_LENGTH
        return found | _in_cgroups(self.cgroup_parent), [one for one in folders if len(one.name) == size]

    def run(self, words: Sequence[str], **environment: str) -> None:
        """Run a command within the runtime's namespaces; raises RuntimeError when it fails."""
        environ = {**os.environ, **environment}
        done = subprocess.run([*inside(self.holder), *words], env=environ, capture_output=True, text=True, check=False)
        if done.returncode:
            raise RuntimeError(f"{' '.join(words[:4])}: {done.stderr}")

    def _ended(self) -> bool:
        return self._process is None or self._process.poll() is not None

    def _answers(self) -> bool:
        """Tell whether the client answers, which another thread may have made while nobody listened."""
        try:
            return bool(self.cri.version())
        except CRIError:
            return False


def inside(holder: subprocess.Popen[bytes]) -> list[str]:
    """Return the words that run a command in the namespaces of a process."""
    spaces = Path("/proc") / str(holder.pid) / "ns"
    return ["nsenter", f"--mount={spaces / 'mnt'}", f"--uts={spaces / 'uts'}", "--"]


@contextlib.contextmanager
def private(make: Callable[[str, subprocess.Popen[bytes]], Runtime]) -> Iterator[Runtime]:
    """Make a runtime, and at the end remove its pods, processes, mounts and cgroups.

    Args:
        make: returns it, not started, for a parent of cgroups and the process that keeps its mount namespace.
    """
    node = make(f"/mooring-e2e-{os.getpid()}-{next(_numbers)}", _hold_namespace())
    try:
        yield node
    finally:
        _take_away(node)


@contextlib.contextmanager
def running(
    parts: Any, folder: Path, *, request_timeout: str = "5s", oci_runtime: Path | None = None
) -> Iterator[Runtime]:
    """Start a containerd with two images, and at the end remove everything.

    Args:
        parts: which containerd.
        folder: empty, with a short path; everything that containerd writes goes there.
        request_timeout: how long containerd waits for a plugin, as Go writes durations.
        oci_runtime: instead of runc, for example of :func:`tests.e2e.containerd.wrapper.write_wrapper`.

    Raises:
        RuntimeError: when a part does not start.
    """
    values = {
        "folder": folder,
        "pause": PAUSE,
        "shim": parts.shim,
        "binary": oci_runtime or parts.runc,
        "request_timeout": request_timeout,
    }
    (folder / "config.toml").write_text(_CONFIGURATION.format(**values), encoding="utf-8")
    command = (str(parts.containerd), "-c", str(folder / "config.toml"))
    # Its stacks, for which a signal asks, go into the temporary folder.
    path = {
        "PATH": f"{parts.containerd.parent}:{parts.runc.parent}:{os.environ.get('PATH', '')}",
        "TMPDIR": str(folder),
    }

    def made(cgroup_parent: str, holder: subprocess.Popen[bytes]) -> Runtime:
        name = f"containerd {parts.version}"
        return Runtime(name, parts, folder, cgroup_parent, holder, command, path, booted="successfully booted")

    with private(made) as node:
        node.start()
        for image in (PAUSE, BUSYBOX):
            tar = folder / "image.tar"
            write_image(tar, image, parts.busybox)
            node.run([str(parts.ctr), "-a", str(node.cri_socket), "-n", "k8s.io", "images", "import", str(tar)])
            tar.unlink()
        yield node


def _hold_namespace() -> subprocess.Popen[bytes]:
    """Return a process whose only purpose is a mount namespace with a private run folder."""
    # Containers of host-network pods show the host's name: here a name that says nothing about the machine.
    unshare = shutil.which("unshare") or "unshare"
    holder = subprocess.Popen(
        [unshare, "--mount", "--uts", "--propagation", "private", "sh", "-c", _PRIVATE_RUN],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        start_new_session=True,
    )
    assert holder.stdout is not None
    with holder.stdout as said:
        if said.readline() != b"ready\n":
            holder.kill()
            holder.wait()
            raise RuntimeError("a private mount namespace could not be made")
    return holder


def _take_away(node: Runtime) -> None:
    until_when = time.monotonic() + _POLITE
    with contextlib.suppress(CRIError, AssertionError):
        for pod in node.cri.pods():
            if time.monotonic() < until_when:
                node.cri.remove_pod(pod)
    with contextlib.suppress(subprocess.TimeoutExpired):
        node.kill(signal.SIGKILL)
    # What a crash in the middle of a creation left: shims share the namespace, containers are in the cgroups.
    for pid in {*_sharing_namespace(node.holder.pid), *_in_cgroups(node.cgroup_parent)}:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    until(lambda: not _in_cgroups(node.cgroup_parent), "the containers' processes are gone")
    for path in _cgroup_folders(node.cgroup_parent):
        with contextlib.suppress(FileNotFoundError):
            path.rmdir()
    node.holder.kill()
    node.holder.wait()


def _sharing_namespace(holder: int) -> list[int]:
    wanted = Path(f"/proc/{holder}/ns/mnt").readlink()
    found = []
    for folder in Path("/proc").iterdir():
        if folder.name.isdecimal() and int(folder.name) != holder:
            with contextlib.suppress(OSError):
                if (folder / "ns" / "mnt").readlink() == wanted:
                    found.append(int(folder.name))
    return found


def _cgroup_folders(path: str) -> list[Path]:
    """Return the folders of a cgroup and of all below it, in every tree, deepest first."""
    roots = [CGROUPS] if UNIFIED else [child for child in CGROUPS.iterdir() if child.is_dir()]
    found: list[Path] = []
    for root in roots:
        top = root / path.lstrip("/")
        if top.is_dir():
            found += [top, *(folder for folder in top.rglob("*") if folder.is_dir())]
    return sorted(found, key=lambda folder: len(folder.parts), reverse=True)


def _in_cgroups(path: str) -> set[int]:
    pids: set[int] = set()
    for folder in _cgroup_folders(path):
        with contextlib.suppress(OSError):
            pids.update(int(line) for line in (folder / "cgroup.procs").read_text(encoding="utf-8").split())
    return pids
