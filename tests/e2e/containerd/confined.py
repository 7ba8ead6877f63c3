"""The agent in a container, as ``deploy/agent/agent.yaml`` describes it: what the manifest does not give, it has not.

runc starts it with the manifest's security context, seccomp profile and volumes; only the folders are a test's.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.e2e.containerd.agent_process import pod_on, whole_cpus
from tests.e2e.containerd.cri import CRIError
from tests.e2e.containerd.runtime import UNIFIED, Runtime, cgroup_file, read_cgroup
from tests.patience import until

from mooring.engine.core.errors import InputError
from mooring.service.agent_status import ask_status

ROOT = Path(__file__).resolve().parents[3]
MANIFEST = ROOT / "deploy" / "agent" / "agent.yaml"
PROFILE = ROOT / "charts" / "mooring" / "files" / "seccomp.json"

_CONFIGURATION = """\
kind: KubeletConfiguration
apiVersion: kubelet.config.k8s.io/v1beta1
cpuManagerPolicy: static
reservedSystemCPUs: "0"
cpuManagerPolicyOptions: {{scale-delay-time: "0s"}}
featureGates: {{CPUManagerPolicyAlphaOptions: true, InPlacePodVerticalScalingExclusiveCPUs: true}}
---
kind: MooringConfiguration
apiVersion: mooring/v1alpha1
extensions: [exclusive-resize, scale-down-delay, assigned-cpuset, cpu-hotplug]
fixedDefects: [pod-restart]
---
kind: AgentConfiguration
apiVersion: mooring/v1alpha1
kubeletConfig: {kubelet}
kubeconfig: {configuration}/kubeconfig
nodeName: node-1
stateDir: {state}
nriSocket: {nri}/nri.sock
replyBudget: 2s
assignedDir: {run}/assigned
statusSocket: {run}/status.sock
podResourcesSocket: {run}/pod-resources.sock
claimsSocket: {run}/claims.sock
publish: true
metricsAddress: "127.0.0.1:{metrics}"
logLevel: debug
"""
_ACCESS = """\
apiVersion: v1
kind: Config
clusters: [{{name: c, cluster: {{server: "http://localhost:{port}"}}}}]
users: [{{name: u, user: {{}}}}]
contexts: [{{name: x, context: {{cluster: c, user: u}}}}]
current-context: x
"""
_MASKED = ("/proc/acpi", "/proc/kcore", "/proc/keys", "/proc/timer_list", "/proc/scsi", "/sys/firmware")
_READ_ONLY = ("/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger")
"""As container runtimes have them by default."""
_IMAGE = ("/usr", "/lib", "/lib64", "/bin", "/etc/ld.so.cache")
"""What the image would hold, besides Python and Mooring."""


@dataclass(frozen=True, slots=True)
class Rights:
    """What the container gets, for a test to take something away."""

    volumes: Mapping[str, bool]
    """Names of volumes -> whether they can be written."""
    seccomp: Mapping[str, Any]
    cgroup_namespace: bool = False
    """As on nodes with cgroup version 2."""

    def without(self, volume: str) -> Rights:
        return replace(self, volumes={name: written for name, written in self.volumes.items() if name != volume})

    def read_only(self, volume: str) -> Rights:
        return replace(self, volumes={**self.volumes, volume: False})


def shipped() -> Rights:
    """Return what the manifest gives."""
    documents = yaml.safe_load_all(MANIFEST.read_text(encoding="utf-8"))
    [spec] = [one["spec"]["template"]["spec"] for one in documents if one["kind"] == "DaemonSet"]
    (container,) = spec["containers"]
    context = container["securityContext"]
    assert context["capabilities"] == {"drop": ["ALL"]}
    assert context["readOnlyRootFilesystem"]
    assert context["seccompProfile"]["type"] == "Localhost"
    assert not context["allowPrivilegeEscalation"]
    assert not context["privileged"]
    assert spec["hostPID"]
    assert spec["hostNetwork"]
    volumes = {mount["name"]: not mount.get("readOnly", False) for mount in container["volumeMounts"]}
    return Rights(volumes, json.loads(PROFILE.read_text(encoding="utf-8")))


@dataclass(slots=True)
class ConfinedAgent:
    """An agent in a container of runc, over the same folders each time."""

    node: Runtime
    rights: Rights
    program: Sequence[str] = ()
    """Runs in place of the agent; empty means the agent."""
    tracer: Callable[[int], Sequence[str]] = lambda _number: ()
    """Words before runc's, by the number of the start."""
    metrics: int = 0
    """Port of metrics and health; 0 means any."""
    api_port: int = 9
    """Where the API server would be."""
    _runc: subprocess.Popen[bytes] | None = None
    _number: int = 0

    @property
    def folders(self) -> dict[str, Path]:
        """Volume -> folder or file of this test."""
        top = self.node.folder
        return {
            "configuration": top / "etc",
            "access": top / "access",
            "authority": top / "authority",
            "kubelet": top / "kubelet.yaml",
            "runtime": top,
            "cgroups": Path("/sys/fs/cgroup"),
            "tokens": top / "tokens",
            "state": top / "state-of-agent",
            "run": top / "run-of-agent",
        }

    @property
    def log(self) -> list[dict[str, Any]]:
        text = (self.node.folder / "agent.log").read_text(encoding="utf-8")
        return [json.loads(line) for line in text.splitlines() if line.startswith("{")]

    @property
    def output(self) -> str:
        return (self.node.folder / "agent.log").read_text(encoding="utf-8")

    @property
    def pid(self) -> int:
        return int(self._pid_file.read_text(encoding="ascii"))

    @property
    def _pid_file(self) -> Path:
        return self.node.folder / "agent.pid"

    def status(self) -> dict[str, Any]:
        return ask_status(str(self.folders["run"] / "status.sock"))

    def launch(self, *words: str) -> None:
        """Start the container, and wait for nothing."""
        self._number += 1
        bundle = Path(tempfile.mkdtemp(prefix="bundle-", dir=self.node.folder))
        (bundle / "rootfs").mkdir()
        self._pid_file.unlink(missing_ok=True)
        for name in ("configuration", "access", "authority", "tokens", "state", "run"):
            self.folders[name].mkdir(exist_ok=True)
        self.folders["kubelet"].write_text(
            "kind: KubeletConfiguration\napiVersion: kubelet.config.k8s.io/v1beta1\ncpuManagerPolicy: none\n", "utf-8"
        )
        configuration = _CONFIGURATION.format(**self.folders, nri=self.folders["runtime"], metrics=self.metrics)
        (self.folders["configuration"] / "agent.yaml").write_text(configuration, encoding="utf-8")
        (self.folders["configuration"] / "kubeconfig").write_text(_ACCESS.format(port=self.api_port), encoding="utf-8")
        (bundle / "config.json").write_text(json.dumps(self._specification(words, bundle)), encoding="utf-8")
        name = f"mooring-{bundle.name}"
        command = [
            *self.tracer(self._number),
            str(self.node.parts.runc),
            "--root",
            str(self.node.folder / "runc"),
            "run",
        ]
        command += ["--bundle", str(bundle), "--pid-file", str(self._pid_file), name]
        with (self.node.folder / "agent.log").open("ab") as log:
            self._runc = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)

    def start(self) -> None:
        """Start, and wait until the agent is ready."""
        self.launch()
        until(lambda: self.ended() or self.is_ready(), "the confined agent is ready", seconds=40)
        assert not self.ended(), self.output[-2000:]

    def ended(self) -> bool:
        return self._runc is None or self._runc.poll() is not None

    def is_ready(self) -> bool:
        with contextlib.suppress(InputError):
            return bool(self.status()["ready"])
        return False

    def code(self) -> int:
        """Wait for the end; return the exit code."""
        assert self._runc is not None
        return self._runc.wait(timeout=60)

    def end(self, sign: signal.Signals = signal.SIGTERM) -> int:
        """End it, where it has not ended; return the exit code."""
        assert self._runc is not None
        if self._runc.poll() is None:
            until(self._pid_file.exists, "runc has started the agent")
            os.kill(self.pid, sign)
        return self.code()

    def _specification(self, words: Sequence[str], bundle: Path) -> dict[str, Any]:
        """Return the configuration of the container, as a runtime would make it of the manifest."""
        config = str(self.folders["configuration"] / "agent.yaml")
        sets: dict[str, list[str]] = {name: [] for name in ("bounding", "effective", "permitted", "inheritable")}
        namespaces = ["mount", "ipc", "uts"]
        namespaces += ["cgroup"] if self.rights.cgroup_namespace else []
        return {
            "ociVersion": "1.0.2",
            "root": {"path": "rootfs", "readonly": True},
            "hostname": "mooring-e2e",
            "process": {
                "user": {"uid": 0, "gid": 0},
                "args": [*(self.program or (sys.executable, "-m", "mooring", "agent", "--config", config, *words))],
                "env": ["PATH=/usr/bin:/bin", "PYTHONDONTWRITEBYTECODE=1", "LANG=C.UTF-8"],
                "cwd": "/",
                "noNewPrivileges": True,
                "capabilities": sets,
            },
            "mounts": [*_system_mounts(), *self._volumes()],
            "linux": {
                "cgroupsPath": f"{self.node.cgroup_parent}/{bundle.name}",
                "namespaces": [{"type": name} for name in namespaces],
                "maskedPaths": [*_MASKED],
                "readonlyPaths": [*_READ_ONLY],
                "resources": {"devices": [{"allow": False, "access": "rwm"}]},
                "seccomp": self.rights.seccomp,
            },
        }

    def _volumes(self) -> Iterator[dict[str, Any]]:
        for name, written in self.rights.volumes.items():
            path = str(self.folders[name])
            yield _bind(path, "rw" if written else "rro")


