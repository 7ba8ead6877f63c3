"""Who owns the CPUs of this node? A driver gives away what is another's as long as the kubelet gives CPUs too."""

from __future__ import annotations

from pathlib import Path

import msgspec

from mooring.core.errors import InputError

_REMEDY = "let mooring agent place containers, and set the kubelet's cpuManagerPolicy to none"


def refuse_static_kubelet(kubelet_root: Path, configuration: Path | None) -> None:
    """Refuse a node whose kubelet gives exclusive CPUs itself.

    Args:
        kubelet_root: the kubelet's root directory, with its state file.
        configuration: the kubelet's file; None when nobody named it.

    Raises:
        InputError: the kubelet's CPU manager has the policy static.
    """
    from mooring.manifest.configuration import load_config  # noqa: PLC0415 - YAML is only needed for it

    state = kubelet_root / "cpu_manager_state"
    if configuration is not None and load_config(str(configuration)).kubelet.cpu_manager_policy == "static":
        problem = "the kubelet gives CPUs to containers itself (cpuManagerPolicy: static), and two cannot own them"
        raise InputError(problem, source=str(configuration), remedy=_REMEDY)
    try:
        content = msgspec.json.decode(state.read_bytes())
    except (OSError, msgspec.MsgspecError):
        return
    if isinstance(content, dict) and content.get("policyName") == "static":
        problem = "the kubelet gives CPUs to containers itself (its policy is static), and two cannot own them"
        raise InputError(problem, source=str(state), remedy=_REMEDY)
