"""Asking a cluster about a node through kubectl, which has the person's access to it; without it nothing is asked.

A node of the cluster can be what a question is about: ``kubectl mooring show --node worker-1``. kubectl tells its pods.
Machine, configuration and state files are what ``mooring publish`` or ``mooring agent`` published about it; where
nothing is published, a pod on the node collects them, if the person agrees, and is deleted.
"""

from __future__ import annotations

import json
import os
import re
import secrets
import shutil
import subprocess
import sys
import tempfile
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

import click
import msgspec

from mooring.documents.machine import ArchivePart, NodeArchiveDocument
from mooring.engine.core.errors import InputError
from mooring.engine.core.machine import Finding
from mooring.inputs.archive.collect import ClusterAnswers, OverlaidTree
from mooring.inputs.archive.reader import (
    CLAIMS,
    CONFIGURATION_PART,
    CPU_STATE,
    DEVICES,
    KUBELET_CONFIG,
    MACHINE_INFO,
    MACHINE_PART,
    MEMORY_STATE,
    MOORING_CONFIG,
    PODS,
    PODS_PART,
    STATE_PART,
    NodeArchive,
    open_node,
)
from mooring.inputs.configuration.devices import devices_document
from mooring.inputs.machines.archive import ArchiveTree
from mooring.inputs.machines.machineinfo_json import machine_info_document
from mooring.published.facts_document import facts_of, kubelet_document, mooring_document
from mooring.published.objects import FACTS, GROUP, PLURALS, STATE, NodeFacts, NodeState, state_of

PATIENCE: Final = 20
"""Seconds that one question may take."""
KUBELET_KUBECONFIG: Final = Path("/etc/kubernetes/kubelet.conf")
"""The kubelet's own access, which may read its node and the pods on it; installers put it there."""
_SHORT = 5
"""Seconds for one question where the cluster is not what the command is about."""
_NODE = re.compile(r"[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?", re.ASCII)
IMAGE: Final = "mooring:latest"
"""The project's image, with mooring and a shell."""
_START: Final = 120
"""Seconds that a pod may take to start, its image included."""
_LIFE: Final = 600
"""Seconds after which the pod ends by itself, should nothing delete it."""
_PUBLISHED: Final = "published"
_SUFFIXES: Final = (".tar", ".gz", ".tgz", ".xz", ".bz2")


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


def may_be_cluster_node(source: str) -> bool:
    """Tell whether a text that is no file can be the name of a node, and a cluster can be asked about it."""
    if not is_node_name(source) or source.endswith(_SUFFIXES) or Path(source).exists():
        return False
    return installed_kubectl() is not None


def cluster_node(name: str, image: str = "") -> NodeArchive:
    """Return a node of the cluster as it is now.

    Args:
        name: of the node.
        image: of the pod that collects where nothing is published; empty to ask the person first.

    Raises:
        InputError: there is no such node, what is published cannot be used, or the person does not agree.
    """
    kubectl = installed_kubectl()
    if kubectl is None:
        raise InputError("is not a file, and kubectl is not installed", source=name, field="--node")
    try:
        described = kubectl.json("get", "node", name, "-o", "json")
    except NoAnswerError as error:
        remedy = "name an archive of mooring collect, or a node of kubectl get nodes"
        raise InputError(f"is neither a file nor a node: {error}", source=name, field="--node", remedy=remedy) from None
    try:
        pods = pods_of(kubectl, name)
        dynamic = dynamic_of(kubectl, name, pods)
        answers = ClusterAnswers(pods=pods, version=version_of(described), dynamic=dynamic)
    except NoAnswerError as error:
        answers = ClusterAnswers(pods_problem=str(error), version=version_of(described))
    published = _published(kubectl, name)
    if published is not None:
        return _of_publication(name, *published, answers)
    _agree(name, image)
    return _collected(kubectl, name, image or IMAGE, answers)


def _published(kubectl: Kubectl, name: str) -> tuple[NodeFacts, NodeState] | None:
    """Return what is published about a node; None where nothing is."""
    with suppress(NoAnswerError):
        state = state_of(kubectl.json("get", f"{PLURALS[STATE]}.{GROUP}", name, "-o", "json"))
        return facts_of(kubectl.json("get", f"{PLURALS[FACTS]}.{GROUP}", state.facts, "-o", "json")), state
    return None


