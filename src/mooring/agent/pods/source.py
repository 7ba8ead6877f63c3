"""What a pod source is, and the choice among several."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Protocol

from mooring.agent.nri.types import PodSandbox, RuntimeContainer
from mooring.engine.core.pod import Pod

CONFIG_SOURCE = "kubernetes.io/config.source"
"""Annotation in which the kubelet says where it has a pod from: ``api``, ``file`` or ``http``."""
CONFIG_HASH = "kubernetes.io/config.hash"
"""Annotation of static pods: the uid that the kubelet gave them."""
_KEPT = ("mooring/", CONFIG_SOURCE, CONFIG_HASH)
_RUNTIME = "io.kubernetes.cri."
_LABELS = ("io.kubernetes.pod.uid", "io.kubernetes.pod.name", "io.kubernetes.pod.namespace")
"""Of every container that a kubelet makes. Source: kubelet v1.37.1, kuberuntime (newContainerLabels)."""
_LONGEST_ANNOTATION = 128
_LONGEST_OWN = 1024
MOST_ANNOTATIONS = 32
"""Annotations that are kept of a pod, short ones of others included."""


class OnePod(Protocol):
    """Knows pods as the kubelet decides about them, one at a time."""

    def pod(self, sandbox: PodSandbox) -> Pod | None:
        """Return the pod of a sandbox, with the sandbox's uid, or None when the source does not know it.

        Runs inside the runtime's request, so it takes a small bounded time and raises nothing.
        """


class PodSource(OnePod, Protocol):
    """Knows many at once, too."""

    def known(self, sandboxes: Iterable[PodSandbox]) -> Mapping[str, Pod]:
        """Return the pods of these sandboxes that the source knows, by uid; waits for none.

        For Synchronize, which tells of pods that are older than the question, and of very many.
        """


class ResizedSource(PodSource, Protocol):
    """Knows besides what becomes of pods that are resized."""

    def wanted(self, sandbox: PodSandbox) -> Pod | None:
        """Return the pod of a sandbox with the resources that it is to have, or None; waits for nothing."""


@dataclass(frozen=True, slots=True)
class PodSources:
    """Asks the folder for static pods, and the API server for all others.

    A static pod that the folder does not give (its manifest came from a URL, or was changed since) is asked of the API
    server too, which knows its mirror.
    """

    static: PodSource | None = None
    api: ResizedSource | None = None

    def pod(self, sandbox: PodSandbox) -> Pod | None:
        """Return the pod of a sandbox, or None."""
        if self.static is not None and is_static(sandbox):
            found = self.static.pod(sandbox)
            if found is not None:
                return found
        return None if self.api is None else self.api.pod(sandbox)

    def known(self, sandboxes: Iterable[PodSandbox]) -> Mapping[str, Pod]:
        """Return the pods of these sandboxes that are known, by uid."""
        asked = tuple(sandboxes)
        found = {} if self.static is None else self.static.known([one for one in asked if is_static(one)])
        others = [one for one in asked if one.uid not in found]
        return found if self.api is None else {**found, **self.api.known(others)}

    def wanted(self, sandbox: PodSandbox) -> Pod | None:
        """Return the pod with the resources that it is to have, or None; a static pod is never resized."""
        return None if self.api is None or is_static(sandbox) else self.api.wanted(sandbox)


@dataclass(frozen=True, slots=True)
class PodsAtHand:
    """What one question to a source brought; a source for those that take one pod at a time."""

    pods: Mapping[str, Pod]
    """By uid."""

    def pod(self, sandbox: PodSandbox) -> Pod | None:
        """Return the pod of a sandbox, or None."""
        return self.pods.get(sandbox.uid)


def labelled_sandbox(container: RuntimeContainer) -> PodSandbox | None:
    """Return a container's sandbox as far as the container's own labels tell; None where they name no pod.

    >>> labels = {"io.kubernetes.pod.uid": "u", "io.kubernetes.pod.name": "web", "io.kubernetes.pod.namespace": "shop"}
    >>> found = labelled_sandbox(RuntimeContainer("c", "s", "app", labels=labels, cgroups_path="/kubepods/podu/c"))
    >>> found.id, found.uid, found.cgroup_parent
    ('s', 'u', '/kubepods/podu')
    """
    uid, name, namespace = (container.labels.get(one, "") for one in _LABELS)
    if not uid:
        return None
    # The systemd driver writes slice, prefix and id with colons between them.
    slice_, is_systemd, _ = container.cgroups_path.partition(":")
    parent = slice_ if is_systemd else container.cgroups_path.rpartition("/")[0]
    return PodSandbox(container.pod_sandbox_id, uid, name, namespace, cgroup_parent=parent)


def is_static(pod: PodSandbox | Pod) -> bool:
    """Tell whether the kubelet has the pod from a manifest of its own and not from the API server.

    >>> is_static(PodSandbox("1", "u", "etcd-n1", "kube-system", annotations={CONFIG_SOURCE: "file"}))
    True
    """
    return pod.annotations.get(CONFIG_SOURCE, "api") != "api"


def kept_annotations(annotations: Mapping[str, str]) -> dict[str, str]:
    """Return the annotations that may matter: the agent's own, the kubelet's, and short ones of others.

    An operator may name any annotation by which pods opt out, so short ones are kept, up to a bound. Long ones, such as
    whole manifests, and those that the runtime adds are not.

    >>> kept_annotations({"example.com/unpinned": "true", "io.kubernetes.cri.sandbox-id": "1", "manifest": "x" * 999})
    {'example.com/unpinned': 'true'}
    """
    kept = {name: text for name, text in annotations.items() if name.startswith(_KEPT) and len(text) <= _LONGEST_OWN}
    for name, text in annotations.items():
        if len(kept) < MOST_ANNOTATIONS and len(text) <= _LONGEST_ANNOTATION and not name.startswith(_RUNTIME):
            kept[name] = text
    return kept
