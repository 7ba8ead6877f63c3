"""Where pods come from and where reports go: API server, manifest folder, or neither. No call waits or fails.

Each part of the agent can have an account of its own at the API server: a kubeconfig has a context for a part under the
name of that part's account in ``deploy/agent``; what has no context of its own uses the current one.

Static pods: kubelet v1.37.1, pkg/kubelet/config (file.go, common.go). The kubelet reads every file of the folder whose
name does not begin with a dot, one pod a file, appends the node's name to the pod's name, and makes the uid of a hash
over the manifest. The hash cannot be made again here, so a pod is found by namespace and name; but since another
manifest has another uid, what was found for a uid once stays true.
"""

from __future__ import annotations

import os
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from mooring.agent.effects import ClusterEvent, EventSubject, Evict, about_pod
from mooring.agent.nri.types import PodSandbox
from mooring.agent.pods.source import CONFIG_HASH, CONFIG_SOURCE, is_static, kept_annotations
from mooring.engine.core.errors import InputError
from mooring.engine.core.machine import Finding
from mooring.engine.core.pod import Pod
from mooring.inputs.decoding.documents import documents_in
from mooring.inputs.decoding.fields import Report, as_mapping, ignore, text_at
from mooring.inputs.decoding.files import open_problem, shown
from mooring.inputs.pods.defaults import PodGates
from mooring.inputs.pods.pods import DEFAULT_GATES, pod_from_object
from mooring.lazy import lazily
from mooring.service.agent_options import AgentOptions

with lazily():
    from mooring.agent.pods import api as pods_api
    from mooring.agent.pods import eviction
    from mooring.agent.pods import writer as cluster_writer
    from mooring.service import apiserver

if TYPE_CHECKING:
    from mooring.agent.pods.api import APIPods

LARGEST_MANIFEST = 10 * 1024**2
"""Bytes of a file; the kubelet reads no more of it."""
MOST_FILES = 1000
"""Most files that are read; a node has a handful."""
MOST_REMEMBERED = 1024
"""Uids whose pod is remembered."""
_Signature = tuple[int, int, int]