def _of_publication(name: str, facts: NodeFacts, state: NodeState, answers: ClusterAnswers) -> NodeArchive:
    documents = {
        MACHINE_INFO: machine_info_document(facts.machine),
        KUBELET_CONFIG: kubelet_document(facts.config),
        MOORING_CONFIG: mooring_document(facts.mooring),
        DEVICES: devices_document(state.devices.devices),
    }
    files = {path: msgspec.json.encode(document) for path, document in documents.items()}
    for path, text in ((CPU_STATE, state.files.cpu), (MEMORY_STATE, state.files.memory)):
        if text is not None:
            files[path] = text.encode(errors="surrogateescape")
    parts = [ArchivePart(part, _PUBLISHED) for part in (MACHINE_PART, CONFIGURATION_PART, STATE_PART)]
    files, pods = _with_pods(files, answers)
    about = NodeArchiveDocument(node=name, kubelet=facts.mooring.release.name, parts=[*parts, pods])
    return NodeArchive(ArchiveTree(f"node {name}", files), about, origin=f"node {name} of the cluster")


def _with_pods(files: dict[str, bytes], answers: ClusterAnswers) -> tuple[dict[str, bytes], ArchivePart]:
    if answers.pods is None:
        return files, ArchivePart(PODS_PART, missing=answers.pods_problem)
    files = {**files, PODS: json.dumps(answers.pods).encode()}
    if answers.dynamic:
        files[CLAIMS] = json.dumps({"apiVersion": "v1", "kind": "List", "items": list(answers.dynamic)}).encode()
    return files, ArchivePart(PODS_PART, "kubectl", 1)


def _agree(name: str, image: str) -> None:
    """Ask the person about the pod, unless the option agreed to it.

    Raises:
        InputError: the person does not agree, or cannot be asked.
    """
    problem = "is a node about which nothing is published"
    remedy = "let mooring publish run on it, or add --debug-image IMAGE to collect it in a pod"
    question = f"Nothing is published about {name}. Read its files in a pod of {IMAGE} there, and delete the pod then?"
    if image:
        return
    if not sys.stdin.isatty() or not click.confirm(question, err=True):
        raise InputError(problem, source=name, field="--node", remedy=remedy)


def _collected(kubectl: Kubectl, name: str, image: str, answers: ClusterAnswers) -> NodeArchive:
    """Collect a node in a pod of it.

    Raises:
        InputError: the pod does not start, or collects nothing.
    """
    pod = f"mooring-collect-{secrets.token_hex(4)}"
    command = ["mooring", "collect", "--root", "/host", "--no-kubectl", "--node-name", name, "--to", "-"]
    try:
        try:
            kubectl.run("create", "-f", "-", seconds=PATIENCE, given=json.dumps(_pod(pod, name, image)).encode())
            wait = f"--timeout={_START}s"
            kubectl.run("wait", f"pod/{pod}", "--for=condition=Ready", wait, seconds=_START + PATIENCE)
            packed = kubectl.run("exec", pod, "--", *command, seconds=_START)
        finally:
            kubectl.run("delete", "pod", pod, "--ignore-not-found", "--wait=false", seconds=PATIENCE)
    except NoAnswerError as error:
        problem = f"cannot be collected in a pod of {image}: {error}"
        remedy = "name another image with --debug-image, or collect it with mooring collect"
        raise InputError(problem, source=name, field="--node", remedy=remedy) from None
    with tempfile.NamedTemporaryFile(suffix=".tar.gz") as file:
        file.write(packed)
        file.flush()
        archive = open_node(file.name)
    files, pods = _with_pods({}, answers)
    parts = [one for one in archive.about.parts if one.name != PODS_PART]
    about = msgspec.structs.replace(archive.about, parts=[*parts, pods], kubelet=answers.version)
    return replace(
        archive,
        tree=OverlaidTree(archive.tree, files),
        about=about,
        origin=f"node {name} of the cluster, collected by {pod}",
    )


def _pod(name: str, node: str, image: str) -> dict[str, Any]:
    """Return a pod that only reads: the node's root directory and its processes."""
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": {"app.kubernetes.io/name": "mooring-collect"}},
        "spec": {
            "nodeName": node,
            "restartPolicy": "Never",
            "activeDeadlineSeconds": _LIFE,
            "terminationGracePeriodSeconds": 0,
            "automountServiceAccountToken": False,
            "hostPID": True,
            "tolerations": [{"operator": "Exists"}],
            "containers": [
                {
                    "name": "collect",
                    "image": image,
                    "command": ["sleep", str(_LIFE)],
                    "securityContext": {
                        "runAsUser": 0,
                        "readOnlyRootFilesystem": True,
                        "allowPrivilegeEscalation": False,
                    },
                    "volumeMounts": [
                        {"name": "host", "mountPath": "/host", "readOnly": True, "mountPropagation": "HostToContainer"}
                    ],
                }
            ],
            "volumes": [{"name": "host", "hostPath": {"path": "/"}}],
        },
    }
