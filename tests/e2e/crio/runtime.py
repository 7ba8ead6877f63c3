"""A real CRI-O for tests, private and leaving nothing behind, like the containerd of ``tests/e2e/containerd``.

Without CNI, registry and systemd: pods are in the host's network, images are copied into its storage before it starts,
and control groups are made by files. The folder's path must be short: the paths of Unix sockets end at 107 characters.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import signal
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.e2e.containerd.cri import Client, CRIError
from tests.e2e.containerd.images import BUSYBOX, PAUSE, write_image
from tests.e2e.containerd.runtime import RUN_FOLDER, hold_namespace, inside, take_away
from tests.patience import until

_numbers = itertools.count(1)

_CONFIGURATION = """\
[crio]
root = "{folder}/root"
runroot = "{folder}/rr"
storage_driver = "vfs"
log_dir = "{folder}/podlogs"
version_file = "{folder}/version"
version_file_persist = "{folder}/version-persist"
clean_shutdown_file = "{folder}/clean.shutdown"
[crio.api]
listen = "{folder}/c.sock"
stream_address = "127.0.0.1"
stream_port = "0"
[crio.runtime]
default_runtime = "oci"
cgroup_manager = "cgroupfs"
conmon_cgroup = "pod"
drop_infra_ctr = true
apparmor_profile = "unconfined"
seccomp_profile = "{folder}/seccomp.json"
namespaces_dir = "{folder}/ns"
pinns_path = "{pinns}"
container_exits_dir = "{folder}/exits"
container_attach_socket_dir = "{folder}/attach"
hooks_dir = ["{folder}/hooks"]
disable_hostport_mapping = true
irqbalance_config_restore_file = "disable"
[crio.runtime.runtimes.oci]
runtime_path = "{runc}"
runtime_root = "{folder}/oci"
monitor_path = "{conmon}"
monitor_cgroup = "pod"
[crio.image]
pause_image = "{pause}"
signature_policy = "{folder}/policy.json"
[crio.network]
network_dir = "{folder}/cni/net.d"
plugin_dirs = ["{folder}/cni/bin"]
[crio.nri]
enable_nri = true
nri_listen = "{folder}/nri.sock"
nri_plugin_dir = "{folder}/nri/plugins"
nri_plugin_config_dir = "{folder}/nri/conf.d"
nri_plugin_registration_timeout = "5s"
nri_plugin_request_timeout = "5s"
"""


@dataclass(slots=True)
class CRIO:
    """A CRI-O that runs."""

    parts: Any
    folder: Path
    cgroup_parent: str
    holder: subprocess.Popen[bytes]
    _process: subprocess.Popen[bytes] | None = None
    _clients: list[Client] = field(default_factory=list)

    @property
    def nri_socket(self) -> Path:
        return self.folder / "nri.sock"

    @property
    def cri(self) -> Client:
        """The kubelet's side; the same client as long as CRI-O runs."""
        if not self._clients:
            self._clients.append(Client(self.folder / "c.sock", stops_first=True))
        return self._clients[0]

    @property
    def log(self) -> str:
        return (self.folder / "log").read_text(encoding="utf-8", errors="replace")

    def container_cgroup(self, pod: Any, container: str) -> str:
        return f"{pod.cgroup_parent}/crio-{container}"

    def start(self) -> None:
        """Start CRI-O and wait until it serves."""
        words = [str(self.parts.crio), "-c", str(self.folder / "crio.conf"), "-d", ""]
        with (self.folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [*inside(self.holder), *words],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={**os.environ, "CONTAINERS_STORAGE_CONF": str(self.folder / "storage.conf")},
                start_new_session=True,
            )
        until(lambda: self._ended() or self._answers(), "CRI-O answers", seconds=60)
        if self._ended():
            raise RuntimeError(f"CRI-O did not start:\n{self.log[-3000:]}")

    def kill(self, sign: signal.Signals = signal.SIGKILL) -> None:
        """End CRI-O; its containers live on."""
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

    def import_image(self, name: str) -> None:
        """Copy an image into the storage; CRI-O must not run."""
        tar = self.folder / "image.tar"
        write_image(tar, name, self.parts.busybox)
        storage = f"containers-storage:[vfs@{self.folder}/root+{self.folder}/rr]{name}"
        done = subprocess.run(
            [*inside(self.holder), str(self.parts.skopeo), "--insecure-policy", "copy", f"oci-archive:{tar}", storage],
            env={**os.environ, "LD_LIBRARY_PATH": str(self.parts.libraries)},
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            raise RuntimeError(f"skopeo copy: {done.stderr}")
        tar.unlink()

    def _ended(self) -> bool:
        return self._process is None or self._process.poll() is not None

    def _answers(self) -> bool:
        try:
            return bool(self.cri.version())
        except CRIError:
            return False


@contextlib.contextmanager
def running(parts: Any, folder: Path) -> Iterator[CRIO]:
    """Start a CRI-O with two images, and at the end remove its pods, processes, mounts and cgroups."""
    cgroup_parent = f"/mooring-e2e-crio-{os.getpid()}-{next(_numbers)}"
    made_run_folder = not RUN_FOLDER.exists()
    RUN_FOLDER.mkdir(parents=True, exist_ok=True)
    values = {
        "folder": folder,
        "pause": PAUSE,
        "pinns": parts.pinns,
        "runc": parts.runc,
        "conmon": parts.conmon,
    }
    (folder / "crio.conf").write_text(_CONFIGURATION.format(**values), encoding="utf-8")
    (folder / "storage.conf").write_text(
        f'[storage]\ndriver = "vfs"\ngraphroot = "{folder}/root"\nrunroot = "{folder}/rr"\n'
    )
    (folder / "seccomp.json").write_text(json.dumps({"defaultAction": "SCMP_ACT_ALLOW"}))
    (folder / "policy.json").write_text(json.dumps({"default": [{"type": "insecureAcceptAnything"}]}))
    for name in ("hooks", "cni/net.d", "cni/bin", "nri/plugins", "nri/conf.d"):
        (folder / name).mkdir(parents=True)
    node = CRIO(parts, folder, cgroup_parent, hold_namespace())
    try:
        node.import_image(PAUSE)
        node.import_image(BUSYBOX)
        node.start()
        yield node
    finally:
        take_away(node)
        if made_run_folder:
            with contextlib.suppress(OSError):
                RUN_FOLDER.rmdir()
