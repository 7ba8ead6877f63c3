"""A real kubelet on any machine: it sees the files of that machine, and changes nothing outside of its folder.

It lives in a mount namespace of its own, where the machine's files lie over sysfs and procfs, kernel settings that it
wants are as it wants them, and what it writes under ``/var`` goes to its folder. Containers are real ones; what they
cannot have on this machine is for the OCI runtime to replace (``tests/e2e/containerd/wrapper.py``).
"""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import shutil
import signal
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.e2e.containerd.runtime import CGROUPS, UNIFIED, Runtime
from tests.e2e.kubelet.network import NODE_ADDRESS
from tests.e2e.kubelet.patience import until
from tests.e2e.kubelet.sysfs import MOUNTED

CONTROLLERS = ("cpu", "cpuacct", "cpuset", "memory", "devices", "freezer", "blkio", "pids", "systemd")
SETTINGS = {
    "vm/overcommit_memory": "1",
    "vm/panic_on_oom": "0",
    "kernel/panic": "10",
    "kernel/panic_on_oops": "1",
    "kernel/keys/root_maxkeys": "1000000",
    "kernel/keys/root_maxbytes": "25000000",
}
"""What a kubelet wants of the kernel; it writes only what it finds different."""
NO_EVICTION = dict.fromkeys(
    ("memory.available", "nodefs.available", "nodefs.inodesFree", "imagefs.available", "imagefs.inodesFree"), "0%"
)
"""The real memory in use would count against the machine that is played."""
DEVICE_PLUGINS = "/var/lib/kubelet/device-plugins"
NO_POLICIES = {"cpuManagerPolicy": "none", "memoryManagerPolicy": "None", "topologyManagerPolicy": "none"}


@dataclass(frozen=True, slots=True)
class Kubelet:
    """A kubelet that runs."""

    name: str
    """Of the node."""
    folder: Path

    @property
    def root(self) -> Path:
        return self.folder / "root"

    @property
    def configuration(self) -> Path:
        return self.folder / "kubelet.json"

    @property
    def pod_resources(self) -> Path:
        """Socket on which it tells what containers have."""
        return self.root / "pod-resources" / "kubelet.sock"

    @property
    def device_plugins(self) -> Path:
        """Folder of the sockets of device plugins, and of the record of the devices that containers have."""
        return self.root / "device-plugins"

    @property
    def manifests(self) -> Path:
        """Folder of static pods."""
        return self.folder / "manifests"

    @property
    def log(self) -> str:
        return (self.folder / "kubelet.log").read_text(encoding="utf-8", errors="replace")

    def state(self, manager: str) -> str:
        """Return the state file of the ``cpu`` or ``memory`` manager."""
        return (self.root / f"{manager}_manager_state").read_text(encoding="utf-8")

    def refused(self, uid: str) -> bool:
        """Tell whether the kubelet has refused a pod; its log has it long before the API server."""
        return any("Pod admission denied" in line and uid in line for line in self.log.splitlines())


