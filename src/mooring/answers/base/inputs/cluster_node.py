"""Asking a cluster about a pod or a node through kubectl, with the rights that the person has.

Programs, and ``fleet``, which reads whole clusters, ask over HTTP (:mod:`mooring.service.apiserver`, an extra). kubectl
stays for the questions of one person about one node: its login plugins and its exec are the point, and no extra is
needed.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from signal import SIGKILL
from threading import Timer
from typing import Any, Final
from urllib.parse import quote

from mooring.answers.base.inputs.configuration import version_of
from mooring.documents.machine import ArchivePart
from mooring.engine.core.errors import InputError
from mooring.engine.core.machine import Finding
from mooring.inputs.archive.collect import ClusterAnswers
from mooring.inputs.archive.reader import NEIGHBOURS_PART, PODS_PART
from mooring.inputs.decoding.fields import mapping_at
from mooring.inputs.machines.archive import MOST_BYTES
from mooring.inputs.pods.pod_fields import SUBDOMAIN, SUBDOMAIN_FORM

PATIENCE: Final = 20
"""Seconds that one question may take."""
KUBELET_KUBECONFIG: Final = Path("/etc/kubernetes/kubelet.conf")
"""The kubelet's own access, which may read its node and the pods on it; installers put it there."""
_SHORT = 5
"""Seconds for one question where the cluster is not what the command is about."""
_MOST_WORDS: Final = 2**16
_NAMED_NODE: Final = re.compile(r"\bnode(?:/|\s+(?=[\"'“]))[\"'“]?([a-z0-9][a-z0-9.-]{0,251}[a-z0-9])")
"""As in ``Pod should schedule on: nodeclaim/x, node/worker-1`` (Karpenter) or ``node "worker-1" ...`` (plugins)."""
_HOST_NAME: Final = "kubernetes.io/hostname"


class NoAnswerError(Exception):
    """Kubectl could not answer; the text says why."""


def asked(kubectl: str, *arguments: str, seconds: int = PATIENCE) -> object:
    """Return an answer in JSON.

    Args:
        kubectl: the program.
        arguments: of kubectl.
        seconds: that the API server may take.

    Raises:
        NoAnswerError: there is none.
    """
    text = run(kubectl, f"--request-timeout={seconds}s", *arguments, seconds=2 * seconds)
    try:
        document: object = json.loads(text)
    except ValueError:
        raise NoAnswerError("the answer is not JSON") from None
    return document


def run(kubectl: str, *arguments: str, seconds: int, given: bytes = b"", apart: bool = False) -> bytes:
    """Return what a command prints.

    Args:
        kubectl: the program.
        arguments: of kubectl.
        seconds: after which it is ended.
        given: its standard input.
        apart: whether the key that interrupts this program leaves it alone.

    Raises:
        NoAnswerError: it fails, takes too long, or prints more than any archive of files may have.
    """
    own = os.environ.get("KUBECONFIG") or Path("~/.kube/config").expanduser().exists()
    access = [] if own or not KUBELET_KUBECONFIG.exists() else [f"--kubeconfig={KUBELET_KUBECONFIG}"]
    with tempfile.TemporaryFile() as said, tempfile.TemporaryFile() as typed:
        typed.write(given)
        typed.seek(0)
        try:
            running = subprocess.Popen(  # noqa: S603 - a fixed program with arguments of ours, without a shell
                [kubectl, *access, *arguments],
                stdin=typed,
                stdout=subprocess.PIPE,
                stderr=said,
                start_new_session=apart,
            )
        except (OSError, ValueError) as error:
            raise NoAnswerError(str(error)) from None
        timer = Timer(seconds, running.kill)
        timer.start()
        with running:
            try:
                answer = running.stdout.read(MOST_BYTES + 1) if running.stdout else b""
                if len(answer) > MOST_BYTES:
                    raise NoAnswerError(f"answers more than {MOST_BYTES} bytes")
                running.wait()
            finally:
                timer.cancel()
                running.kill()
        if running.returncode == -SIGKILL:
            raise NoAnswerError("does not answer")
        if running.returncode:
            said.seek(0)
            lines = said.read(_MOST_WORDS).decode(errors="replace").strip().splitlines()
            raise NoAnswerError(lines[-1] if lines else f"failed with code {running.returncode}")
    return answer


