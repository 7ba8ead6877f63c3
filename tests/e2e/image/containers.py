"""Containers of Mooring's image, with the rights that the manifests of ``deploy`` give them."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml
from tests.e2e.containerd.agent_process import pod_on
from tests.e2e.containerd.confined import PROFILE
from tests.e2e.containerd.cri import MESSAGES
from tests.e2e.containerd.runtime import Runtime
from tests.e2e.image.archive import ROOT
from tests.patience import until

NOT_ROOT = {"runAsUser": 65532}
_NODE_NAMESPACE = 2
_PROFILES = {"RuntimeDefault": 0, "Unconfined": 1, "Localhost": 2}
_SECCOMP = ROOT / "charts" / "mooring" / "files" / "seccomp.json"
_numbers = itertools.count(1)


def pod_template(manifest: str) -> dict[str, Any]:
    """Return the pod specification of the DaemonSet in a file of ``deploy``."""
    documents = yaml.safe_load_all((ROOT / "deploy" / manifest).read_text(encoding="utf-8"))
    (found,) = (one for one in documents if one["kind"] == "DaemonSet")
    spec: dict[str, Any] = found["spec"]["template"]["spec"]
    return spec


def start(
    node: Runtime,
    image: str,
    args: Sequence[str],
    context: Mapping[str, Any],
    *,
    mounts: Mapping[str, tuple[Path, bool]] | None = None,
    host_pid: bool = False,
) -> tuple[str, Path]:
    """Start a container in a pod of its own; return its id and the file of its output.

    Args:
        node: the runtime.
        image: name.
        args: of its entry point.
        context: a container's securityContext; what it leaves out is as strict as a manifest can be.
        mounts: path in the container -> path of the host, and whether it can be written.
        host_pid: whether it sees the processes of the host.
    """
    name = f"mooring-{next(_numbers)}"
    pod = pod_on(node, name)
    log = node.folder / f"{name}.log"

    def amend(config: Any) -> None:
        config.image.image = config.image.user_specified_image = image
        config.args.extend(args)
        config.log_path = str(log.relative_to(pod.config.log_directory))
        for there, (here, written) in (mounts or {}).items():
            config.mounts.add(container_path=there, host_path=str(here), readonly=not written)
        security = config.linux.security_context
        if host_pid:
            security.namespace_options.pid = _NODE_NAMESPACE
        security.readonly_rootfs = context.get("readOnlyRootFilesystem", True)
        security.no_new_privs = not context.get("allowPrivilegeEscalation", False)
        security.capabilities.drop_capabilities.extend(context.get("capabilities", {}).get("drop", ["ALL"]))
        if "runAsUser" in context:
            security.run_as_user.CopyFrom(MESSAGES["Number"](value=context["runAsUser"]))
        profile = context.get("seccompProfile", {"type": "RuntimeDefault"})["type"]
        security.seccomp.profile_type = _PROFILES[profile]
        if profile == "Localhost":
            security.seccomp.localhost_ref = str(PROFILE)

    return node.cri.run(pod, "mooring", amend=amend), log


def output_of(node: Runtime, image: str, *args: str, **settings: Any) -> tuple[int, str]:
    """Run a container to its end, without root; return exit code and output."""
    container, log = start(node, image, args, NOT_ROOT, **settings)
    until(lambda: node.cri.containers()[container] == "EXITED", f"mooring {args[0]} ends", seconds=60)
    return int(node.cri.status(container).exit_code), printed(log)


def printed(log: Path) -> str:
    """Return what a container printed, of the runtime's log: each line has time, stream and whether it is whole."""
    lines = log.read_text(encoding="utf-8").splitlines() if log.exists() else []
    parts = (line.split(" ", 3) for line in lines)
    return "".join(text + ("\n" if tag == "F" else "") for _time, _stream, tag, text in parts)
