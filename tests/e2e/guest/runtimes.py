"""The container runtimes of the guest: how each is configured, started and given its image."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.e2e.containerd.images import BUSYBOX
from tests.e2e.guest.report import IMAGE

RUN = Path("/run/node")
SOCKET = RUN / "c.sock"
NRI_SOCKET = RUN / "nri.sock"
CRIO = "/opt/crio"
"""Folder of CRI-O's programs."""
HANDLERS = ("runc", "crun")
"""OCI runtimes, the first by default."""
_SECONDS = "600s"
_CONTAINERD = f"""\
version = 3
root = "/run/containers/root"
state = "/run/containers/state"
[grpc]
  address = "{SOCKET}"
[ttrpc]
  address = "{RUN}/c.ttrpc"
[plugins.'io.containerd.cri.v1.images']
  snapshotter = "overlayfs"
  [plugins.'io.containerd.cri.v1.images'.pinned_images]
    sandbox = "{BUSYBOX}"
[plugins.'io.containerd.cri.v1.runtime'.cni]
  bin_dirs = ["{RUN}/cni/bin"]
  conf_dir = "{RUN}/cni/net.d"
[plugins.'io.containerd.nri.v1.nri']
  disable = false
  socket_path = "{NRI_SOCKET}"
  plugin_path = "{RUN}/nri/plugins"
  plugin_config_path = "{RUN}/nri/conf.d"
  plugin_registration_timeout = "{_SECONDS}"
  plugin_request_timeout = "{_SECONDS}"
"""
_HANDLER = """\
[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.{name}]
  runtime_type = "io.containerd.runc.v2"
[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.{name}.options]
  BinaryName = "{program}"
  SystemdCgroup = {systemd}
  # The root file system is an initramfs, from which nobody can pivot.
  NoPivotRoot = true
"""
_STORAGE = f"""\
[storage]
driver = "vfs"
graphroot = "{RUN}/images"
runroot = "{RUN}/rr"
"""
_CRIO = f"""\
[crio]
root = "{RUN}/images"
runroot = "{RUN}/rr"
storage_driver = "vfs"
log_dir = "{RUN}/podlogs"
version_file = "{RUN}/version"
version_file_persist = "{RUN}/version-persist"
clean_shutdown_file = "{RUN}/clean.shutdown"
[crio.api]
listen = "{SOCKET}"
stream_address = "127.0.0.1"
stream_port = "0"
[crio.runtime]
default_runtime = "{HANDLERS[0]}"
no_pivot = true
cgroup_manager = "{{manager}}"
conmon_cgroup = "{{conmon}}"
drop_infra_ctr = true
apparmor_profile = "unconfined"
seccomp_profile = "{RUN}/seccomp.json"
namespaces_dir = "{RUN}/ns"
pinns_path = "{CRIO}/pinns"
container_exits_dir = "{RUN}/exits"
container_attach_socket_dir = "{RUN}/attach"
hooks_dir = ["{RUN}/hooks"]
disable_hostport_mapping = true
irqbalance_config_restore_file = "disable"
ctr_stop_timeout = 30
[crio.image]
pause_image = "{BUSYBOX}"
signature_policy = "{RUN}/policy.json"
[crio.network]
network_dir = "{RUN}/cni/net.d"
plugin_dirs = ["{RUN}/cni/bin"]
[crio.nri]
enable_nri = true
nri_listen = "{NRI_SOCKET}"
nri_plugin_dir = "{RUN}/nri/plugins"
nri_plugin_config_dir = "{RUN}/nri/conf.d"
nri_plugin_registration_timeout = "{_SECONDS}"
nri_plugin_request_timeout = "{_SECONDS}"
"""
_CRIO_HANDLER = """\
[crio.runtime.runtimes.{name}]
runtime_path = "{program}"
runtime_root = "{run}/oci-{name}"
monitor_path = "/usr/bin/conmon"
monitor_cgroup = "{conmon}"
"""


@dataclass(frozen=True, slots=True)
class Runtime:
    """A container runtime as it is set up here."""

    name: str
    prefix: str
    """Of containers' groups, without the dash."""
    command: tuple[str, ...]
    files: Mapping[str, str]
    """By path."""
    served: str
    """What its log says when it serves."""
    imports: Sequence[tuple[str, ...]]
    """Commands that give it its image, and what else it lacks."""
    before: bool
    """Whether they come before its start."""
    stops_first: bool = False
    """Whether containers must be stopped before their sandbox."""


def containerd(*, systemd: bool = False) -> Runtime:
    """Return containerd; crun is there where systemd is."""
    handlers = [
        _HANDLER.format(name=name, program=program(name, systemd=systemd), systemd=str(systemd).lower())
        for name in (HANDLERS if systemd else HANDLERS[:1])
    ]
    path = str(RUN / "config.toml")
    imports = (("ctr", "-a", str(SOCKET), "-n", "k8s.io", "images", "import", "--no-unpack", IMAGE),)
    files = {path: _CONTAINERD + "".join(handlers)}
    booted = "containerd successfully booted"
    return Runtime("containerd", "cri-containerd", ("containerd", "-c", path), files, booted, imports, before=False)


def crio(*, systemd: bool = True) -> Runtime:
    """Return CRI-O."""
    manager, conmon = ("systemd", "system.slice") if systemd else ("cgroupfs", "pod")
    handlers = [
        _CRIO_HANDLER.format(name=name, program=program(name, systemd=systemd), run=RUN, conmon=conmon)
        for name in HANDLERS
    ]
    files = {
        str(RUN / "crio.conf"): _CRIO.format(manager=manager, conmon=conmon) + "".join(handlers),
        str(RUN / "seccomp.json"): json.dumps({"defaultAction": "SCMP_ACT_ALLOW"}),
        str(RUN / "policy.json"): json.dumps({"default": [{"type": "insecureAcceptAnything"}]}),
        "/etc/containers/storage.conf": _STORAGE,
        "/etc/containers/policy.json": json.dumps({"default": [{"type": "insecureAcceptAnything"}]}),
        "/var/tmp/.keep": "",  # noqa: S108 - the guest's own; skopeo needs the folder
        **{str(RUN / name / ".keep"): "" for name in ("hooks", "cni/net.d", "cni/bin", "nri/plugins", "nri/conf.d")},
    }
    place = f"containers-storage:[vfs@{RUN}/images+{RUN}/rr]{BUSYBOX}"
    # CRI-O looks for the program although no pod here has a network of its own.
    has_nsenter = ("/bin/busybox", "ln", "-sf", "busybox", "/usr/bin/nsenter")
    imports = (has_nsenter, ("skopeo", "--insecure-policy", "copy", f"oci-archive:{IMAGE}", place))
    command = (f"{CRIO}/crio", "-c", str(RUN / "crio.conf"), "-d", "")
    return Runtime("crio", "crio", command, files, "", imports, before=True, stops_first=True)


def program(handler: str, *, systemd: bool) -> str:
    """Return the path of an OCI runtime."""
    return f"/usr/sbin/{handler}" if systemd and handler == "runc" else f"/usr/bin/{handler}"