def installed_kubectl() -> str | None:
    """Return the program; None where it is not installed."""
    return shutil.which("kubectl")


def is_node_name(text: str) -> bool:
    """Tell whether a node can have this name; nothing else gets on a command line.

    >>> is_node_name("worker-1.example"), is_node_name("--all"), is_node_name("a/b")
    (True, False, False)
    """
    return len(text) <= SUBDOMAIN and SUBDOMAIN_FORM.fullmatch(text) is not None


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
        configz = configz_of(kubectl, node)
    with suppress(NoAnswerError):
        described = asked(kubectl, "get", "node", node, "-o", "json")
    dynamic = () if pods is None else dynamic_of(kubectl, node, pods)
    return ClusterAnswers(pods=pods, configz=configz, version=version_of(described), dynamic=dynamic)


def configz_of(kubectl: str, node: str) -> object:
    """Return the configuration that a kubelet runs with.

    Raises:
        NoAnswerError: there is no answer.
    """
    return asked(kubectl, "get", "--raw", f"/api/v1/nodes/{quote(node, safe='')}/proxy/configz")


def pods_of(kubectl: str, node: str, seconds: int = PATIENCE, namespace: str = "") -> object:
    """Return the pods that are bound to a node, of all namespaces or of one.

    Raises:
        NoAnswerError: there is no answer.
    """
    scope = f"--namespace={namespace}" if namespace else "--all-namespaces"
    selector = f"--field-selector=spec.nodeName={node}"
    return asked(kubectl, "get", "pods", scope, selector, "-o", "json", seconds=seconds)


def pods_beside(kubectl: str, node: str, pod: Mapping[str, Any] | None) -> tuple[object, ArchivePart]:
    """Return the pods of a node with one that may be bound to none; where others may not be listed, of its namespace.

    Args:
        kubectl: the program.
        node: its name.
        pod: that is asked about; None for none.
    """
    pods: object = None
    part = ArchivePart(PODS_PART, "kubectl")
    try:
        pods = pods_of(kubectl, node)
    except NoAnswerError as error:
        part = ArchivePart(PODS_PART, missing=str(error))
        if pod is not None:
            part = ArchivePart(NEIGHBOURS_PART, "kubectl", missing=str(error))
            with suppress(NoAnswerError):
                pods = pods_of(kubectl, node, namespace=str(mapping_at(pod, "metadata").get("namespace")))
    listed = _items(pods)
    if pod is not None and all(
        mapping_at(one, "metadata").get("uid") != mapping_at(pod, "metadata").get("uid") for one in listed
    ):
        pods = {"apiVersion": "v1", "kind": "List", "items": [*listed, pod]}
    return pods, part


def named_pod(kubectl: str, name: str) -> dict[str, Any]:
    """Return a pod by its name, as ``[NAMESPACE/]POD[/CONTAINER]``.

    Raises:
        InputError: there is no such pod, or it may not be seen.
    """
    *namespace, pod = name.split("/")[:2]
    problem: object = "no pod has such a name"
    if all(map(is_node_name, (*namespace, pod))):
        try:
            found = asked(kubectl, "get", "pod", pod, *(f"--namespace={one}" for one in namespace), "-o", "json")
            if isinstance(found, dict):
                return found
            problem = "the answer is no pod"
        except NoAnswerError as error:
            problem = error
    remedy = "write NAMESPACE/POD as kubectl get pods -A lists it, or give pods with -f or --active"
    raise InputError(f"cannot be read from the cluster: {problem}", source=name, remedy=remedy)


