"""The QoS class of a pod, read off the cgroup into which the kubelet puts it.

Source: kubelet v1.37.1, cm/pod_container_manager_linux.go. With the cgroupfs driver the parent is
``/kubepods/burstable/podUID``, with systemd it ends in ``kubepods-burstable-podUID.slice``; a ``cgroupRoot`` comes
before either. Guaranteed pods lie directly below ``kubepods``.
"""

from __future__ import annotations

from mooring.core.pod import QoS

_KUBEPODS = "kubepods"
_CLASSES = {"burstable": QoS.BURSTABLE, "besteffort": QoS.BEST_EFFORT}
_SLICE = ".slice"


def qos_of_cgroup(parent: str) -> QoS | None:
    """Return the class, or None when the path is none of the kubelet's (``cgroupsPerQOS: false``, other clients).

    >>> qos_of_cgroup("/kubepods/podb2").value, qos_of_cgroup("/kubepods/besteffort/podb2").value
    ('Guaranteed', 'BestEffort')
    >>> qos_of_cgroup("/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-podb2.slice").value
    'Burstable'
    """
    words = _words(parent)
    if _KUBEPODS not in words:
        return None
    below = words[len(words) - words[::-1].index(_KUBEPODS) :]
    if below and below[0] in _CLASSES:
        return _CLASSES[below[0]]
    return QoS.GUARANTEED if below and below[0].startswith("pod") else None


def _words(parent: str) -> list[str]:
    parts = [part for part in parent.split("/") if part]
    if parts and parts[-1].endswith(_SLICE):
        # A slice names all slices above it; systemd writes a dash of a name as an underscore.
        return parts[-1].removesuffix(_SLICE).split("-")
    return parts
