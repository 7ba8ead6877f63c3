"""Pods of the API server, reduced to what the extender reads, and kept small; with what their nodes have allocated.

A cluster has a hundred thousand pods of a few hundred shapes: replicas share everything but their names.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

import msgspec

from mooring.engine.core.errors import InputError
from mooring.engine.core.pod import Pod
from mooring.engine.extensions import device_alignment
from mooring.engine.kubelet.shapes import shape_key
from mooring.inputs.pods.pod_fields import SCALE_DOWN_ANNOTATION as SCALE_DOWN
from mooring.inputs.pods.pod_fields import SCALE_DOWN_FIELD, with_allocated
from mooring.inputs.pods.pod_status import FINISHED
from mooring.inputs.pods.pods import MIRROR, pod_from_object

SOURCE: Final = "API server"
_KEPT: Final = (MIRROR, SCALE_DOWN, device_alignment.ANNOTATION)
_MOST_SHAPES: Final = 20_000


class _PodMetadata(msgspec.Struct, omit_defaults=True):
    name: str = ""
    namespace: str = ""
    uid: str = ""
    generateName: str = ""  # noqa: N815 - the field's name on the wire
    resourceVersion: str = ""  # noqa: N815 - as above
    deletionTimestamp: str | None = None  # noqa: N815 - as above
    annotations: dict[str, Any] | None = None


class _Resources(msgspec.Struct, omit_defaults=True):
    requests: dict[str, Any] | None = None
    limits: dict[str, Any] | None = None
    claims: list[Any] | None = None


class _Container(msgspec.Struct, omit_defaults=True):
    name: str = ""
    restartPolicy: str | None = None  # noqa: N815 - as above
    resources: _Resources | None = None


class _PodSpec(msgspec.Struct, omit_defaults=True, rename={"scale_down": SCALE_DOWN_FIELD}):
    nodeName: str = ""  # noqa: N815 - as above
    containers: list[_Container] = []
    initContainers: list[_Container] | None = None  # noqa: N815 - as above
    resources: _Resources | None = None
    overhead: dict[str, Any] | None = None
    priority: int | None = None
    resourceClaims: list[Any] | None = None  # noqa: N815 - as above
    scale_down: Any = None


class _ContainerStatus(msgspec.Struct, omit_defaults=True):
    name: str = ""
    allocatedResources: dict[str, Any] | None = None  # noqa: N815 - as above
    resources: _Resources | None = None


class _Status(msgspec.Struct, omit_defaults=True):
    phase: str = ""
    reason: str = ""
    nominatedNodeName: str = ""  # noqa: N815 - as above
    qosClass: str = ""  # noqa: N815 - as above
    containerStatuses: list[_ContainerStatus] | None = None  # noqa: N815 - as above
    initContainerStatuses: list[_ContainerStatus] | None = None  # noqa: N815 - as above
    allocatedResources: dict[str, Any] | None = None  # noqa: N815 - as above
    resources: _Resources | None = None
    resourceClaimStatuses: list[Any] | None = None  # noqa: N815 - as above
    extendedResourceClaimStatus: dict[str, Any] | None = None  # noqa: N815 - as above


class _SeenPodObject(msgspec.Struct, omit_defaults=True):
    """A v1 Pod, as far as it is read."""

    metadata: _PodMetadata = msgspec.field(default_factory=_PodMetadata)
    spec: _PodSpec = msgspec.field(default_factory=_PodSpec)
    status: _Status = msgspec.field(default_factory=_Status)


@dataclass(frozen=True, slots=True)
class Seen:
    """A pod as the API server has it."""

    pod: Pod
    node: str = ""
    """Where it is bound; empty when it is not."""
    nominated: str = ""
    """The node on which others were preempted for it, while it is not bound."""
    leaving: bool = False
    """Whether it is being deleted."""
    finished: bool = False
    refusal: str = ""
    """Why a node refused it, where one did."""


class Shapes:
    """Lets pods of one shape share what they have in common."""

    def __init__(self) -> None:
        """Begin without any."""
        self._known: dict[bytes, Pod] = {}

    def shared(self, pod: Pod) -> Pod:
        """Return the pod with parts that are shared with other pods of its shape."""
        if len(self._known) >= _MOST_SHAPES:
            self._known.clear()
        kept = {name: value for name, value in pod.annotations.items() if name in _KEPT}
        if pod.claims:
            # Claims are a pod's own.
            return replace(pod, annotations=kept or _NONE)
        first = self._known.setdefault(shape_key(pod), pod)
        return replace(
            pod,
            containers=first.containers,
            resources=first.resources,
            overhead=first.overhead,
            annotations=kept or _NONE,
        )


_NONE: Mapping[str, str] = {}


def pod_of(found: _SeenPodObject, shapes: Shapes) -> Pod:
    """Return the pod as its node counts it: while a resize is on its way, with what is allocated.

    Raises:
        InputError: the object is no pod that an API server would store.
    """
    content = {"spec": {}, **msgspec.to_builtins(found)}
    try:
        return shapes.shared(pod_from_object(with_allocated(content), source=SOURCE))
    except InputError as error:
        raise error.at(SOURCE) from None


def seen_pod(data: bytes | msgspec.Raw, shapes: Shapes) -> Seen:
    """Return a pod from its JSON.

    Raises:
        InputError: it is none.
    """
    try:
        found = msgspec.json.decode(data, type=_SeenPodObject)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise InputError(f"the pod cannot be read: {error}", source=SOURCE) from None
    status = found.status
    return Seen(
        pod_of(found, shapes),
        found.spec.nodeName,
        "" if found.spec.nodeName else status.nominatedNodeName,
        found.metadata.deletionTimestamp is not None,
        status.phase in FINISHED,
        status.reason if status.phase == "Failed" else "",
    )