@contextlib.contextmanager
def kubelet_on(
    node: Runtime,
    program: Path,
    name: str,
    policies: Mapping[str, Any],
    *,
    machine: Path | None = None,
    kubeconfig: Path | None = None,
    cpu_state: str = "",
    within: Sequence[str] = (),
    ending: signal.Signals = signal.SIGKILL,
) -> Iterator[Kubelet]:
    """Run a kubelet until the end of the block; one of the same node finds the files of the one before.

    Args:
        node: its containerd.
        program: the kubelet.
        name: of the node.
        policies: fields of the KubeletConfiguration beyond those that it needs here.
        machine: folder with the files of the machine; None for this computer as it is.
        kubeconfig: of the API server; None for a kubelet that only knows its manifest folder.
        cpu_state: state file of the CPU manager that it finds; empty for none.
        within: words that start a program where its mounts go; a mount namespace of its own by default. Volumes that
            the kubelet mounts itself need that of the runtime.
        ending: signal that ends it.
    """
    made = Kubelet(name, node.folder / name)
    made.root.mkdir(parents=True, exist_ok=True)
    made.manifests.mkdir(exist_ok=True)
    made.device_plugins.mkdir(exist_ok=True)
    ready = made.pod_resources
    ready.unlink(missing_ok=True)
    (made.device_plugins / "kubelet.sock").unlink(missing_ok=True)
    if cpu_state:
        (made.root / "cpu_manager_state").write_text(cpu_state, encoding="utf-8")
    _make_groups(node.cgroup_parent)
    made.configuration.write_text(json.dumps(_configuration(node, made, policies), indent=1), encoding="utf-8")
    words = [
        str(program),
        f"--config={made.configuration}",
        f"--hostname-override={name}",
        f"--node-ip={NODE_ADDRESS}",
        f"--root-dir={made.root}",
        f"--cert-dir={made.root / 'pki'}",
        "--v=4",
        *([f"--kubeconfig={kubeconfig}"] if kubeconfig is not None else []),
    ]
    script = "set -e\n" + "".join(f"{shlex.join(one)}\n" for one in _mounts(made, machine))
    with (made.folder / "kubelet.log").open("wb") as log:
        process = subprocess.Popen(
            [*(within or _unshare()), "sh", "-c", f"{script}exec {shlex.join(words)}"],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    try:
        until(lambda: process.poll() is not None or ready.exists(), "the kubelet serves")
        assert process.poll() is None, made.log[-3000:]
        yield made
    except BaseException as error:
        errors = [line for line in made.log.splitlines() if line.startswith(("E", "F"))]
        error.add_note("\n".join([f"the kubelet of node {name} complained:", *errors[-10:]]))
        raise
    finally:
        process.send_signal(ending)
        process.wait()


def _unshare() -> list[str]:
    return [shutil.which("unshare") or "unshare", "--mount", "--propagation", "private"]


def _configuration(node: Runtime, made: Kubelet, policies: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "kind": "KubeletConfiguration",
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "authentication": {"anonymous": {"enabled": True}, "webhook": {"enabled": False}},
        "authorization": {"mode": "AlwaysAllow"},
        "cgroupDriver": "cgroupfs",
        "cgroupRoot": node.cgroup_parent,
        "containerRuntimeEndpoint": f"unix://{node.cri_socket}",
        "cpuManagerReconcilePeriod": "1s",
        "enableServer": False,
        "evictionHard": NO_EVICTION,
        "failCgroupV1": False,
        "failSwapOn": False,
        "fileCheckFrequency": "1s",
        "healthzPort": 0,
        "imageGCHighThresholdPercent": 100,
        "imageGCLowThresholdPercent": 99,
        "localStorageCapacityIsolation": False,
        "makeIPTablesUtilChains": False,
        "maxPods": 250,
        "oomScoreAdj": 0,
        "podLogsDir": str(made.folder / "pod-logs"),
        "readOnlyPort": 0,
        "resolvConf": "",
        "staticPodPath": str(made.manifests),
        "volumePluginDir": str(made.folder / "volume-plugins"),
        **policies,
    }


def _mounts(made: Kubelet, machine: Path | None) -> Iterator[Sequence[str]]:
    folder = made.folder
    for name, value in SETTINGS.items():
        kept = folder / "settings" / name
        kept.parent.mkdir(parents=True, exist_ok=True)
        kept.write_text(f"{value}\n", encoding="utf-8")
        yield "mount", "--bind", str(kept), f"/proc/sys/{name}"
    for name in ("lib", "log"):
        upper, work = folder / "var" / name, folder / "var" / f"{name}.work"
        upper.mkdir(parents=True, exist_ok=True)
        work.mkdir(exist_ok=True)
        options = f"lowerdir=/var/{name},upperdir={upper},workdir={work}"
        yield "mount", "-t", "overlay", "overlay", "-o", options, f"/var/{name}"
    # The kubelet looks for device plugins there whatever its root directory is.
    yield "mkdir", "-p", DEVICE_PLUGINS
    yield "mount", "--bind", str(made.device_plugins), DEVICE_PLUGINS
    for path in MOUNTED if machine is not None else ():
        assert machine is not None
        if (machine / path).exists():
            yield "mount", "--bind", str(machine / path), f"/{path}"


def _make_groups(parent: str) -> None:
    """Make the kubelet's cgroups down to ``kubepods``; containerd's test takes them away.

    A kubelet with CPU policy ``none`` gives a ``kubepods`` that it makes itself all CPUs of the machine, and ends where
    they are not there. In one that is there it fails to do so once a minute, and goes on.
    """
    roots = [CGROUPS] if UNIFIED else [CGROUPS / one for one in CONTROLLERS if (CGROUPS / one).is_dir()]
    for root in roots:
        above = root
        for name in (parent.lstrip("/"), "kubepods"):
            group = above / name
            if UNIFIED:
                (above / "cgroup.subtree_control").write_text("+cpuset +cpu +memory +pids", encoding="utf-8")
            group.mkdir(exist_ok=True)
            if root.name == "cpuset":
                for file in ("cpuset.cpus", "cpuset.mems"):
                    (group / file).write_text((above / file).read_text(encoding="utf-8"), encoding="utf-8")
            above = group


def environment_problem() -> str:
    """Return why a kubelet cannot run here, or the empty text."""
    if not os.access("/proc/sys/vm/overcommit_memory", os.R_OK):
        return "no kernel settings to look at"
    if UNIFIED and "cpuset" not in (CGROUPS / "cgroup.controllers").read_text(encoding="utf-8").split():
        return "no cpuset controller"
    return ""