class StaticPods:
    """Pods of a manifest folder, or of a single manifest file. Safe to use from several threads."""

    def __init__(
        self, path: str | os.PathLike[str], node: str, *, gates: PodGates = DEFAULT_GATES, report: Report = ignore
    ) -> None:
        """Read nothing yet.

        Args:
            path: the kubelet's ``staticPodPath``.
            node: name of the node, as it registers itself.
            gates: the kubelet's feature gates.
            report: receives what cannot be used, once for each state of a file.
        """
        self._path = Path(path)
        self._suffix = f"-{node.lower()}"
        self._gates = replace(gates, api_server=False)
        self._report = report
        self._lock = threading.Lock()
        # Each file with the pod under the name of its manifest; None where it is none of a pod.
        self._files: dict[Path, tuple[_Signature, Pod | None]] = {}
        self._known: OrderedDict[str, Pod] = OrderedDict()
        self._unreadable = ""

    def pod(self, sandbox: PodSandbox) -> Pod | None:
        """Return the pod of a sandbox, with the sandbox's uid and name."""
        with self._lock:
            known = self._known.get(sandbox.uid)
            if known is not None:
                return known
            self._scan()
            return self._looked_up(sandbox)

    def known(self, sandboxes: Iterable[PodSandbox]) -> Mapping[str, Pod]:
        """Return the pods of sandboxes by uid; the folder is read once at most."""
        asked = tuple(sandboxes)
        with self._lock:
            if any(one.uid not in self._known for one in asked):
                self._scan()
            found = ((one.uid, self._known.get(one.uid) or self._looked_up(one)) for one in asked)
            return {uid: pod for uid, pod in found if pod is not None}

    def refresh(self) -> None:
        """Read what has changed, so that nothing is left to read when the runtime waits; for a timer."""
        with self._lock:
            self._scan()

    def _looked_up(self, sandbox: PodSandbox) -> Pod | None:
        """Return the pod of a sandbox that the files describe, and remember it."""
        if not sandbox.name.endswith(self._suffix):
            return None
        key = (sandbox.namespace or "default", sandbox.name.removesuffix(self._suffix))
        found = [pod for _, pod in self._files.values() if pod and (pod.namespace, pod.name) == key]
        if len(found) > 1:
            message = f"{len(found)} manifests describe the pod {key[0]}/{key[1]}: which of them runs is unknown"
            self._report(Finding("warning", shown(self._path), message))
            return None
        if not found:
            return None
        # What the kubelet adds when it reads the manifest, so that the pod is not taken for one of the API server.
        added = {key: text for key, text in sandbox.annotations.items() if key in (CONFIG_SOURCE, CONFIG_HASH)}
        annotations = {**found[0].annotations, **added}
        pod = replace(found[0], uid=sandbox.uid, name=sandbox.name, annotations=annotations)
        # A uid that a manifest gives itself stays when the manifest changes.
        if all(one is None or one.uid != sandbox.uid for _, one in self._files.values()):
            self._known[sandbox.uid] = pod
            if len(self._known) > MOST_REMEMBERED:
                self._known.popitem(last=False)
        return pod

    def _scan(self) -> None:
        seen: dict[Path, _Signature] = {}
        try:
            found = [self._path]
            if self._path.is_dir():
                found = sorted(one for one in self._path.iterdir() if not one.name.startswith(".") and one.is_file())
            for file in found:
                status = file.stat()
                if len(seen) < MOST_FILES:
                    seen[file] = (status.st_mtime_ns, status.st_size, status.st_ino)
        except (OSError, ValueError) as error:
            if (problem := open_problem(error)) != self._unreadable:
                self._unreadable = problem
                self._report(Finding("warning", shown(self._path), f"the folder of static pods {problem}"))
            return
        self._unreadable = ""
        for file in self._files.keys() - seen.keys():
            del self._files[file]
        for file, signature in seen.items():
            before = self._files.get(file)
            if before is not None and before[0] == signature:
                continue
            self._files[file] = signature, None
            try:
                self._files[file] = signature, self._pod_in(file)
            except (InputError, OSError, ValueError) as error:
                problem = str(error) if isinstance(error, InputError) else open_problem(error)
                self._report(Finding("warning", shown(file), f"no static pod is read from it: {problem}"))

    def _pod_in(self, file: Path) -> Pod:
        with file.open("rb") as stream:
            data = stream.read(LARGEST_MANIFEST + 1)
        if len(data) > LARGEST_MANIFEST:
            raise InputError(f"larger than {LARGEST_MANIFEST // 1024**2} MiB", source=shown(file))
        documents = documents_in(data, shown(file))
        if len(documents) != 1:
            raise InputError(f"{len(documents)} documents", source=shown(file), remedy="one pod a file")
        content: Mapping[str, object] = as_mapping(documents[0].content)
        kind = text_at(content, "kind", "Pod")
        if kind != "Pod":
            raise InputError(f"a {kind} is not a Pod", source=shown(file))
        pod = pod_from_object(content, source=shown(file), gates=self._gates)
        return replace(pod, annotations=kept_annotations(pod.annotations))


@dataclass(frozen=True, slots=True)
class PodSources:
    """Knows pods as the kubelet decides about them: asks the folder for static pods, the API server for all others.

    A static pod that the folder does not give (its manifest came from a URL, or was changed since) is asked of the API
    server too, which knows its mirror.
    """

    static: StaticPods | None = None
    api: APIPods | None = None

    def pod(self, sandbox: PodSandbox) -> Pod | None:
        """Return the pod of a sandbox, with the sandbox's uid, or None; takes a small bounded time."""
        if self.static is not None and is_static(sandbox):
            found = self.static.pod(sandbox)
            if found is not None:
                return found
        return None if self.api is None else self.api.pod(sandbox)

    def known(self, sandboxes: Iterable[PodSandbox]) -> Mapping[str, Pod]:
        """Return the pods of these sandboxes that are known, by uid; waits for none: Synchronize tells of very many."""
        asked = tuple(sandboxes)
        found = {} if self.static is None else self.static.known([one for one in asked if is_static(one)])
        others = [one for one in asked if one.uid not in found]
        return found if self.api is None else {**found, **self.api.known(others)}

    def wanted(self, sandbox: PodSandbox) -> Pod | None:
        """Return the pod with the resources that it is to have, or None; a static pod is never resized."""
        return None if self.api is None or is_static(sandbox) else self.api.wanted(sandbox)

    def refresh(self) -> None:
        """Read what has changed in the folder; for a timer."""
        if self.static is not None:
            self.static.refresh()

    def stop(self, patience: float) -> None:
        """End what runs, and wait for it for some seconds."""
        if self.api is not None:
            self.api.stop(patience)


PREFIX = "mooring-agent-"
"""Of contexts that belong to one part of the agent."""


class AgentAccount(Enum):
    """A part of the agent that can have an account of its own; the value is the name of its context."""

    PODS = "mooring-agent-pods"
    EVENTS = "mooring-agent-events"
    EVICT = "mooring-agent-evict"
    TAINT = "mooring-agent-taint"
    PUBLISH = "mooring-agent-publish"