def _system_mounts() -> Iterator[dict[str, Any]]:
    yield {"destination": "/proc", "type": "proc", "source": "proc"}
    yield {"destination": "/dev", "type": "tmpfs", "source": "tmpfs", "options": ["nosuid", "mode=755", "size=64k"]}
    yield {"destination": "/sys", "type": "sysfs", "source": "sysfs", "options": ["nosuid", "noexec", "nodev", "ro"]}
    for path in (*_IMAGE, sys.base_prefix, sys.prefix, str(ROOT / "src")):
        if Path(path).exists():
            yield _bind(path, "ro")


def _bind(path: str, mode: str) -> dict[str, Any]:
    return {
        "destination": path,
        "type": "none",
        "source": os.path.realpath(path),
        "options": ["rbind", "nosuid", mode],
    }


@contextlib.contextmanager
def confined(node: Runtime, change: Callable[[Rights], Rights] = lambda rights: rights) -> Iterator[ConfinedAgent]:
    """Make an agent with the shipped rights, changed; whatever a test leaves running is killed."""
    made = ConfinedAgent(node, change(shipped()))
    try:
        yield made
    finally:
        if not made.ended():
            made.end(signal.SIGKILL)


_QUOTA = "cpu.max" if UNIFIED else "cpu.cfs_quota_us"


