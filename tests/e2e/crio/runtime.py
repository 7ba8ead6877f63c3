"""A real CRI-O for tests, private and leaving nothing behind, like the containerd of ``tests/e2e/containerd``.

Without CNI, registry and systemd: pods are in the host's network, images are copied into its storage before it starts,
and control groups are made by files. The folder's path must be short: the paths of Unix sockets end at 107 characters.
"""

from __future__ import annotations

import contextlib
import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.e2e.containerd.images import BUSYBOX, PAUSE, write_image
from tests.e2e.containerd.runtime import Runtime, private

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
# CRI-O has a handler of this name by itself, and does not start where crun is installed and conmon is not.
[crio.runtime.runtimes.crun]
runtime_path = "{runc}"
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
nri_plugin_request_timeout = "{request_timeout}"
"""


@contextlib.contextmanager
def running(
    parts: Any, folder: Path, *, request_timeout: str = "5s", oci_runtime: Path | None = None
) -> Iterator[Runtime]:
    """Start a CRI-O with two images, and at the end remove its pods, processes, mounts and cgroups.

    Args:
        parts: its programs.
        folder: empty, with a short path; everything that CRI-O writes goes there.
        request_timeout: how long CRI-O waits for a plugin, as Go writes durations.
        oci_runtime: instead of runc.
    """
    runc = oci_runtime or parts.runc
    values = {"folder": folder, "pause": PAUSE, "pinns": parts.pinns, "runc": runc, "conmon": parts.conmon}
    values["request_timeout"] = request_timeout
    (folder / "crio.conf").write_text(_CONFIGURATION.format(**values), encoding="utf-8")
    (folder / "storage.conf").write_text(
        f'[storage]\ndriver = "vfs"\ngraphroot = "{folder}/root"\nrunroot = "{folder}/rr"\n'
    )
    (folder / "seccomp.json").write_text(json.dumps({"defaultAction": "SCMP_ACT_ALLOW"}))
    (folder / "policy.json").write_text(json.dumps({"default": [{"type": "insecureAcceptAnything"}]}))
    for name in ("hooks", "cni/net.d", "cni/bin", "nri/plugins", "nri/conf.d"):
        (folder / name).mkdir(parents=True)
    command = (str(parts.crio), "-c", str(folder / "crio.conf"), "-d", "")
    storage = {"CONTAINERS_STORAGE_CONF": str(folder / "storage.conf")}

    def made(cgroup_parent: str, holder: subprocess.Popen[bytes]) -> Runtime:
        return Runtime(
            "CRI-O", parts, folder, cgroup_parent, holder, command, storage, cgroup_prefix="crio-", stops_first=True
        )

    with private(made) as node:
        for image in (PAUSE, BUSYBOX):
            tar = folder / "image.tar"
            write_image(tar, image, parts.busybox)
            place = f"containers-storage:[vfs@{folder}/root+{folder}/rr]{image}"
            words = [str(parts.skopeo), "--insecure-policy", "copy", f"oci-archive:{tar}", place]
            node.run(words, LD_LIBRARY_PATH=str(parts.libraries))
            tar.unlink()
        node.start()
        yield node
