"""The kubelet's control groups in the guest: those of pods, made and limited as its two drivers do.

With cgroupfs they are folders. With systemd they are slices that systemd makes when it is asked over the bus, with the
properties that the kubelet's library sets. Source: kubelet v1.37.1, cm/cgroup_manager_linux.go; opencontainers/cgroups
v0.0.4, systemd/v2.go.
"""

from __future__ import annotations

import os
import subprocess
from dataclasses import dataclass
from pathlib import Path

from tests.patience import until

from mooring.agent.pods.source import quota_of

CGROUPS = Path("/sys/fs/cgroup")
CONTROLLERS = "+cpuset +cpu +memory +pids"
_MANAGER = ("org.freedesktop.systemd1", "/org/freedesktop/systemd1", "org.freedesktop.systemd1.Manager")
_SECONDS = 120.0


@dataclass(frozen=True, slots=True)
class Driver:
    """How groups are named and made."""

    systemd: bool = False

    def pod(self, uid: str, quality: str) -> str:
        """Return the group of a pod as the kubelet tells it to the runtime.

        Args:
            uid: of the pod.
            quality: its QoS class in small letters; ``guaranteed`` has no group of its own.
        """
        words = ["kubepods", *([] if quality == "guaranteed" else [quality]), f"pod{uid}"]
        if not self.systemd:
            return "/" + "/".join(words)
        escaped = [word.replace("-", "_") for word in words]
        return "/" + "/".join("-".join(escaped[: count + 1]) + ".slice" for count in range(len(escaped)))

    def container(self, pod: str, container: str, prefix: str) -> Path:
        """Return the folder of a container's group.

        Args:
            pod: the pod's group.
            container: id.
            prefix: that the runtime gives it, without the dash.
        """
        above = CGROUPS / pod.lstrip("/")
        if self.systemd:
            return above / f"{prefix}-{container}.scope"
        return above / (f"{prefix}-{container}" if prefix == "crio" else container)

    def make(self, pod: str) -> None:
        """Make the group of a pod and those above it, with the controllers that containers need."""
        parts = pod.strip("/").split("/")
        for number, part in enumerate(parts):
            folder = CGROUPS.joinpath(*parts[: number + 1])
            if not folder.exists():
                if self.systemd:
                    _start_slice(part, parts[number - 1] if number else "")
                    until(folder.exists, f"systemd makes {part}", seconds=_SECONDS, pause=0.05)
                else:
                    folder.mkdir()
        for number in range(len(parts) + 1):
            # systemd takes controllers away that no unit below needs; a container needs them all.
            (CGROUPS.joinpath(*parts[:number]) / "cgroup.subtree_control").write_text(CONTROLLERS)

    def limit(self, pod: str, milli: int) -> None:
        """Give a pod a quota for as many thousandths of a CPU."""
        if not self.systemd:
            (CGROUPS / pod.lstrip("/") / "cpu.max").write_text(f"{quota_of(milli)} 100000")
            return
        call("SetUnitProperties", "sba(sv)", Path(pod).name, "true", "1", *_quota(milli))

    def remove(self, pod: str) -> None:
        """Remove the group of a pod that has ended."""
        folder = CGROUPS / pod.lstrip("/")
        if self.systemd:
            call("StopUnit", "ss", folder.name, "replace")
            until(lambda: not folder.exists(), f"systemd removes {folder.name}", seconds=_SECONDS, pause=0.05)
        elif folder.exists():
            folder.rmdir()


def call(method: str, signature: str, *words: str) -> str:
    """Call a method of systemd and return what it answers."""
    command = ["busctl", "call", *_MANAGER, method, signature, *words]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env={**os.environ})
    assert done.returncode == 0, (command, done.stderr)
    return done.stdout


def reload() -> None:
    """Have systemd read all units again, as ``systemctl daemon-reload`` does."""
    call("Reload", "")


def _start_slice(name: str, above: str) -> None:
    flags = ("MemoryAccounting", "CPUAccounting", "TasksAccounting", "IOAccounting")
    accounting = [word for flag in flags for word in (flag, "b", "true")]
    wants = ["Wants", "as", "1", above] if above else []
    count = len(flags) + 1 + bool(wants)
    properties = [*accounting, "DefaultDependencies", "b", "false", *wants]
    call("StartTransientUnit", "ssa(sv)a(sa(sv))", name, "replace", str(count), *properties, "0")


def _quota(milli: int) -> tuple[str, ...]:
    return ("CPUQuotaPerSecUSec", "t", str(milli * 1000))
