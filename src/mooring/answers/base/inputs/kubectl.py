"""Asking a cluster about a node through kubectl, which has the person's access to it; without it nothing is asked."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import quote

from mooring.engine.core.machine import Finding
from mooring.inputs.archive.collect import ClusterAnswers

PATIENCE: Final = 20
"""Seconds that one question may take."""
KUBELET_KUBECONFIG: Final = Path("/etc/kubernetes/kubelet.conf")
"""The kubelet's own access, which may read its node and the pods on it; installers put it there."""
_SHORT = 5
"""Seconds for one question where the cluster is not what the command is about."""
_NODE = re.compile(r"[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?", re.ASCII)


class NoAnswerError(Exception):
    """Kubectl could not answer; the text says why."""


@dataclass(frozen=True, slots=True)
class Kubectl:
    """The program."""

    program: str

    def json(self, *arguments: str, seconds: int = PATIENCE) -> object:
        """Return an answer in JSON.

        Args:
            arguments: of kubectl.
            seconds: that the API server may take.

        Raises:
            NoAnswerError: there is none.
        """
        text = self.run(f"--request-timeout={seconds}s", *arguments, seconds=2 * seconds)
        try:
            document: object = json.loads(text)
        except ValueError:
            raise NoAnswerError("the answer is not JSON") from None
        return document

    def run(self, *arguments: str, seconds: int, given: bytes = b"") -> bytes:
        """Return what a command prints.

        Args:
            arguments: of kubectl.
            seconds: after which it is ended.
            given: its standard input.

        Raises:
            NoAnswerError: it fails, or takes too long.
        """
        try:
            # Empty standard input ends at once, as no input does.
            finished = subprocess.run(  # noqa: S603 - a fixed program with arguments of ours, without a shell
                [self.program, *_access(), *arguments], capture_output=True, check=False, timeout=seconds, input=given
            )
        except subprocess.TimeoutExpired:
            raise NoAnswerError("does not answer") from None
        except (OSError, ValueError) as error:
            raise NoAnswerError(str(error)) from None
        if finished.returncode:
            lines = finished.stderr.decode(errors="replace").strip().splitlines()
            raise NoAnswerError(lines[-1] if lines else f"failed with code {finished.returncode}")
        return finished.stdout


def installed_kubectl() -> Kubectl | None:
    """Return kubectl; None where it is not installed."""
    program = shutil.which("kubectl")
    return None if program is None else Kubectl(program)


def is_node_name(text: str) -> bool:
    """Tell whether a node can have this name; nothing else gets on a command line.

    >>> is_node_name("worker-1.example"), is_node_name("--all"), is_node_name("a/b")
    (True, False, False)
    """
    return _NODE.fullmatch(text) is not None


def _access() -> list[str]:
    own = os.environ.get("KUBECONFIG") or Path("~/.kube/config").expanduser().exists()
    return [] if own or not KUBELET_KUBECONFIG.exists() else [f"--kubeconfig={KUBELET_KUBECONFIG}"]


def ask_pods(node: str) -> ClusterAnswers:
    """Return the pods of a node; a cluster that does not answer soon is left alone.

    Args:
        node: its name.
    """
    kubectl = installed_kubectl()
    if kubectl is None or not is_node_name(node):
        return ClusterAnswers(pods_problem="kubectl is not installed; give them with --active")
    try:
        pods = pods_of(kubectl, node, _SHORT)
        return ClusterAnswers(pods=pods, dynamic=dynamic_of(kubectl, node, pods, _SHORT))
    except NoAnswerError:
        return ClusterAnswers(pods_problem="kubectl did not answer; give them with --active")


def ask_cluster(node: str, *, with_pods: bool = True) -> ClusterAnswers:
    """Return what the cluster has about a node: its pods, its kubelet's configuration and version.

    Whatever cannot be had is left out; the reason why there are no pods is kept.

    Args:
        node: its name.
        with_pods: collect the pods too.
    """
    kubectl = installed_kubectl()
    if kubectl is None:
        return ClusterAnswers(pods_problem="kubectl is not installed; give --pods")
    if not is_node_name(node):
        return ClusterAnswers(pods_problem="the node's name is unknown; give --node-name")
    pods: object = None
    try:
        if with_pods:
            pods = pods_of(kubectl, node)
    except NoAnswerError as error:
        # The reason can name servers: it is for the person, and not for the archive.
        told = Finding("warning", "kubectl", f"{error}; give the pods with --pods, or --no-kubectl to do without")
        return ClusterAnswers(pods_problem="kubectl did not answer", findings=(told,))
    configz: object = None
    described: object = None
    # Few identities may ask a kubelet for its configuration; its file is read instead.
    with suppress(NoAnswerError):
        configz = kubectl.json("get", "--raw", f"/api/v1/nodes/{quote(node, safe='')}/proxy/configz")
    with suppress(NoAnswerError):
        described = kubectl.json("get", "node", node, "-o", "json")
    dynamic = () if pods is None else dynamic_of(kubectl, node, pods)
    return ClusterAnswers(pods=pods, configz=configz, version=version_of(described), dynamic=dynamic)


def pods_of(kubectl: Kubectl, node: str, seconds: int = PATIENCE) -> object:
    """Return the pods that are bound to a node.

    Raises:
        NoAnswerError: there is no answer.
    """
    selector = f"--field-selector=spec.nodeName={node}"
    return kubectl.json("get", "pods", "--all-namespaces", selector, "-o", "json", seconds=seconds)


def dynamic_of(kubectl: Kubectl, node: str, pods: object, seconds: int = PATIENCE) -> tuple[object, ...]:
    """Return the slices of a node and the claims of all pods; nothing where no pod of the node has a claim.

    Clusters without dynamic resource allocation, and persons who may not see its objects, get no answer.
    """
    items = pods.get("items") if isinstance(pods, dict) else None
    if not any(_has_claims(pod) for pod in (items if isinstance(items, list) else ())):
        return ()
    answers: list[object] = []
    with suppress(NoAnswerError):
        selector = f"--field-selector=spec.nodeName={node}"
        answers.append(kubectl.json("get", "resourceslices", selector, "-o", "json", seconds=seconds))
        answers.append(kubectl.json("get", "resourceclaims", "--all-namespaces", "-o", "json", seconds=seconds))
    return tuple(answers)


def _has_claims(pod: object) -> bool:
    spec, status = ((pod.get(part) if isinstance(pod, dict) else None) for part in ("spec", "status"))
    return bool(isinstance(spec, dict) and spec.get("resourceClaims")) or bool(
        isinstance(status, dict) and status.get("extendedResourceClaimStatus")
    )


def version_of(node: object) -> str:
    """Return the version of a Node's kubelet; empty where it has none."""
    found = node
    for name in ("status", "nodeInfo", "kubeletVersion"):
        found = found.get(name) if isinstance(found, dict) else None
    return found if isinstance(found, str) else ""
