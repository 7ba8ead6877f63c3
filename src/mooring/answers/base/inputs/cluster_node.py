"""A node of the cluster as the node that a question is about: ``kubectl mooring show --node worker-1``.

kubectl tells its pods. Machine, configuration and state files are what ``mooring publish`` or ``mooring agent``
published about it; where nothing is published, a pod on the node collects them, if the person agrees, and is deleted.
"""

from __future__ import annotations

import json
import secrets
import sys
import tempfile
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import click
import msgspec

from mooring.answers.base.inputs.kubectl import (
    PATIENCE,
    Kubectl,
    NoAnswerError,
    dynamic_of,
    installed_kubectl,
    is_node_name,
    pods_of,
    version_of,
)
from mooring.documents.machine import ArchivePart, NodeArchiveDocument
from mooring.engine.core.errors import InputError
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
from mooring.published.objects import FACTS, GROUP, PLURALS, STATE, NodeFacts, NodeState
from mooring.published.state_document import state_of

IMAGE: Final = "mooring:latest"
"""The project's image, with mooring and a shell."""
_START: Final = 120
"""Seconds that a pod may take to start, its image included."""
_LIFE: Final = 600
"""Seconds after which the pod ends by itself, should nothing delete it."""
_PUBLISHED: Final = "published"
_SUFFIXES: Final = (".tar", ".gz", ".tgz", ".xz", ".bz2")


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