def connector(kubeconfig: str, context: str | None = None) -> Callable[[], apiserver.Cluster]:
    """Return what opens the way to the API server; it reads the kubeconfig at each call, for renewed credentials.

    Raises:
        InputError: the kubeconfig cannot be used.
    """
    apiserver.configuration_of(kubeconfig, context)
    return lambda: apiserver.cluster_of(apiserver.configuration_of(kubeconfig, context))


def own_accounts(kubeconfig: str) -> Mapping[AgentAccount, Callable[[], apiserver.Cluster]]:
    """Return a connector for each account that has a context of its own.

    Raises:
        InputError: the kubeconfig cannot be used, or a context is named like an account that the agent does not have.
    """
    names = apiserver.contexts_of(kubeconfig)
    known = sorted(account.value for account in AgentAccount)
    for name in sorted(names):
        if name.startswith(PREFIX) and name not in known:
            raise InputError(
                "is not an account of the agent",
                source=kubeconfig,
                field=f"contexts[{name}]",
                remedy=f"name one of {', '.join(known)}",
            )
    return {account: connector(kubeconfig, account.value) for account in AgentAccount if account.value in names}


class NoCluster:
    """For a node without API server: tells that nothing was written, the first time for each kind of thing.

    Calls return at once; what becomes of them is reported elsewhere, here and of a writer to the API server.
    """

    def __init__(self, report: Report = ignore) -> None:
        self._report, self._reported = report, set[str]()

    def event(self, event: ClusterEvent) -> None:
        """Leave it out."""
        self._report_once("events", f"{event.about.name}: events are not written")

    def evict(self, about: EventSubject, message: str) -> None:
        """Leave it out."""
        self._report_once(
            about.uid, f"{about.namespace}/{about.name} is not evicted, it is held back instead ({message})"
        )

    def taint(self, *, present: bool) -> None:
        """Leave it out."""
        if present:
            self._report_once(
                "taint", "the node gets no taint, so pods are scheduled to it while the agent is not running"
            )

    def wait_until_tried(self, _patience: float) -> bool:
        """Do nothing."""
        return True

    def stop(self, _patience: float) -> None:
        """Do nothing."""

    def _report_once(self, what: str, message: str) -> None:
        if what not in self._reported and len(self._reported) < 1000:
            self._reported.add(what)
            self._report(Finding("info", "API server", f"none is configured: {message}"))


ClusterReporter: TypeAlias = "NoCluster | cluster_writer.ClusterWriter"
"""Receives what the cluster is to know."""
_LISTING = 5.0
"""Seconds that the agent waits at its start for a slow API server's pods; a dead one it does not wait for."""


def open_cluster_access(
    options: AgentOptions, gates: PodGates, node: str, report: Report, evicted: Callable[[], object] = lambda: None
) -> tuple[PodSources, ClusterReporter]:
    """Open what the configuration names; both are to be stopped, the reporter first.

    Args:
        options: of the agent.
        gates: of the kubelet.
        node: name of the node.
        report: receives what goes wrong on the way.
        evicted: is called for every pod that was evicted, by another thread.

    Raises:
        InputError: the kubeconfig cannot be used.
    """
    static = StaticPods(options.pod_manifests, node, gates=gates, report=report) if options.pod_manifests else None
    if not options.kubeconfig:
        return PodSources(static), NoCluster(report)
    # A mistake in the file is reported now, not by a thread.
    connect, own = connector(options.kubeconfig), own_accounts(options.kubeconfig)
    api = pods_api.APIPods(own.get(AgentAccount.PODS, connect), node, gates=gates, report=report)
    marks = ((options.fail_closed, eviction.set_taint), (options.node_condition, eviction.set_condition))
    writer = cluster_writer.ClusterWriter(connect, node, own=own, report=report, evicted=evicted)
    writer.marks = [mark for is_wanted, mark in marks if is_wanted]
    api.start()
    writer.start()
    api.wait_until_tried(_LISTING)
    return PodSources(static, api), writer


def announce(outward: ClusterReporter, effect: ClusterEvent | Evict, report: Report = ignore) -> None:
    """Pass on what the reactor wants the cluster to know. A static pod would come back: only its mirror would go."""
    if isinstance(effect, ClusterEvent):
        outward.event(effect)
    elif not is_static(effect.pod):
        outward.evict(about_pod(effect.pod), effect.message)
    else:
        name = f"{effect.pod.namespace}/{effect.pod.name}"
        report(Finding("info", name, "a static pod is not evicted, because it would return at once"))
