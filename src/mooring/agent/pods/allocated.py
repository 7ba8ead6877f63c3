"""A Pod of the API server as the node's kubelet has it, and as it is to be while a resize is on its way."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from mooring.agent.pods.source import kept_annotations
from mooring.core.errors import InputError
from mooring.core.pod import Pod
from mooring.manifest.allocated import with_allocated
from mooring.manifest.defaults import PodGates
from mooring.manifest.pods import DEFAULT_GATES, pod_from_object


def pod_of_object(obj: Mapping[str, Any], *, source: str, gates: PodGates = DEFAULT_GATES) -> Pod:
    """Return the pod that the kubelet decides about, with the annotations that the agent reads.

    Raises:
        InputError: the object is no pod that an API server would store.
    """
    try:
        pod = pod_from_object(with_allocated(obj), source=source, gates=gates)
    except InputError as error:
        raise error.at(source) from None
    return replace(pod, annotations=kept_annotations(pod.annotations))


def wanted_pod(obj: Mapping[str, Any], *, source: str, gates: PodGates = DEFAULT_GATES) -> Pod | None:
    """Return the pod with the resources that it is to have; None when these are allocated.

    Raises:
        InputError: the object is no pod that an API server would store.
    """
    return pod_from_object(obj, source=source, gates=gates) if with_allocated(obj) is not obj else None
