"""The path of a control group from what a runtime calls it.

Runtimes name the group of a container in two forms: a plain path (cgroupfs driver) or ``slice:prefix:id`` (systemd
driver, where the unit is ``prefix-id.scope`` inside of the slice). A slice names all slices above it:
``a-b.slice`` lies in ``a.slice``.

Source: OCI runtime specification, ``linux.cgroupsPath``; systemd.slice(5); measured with containerd 2.1.9.
"""

from __future__ import annotations

_SLICE = ".slice"
_DEFAULT_SLICE = "system.slice"
"""Where the runtime puts scopes that name no slice."""

_ABOVE_PODS = frozenset({"kubepods", "burstable", "besteffort"})


def group_path(name: str) -> str | None:
    """Return the path of a group below the top of its hierarchy; None when ``name`` is the name of none.

    The top itself is no group of a container, so that the empty name and ``/`` are None too.

    >>> group_path("/kubepods/burstable/podb2/c3")
    'kubepods/burstable/podb2/c3'
    >>> group_path("kubepods-podb2.slice:cri-containerd:c3")
    'kubepods.slice/kubepods-podb2.slice/cri-containerd-c3.scope'
    >>> group_path("kubepods-podb2.slice")
    'kubepods.slice/kubepods-podb2.slice'
    >>> group_path("/kubepods/../init"), group_path("/")
    (None, None)
    """
    if name.count(":") == 2 and "/" not in name:
        return _scope(*name.split(":"))
    parts = [part for part in name.split("/") if part]
    if not parts or any(part in {".", ".."} or "\0" in part for part in parts):
        return None
    if len(parts) == 1 and parts[0].endswith(_SLICE) and not name.startswith("/"):
        return expanded_slice(parts[0]) or None
    return "/".join(parts)


def is_above_pods(name: str) -> bool:
    """Tell whether a group is the kubelet's for many pods: for all of them or for a QoS class.

    >>> is_above_pods("/kubepods/burstable"), is_above_pods("kubepods-besteffort.slice")
    (True, True)
    >>> is_above_pods("/kubepods/podb2"), is_above_pods("kubepods-burstable-podb2.slice")
    (False, False)
    """
    last = name.rstrip("/").rpartition("/")[2].removesuffix(_SLICE)
    return last.rpartition("-")[2] in _ABOVE_PODS


def _scope(slice_name: str, prefix: str, container: str) -> str | None:
    folder = expanded_slice(slice_name or _DEFAULT_SLICE)
    if folder is None or not container:
        return None
    # A unit whose name says that it is a slice gets no prefix.
    unit = (
        container if container.endswith(_SLICE) else f"{prefix}-{container}.scope" if prefix else f"{container}.scope"
    )
    return f"{folder}/{unit}".lstrip("/")


def expanded_slice(name: str) -> str | None:
    """Return the path of a slice; empty for the root slice, None when ``name`` is no slice.

    >>> expanded_slice("kubepods-burstable-podb2.slice")
    'kubepods.slice/kubepods-burstable.slice/kubepods-burstable-podb2.slice'
    >>> expanded_slice("-.slice"), expanded_slice("a--b.slice"), expanded_slice("a")
    ('', None, None)
    """
    if not name.endswith(_SLICE) or "/" in name:
        return None
    if name == f"-{_SLICE}":
        return ""
    words = name.removesuffix(_SLICE).split("-")
    if not all(words):
        return None
    return "/".join("-".join(words[: count + 1]) + _SLICE for count in range(len(words)))