def _quota(path: str) -> str:
    return read_cgroup(path, "cpu", _QUOTA).split()[0]


def everything(node: Runtime, agent: ConfinedAgent) -> None:
    """Pin, widen, release, lift a quota, refuse a resize, repair, come back from a kill, and leave."""
    agent.start()
    shared_pod, own_pod, next_pod = pod_on(node, "shared"), pod_on(node, "own"), pod_on(node, "next")
    for pod in (own_pod, next_pod):
        cgroup_file(pod.cgroup_parent, "cpu", _QUOTA).write_text("100000", encoding="ascii")
    shared = node.cri.run(shared_pod, "a")
    own = node.cri.run(own_pod, "b", resources=whole_cpus(1))
    mine = node.container_cgroup(own_pod, own)
    assert (node.cpus_of(own_pod, own), node.cpus_of(shared_pod, shared)) == ("1", "0")
    assert {_quota(mine), _quota(own_pod.cgroup_parent)} <= {"max", "-1"}
    with pytest.raises(CRIError, match=r"ResizeAllocateCPUs Error|Node didn't have enough"):
        node.cri.update(own, **whole_cpus(2))
    cgroup_file(mine, "cpuset", "cpuset.cpus").write_text("0-1\n", encoding="utf-8")
    until(lambda: node.cpus_of(own_pod, own) == "1", "the cpuset is repaired", seconds=30)
    assert agent.end(signal.SIGKILL) == 128 + signal.SIGKILL
    agent.start()
    assert agent.status()["cpus"]["exclusive"] == "1"
    node.cri.remove_pod(own_pod.id)
    until(lambda: node.cpus_of(shared_pod, shared) == "0-1", "the shared container has both CPUs again")
    again = node.cri.run(next_pod, "c", resources=whole_cpus(1))
    assert (node.cpus_of(next_pod, again), node.cpus_of(shared_pod, shared)) == ("1", "0")
    assert agent.end() == 0
    agent.launch("--leave")
    assert agent.code() == 0, agent.output[-2000:]
    assert (node.cpus_of(next_pod, again), node.cpus_of(shared_pod, shared)) == ("0-1", "0-1")
    assert _quota(next_pod.cgroup_parent) == "100000"
    assert [line for line in agent.log if line["level"] == "error"] == []
    assert "Traceback" not in agent.output, "no thread ended"