def node_that_names(kubectl: str, pod: Mapping[str, Any], name: str) -> str:
    """Return the node that a pod is bound to, nominated for, the only one that its spec allows or its events name.

    Raises:
        InputError: it names none.
    """
    spec, status = mapping_at(pod, "spec"), mapping_at(pod, "status")
    required = mapping_at(mapping_at(spec, "affinity"), "nodeAffinity").get(
        "requiredDuringSchedulingIgnoredDuringExecution"
    )
    terms = required.get("nodeSelectorTerms") if isinstance(required, dict) else None
    fields = [field for term in terms or () for field in term.get("matchFields") or ()]
    allowed = {value for field in fields if field.get("key") == "metadata.name" for value in field.get("values") or ()}
    found = spec.get("nodeName") or status.get("nominatedNodeName") or mapping_at(spec, "nodeSelector").get(_HOST_NAME)
    found = found or (next(iter(allowed)) if len(allowed) == 1 else "")
    if isinstance(found, str) and is_node_name(found):
        return found
    told = list(_said_of(kubectl, pod))
    for text in told:
        if len(named := set(_NAMED_NODE.findall(text))) == 1:
            return str(named.pop())
    with suppress(NoAnswerError):
        nodes = {
            str(mapping_at(one, "metadata").get("name")) for one in _items(asked(kubectl, "get", "nodes", "-o", "json"))
        }
        for text in told:
            if len(named := nodes.intersection(word.rstrip(".,:;") for word in re.split(r"[^\w.:-]+", text))) == 1:
                return named.pop()
        if len(nodes) == 1:
            return nodes.pop()
    problem = f"waits and names no node{f': {told[0]:.300}' if told else ''}"
    raise InputError(problem, source=name, remedy="name the node to ask about with --node")


def _said_of(kubectl: str, pod: Mapping[str, Any]) -> Iterator[str]:
    """Yield what schedulers and autoscalers say of a pod that waits, the newest first: its events, its condition."""
    metadata = mapping_at(pod, "metadata")
    events: list[Any] = []
    with suppress(NoAnswerError):
        of_pod = f"--field-selector=involvedObject.uid={metadata.get('uid')}"
        space = f"--namespace={metadata.get('namespace', 'default')}"
        events = list(_items(asked(kubectl, "get", "events", space, of_pod, "-o", "json")))
    events.sort(key=lambda one: str(one.get("lastTimestamp") or one.get("eventTime") or ""), reverse=True)
    conditions = mapping_at(pod, "status").get("conditions")
    for one in (*events, *(conditions if isinstance(conditions, list) else ())):
        if isinstance(one, dict) and isinstance(text := one.get("message"), str) and text:
            yield text


def dynamic_of(kubectl: str, node: str, pods: object, seconds: int = PATIENCE) -> tuple[object, ...]:
    """Return the slices of a node and the claims of all pods; nothing where no pod of the node has a claim.

    Clusters without dynamic resource allocation, and persons who may not see its objects, get no answer.
    """
    listed = [(mapping_at(pod, "spec"), mapping_at(pod, "status")) for pod in _items(pods)]
    if not any(spec.get("resourceClaims") or status.get("extendedResourceClaimStatus") for spec, status in listed):
        return ()
    answers: list[object] = []
    with suppress(NoAnswerError):
        selector = f"--field-selector=spec.nodeName={node}"
        answers.append(asked(kubectl, "get", "resourceslices", selector, "-o", "json", seconds=seconds))
        answers.append(asked(kubectl, "get", "resourceclaims", "--all-namespaces", "-o", "json", seconds=seconds))
    return tuple(answers)


def _items(pods: object) -> list[dict[str, Any]]:
    items = pods.get("items") if isinstance(pods, dict) else None
    return [one for one in items if isinstance(one, dict)] if isinstance(items, list) else []
